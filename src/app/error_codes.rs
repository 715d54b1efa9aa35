//! Every error code: where it is answered, its cause and what to do.

use std::fmt::Write;
use std::time::Duration;

use content_source::FetchError;

use crate::http::problem;
use crate::mcp::error::RpcError;
use crate::mcp::legacy;
use crate::mcp::modern::error::ModernError;
use crate::model::audit::event::Outcome;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::limits::{LimitScope, Limited};

/// The URI in the example of an unknown resource.
const URI: &str = "x:y";

/// What the administration API does not answer, although it would have a status there.
const ENDPOINT_ONLY: [Outcome; 5] = [
    Outcome::MethodNotFound,
    Outcome::NotAcceptable,
    Outcome::ResourceNotFound,
    Outcome::SessionNotFound,
    Outcome::SessionRequired,
];

/// Each code that is an error of a request, with its cause and what to do.
const EXPLANATIONS: [(Outcome, &str, &str); 30] = [
    (
        Outcome::AgentDisabled,
        "the agent is disabled; only its own credentials learn that",
        "`waggle agent enable ID`; what the operator disabled, only the operator enables",
    ),
    (
        Outcome::AlreadyExists,
        "an object with this id, URI or name exists, or a skill or resource lies inside or around a skill",
        "choose another id, or change the one that exists",
    ),
    (
        Outcome::Forbidden,
        "the credential is valid, and does not reach this agent or permit this call; an unknown agent is answered alike",
        "check the agent's id in the URL; `waggle agent explain ID --key KEY_ID` names the rule that decides",
    ),
    (
        Outcome::ForbiddenOrigin,
        "the header `Origin` or `Host` is not allowed: protection of browsers on the gateway's network",
        "add the page to `server.allowed_origins` or the name to `server.allowed_hosts`",
    ),
    (
        Outcome::HeaderMismatch,
        "a header of 2026-07-28 is missing or differs from the body: `MCP-Protocol-Version`, `Mcp-Method`, `Mcp-Name`",
        "send the headers that the message names; a proxy must pass them on unchanged",
    ),
    (
        Outcome::InsufficientScope,
        "the key or token lacks the scope that the message names",
        "create a key with that scope: `waggle key create --agent ID --name NAME --scope SCOPE`",
    ),
    (
        Outcome::InUse,
        "definitions refer to what would be deleted",
        "change or delete those definitions first",
    ),
    (
        Outcome::Internal,
        "a bug of the gateway",
        "search the log for the `requestId` of the answer, and report the entry",
    ),
    (
        Outcome::InvalidParams,
        "a parameter or a member of the body is missing, unknown or malformed, a cursor is not of this list or was issued for other labels, or a prompt, tool or skill is unknown",
        "correct what the message names; begin lists again without the cursor",
    ),
    (
        Outcome::InvalidRequest,
        "the body is JSON, and no message of the protocol; a batch where none is allowed; or a body that arrives too slowly",
        "correct what the message names; most often a client of another protocol calls the endpoint",
    ),
    (
        Outcome::MethodNotAllowed,
        "the path does not have this HTTP method, or the revision does not: `GET` and `DELETE` in 2026-07-28, which an unknown `MCP-Protocol-Version` counts as",
        "use a method of the header `Allow`; streams over `GET` need a session of an earlier revision and `Accept: text/event-stream`",
    ),
    (
        Outcome::MethodNotFound,
        "the revision of the protocol does not have this method",
        "use the methods of the negotiated revision; the README lists them",
    ),
    (
        Outcome::NotAcceptable,
        "`Accept` excludes the media type of the answer",
        "accept `application/json, text/event-stream`, or leave the header out",
    ),
    (
        Outcome::NotFound,
        "there is no such object, or it is not yours",
        "check the id; `list` shows what the key reaches",
    ),
    (Outcome::ParseError, "the body is not JSON", "send JSON; the message says where it breaks off"),
    (
        Outcome::PayloadTooLarge,
        "the body, the contents or the result of a tool is longer than its limit",
        "send less, or raise `limits.body_bytes`, `limits.content_bytes`, `limits.manifest_bytes` or `limits.tool_result_bytes`",
    ),
    (
        Outcome::QuotaExceeded,
        "the calls or bytes of a day or month are used up",
        "wait for `Retry-After`, or raise the quota of the agent or tenant",
    ),
    (
        Outcome::RateLimited,
        "more requests a second, or more open streams, than the key, agent, tenant or address may have",
        "wait for `Retry-After`; `data.scope` names whose limit it is; the operator raises it",
    ),
    (
        Outcome::ResourceNotFound,
        "no resource or template serves the URI, labels hide it from the caller, or its source has nothing there",
        "compare the URI with `resources/list`; check the labels of the key",
    ),
    (
        Outcome::RevisionMismatch,
        "`If-Match` or `If-None-Match` does not hold: the object was changed in the meantime",
        "read it again, and repeat the change on what it is now",
    ),
    (
        Outcome::SessionNotFound,
        "the session is unknown, expired, ended, or of another principal",
        "send `initialize` again, as official clients do by themselves",
    ),
    (
        Outcome::SessionRequired,
        "subscriptions and log levels of the earlier revisions need a session",
        "send `initialize` first, and its `Mcp-Session-Id` with each request",
    ),
    (
        Outcome::SlugRetired,
        "an agent of another tenant had this id",
        "choose another id; deleting that tenant does not release it",
    ),
    (
        Outcome::SourceFailed,
        "the source of the content failed; `data.reason` says how",
        "`waggle connection get ID` shows the last error, `waggle connection test ID --path PATH` fetches once more",
    ),
    (
        Outcome::SourceTimeout,
        "the source of the content did not answer within the limit of its connection, or most of `server.request_seconds`",
        "try again; if it is slow by nature, raise `timeoutMs` of the connection, up to nine tenths of `server.request_seconds`",
    ),
    (
        Outcome::StorageUnavailable,
        "the database cannot be reached, and the answer is not in memory",
        "`waggle doctor` on the gateway's machine; requests succeed again as soon as the database does",
    ),
    (
        Outcome::Unauthenticated,
        "no credential, or one that is unknown, expired, revoked or mistyped, or two that differ",
        "send one key, complete; `waggle key list --agent ID` shows which are in force",
    ),
    (
        Outcome::Unavailable,
        "the gateway is overloaded, starting or shutting down",
        "wait for `Retry-After`; if it lasts, see the metrics of requests in flight and the bounds in the settings",
    ),
    (
        Outcome::UnsupportedMediaType,
        "`Content-Type` is not that of the call, or the body has a `Content-Encoding`",
        "send `Content-Type: application/json`, and the body as it is",
    ),
    (
        Outcome::UnsupportedProtocolVersion,
        "the gateway does not serve this revision of the protocol",
        "use one of `data.supported`",
    ),
];

