//! `/agents/{agent}/templates`.

use serde_json::{Value, json};

use super::send_json;
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Builder, Replica, encode, gateway};
use crate::support::cluster::database;

fn template(text: &str) -> String {
    format!("/agents/a/templates?uriTemplate={}", encode(text))
}

async fn put(replica: &Replica, text: &str, body: &str) -> Value {
    normalized(&send_json(replica, ("PUT", &template(text)), body).await)
}

async fn get(replica: &Replica, text: &str) -> Value {
    normalized(&replica.admin("GET", &template(text), None).await)
}

#[tokio::test]
async fn template_is_created_read_rendered_replaced_and_deleted() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let none = Value::Null;
    let first = r#"{"name":"n","template":"<{{ city }}>"}"#;
    assert_eq!(put(&replica, "x:{city}", first).await, answered(201, Some(2), &none));
    let mut shown = json!({"uriTemplate": "x:{city}", "name": "n", "template": "<{{ city }}>"});
    assert_eq!(get(&replica, "x:{city}").await, answered(200, Some(2), &shown));
    assert_eq!(replica.http.text("a", &key, "x:Bern").await.as_deref(), Some("<Bern>"));

    shown = json!({
        "uriTemplate": "x:{city}", "name": "天气预报", "title": "t", "description": "d", "mimeType": "text/plain",
        "annotations": {"priority": 1}, "icons": [{"src": "data:,a"}], "_meta": {"a": null},
        "completions": {"city": ["beijing", "são paulo"]},
        "template": "{% if city == 'Bern' %}capital{% else %}{{ city | upper }}{% endif %}\n",
    });
    assert_eq!(put(&replica, "x:{city}", &shown.to_string()).await, answered(200, Some(3), &none));
    assert_eq!(get(&replica, "x:{city}").await, answered(200, Some(3), &shown));
    assert_eq!(replica.http.text("a", &key, "x:Bern").await.as_deref(), Some("capital\n"));
    assert_eq!(replica.http.text("a", &key, "x:rom").await.as_deref(), Some("ROM\n"));

    assert_eq!(put(&replica, "y:{+any}", first.replace("city", "any").as_str()).await["status"], 201);
    let mut listed = shown.clone();
    listed.as_object_mut().unwrap().remove("template");
    let items = json!([listed, {"uriTemplate": "y:{+any}", "name": "n"}]);
    let list = normalized(&replica.admin("GET", "/agents/a/templates", None).await);
    assert_eq!(list, answered(200, None, &json!({"items": items, "nextCursor": null})));

    let remove = async || normalized(&replica.admin("DELETE", &template("x:{city}"), None).await);
    assert_eq!(remove().await, answered(204, Some(5), &none));
    let gone = problem(404, "not_found", "no such resource template");
    assert_eq!((remove().await, get(&replica, "x:{city}").await), (gone.clone(), gone));
    assert_eq!(replica.http.text("a", &key, "x:Bern").await, None);
}

