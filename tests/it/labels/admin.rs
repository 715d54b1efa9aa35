//! Labels in the administration API: of definitions, manifests and keys.

use serde_json::{Value, json};

use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Replica, gateway};
use crate::support::http::Answer;
use crate::support::wait::eventually;

const RESOURCE: &str = "/agents/a/resources?uri=x:1";
const TEMPLATE: &str = "/agents/a/templates?uriTemplate=y:%7Bv%7D";
const PROMPT: &str = "/agents/a/prompts/p";

/// A definition of each kind: its path, that of its list, its body, and the body as it is returned.
fn definitions() -> [(&'static str, &'static str, Value, Value); 3] {
    let message = json!({"role": "user", "content": {"type": "text", "text": "t"}});
    [
        (
            RESOURCE,
            "/agents/a/resources",
            json!({"name": "n", "contents": [{"text": "t"}]}),
            json!({"uri": "x:1", "name": "n", "contents": [{"text": "t"}]}),
        ),
        (
            TEMPLATE,
            "/agents/a/templates",
            json!({"name": "n", "template": "t"}),
            json!({"uriTemplate": "y:{v}", "name": "n", "template": "t"}),
        ),
        (
            PROMPT,
            "/agents/a/prompts",
            json!({"messages": [message]}),
            json!({"name": "p", "messages": [message]}),
        ),
    ]
}

fn with(mut body: Value, labels: Value) -> Value {
    body["labels"] = labels;
    body
}

async fn put(replica: &Replica, path: &str, body: Value) -> Answer {
    replica.admin("PUT", path, Some(body)).await
}

#[tokio::test]
async fn definitions_of_every_kind_keep_their_labels() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let mut revision = 1;
    for (path, list, body, shown) in definitions() {
        let listed = async || replica.admin("GET", list, None).await.json()["items"][0]["labels"].clone();
        let read = async || normalized(&replica.admin("GET", path, None).await);
        let written = put(&replica, path, with(body.clone(), json!(["b", "a:1", "b"]))).await;
        assert_eq!(written.status, 201, "{}", written.text());
        revision += 1;
        assert_eq!(read().await, answered(200, Some(revision), &with(shown.clone(), json!(["a:1", "b"]))));
        assert_eq!(listed().await, json!(["a:1", "b"]));
        // Equal labels change nothing, in any order.
        let same = put(&replica, path, with(body.clone(), json!(["a:1", "b"]))).await;
        assert_eq!(normalized(&same), answered(200, Some(revision), &Value::Null));
        let fewer = put(&replica, path, with(body.clone(), json!(["b"]))).await;
        revision += 1;
        assert_eq!(normalized(&fewer), answered(200, Some(revision), &Value::Null));
        assert_eq!(listed().await, json!(["b"]));
        // Without labels it is as if there never were any.
        for none in [None, Some(json!([])), Some(Value::Null)] {
            put(&replica, path, with(body.clone(), json!(["c"]))).await;
            let body = none.map_or_else(|| body.clone(), |none| with(body.clone(), none));
            assert_eq!(put(&replica, path, body).await.status, 200);
            revision += 2;
            assert_eq!(read().await, answered(200, Some(revision), &shown));
            assert_eq!(listed().await, Value::Null);
        }
    }
}

#[tokio::test]
async fn change_of_labels_alone_is_a_change_of_the_definition() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    for (path, _, body, _) in definitions() {
        put(&replica, path, body.clone()).await;
        put(&replica, path, with(body, json!(["l"]))).await;
    }
    let logged = "select count(*) from changes where kind || ' ' || subject in ('resource_defined x:1', \
                  'template_defined y:{v}', 'prompt_defined p') and revision in (3, 5, 7)";
    assert_eq!(database.number(logged).await, 3);
}

#[tokio::test]
async fn raw_content_keeps_the_labels_of_a_resource() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let (path, _, body, _) = definitions()[0].clone();
    put(&replica, path, with(body, json!(["l"]))).await;
    let operator = format!("Bearer {}", replica.operator);
    let raw = "/admin/v1/agents/a/resources/content?uri=x:1";
    let sent = replica.http.send("PUT", raw, &[("authorization", &operator)], "other").await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let read = replica.admin("GET", path, None).await.json();
    assert_eq!((&read["labels"], &read["contents"][0]["text"]), (&json!(["l"]), &json!("other")));
    let touched = replica.admin("POST", "/agents/a/resources/touch?uri=x:1", None).await;
    assert_eq!(touched.status, 202);
    assert_eq!(replica.admin("GET", path, None).await.json()["labels"], json!(["l"]));
}

