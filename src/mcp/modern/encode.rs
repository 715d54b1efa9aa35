//! Encodes results of the modern era as JSON, without request ids.

use serde::Serialize;
use serde_json::value::RawValue;

use super::form::InputRequests;
use crate::mcp::result::{ResultMembers, append};
use crate::mcp::server::{Capabilities, Implementation};
use crate::mcp::version::ProtocolVersion;
use crate::mcp::wire::RequestId;
use crate::model::agent::{Access, AgentDescription};
use crate::model::fault::Fault;

/// The members that every result has in addition to those of its method. A cached result is valid as long as they are.
#[derive(Debug, Clone, Copy)]
pub struct ResultEnvelope<'a> {
    /// The agent that answers.
    pub agent: &'a AgentDescription,
    /// The access of the agent: results of a public one may be kept by shared caches.
    pub access: Access,
    /// How long a client may cache the result, in milliseconds.
    pub ttl_ms: u64,
}

/// Appends the result of a call.
///
/// # Errors
/// [`Fault::Internal`] if stored text is not UTF-8.
pub(in crate::mcp) fn result(
    out: &mut Vec<u8>,
    members: ResultMembers<'_>,
    envelope: ResultEnvelope<'_>,
) -> Result<(), Fault> {
    out.reserve(members.encoded_len());
    let cacheable = members.is_cacheable();
    append(out, &envelope.complete(members, cacheable))
}

/// Appends the result that asks for input.
///
/// # Errors
/// [`Fault::Internal`] if stored text is not UTF-8.
pub(in crate::mcp) fn input_required(
    out: &mut Vec<u8>,
    requests: &InputRequests<'_>,
    envelope: ResultEnvelope<'_>,
) -> Result<(), Fault> {
    append(out, &Complete { result_type: "input_required", ..envelope.complete(requests, false) })
}

/// Appends the result of `server/discover`.
///
/// # Errors
/// [`Fault::Internal`] if stored text is not UTF-8.
pub fn discover(out: &mut Vec<u8>, envelope: ResultEnvelope<'_>) -> Result<(), Fault> {
    let discovery = Discovery {
        supported_versions: ProtocolVersion::SUPPORTED.map(ProtocolVersion::as_str),
        capabilities: Capabilities::of(ProtocolVersion::V2026_07_28),
        instructions: envelope.agent.instructions.as_deref(),
    };
    append(out, &envelope.complete(discovery, true))
}

/// Appends the result that ends the stream of `subscriptions/listen`.
///
/// # Errors
/// [`Fault::Internal`] if stored text is not UTF-8.
pub fn listened(out: &mut Vec<u8>, id: RequestId<'_>, agent: &AgentDescription) -> Result<(), Fault> {
    let subscription_id = RawValue::from_string(id.as_json().to_owned()).map_err(Fault::cannot_encode)?;
    let titles = ProtocolVersion::V2026_07_28.knows_titles();
    let meta = ListenedMeta { subscription_id, server_info: Implementation::of(agent, titles) };
    append(out, &Listened { result_type: "complete", meta })
}

impl<'a> ResultEnvelope<'a> {
    /// How long, and for which callers, a result may be cached.
    pub(in crate::mcp) fn caching(&self) -> Caching {
        let cache_scope = match self.access {
            Access::Public => "public",
            Access::Key => "private",
        };
        Caching { ttl_ms: self.ttl_ms, cache_scope }
    }

    fn complete<S: Serialize>(self, members: S, cacheable: bool) -> Complete<'a, S> {
        let titles = ProtocolVersion::V2026_07_28.knows_titles();
        let meta = Meta { server_info: Implementation::of(self.agent, titles) };
        let caching = cacheable.then(|| self.caching());
        Complete { result_type: "complete", members, caching, meta }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Complete<'a, S> {
    result_type: &'static str,
    #[serde(flatten)]
    members: S,
    #[serde(flatten)]
    caching: Option<Caching>,
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
}

/// How long, and for which callers, a result may be cached.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::mcp) struct Caching {
    ttl_ms: u64,
    cache_scope: &'static str,
}

