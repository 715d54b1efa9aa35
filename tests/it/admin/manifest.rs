//! `/agents/{agent}/manifest`.

use std::time::Instant;

use serde_json::{Value, json};
use waggle::model::system::FailPoint;

use super::{send, send_json};
use crate::support::answers::{answered, exact, normalized, problem};
use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::database;
use crate::support::faults::FaultScript;

const PATH: &str = "/agents/a/manifest";

async fn put(replica: &Replica, manifest: &Value) -> Value {
    normalized(&send_json(replica, ("PUT", PATH), &manifest.to_string()).await)
}

async fn get(replica: &Replica) -> Value {
    exact(&replica.admin("GET", PATH, None).await)
}

fn names(resources: &[&str], templates: &[&str], prompts: &[&str]) -> Value {
    let count = resources.len() + templates.len() + prompts.len();
    json!({
        "count": count, "resources": resources, "templates": templates, "prompts": prompts, "skills": [],
        "mounts": [],
    })
}

fn applied(revision: i64, [created, updated, deleted]: [Value; 3], unchanged: usize) -> Value {
    let body = json!({
        "revision": revision, "created": created, "updated": updated, "deleted": deleted, "unchanged": unchanged,
    });
    answered(200, Some(revision), &body)
}

fn nothing() -> Value {
    names(&[], &[], &[])
}

fn resource(uri: &str, text: &str) -> Value {
    json!({"uri": uri, "name": "n", "contents": [{"text": text}]})
}

fn template(text: &str, body: &str) -> Value {
    json!({"uriTemplate": text, "name": "n", "template": body})
}

