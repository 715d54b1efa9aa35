//! Each limit in a body, asked to be wider than what the operator set or what the calling key has.

use std::fmt::Write;

use serde_json::{Value, json};

use super::callers::{Caller, World};
use super::{Document, Operation, cell, head};
use crate::support::http::Answer;

pub(super) const HEAD: &str = "
## Limits

Each body member that is a limit, with a value wider than the operator's or than that of the calling key: for an agent
that the operator limited and disabled (and then deleted, for `createAgent`), for a key that the operator limited, and
for new keys without bounds. The bounds of the configuration (`limits.agents_per_tenant`,
`limits.retired_slugs_per_tenant`, ten active keys) apply to every credential.
";

/// What a member of a body is.
enum Member {
    /// It limits nothing.
    Plain,
    /// A limit, with values that widen it, each with its name in the table.
    Limit(Vec<(String, Value)>),
}

/// What each member of each call is that makes or changes tenants, agents and keys; for one that is new, decide here.
fn member(document: &Document, operation: &str, name: &str, limits: Option<&str>) -> Member {
    let limit = |value: Value| Member::Limit(vec![(name.to_owned(), value)]);
    match (operation, name) {
        (_, "id" | "tenant" | "name" | "title" | "instructions" | "access") => Member::Plain,
        (_, "limits" | "agentLimits") => {
            let members = document.members(limits.unwrap()).into_iter();
            let wide = members.map(|(member, _)| (format!("{name}.{member}"), json!({member: wide(member)})));
            let lifted = (format!("{name}: null"), Value::Null);
            // Left out and null are the same where a key or a tenant is made.
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

/// More than the operator sets here, and than a key has by itself.
fn wide(limit: &str) -> u64 {
    match limit {
        "perSecond" => 500_000,
        "burst" => 1_000_000,
        "strangersPercent" => 1_000,
        "callsPerDay" | "callsPerMonth" | "bytesPerDay" | "bytesPerMonth" => 1_000_000_000,
        _ => panic!("{limit} is new: decide in tests/it/privileges/limits.rs how it is widened"),
    }
}

/// What the operator limits before each call.
fn limited() -> Value {
    json!({"callsPerDay": 1_000, "callsPerMonth": 1_000, "bytesPerDay": 1_000, "bytesPerMonth": 1_000,
        "perSecond": 100, "burst": 100})
}

/// Makes a call with a member of its body, and sets back what it did.
async fn ask(
    world: &World,
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
            world.prepare("DELETE", "/agents/retired", None).await;
            world.prepare("POST", "/agents", Some(new)).await;
            world.prepare("DELETE", "/agents/retired", None).await;
        }
        "updateAgent" => {
            path = path.replace("{agent}", "b");
            let before = json!({"limits": limited(), "enabled": false});
            world.prepare("PATCH", "/agents/b", Some(before)).await;
        }
        "createAgentKey" => {
            path = path.replace("{agent}", "spare");
            world.spare_key(json!({})).await;
        }
        "updateKey" => {
            let key = world.spare_key(json!({"limits": {"perSecond": 100, "burst": 100}})).await;
            path = path.replace("{key}", &key);
        }
        "rotateKey" => {
            let key = world.spare_key(json!({"scopes": ["mcp", "registry", "audit"]})).await;
            path = path.replace("{key}", &key);
        }
        "updateTenant" | "createOwnerKey" => {}
        id => panic!("{id} is new: decide in tests/it/privileges/limits.rs what it is tried on"),
    }
    let answer = world.ask(caller, &operation.method, &path, Some(&body)).await;
    if operation.id == "createOwnerKey" && answer.status.is_success() {
        let made = answer.json();
        world.prepare("DELETE", &format!("/keys/{}", made["id"].as_str().unwrap()), None).await;
    }
    if operation.id == "updateTenant" {
        let before = json!({"limits": null, "agentLimits": null, "maxKeyAgeDays": null});
        world.prepare("PATCH", "/tenants/acme", Some(before)).await;
    }
    answer
}

/// Whether a call makes or changes a tenant, an agent or a key.
fn sets_limits(operation: &Operation<'_>) -> bool {
    let path = operation.path;
    let ends =
        ["/tenants", "/tenants/{tenant}", "/agents", "/agents/{agent}", "/keys", "/keys/{key}", "/rotate"];
    ends.iter().any(|end| path.ends_with(end)) && !operation.members.is_empty()
}

/// A row a limit.
pub(super) async fn table(document: &Document, world: &World) -> String {
    let mut table = head("limit", &world.callers);
    let mut nth = 0;
    for operation in document.operations().iter().filter(|operation| sets_limits(operation)) {
        for (name, limits) in &operation.members {
            let Member::Limit(cases) = member(document, operation.id, name, *limits) else { continue };
            for (label, value) in cases {
                write!(table, "| {} `{label}` |", operation.id).unwrap();
                nth += 1;
                for caller in &world.callers {
                    let answer = ask(world, caller, operation, nth, name, &value).await;
                    write!(table, " {} |", cell(&answer)).unwrap();
                }
                table.push('\n');
            }
        }
    }
    table
}