/// The error codes as a table in Markdown.
pub fn error_codes() -> String {
    let heading =
        "| code | MCP endpoint: status, JSON-RPC code | administration: status | cause | what to do |\n";
    let mut text = format!("{heading}|---|---|---|---|---|\n");
    for (outcome, cause, cure) in EXPLANATIONS {
        let fault = example(outcome);
        let administration = match (&fault, outcome) {
            (Some(_), outcome) if ENDPOINT_ONLY.contains(&outcome) => String::new(),
            (Some(fault), _) => problem::status(fault).as_u16().to_string(),
            (None, Outcome::MethodNotAllowed) => "405".to_owned(),
            (None, _) => String::new(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {administration} | {cause} | {cure} |",
            outcome.as_str(),
            endpoint(outcome, fault)
        );
    }
    text
}

/// Status and JSON-RPC code on an MCP endpoint, in both eras where they differ.
fn endpoint(outcome: Outcome, fault: Option<Fault>) -> String {
    let shown = |error: &RpcError| format!("{}, `{}`", error.status.as_u16(), error.code);
    let legacy = fault.as_ref().map(|fault| legacy::error::answer(fault, ""));
    let modern = match (fault, outcome) {
        (Some(fault), _) => ModernError::Fault(fault),
        (None, Outcome::HeaderMismatch) => ModernError::HeaderMismatch(""),
        (None, Outcome::UnsupportedProtocolVersion) => {
            ModernError::UnsupportedVersion { requested: String::new() }
        }
        (None, Outcome::MethodNotAllowed) => return "405".to_owned(),
        (None, _) => return String::new(),
    };
    let modern = modern.answer("");
    // What only the administration API answers would be a bug here.
    if modern.outcome != outcome {
        return String::new();
    }
    let shown = match legacy.map(|legacy| shown(&legacy)).filter(|legacy| *legacy != shown(&modern)) {
        Some(legacy) => format!("2026-07-28: {}; before: {legacy}", shown(&modern)),
        None => shown(&modern),
    };
    let of_meta = ModernError::Meta("").answer("");
    if of_meta.outcome == outcome {
        return format!("{shown}; faults in `_meta` of 2026-07-28: {}", of_meta.status.as_u16());
    }
    shown
}

/// A fault of an outcome.
fn example(outcome: Outcome) -> Option<Fault> {
    let retry_after = Duration::from_secs(1);
    Some(match outcome {
        Outcome::AgentDisabled => Fault::AgentDisabled,
        Outcome::AlreadyExists => Fault::AlreadyExists(""),
        Outcome::Forbidden => Fault::Forbidden,
        Outcome::ForbiddenOrigin => Fault::ForbiddenOrigin(""),
        Outcome::InsufficientScope => Fault::InsufficientScope(""),
        Outcome::InUse => Fault::InUse(""),
        Outcome::Internal => Fault::Internal(String::new()),
        Outcome::InvalidParams => Fault::invalid_params(""),
        Outcome::InvalidRequest => Fault::InvalidRequest("".into()),
        Outcome::MethodNotFound => Fault::MethodNotFound(String::new()),
        Outcome::NotAcceptable => Fault::NotAcceptable(""),
        Outcome::NotFound => Fault::NotFound(""),
        Outcome::ParseError => Fault::ParseError("".into()),
        Outcome::PayloadTooLarge => Fault::PayloadTooLarge(0),
        Outcome::QuotaExceeded => Fault::QuotaExceeded { scope: LimitScope::Tenant, quota: "", retry_after },
        Outcome::RateLimited => {
            Fault::RateLimited { scope: LimitScope::Key, limited: Limited::Streams(0), retry_after }
        }
        Outcome::ResourceNotFound => Fault::ResourceNotFound(ResourceUri::parse(URI).ok()?),
        Outcome::RevisionMismatch => Fault::RevisionMismatch(None),
        Outcome::SessionNotFound => Fault::SessionNotFound,
        Outcome::SessionRequired => Fault::SessionRequired(""),
        Outcome::SlugRetired => Fault::SlugRetired,
        Outcome::SourceFailed => Fault::SourceFailed(FetchError::Busy),
        Outcome::SourceTimeout => Fault::SourceTimeout,
        Outcome::StorageUnavailable => Fault::StorageUnavailable,
        Outcome::Unauthenticated => Fault::Unauthenticated,
        Outcome::Unavailable => Fault::BUSY,
        Outcome::UnsupportedMediaType => Fault::UnsupportedContentEncoding,
        Outcome::Ok
        | Outcome::HeaderMismatch
        | Outcome::InputRequired
        | Outcome::MethodNotAllowed
        | Outcome::UnsupportedProtocolVersion
        | Outcome::EndedDisconnected
        | Outcome::EndedNotAllowed
        | Outcome::EndedSession
        | Outcome::EndedShutdown
        | Outcome::EndedSuperseded => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../docs/errors.md");

    #[test]
    fn every_error_is_explained_once() {
        for outcome in Outcome::ALL {
            let is_error = !outcome.is_served() && !outcome.as_str().starts_with("ended:");
            let explained = EXPLANATIONS.iter().filter(|(of, ..)| *of == outcome).count();
            assert_eq!(explained, usize::from(is_error), "{outcome:?}");
            assert_eq!(example(outcome).map(|fault| fault.outcome()).filter(|of| *of != outcome), None);
        }
    }

    #[test]
    fn page_has_the_table() {
        let (_, rest) = PAGE.split_once("\n\n| code").unwrap();
        let shown = format!("| code{rest}");
        assert_eq!(shown, error_codes(), "write it with: waggle errors");
    }
}