fn prompt(name: &str, text: &str) -> Value {
    json!({"name": name, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
}

fn manifest(resources: Vec<Value>, templates: Vec<Value>, prompts: Vec<Value>) -> Value {
    json!({
        "apiVersion": "waggle/v1", "agent": "a",
        "resources": resources, "templates": templates, "prompts": prompts, "skills": [], "mounts": [],
    })
}

/// A manifest with sorted lists, as the API returns it.
fn sorted(mut manifest: Value) -> Value {
    for (list, key) in [("resources", "uri"), ("templates", "uriTemplate"), ("prompts", "name")] {
        let list = manifest[list].as_array_mut().unwrap();
        list.sort_by_key(|item| item[key].as_str().unwrap().to_owned());
    }
    manifest.as_object_mut().unwrap().entry("mounts").or_insert(json!([]));
    manifest
}

#[tokio::test]
async fn applying_an_exported_manifest_changes_nothing() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let mut demo: Value = serde_json::from_str(include_str!("../../../config/demo/research.json")).unwrap();
    demo["agent"] = json!("a");
    let mut created = names(
        &[
            "beeos://agent/config",
            "beeos://agent/skills",
            "db://users/active/list",
            "file:///example.png",
            "file:///project/docs",
            "file:///project/src/main.rs",
            "screen://localhost/display1",
        ],
        &["api://weather/{city}/forecast", "file:///projects/{projectId}/docs/{filename}"],
        &["research"],
    );
    created["skills"] = json!(["research/literature-review"]);
    created["count"] = json!(11);
    assert_eq!(put(&replica, &demo).await, applied(2, [created, nothing(), nothing()], 0));
    let mut shown = answered(200, Some(2), &sorted(demo.clone()));
    // Long enough for compression.
    shown["headers"]["vary"] = json!("accept-encoding");
    assert_eq!(get(&replica).await, shown);
    assert_eq!(put(&replica, &demo).await, applied(2, [nothing(), nothing(), nothing()], 11));
    // Compared as text: the owner's JSON is returned as it was sent.
    let text = replica.admin("GET", PATH, None).await.text();
    let again = normalized(&send_json(&replica, ("PUT", PATH), &text).await);
    assert_eq!(again, applied(2, [nothing(), nothing(), nothing()], 11));
    assert_eq!(get(&replica).await, shown);
    let read = replica.http.text("a", &key, "api://weather/bern/forecast").await;
    assert_eq!(read.as_deref(), Some(r#"{"city":"bern","forecast":"sunny"}"#));
}

#[tokio::test]
async fn manifest_keeps_the_owners_json_byte_for_byte() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let meta = r#"{"z":12345678901234567890123,  "a":-0.0, "\u00e9" : "\/" }"#;
    let text = format!(
        r#"{{"apiVersion":"waggle/v1","agent":"a","resources":[{{"uri":"x:1","name":"n","_meta":{meta},"contents":[{{"blob":"AAH/","_meta":{meta}}}]}}],"templates":[{{"uriTemplate":"y:{{a}}","name":"n","_meta":{meta},"completions":{{"a":["é"]}},"template":"{{{{ a }}}}"}}],"prompts":[{{"name":"p","_meta":{meta},"arguments":[{{"name":"a","required":false}}],"messages":[{{"role":"user","content":{{"type":"text","text":"","_meta":{meta}}}}}]}}],"skills":[],"mounts":[]}}"#
    );
    assert_eq!(send_json(&replica, ("PUT", PATH), &text).await.status, 200);
    assert_eq!(replica.admin("GET", PATH, None).await.text(), text);
}

#[tokio::test]
async fn manifest_writes_only_differences_in_one_revision() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let three = |of: fn(&str, &str) -> Value, [a, b, c]: [&str; 3]| vec![of(a, "1"), of(b, "1"), of(c, "1")];
    let before = manifest(
        three(resource, ["x:a", "x:b", "x:c"]),
        three(template, ["a:{v}", "b:{v}", "c:{v}"]),
        three(prompt, ["a", "b", "c"]),
    );
    let created = names(&["x:a", "x:b", "x:c"], &["a:{v}", "b:{v}", "c:{v}"], &["a", "b", "c"]);
    assert_eq!(put(&replica, &before).await, applied(2, [created, nothing(), nothing()], 0));
    // Created by another call, and deleted by the manifest.
    replica.put("a", "x:other", "").await;
    let after = manifest(
        vec![resource("x:d", "1"), resource("x:b", "2"), resource("x:a", "1")],
        vec![template("d:{v}", "1"), template("b:{v}", "2"), template("a:{v}", "1")],
        vec![prompt("d", "1"), prompt("b", "2"), prompt("a", "1")],
    );
    let created = names(&["x:d"], &["d:{v}"], &["d"]);
    let updated = names(&["x:b"], &["b:{v}"], &["b"]);
    let deleted = names(&["x:c", "x:other"], &["c:{v}"], &["c"]);
    let plan = [created, updated, deleted];

    let mut dry = applied(3, plan.clone(), 3);
    dry["body"]["dryRun"] = json!(true);
    let path = format!("{PATH}?dryRun=true");
    assert_eq!(normalized(&send_json(&replica, ("PUT", &path), &after.to_string()).await), dry);
    assert_eq!(replica.admin("GET", "/agents/a", None).await.revision(), 3, "nothing was written");

    assert_eq!(put(&replica, &after).await, applied(4, plan, 3));
    assert_eq!(get(&replica).await, answered(200, Some(4), &sorted(after)));
    let logged = "select count(*) from (select array_agg(kind || ' ' || subject order by ordinal) as changes, \
                array_agg(ordinal order by ordinal) as ordinals from changes where revision = 4 \
                and scope = (select uid from agents where slug = 'a')) logged \
                where ordinals = array[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] and changes = array[\
                'resource_contents x:b', 'resource_added x:d', 'resource_removed x:c', 'resource_removed x:other', \
                'template_body b:{v}', 'template_added d:{v}', 'template_removed c:{v}', \
                'prompt_messages b', 'prompt_added d', 'prompt_removed c']";
    assert_eq!(database.number(logged).await, 1);
    assert_eq!(database.number("select resource_count::bigint from agents where slug = 'a'").await, 3);
    // Unchanged definitions keep the revision that last changed them.
    let resource = |uri| crate::support::app::resource("a", uri);
    assert_eq!(replica.admin("GET", &resource("x:a"), None).await.revision(), 2);
    assert_eq!(replica.admin("GET", &resource("x:b"), None).await.revision(), 4);
    assert_eq!(replica.http.text("a", &key, "x:b").await.as_deref(), Some("2"));
    assert_eq!(replica.http.text("a", &key, "x:c").await, None);
    assert_eq!(replica.http.text("a", &key, "b:1").await.as_deref(), Some("2"));

    let empty = json!({"apiVersion": "waggle/v1"});
    let deleted = names(&["x:a", "x:b", "x:d"], &["a:{v}", "b:{v}", "d:{v}"], &["a", "b", "d"]);
    assert_eq!(put(&replica, &empty).await, applied(5, [nothing(), nothing(), deleted], 0));
    assert_eq!(get(&replica).await, answered(200, Some(5), &manifest(vec![], vec![], vec![])));
}

#[tokio::test]
async fn manifest_is_refused_when_its_revision_is_not_current() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let under = async |query: &str, tag: &str| {
        let headers = [("content-type", "application/json"), ("if-match", tag)];
        let body = r#"{"apiVersion":"waggle/v1"}"#;
        send(&replica, &replica.operator, ("PUT", &format!("{PATH}{query}")), &headers, body).await
    };
    replica.put("a", "x:1", "").await;
    let mismatch = |current: i64| {
        let detail = format!("precondition failed: the current revision is {current}");
        problem(412, "revision_mismatch", &detail)
    };
    for query in ["", "?dryRun=true"] {
        for tag in ["\"1\"", "\"3\"", "W/\"2\""] {
            assert_eq!(exact(&under(query, tag).await), mismatch(2), "{query} {tag}");
        }
    }
    assert_eq!(under("?dryRun=true", "\"2\"").await.revision(), 2);
    assert_eq!(under("", "\"2\"").await.revision(), 3);
    assert_eq!(exact(&under("", "\"2\"").await), mismatch(3));
    assert_eq!(under("", "*").await.revision(), 3);
    let known = [("if-none-match", "\"3\"")];
    assert_eq!(send(&replica, &replica.operator, ("GET", PATH), &known, "").await.status, 304);
}