#[tokio::test]
async fn manifest_carries_labels() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let manifest = |labels: [Value; 3]| {
        let mut all = definitions()
            .map(|(_, _, _, shown)| shown)
            .into_iter()
            .zip(labels)
            .map(|(shown, labels)| if labels.is_null() { shown } else { with(shown, labels) });
        let [resource, template, prompt] = std::array::from_fn(|_| all.next().unwrap());
        json!({"apiVersion": "waggle/v1", "agent": "a", "resources": [resource], "templates": [template],
            "prompts": [prompt], "skills": [], "mounts": []})
    };
    let names = |resources: &[&str], templates: &[&str], prompts: &[&str]| {
        let count = resources.len() + templates.len() + prompts.len();
        json!({"count": count, "resources": resources, "templates": templates, "prompts": prompts,
            "skills": [], "mounts": []})
    };
    let applied = |revision: i64, updated: Value, unchanged: usize| {
        let none = names(&[], &[], &[]);
        json!({"revision": revision, "created": none, "updated": updated, "deleted": none, "unchanged": unchanged})
    };
    let path = "/agents/a/manifest";
    put(&replica, path, manifest([Value::Null, Value::Null, Value::Null])).await;
    let labelled = manifest([json!(["a", "b"]), json!(["b"]), json!(["c"])]);
    let all = names(&["x:1"], &["y:{v}"], &["p"]);
    let mut dry = applied(2, all.clone(), 0);
    dry["dryRun"] = json!(true);
    assert_eq!(put(&replica, &format!("{path}?dryRun=true"), labelled.clone()).await.json(), dry);
    assert_eq!(put(&replica, path, labelled.clone()).await.json(), applied(3, all, 0));
    assert_eq!(replica.admin("GET", path, None).await.json(), labelled);
    let none = names(&[], &[], &[]);
    assert_eq!(put(&replica, path, labelled).await.json(), applied(3, none, 3));
    let one = manifest([json!(["a", "b"]), json!(["b"]), Value::Null]);
    assert_eq!(put(&replica, path, one.clone()).await.json(), applied(4, names(&[], &[], &["p"]), 2));
    assert_eq!(replica.admin("GET", path, None).await.json(), one);
}

/// A key with the members that tests of labels are about.
fn shown(answer: &Answer) -> Value {
    let key = answer.json();
    json!([key["name"], key["scopes"], key["labels"]])
}

#[tokio::test]
async fn labels_of_a_key_are_changed_as_a_whole() {
    let (_database, replica) = gateway().await;
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    let plain = replica.admin("POST", "/agents/a/keys", Some(json!({"labels": []}))).await;
    assert_eq!(plain.json()["labels"], json!([]), "{}", plain.text());
    let body = json!({"name": "ci", "labels": ["support", "eu", "eu"]});
    let made = replica.admin("POST", "/agents/a/keys", Some(body)).await;
    assert_eq!((made.status.as_u16(), shown(&made)), (201, json!(["ci", ["mcp"], ["eu", "support"]])));
    let revision = made.revision();
    let listed = replica.admin("GET", "/agents/a/keys", None).await.json();
    assert_eq!(listed["items"][1]["labels"], json!(["eu", "support"]));
    let path = format!("/keys/{}", made.json()["id"].as_str().unwrap());
    let patch = async |body: Value| replica.admin("PATCH", &path, Some(body)).await;

    let same = patch(json!({"labels": ["support", "eu"]})).await;
    assert_eq!((same.revision(), shown(&same)), (revision, json!(["ci", ["mcp"], ["eu", "support"]])));
    let unchanged = patch(json!({})).await;
    assert_eq!(unchanged.revision(), revision);
    let fewer = patch(json!({"labels": ["eu"]})).await;
    assert_eq!((fewer.revision(), shown(&fewer)), (revision + 1, json!(["ci", ["mcp"], ["eu"]])));
    let both = patch(json!({"labels": ["x"], "limits": {"perSecond": 5, "burst": 40}})).await;
    assert_eq!((both.revision(), shown(&both)), (revision + 2, json!(["ci", ["mcp"], ["x"]])));
    assert_eq!(both.json()["limits"], json!({"perSecond": 5, "burst": 40}));
    let limits = patch(json!({"limits": null})).await;
    assert_eq!((limits.revision(), shown(&limits)), (revision + 3, json!(["ci", ["mcp"], ["x"]])));

    let rotated = replica.admin("POST", &format!("{path}/rotate"), None).await;
    assert_eq!((rotated.status.as_u16(), shown(&rotated)), (201, json!(["ci", ["mcp"], ["x"]])));
    let none = patch(json!({"labels": []})).await;
    assert_eq!((none.status.as_u16(), &none.json()["labels"]), (200, &json!([])), "{}", none.text());
}