#[derive(Serialize)]
struct Meta<'a> {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server_info: Implementation<'a>,
}

/// `SubscriptionsListenResult` of the specification.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listened<'a> {
    result_type: &'static str,
    #[serde(rename = "_meta")]
    meta: ListenedMeta<'a>,
}

#[derive(Serialize)]
struct ListenedMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription_id: Box<RawValue>,
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server_info: Implementation<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Discovery<'a> {
    supported_versions: [&'static str; ProtocolVersion::SUPPORTED.len()],
    capabilities: Capabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ResultEnvelope, discover, result};
    use crate::mcp::fixtures;
    use crate::mcp::result::ResultMembers;
    use crate::model::agent::Access;
    use crate::model::fault::Fault;

    fn text(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>) -> String {
        let mut out = Vec::new();
        encode(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The JSON after the subject of every result of [`fixtures::agent`].
    fn tail(ttl_ms: u64, scope: &str) -> String {
        format!(
            concat!(
                r#","ttlMs":{},"cacheScope":"{}","_meta":{{"io.modelcontextprotocol/serverInfo":"#,
                r#"{{"name":"Research \"R\"","title":"Research Assistant","version":"{}"}}}}}}"#
            ),
            ttl_ms,
            scope,
            env!("CARGO_PKG_VERSION")
        )
    }

    #[test]
    fn a_result_has_its_type_the_server_and_cache_hints() {
        let (agent, contents, page) = (fixtures::agent(), fixtures::plain_contents(b"x"), fixtures::page());
        let around = ResultEnvelope { agent: &agent, access: Access::Key, ttl_ms: 0 };
        let public = ResultEnvelope { access: Access::Public, ttl_ms: 60_000, ..around };

        let read = text(|out| result(out, ResultMembers::contents(&contents), around));
        let subject = r#"{"resultType":"complete","contents":[{"uri":"a:b","text":"x"}]"#;
        assert_eq!(read, format!("{subject}{}", tail(0, "private")));

        let list = text(|out| result(out, ResultMembers::page(&page, Some("c")), public));
        let subject = concat!(
            r#"{"resultType":"complete","resources":["#,
            r#"{"uri":"a:b","name":"n","annotations":{"lastModified":"2026-03-04T10:30:05Z"}},"#,
            r#"{"uri":"beeos://agent/config","name":"config","title":"Cönfig\n","description":"What it does","#,
            r#""mimeType":"text/plain","#,
            r#""annotations":{ "priority" : 1.0, "audience":["user"] ,"lastModified":"2026-03-04T10:30:05Z"},"#,
            r#""size":6,"icons":[ {"src":"https:\/\/a.example\/i.png"} ],"_meta":{"b":1e2, "a":[ ]}}"#,
            r#"],"nextCursor":"c""#,
        );
        assert_eq!(list, format!("{subject}{}", tail(60_000, "public")));

        let tools =
            text(|out| result(out, ResultMembers::Tools { tools: Vec::new(), next_cursor: None }, public));
        assert_eq!(tools, format!(r#"{{"resultType":"complete","tools":[]{}"#, tail(60_000, "public")));
    }

    #[test]
    fn discover_lists_all_versions_and_capabilities() {
        let agent = fixtures::agent();
        let around = ResultEnvelope { agent: &agent, access: Access::Public, ttl_ms: 5 };
        let subject = concat!(
            r#"{"resultType":"complete","#,
            r#""supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"#,
            r#""capabilities":{"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/skills":{"directoryRead":true}}},"instructions":"Read.""#,
        );
        assert_eq!(text(|out| discover(out, around)), format!("{subject}{}", tail(5, "public")));

        let nameless = fixtures::nameless_agent();
        let around = ResultEnvelope { agent: &nameless, access: Access::Key, ttl_ms: 0 };
        let answer: Value = serde_json::from_str(&text(|out| discover(out, around))).unwrap();
        assert_eq!(answer.get("instructions"), None);
        let info = json!({"name": "a", "version": env!("CARGO_PKG_VERSION")});
        assert_eq!(answer["_meta"], json!({"io.modelcontextprotocol/serverInfo": info}));
    }
}