#[tokio::test]
async fn manifest_changes_no_other_agent() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    replica.agent("acme", "b").await;
    replica.tenant("rival").await;
    replica.agent("rival", "c").await;
    let all = manifest(vec![resource("x:1", "1")], vec![template("y:{v}", "1")], vec![prompt("p", "1")]);
    let mut others = Vec::new();
    for agent in ["b", "c"] {
        let mut all = all.clone();
        all["agent"] = json!(agent);
        let path = format!("/agents/{agent}/manifest");
        assert_eq!(send_json(&replica, ("PUT", &path), &all.to_string()).await.status, 200);
        others.push(path);
    }
    let shown = async || {
        let mut shown = Vec::new();
        for path in &others {
            shown.push(exact(&replica.admin("GET", path, None).await));
        }
        shown
    };
    let before = shown().await;
    for manifest in
        [all, manifest(vec![resource("x:1", "2")], vec![], vec![]), manifest(vec![], vec![], vec![])]
    {
        assert_eq!(put(&replica, &manifest).await["status"], 200);
    }
    assert_eq!(shown().await, before);
    let orphans = "select count(*) from contents c join agents a on a.uid = c.agent \
                   where a.slug <> 'a' and orphaned_at is not null";
    assert_eq!(database.number(orphans).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_manifest_is_a_snapshot_of_one_revision() {
    let database = database().await;
    let faults = FaultScript::new();
    let replica = Builder::new(&database).fault_injector(faults.clone()).start().await;
    replica.acme("a").await;
    let before = manifest(vec![resource("x:1", "1")], vec![template("y:{v}", "1")], vec![prompt("p", "1")]);
    assert_eq!(put(&replica, &before).await["status"], 200);
    let hold = faults.hold(FailPoint::SnapshotBetweenReads);
    let after = manifest(vec![resource("x:2", "2")], vec![template("y:{v}", "2")], vec![]);
    let (shown, written) = tokio::join!(get(&replica), hold.meanwhile(put(&replica, &after)));
    assert_eq!(written["headers"]["etag"], "\"3\"");
    assert_eq!(shown, answered(200, Some(2), &before));
    assert_eq!(get(&replica).await, answered(200, Some(3), &after));
}

#[tokio::test]
async fn agent_too_large_for_a_manifest_is_not_exported() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__MANIFEST_BYTES", 65_536).start().await;
    replica.acme("a").await;
    let long = "a".repeat(40_000);
    let twice = manifest(vec![resource("x:1", &long), resource("x:2", &long)], vec![], vec![]);
    let too_large = problem(413, "payload_too_large", "the body is longer than 65536 bytes");
    assert_eq!(put(&replica, &twice).await, too_large);
    assert_eq!(put(&replica, &manifest(vec![resource("x:1", &long)], vec![], vec![])).await["status"], 200);
    assert_eq!(get(&replica).await["status"], 200);
    let one_by_one = "the manifest is larger than 65536 bytes; read the definitions one by one";
    let refused = problem(400, "invalid_params", one_by_one);
    // The same contents, which a manifest would contain twice.
    replica.put("a", "x:2", &long).await;
    assert_eq!(get(&replica).await, refused);
    // Small in the database, but not as JSON.
    replica.put("a", "x:2", &"\u{1}".repeat(20_000)).await;
    assert_eq!(get(&replica).await, refused);
    assert_eq!(put(&replica, &manifest(vec![resource("x:2", "")], vec![], vec![])).await["status"], 200);
    assert_eq!(get(&replica).await["status"], 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_of_ten_thousand_resources_then_changes_one_alone() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let uri = |n: usize| format!("x://host/{n:05}");
    let mut all: Vec<_> = (0..10_000).map(|n| resource(&uri(n), &format!("content of {n}"))).collect();
    let timed = async |what: &str, all: &[Value]| {
        let manifest = manifest(all.to_vec(), vec![], vec![]);
        let began = Instant::now();
        let answer = put(&replica, &manifest).await;
        println!("{what}: {:?}", began.elapsed());
        let count = |of: &str| answer["body"][of]["count"].as_u64().unwrap_or_default();
        let body = &answer["body"];
        [body["revision"].as_u64().unwrap(), count("created"), count("updated"), count("deleted")]
    };
    assert_eq!(timed("10,000 new", &all).await, [2, 10_000, 0, 0]);
    assert_eq!(timed("the same again", &all).await, [2, 0, 0, 0]);
    for n in [1, 4_999, 5_001] {
        let text = format!("content of {n}");
        assert_eq!(replica.http.text("a", &key, &uri(n)).await, Some(text));
    }
    all[5_000] = resource(&uri(5_000), "changed");
    assert_eq!(timed("one changed", &all).await, [3, 0, 1, 0]);
    let logged = "select count(*) from changes where revision = 3 and kind = 'resource_contents'";
    assert_eq!(database.number(logged).await, 1);
    // A definition that is loaded again from now on would show this.
    database.execute("update contents set bytes = 'spoiled' where bytes <> 'changed'").await;
    assert_eq!(replica.http.text("a", &key, &uri(5_000)).await.as_deref(), Some("changed"));
    for n in [1, 4_999, 5_001] {
        let text = format!("content of {n}");
        assert_eq!(replica.http.text("a", &key, &uri(n)).await, Some(text), "kept in memory");
    }
    for (n, one) in all.iter_mut().enumerate() {
        *one = resource(&uri(n), &format!("other content of {n}"));
    }
    assert_eq!(timed("all changed", &all).await, [4, 0, 10_000, 0]);
    assert_eq!(replica.http.text("a", &key, &uri(9_999)).await.as_deref(), Some("other content of 9999"));
    assert_eq!(timed("all removed", &[]).await, [5, 0, 0, 10_000]);
    assert_eq!(replica.http.text("a", &key, &uri(1)).await, None);
}