#[tokio::test]
async fn template_metadata_is_kept_byte_for_byte() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let raws = r#""annotations":{ "priority" : 1.0e0},"icons":[ {"src":"data:,a" } ],"_meta":{"z":12345678901234567890123,  "a":-0.0 }"#;
    let body = format!(r#"{{"name":"n",{raws},"template":"é\n"}}"#);
    assert_eq!(put(&replica, "x:{a}", &body).await["status"], 201);
    let shown = replica.admin("GET", &template("x:{a}"), None).await.text();
    assert_eq!(shown, format!(r#"{{"uriTemplate":"x:{{a}}","name":"n",{raws},"template":"é\n"}}"#));
    assert_eq!(put(&replica, "x:{a}", &shown).await, answered(200, Some(2), &Value::Null));
}

#[tokio::test]
async fn unchanged_template_causes_no_notification() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    let body = r#"{"name":"n","completions":{"a":["1"]},"template":"{{ a }}"}"#;
    for (revision, change) in [
        (2, body.to_owned()),
        (2, body.to_owned()),
        (2, body.replace(r#""name""#, r#""title":null,"_meta":null,"uriTemplate":"x:{a}","name""#)),
        (3, body.replace("{{ a }}", "{{ a }}!")),
        (4, body.replace("{{ a }}", "{{ a }}!").replace(r#"["1"]"#, r#"["1","2"]"#)),
        (5, body.replace(r#""n""#, r#""m""#)),
        (6, body.to_owned()),
    ] {
        assert_eq!(
            put(&replica, "x:{a}", &change).await["headers"]["etag"],
            format!("\"{revision}\""),
            "{change}"
        );
    }
    let recorded = "select count(*) from (select array_agg(kind order by revision) as kinds from changes \
                where subject = 'x:{a}') recorded where kinds = array['template_added', 'template_body', \
                'template_completions', 'template_defined', 'template_defined']";
    assert_eq!(database.number(recorded).await, 1);
}

#[tokio::test]
async fn ambiguous_templates_are_refused_together_but_not_in_turn() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let body = r#"{"name":"n","template":""}"#;
    assert_eq!(put(&replica, "x:{a}/y", body).await["status"], 201);
    let tie = "uriTemplate conflicts with x:{a}/y: some URI matches both, and neither has more literal text";
    assert_eq!(put(&replica, "x:z/{b}", body).await, problem(400, "invalid_params", tie));
    assert_eq!(put(&replica, "x:{b}/y", body).await, problem(400, "invalid_params", tie));
    // More or less specific, elsewhere, or the same one again.
    for (other, status) in [("x:zz/{b}", 201), ("x:{a}", 201), ("y:{a}/y", 201), ("x:{a}/y", 200)] {
        assert_eq!(put(&replica, other, body).await["status"], status, "{other}");
    }
    assert_eq!(replica.admin("DELETE", &template("x:{a}/y"), None).await.status, 204);
    assert_eq!(put(&replica, "x:z/{b}", body).await["status"], 201);
    replica.agent("acme", "b").await;
    let of_another = template("x:{a}/y").replace("/a/", "/b/");
    assert_eq!(send_json(&replica, ("PUT", &of_another), body).await.status, 201);
}

#[tokio::test]
async fn template_and_prompt_limits_of_an_agent_are_enforced() {
    let database = database().await;
    let settings = Builder::new(&database).set("WAGGLE_LIMITS__TEMPLATES_PER_AGENT", 2);
    let replica = settings.set("WAGGLE_LIMITS__PROMPTS_PER_AGENT", 2).start().await;
    replica.acme("a").await;
    let body = r#"{"name":"n","template":""}"#;
    let prompt = r#"{"messages":[{"role":"user","content":{"type":"text","text":""}}]}"#;
    for (name, expected) in [("1", 201), ("2", 201), ("3", 400), ("2", 200)] {
        assert_eq!(put(&replica, &format!("x{name}:{{a}}"), body).await["status"], expected, "{name}");
        let path = format!("/agents/a/prompts/{name}");
        assert_eq!(send_json(&replica, ("PUT", &path), prompt).await.status, expected, "{name}");
    }
    let full = |what: &str| {
        problem(400, "invalid_params", &format!("the agent's limit of {what} is reached; delete one first"))
    };
    assert_eq!(put(&replica, "x3:{a}", body).await, full("resource templates"));
    let third = normalized(&send_json(&replica, ("PUT", "/agents/a/prompts/3"), prompt).await);
    assert_eq!(third, full("prompts"));
    assert_eq!(replica.admin("DELETE", &template("x1:{a}"), None).await.status, 204);
    assert_eq!(replica.admin("DELETE", "/agents/a/prompts/1", None).await.status, 204);
    assert_eq!(put(&replica, "x3:{a}", body).await["status"], 201);
    assert_eq!(send_json(&replica, ("PUT", "/agents/a/prompts/3"), prompt).await.status, 201);
}
