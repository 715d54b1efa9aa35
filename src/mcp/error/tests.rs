//! How each fault is answered in both eras.

use std::time::Duration;

use crate::mcp::legacy;
use crate::mcp::modern::ModernError;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::scope::Revision;

/// The answer of a fault in both eras: status, code, name, message, data.
fn answers(fault: &Fault) -> [String; 2] {
    [legacy::error::answer(fault, "r-1"), ModernError::from(fault.clone()).answer("r-1")].map(|error| {
        assert_eq!(error.data()["code"], error.outcome.as_str());
        format!("{} {} {} {}", error.status.as_u16(), error.code, error.message, error.data())
    })
}

#[test]
fn every_fault_has_the_documented_answer() {
    let second = Duration::from_secs(1);
    for (fault, expected) in [
        (Fault::ParseError("x".into()), r#"400 -32700 x {"code":"parse_error"}"#),
        (Fault::InvalidRequest("x".into()), r#"400 -32600 x {"code":"invalid_request"}"#),
        (
            Fault::SessionRequired("m"),
            r#"400 -32600 m needs a session; send initialize first {"code":"session_required"}"#,
        ),
        (Fault::InvalidParams("x".into()), r#"200 -32602 x {"code":"invalid_params"}"#),
        (
            Fault::MissingArguments(vec!["a".into(), "b".into()]),
            r#"200 -32602 missing argument: a {"code":"invalid_params","missing":["a","b"]}"#,
        ),
        (Fault::SessionNotFound, r#"404 -32001 session not found {"code":"session_not_found"}"#),
        (Fault::Unauthenticated, r#"401 -31010 a valid credential is required {"code":"unauthenticated"}"#),
        (
            Fault::ConflictingCredentials,
            r#"401 -31010 the request has two different credentials; send one, in Authorization or in X-Agent-API-Key {"code":"unauthenticated"}"#,
        ),
        (Fault::Forbidden, r#"403 -31011 this credential does not reach that agent {"code":"forbidden"}"#),
        (
            Fault::InsufficientScope("mcp"),
            r#"403 -31011 this credential lacks the scope mcp {"code":"insufficient_scope"}"#,
        ),
        (Fault::AgentDisabled, r#"403 -31012 this agent is disabled {"code":"agent_disabled"}"#),
        (Fault::ForbiddenOrigin("x"), r#"403 -31013 x {"code":"forbidden_origin"}"#),
        (
            Fault::UnsupportedMediaType("x"),
            r#"415 -32600 Content-Type must be x {"code":"unsupported_media_type"}"#,
        ),
        (Fault::NotAcceptable("x"), r#"406 -32600 Accept must admit x {"code":"not_acceptable"}"#),
        (
            Fault::PayloadTooLarge(9),
            r#"413 -31014 the body is longer than 9 bytes {"code":"payload_too_large"}"#,
        ),
        (
            Fault::SlowBody(9),
            "400 -32600 the body arrived too slowly: at least 9 bytes/s are expected; \
             send it again over a faster connection {\"code\":\"invalid_request\"}",
        ),
        (
            Fault::Unavailable { retry_after: second },
            r#"503 -31017 the gateway is overloaded or shutting down; try again {"code":"unavailable"}"#,
        ),
        (Fault::Starting, r#"503 -31017 the gateway is starting; try again {"code":"unavailable"}"#),
        (
            Fault::StorageUnavailable,
            r#"503 -31017 the database cannot be reached; try again {"code":"storage_unavailable"}"#,
        ),
    ] {
        assert_eq!(answers(&fault), [expected, expected]);
    }
}

#[test]
fn the_eras_differ_about_unknown_methods_and_resources() {
    let method = r#"-32601 unknown method: m {"code":"method_not_found"}"#;
    let answered = answers(&Fault::MethodNotFound("m".to_owned()));
    assert_eq!(answered, [format!("200 {method}"), format!("404 {method}")]);

    let resource = r#"resource not found: a:b {"code":"resource_not_found","uri":"a:b"}"#;
    let answered = answers(&Fault::ResourceNotFound(ResourceUri::parse("a:b").unwrap()));
    assert_eq!(answered, [format!("200 -32002 {resource}"), format!("200 -32602 {resource}")]);
}

#[test]
fn a_bug_reveals_only_the_request_id() {
    let expected = r#"500 -32603 internal error {"code":"internal","requestId":"r-1"}"#;
    for bug in [
        Fault::Internal("secret".to_owned()),
        Fault::NotFound("tenant"),
        Fault::AlreadyExists("tenant"),
        Fault::InUse("a connection that definitions name"),
        Fault::RevisionMismatch(Some(Revision(1))),
        Fault::SlugRetired,
    ] {
        assert_eq!(answers(&bug), [expected, expected]);
    }
}

#[test]
fn temporary_faults_have_a_retry_delay() {
    let wait = |fault: &Fault| legacy::error::answer(fault, "").retry_after;
    let third = Duration::from_secs(3);
    assert_eq!(wait(&Fault::Unavailable { retry_after: third }), Some(third));
    assert_eq!(wait(&Fault::Forbidden), None);
}