#[tokio::test]
async fn labels_of_a_key_change_under_the_rules_of_other_changes() {
    let (database, replica) = gateway().await;
    replica.tenant("acme").await;
    replica.tenant("bee").await;
    replica.agent("acme", "a").await;
    let made = replica.admin("POST", "/agents/a/keys", Some(json!({"labels": ["l"]}))).await;
    let (id, revision) = (made.json()["id"].as_str().unwrap().to_owned(), made.revision());
    let path = format!("/admin/v1/keys/{id}");
    let owner = async |tenant: &str| {
        let made = replica.admin("POST", &format!("/tenants/{tenant}/keys"), Some(json!({}))).await;
        made.json()["key"].as_str().unwrap().to_owned()
    };
    let (own, foreign) = (owner("acme").await, owner("bee").await);
    let (_, agent) = replica.key("a", &["mcp", "registry", "audit"]).await;
    let patch = async |key: &str, condition: &str, labels: Value| {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("if-match", condition),
        ];
        replica.http.send("PATCH", &path, &headers, json!({"labels": labels}).to_string()).await
    };
    let refused = async |key: &str, condition: &str| {
        let refused = patch(key, condition, json!(["other"])).await.json();
        (refused["code"].as_str().unwrap().to_owned(), refused["status"].as_u64().unwrap())
    };
    assert_eq!(refused(&foreign, "*").await, ("not_found".to_owned(), 404));
    assert_eq!(refused(&agent, "*").await, ("forbidden".to_owned(), 403));
    assert_eq!(refused(&own, "\"1\"").await, ("revision_mismatch".to_owned(), 412));
    let changed = patch(&own, &format!("\"{revision}\""), json!(["other"])).await;
    assert_eq!((changed.status.as_u16(), &changed.json()["labels"]), (200, &json!(["other"])));
    let logged = format!(
        "select count(*) from changes where kind = 'key' and subject = '{id}' and revision = {}",
        changed.revision()
    );
    assert_eq!(database.number(&logged).await, 1);
    eventually("the audit row of the change", async || {
        let row = format!(
            "select count(*) from audit_log where subject = '{id}' and method = 'PATCH /admin/v1/keys/{{key}}' and outcome = 'ok' \
             and before <> after"
        );
        database.number(&row).await == 1
    })
    .await;
}

#[tokio::test]
async fn owner_keys_have_no_labels() {
    let (_database, replica) = gateway().await;
    replica.tenant("acme").await;
    let refused = problem(
        400,
        "invalid_params",
        "labels: an owner key sees everything of its tenant; only agent keys have labels",
    );
    let path = "/tenants/acme/keys";
    let made = replica.admin("POST", path, Some(json!({"labels": ["l"]}))).await;
    assert_eq!(normalized(&made), refused);
    let made = replica.admin("POST", path, Some(json!({"labels": []}))).await;
    assert_eq!(made.status, 201);
    let path = format!("/keys/{}", made.json()["id"].as_str().unwrap());
    let patched = replica.admin("PATCH", &path, Some(json!({"labels": ["l"]}))).await;
    assert_eq!(normalized(&patched), refused);
    let patched = replica.admin("PATCH", &path, Some(json!({"labels": []}))).await;
    assert_eq!((patched.status.as_u16(), patched.revision()), (200, made.revision()));
}
