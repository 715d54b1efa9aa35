//! Each limit in a body, with a value wider than the operator's or than that of the calling key.

use std::fmt::Write;

use serde_json::{Value, json};

use super::callers::{Caller, Gateway};
use super::{Document, Operation, cell, head};
use crate::support::http::Answer;

pub(super) const HEAD: &str = "
## Limits

Each body member that is a limit, with a value wider than the operator's or than that of the calling key: for an agent
that the operator limited and disabled (and then deleted, for `createAgent`), for a key that the operator limited, and
for new keys without bounds. The bounds of the configuration (`limits.agents_per_tenant`,
`limits.retired_slugs_per_tenant`, `limits.active_keys`) apply to every credential.
";

/// The kind of a body member.
enum Member {
    /// Not a limit.
    Plain,
    /// A limit, with wider values, each with its name in the table.
    Limit(Vec<(String, Value)>),
}

/// The kind of each member of each call that creates or changes tenants, agents and keys. Decide here for a new one.
fn member(document: &Document, operation: &str, name: &str, limits: Option<&str>) -> Member {
    let limit = |value: Value| Member::Limit(vec![(name.to_owned(), value)]);
    match (operation, name) {
        // Of a key that is wider than the calling one.
        ("updateKey", "labels") => limit(json!(["secret"])),
        (_, "id" | "tenant" | "name" | "title" | "instructions" | "access" | "tools" | "labels") => {
            Member::Plain
        }
        (_, "limits" | "agentLimits") => {
            let members = document.members(limits.unwrap()).into_iter();
            let wide = members.map(|(member, _)| (format!("{name}.{member}"), json!({member: wide(member)})));
            let lifted = (format!("{name}: null"), Value::Null);
            // When a key or a tenant is created, an absent member and null are the same.
            let can_be_lifted = !matches!(operation, "createTenant" | "createAgentKey" | "createOwnerKey");
            Member::Limit(wide.chain(can_be_lifted.then_some(lifted)).collect())
        }
        (_, "maxKeyAgeDays") => limit(json!(3650)),
        ("createAgent" | "updateAgent", "enabled") => limit(json!(true)),
        (_, "scopes") => limit(json!(["mcp", "registry", "audit"])),
        (_, "networks") => limit(json!([])),
        (_, "expiresAt") => limit(json!("2999-01-01T00:00:01Z")),
        // The successor of a key that is wider than the calling one.
        ("rotateKey", "graceSeconds") => limit(json!(0)),
        _ => {
            panic!("{operation} {name} is new: decide in tests/it/privileges/limits.rs whether it is a limit")
        }
    }
}

/// More than the operator's limits here, and than the default of a key.
fn wide(limit: &str) -> u64 {
    match limit {
        "perSecond" => 500_000,
        "burst" => 1_000_000,
        "strangersPercent" => 1_000,
        "callsPerDay" | "callsPerMonth" | "bytesPerDay" | "bytesPerMonth" => 1_000_000_000,
        _ => panic!("{limit} is new: decide in tests/it/privileges/limits.rs how it is widened"),
    }
}

/// The limits that the operator sets before each call.
fn limited() -> Value {
    json!({"callsPerDay": 1_000, "callsPerMonth": 1_000, "bytesPerDay": 1_000, "bytesPerMonth": 1_000,
        "perSecond": 100, "burst": 100})
}

/// Makes a call with one member in its body, and reverts its effect.
async fn call_with(
    gateway: &Gateway,
    caller: &Caller,
    operation: &Operation<'_>,
    nth: usize,
    name: &str,
    value: &Value,
) -> Answer {
    let mut body = json!({name: value});
    let mut path = operation.path.replace("{tenant}", "acme");
    match operation.id {
        "createTenant" => body["id"] = json!(format!("t{nth}-{}", caller.name.replace(' ', "-"))),
        "createAgent" => {
            (body["id"], body["tenant"]) = (json!("retired"), json!("acme"));
            let new = json!({"id": "retired", "tenant": "acme", "limits": limited(), "enabled": false});
            gateway.prepare("DELETE", "/agents/retired", None).await;
            gateway.prepare("POST", "/agents", Some(new)).await;
            gateway.prepare("DELETE", "/agents/retired", None).await;
        }
        "updateAgent" => {
            path = path.replace("{agent}", "b");
            let before = json!({"limits": limited(), "enabled": false});
            gateway.prepare("PATCH", "/agents/b", Some(before)).await;
        }
        "createAgentKey" => {
            path = path.replace("{agent}", "spare");
            gateway.spare_key(json!({})).await;
        }
        "updateKey" => {
            let limits = json!({"perSecond": 100, "burst": 100});
            let within = json!({"scopes": ["registry"], "networks": ["127.0.0.1"], "limits": limits});
            let wide = json!({"scopes": ["mcp", "registry", "audit"]});
            let key = gateway.spare_key(if name == "labels" { wide } else { within }).await;
            path = path.replace("{key}", &key);
        }
        "rotateKey" => {
            let key = gateway.spare_key(json!({"scopes": ["mcp", "registry", "audit"]})).await;
            path = path.replace("{key}", &key);
        }
        "updateTenant" | "createOwnerKey" => {}
        id => panic!("{id} is new: decide in tests/it/privileges/limits.rs what it is tried on"),
    }
    let answer = gateway.call(caller, &operation.method, &path, Some(&body)).await;
    if operation.id == "createOwnerKey" && answer.status.is_success() {
        let made = answer.json();
        gateway.prepare("DELETE", &format!("/keys/{}", made["id"].as_str().unwrap()), None).await;
    }
    if operation.id == "updateTenant" {
        let before = json!({"limits": null, "agentLimits": null, "maxKeyAgeDays": null});
        gateway.prepare("PATCH", "/tenants/acme", Some(before)).await;
    }
    answer
}

/// Whether a call creates or changes a tenant, an agent or a key.
fn sets_limits(operation: &Operation<'_>) -> bool {
    let path = operation.path;
    let ends =
        ["/tenants", "/tenants/{tenant}", "/agents", "/agents/{agent}", "/keys", "/keys/{key}", "/rotate"];
    ends.iter().any(|end| path.ends_with(end)) && !operation.members.is_empty()
}

/// One row per limit.
pub(super) async fn table(document: &Document, gateway: &Gateway) -> String {
    let mut table = head("limit", &gateway.callers);
    let mut nth = 0;
    for operation in document.operations().iter().filter(|operation| sets_limits(operation)) {
        for (name, limits) in &operation.members {
            let Member::Limit(cases) = member(document, operation.id, name, *limits) else { continue };
            for (label, value) in cases {
                write!(table, "| {} `{label}` |", operation.id).unwrap();
                nth += 1;
                for caller in &gateway.callers {
                    let answer = call_with(gateway, caller, operation, nth, name, &value).await;
                    write!(table, " {} |", cell(&answer)).unwrap();
                }
                table.push('\n');
            }
        }
    }
    table
}
