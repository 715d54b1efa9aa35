//! The table of privileges: every administration call of `openapi.json`, and every body member that is a limit, with
//! every kind of credential, as documented in `docs/privileges.md`.

mod callers;
mod calls;
mod limits;

use std::fmt::Write;

use serde_json::Value;

use self::callers::{Caller, Gateway};
use crate::support::http::Answer;

const PAGE: &str = "docs/privileges.md";

const HEAD: &str = "\
# Privileges

The administration calls that each credential may make, and the limits that it may set. `tests/it/privileges.rs` makes
every call with every credential on a running gateway and compares the answers with this page. Calls and body members
come from `openapi.json`; a new one without a decision in the test is a failure. After an intended change, replace this
page with the one that the test writes to `target/`.

";

const CELLS: &str = "
`ok`: allowed. `401`: `unauthenticated`. `403`: `forbidden`; the message names the required key. `scope`: `403
insufficient_scope`; the message names the scope. `404`: `not_found`, the same answer as for an object that does not
exist. `400`: `invalid_params`.
";

/// The OpenAPI document.
struct Document(Value);

/// One of its operations.
struct Operation<'d> {
    id: &'d str,
    method: String,
    /// Below `/admin/v1`.
    path: &'d str,
    /// The members of its JSON body, each with the schema of limits that it refers to.
    members: Vec<(&'d str, Option<&'d str>)>,
}

impl Document {
    fn read() -> Self {
        Self(serde_json::from_str(waggle::app::openapi()).unwrap())
    }

    /// All operations, by path and method.
    fn operations(&self) -> Vec<Operation<'_>> {
        let mut operations = Vec::new();
        for (path, item) in self.0["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let body = &operation["requestBody"]["content"]["application/json"]["schema"];
                operations.push(Operation {
                    id: operation["operationId"].as_str().unwrap(),
                    method: method.to_uppercase(),
                    path: path.strip_prefix("/admin/v1").unwrap(),
                    members: reference(body).map(|schema| self.members(schema)).unwrap_or_default(),
                });
            }
        }
        operations.sort_by(|one, other| (one.path, &one.method).cmp(&(other.path, &other.method)));
        operations
    }

    /// The members of a schema, each with the schema of limits that it refers to.
    fn members(&self, schema: &str) -> Vec<(&str, Option<&str>)> {
        let members = self.0["components"]["schemas"][schema]["properties"].as_object().unwrap();
        let limits = |member| {
            reference(member).filter(|schema| schema.ends_with("Limit") || schema.ends_with("Limits"))
        };
        members.iter().map(|(name, member)| (name.as_str(), limits(member))).collect()
    }
}

/// The first schema that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(members) => match members.get("$ref").and_then(Value::as_str) {
            Some(reference) => reference.rsplit('/').next(),
            None => members.values().find_map(reference),
        },
        Value::Array(items) => items.iter().find_map(reference),
        _ => None,
    }
}

/// An answer as a cell of a table.
fn cell(answer: &Answer) -> String {
    let status = answer.status.as_u16();
    let code = || answer.json()["code"].as_str().unwrap_or_default().to_owned();
    match status {
        200..300 => "ok".to_owned(),
        _ => match (status, code().as_str()) {
            (403, "insufficient_scope") => "scope".to_owned(),
            (400, "invalid_params") | (401, "unauthenticated") | (403, "forbidden") | (404, "not_found") => {
                status.to_string()
            }
            (status, code) => format!("{status} {code}"),
        },
    }
}

/// The head of a table with one column per caller.
fn head(first: &str, callers: &[Caller]) -> String {
    let names: Vec<_> = callers.iter().map(|caller| caller.name).collect();
    format!("\n| {first} | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()))
}

#[tokio::test]
async fn every_credential_has_the_documented_privileges() {
    let document = Document::read();
    let mut gateway = Gateway::start().await;
    let mut page = HEAD.to_owned();
    page.push_str("| column | credential |\n|---|---|\n");
    for caller in &gateway.callers {
        writeln!(page, "| {} | {} |", caller.name, caller.what).unwrap();
    }
    page.push_str(CELLS);
    page.push_str("\n## Calls\n");
    page.push_str(&calls::table(&document, &mut gateway).await);
    page.push_str(limits::HEAD);
    page.push_str(&limits::table(&document, &gateway).await);
    let root = env!("CARGO_MANIFEST_DIR");
    let committed = std::fs::read_to_string(format!("{root}/{PAGE}")).unwrap_or_default();
    if page != committed {
        std::fs::write(format!("{root}/target/privileges.md"), &page).unwrap();
        let differs = |(is, was): &(&str, &str)| is != was;
        let line = page.lines().zip(committed.lines()).find(differs);
        panic!(
            "{PAGE} does not match the gateway; see target/privileges.md. The first difference: {line:#?}"
        );
    }
}
