//! Every kind of credential, sent to every kind of agent.

use serde_json::{Value, json};

use super::{MODERN, message, post, with_meta};
use crate::case::Case;

const AGENTS: [&str; 7] = ["alpha", "open", "off", "empty", "theirs", "unknown", "UPPER"];

/// A well-formed key with a valid check sum that was never issued.
const NEVER_ISSUED: [&str; 3] = [
    "bak_0000000000000000000000000000000000000000000",
    "oag_0000000000000000000000000000000000000000000",
    "wag_0000000000000000000000000000000000000000000",
];

/// The CRC-32 (IEEE) of a key's prefix and characters, in six characters of base 62.
fn checked(stem: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = crc32fast::hash(stem.as_bytes());
    let mut sum = [b'0'; 6];
    for digit in sum.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    format!("{stem}{}", String::from_utf8_lossy(&sum))
}

/// Headers with a credential, or with an invalid value in its place.
fn credentials() -> Vec<(String, Vec<(&'static str, String)>)> {
    let mut all: Vec<(String, Vec<(&'static str, String)>)> = vec![("none".to_owned(), Vec::new())];
    let keys = [
        "mcp",
        "registry",
        "audit",
        "all",
        "off",
        "theirs",
        "elsewhere",
        "revoked",
        "owner",
        "foreign-owner",
        "operator",
    ];
    for key in keys {
        all.push((format!("{key} as a bearer"), vec![("authorization", format!("Bearer <<{key}>>"))]));
        all.push((format!("{key} in its header"), vec![("x-agent-api-key", format!("<<{key}>>"))]));
    }
    for stem in NEVER_ISSUED {
        all.push((
            format!("{} never issued", &stem[..3]),
            vec![("authorization", format!("Bearer {}", checked(stem)))],
        ));
    }
    let header = |name: &str, value: &str| (name.to_owned(), vec![("x-agent-api-key", value.to_owned())]);
    let bearer = |name: &str, value: &str| (name.to_owned(), vec![("authorization", value.to_owned())]);
    all.extend([
        header("an empty key", ""),
        header("a wrong check sum", "bak_0000000000000000000000000000000000000000000000000"),
        header("a key of another system", "sk-proj-0123456789abcdef0123456789abcdef"),
        header("a short key", "bak_123"),
        header("a key with a space", "bak_000000000000000000000 000000000000000000000000"),
        bearer("a bearer in lower case", "bearer <<mcp>>"),
        bearer("a bearer with two spaces", "Bearer  <<mcp>>"),
        bearer("a bearer without a token", "Bearer"),
        bearer("a bearer that is empty", "Bearer "),
        bearer("basic", "Basic YTpi"),
        bearer("a key without a scheme", "<<mcp>>"),
        bearer("something like a token", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJ4In0.c2ln"),
        bearer("something like half a token", "Bearer eyJhbGciOiJub25lIn0."),
    ]);
    let two = |name: &str, bearer: &str, header: &str| {
        (
            name.to_owned(),
            vec![("authorization", format!("Bearer {bearer}")), ("x-agent-api-key", header.to_owned())],
        )
    };
    all.extend([
        two("the same key twice", "<<mcp>>", "<<mcp>>"),
        two("two keys", "<<mcp>>", "<<all>>"),
        two("a key and nonsense", "<<mcp>>", "nonsense"),
        two("the operator and a key", "<<operator>>", "<<mcp>>"),
    ]);
    all
}

fn with(case: Case, headers: &[(&'static str, String)]) -> Case {
    headers.iter().fold(case, |case, (name, value)| case.header(name, value.clone()))
}

pub(crate) fn cases() -> Vec<Case> {
    let read = message("resources/read", &with_meta(&json!({"uri": "test://plain"})));
    let ping = message("ping", &json!({}));
    let discover = message("server/discover", &with_meta(&json!({})));
    let mut cases = Vec::new();
    for (who, headers) in credentials() {
        for agent in AGENTS {
            let modern = |name: String, body: &Value, method: &str| {
                post(name, agent, body).header("mcp-protocol-version", MODERN).header("mcp-method", method)
            };
            let case = modern(format!("{agent}, {who}: read"), &read, "resources/read")
                .header("mcp-name", "test://plain");
            cases.push(with(case, &headers));
            cases.push(with(post(format!("{agent}, {who}: ping"), agent, &ping), &headers));
            if ["alpha", "open", "unknown"].contains(&agent) {
                let case = modern(format!("{agent}, {who}: discover"), &discover, "server/discover");
                cases.push(with(case, &headers));
                for method in ["GET", "DELETE"] {
                    let case =
                        Case::new(format!("{agent}, {who}: {method}"), method, format!("/{agent}/mcp"));
                    cases.push(with(case, &headers));
                }
            }
        }
        let paths = [
            "/agents/alpha",
            "/agents/alpha/resources",
            "/audit?outcome=ok&method=none",
            "/tenants/acme",
            "/agents/unknown",
        ];
        for path in paths {
            let case = Case::new(format!("administration{path}, {who}"), "GET", format!("/admin/v1{path}"));
            cases.push(with(case, &headers));
        }
    }
    cases
}
