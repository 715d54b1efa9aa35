//! `/agents/{agent}/prompts`.

use serde_json::{Value, json};

use super::send_json;
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Replica, encode, gateway};

fn prompt(name: &str) -> String {
    format!("/agents/a/prompts/{}", encode(name))
}

async fn put(replica: &Replica, name: &str, body: &str) -> Value {
    normalized(&send_json(replica, ("PUT", &prompt(name)), body).await)
}

async fn get(replica: &Replica, name: &str) -> Value {
    normalized(&replica.admin("GET", &prompt(name), None).await)
}

fn text(text: &str) -> Value {
    json!({"role": "user", "content": {"type": "text", "text": text}})
}

#[tokio::test]
async fn prompt_is_created_read_rendered_replaced_and_deleted() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let none = Value::Null;
    let first = json!({"messages": [text("hello")]});
    assert_eq!(put(&replica, "p", &first.to_string()).await, answered(201, Some(2), &none));
    let mut shown = json!({"name": "p", "messages": [text("hello")]});
    assert_eq!(get(&replica, "p").await, answered(200, Some(2), &shown));

    let arguments = json!([
        {"name": "topic", "title": "Topic", "description": "要研究的主题", "required": true},
        {"name": "depth", "required": false, "completions": ["brief", "deep"]},
        {"name": "主题"},
    ]);
    let messages = json!([
        text("{{ topic }}{% if depth %}, {{ depth }}{% endif %}{{ 主题 }}"),
        {"role": "assistant", "content": {"type": "image", "data": "AAEC", "mimeType": "image/png"}},
        {"role": "user", "content": {
            "type": "resource_link", "uri": "x:{{ topic }}", "name": "{{ topic }}", "title": "t",
            "mimeType": "text/plain", "size": 3, "icons": [{"src": "data:,a"}], "annotations": {"priority": 0.5},
        }},
        {"role": "user", "content": {"type": "resource", "resource": {
            "uri": "x:own", "text": "{{ topic }}", "_meta": {"a": 1},
        }}},
        {"role": "user", "content": {"type": "resource", "resource": {"uri": "x:registered"}}},
    ]);
    shown = json!({
        "name": "p", "title": "t", "description": "d", "icons": [], "_meta": {},
        "arguments": arguments, "messages": messages,
    });
    assert_eq!(put(&replica, "p", &shown.to_string()).await, answered(200, Some(3), &none));
    assert_eq!(get(&replica, "p").await, answered(200, Some(3), &shown));

    replica.put("a", "x:registered", "as it is at this moment").await;
    let params = json!({"name": "p", "arguments": {"topic": "二"}});
    let got = replica.http.call("a", &key, "prompts/get", params).await;
    let mut expected = messages.clone();
    expected[0]["content"]["text"] = json!("二");
    expected[2]["content"]["uri"] = json!("x:%E4%BA%8C");
    assert_eq!(got["result"]["messages"][2]["content"]["text"], "t: x:%E4%BA%8C");
    let params = json!({"name": "p", "arguments": {"topic": "a b"}});
    let got = replica.http.call("a", &key, "prompts/get", params).await;
    let refused = "with these arguments, the uri of messages[2] is not an absolute URI of RFC 3986";
    assert_eq!(got["error"]["message"], refused);
    let params = json!({"name": "p", "arguments": {"topic": "2", "depth": "deep"}});
    let got = replica.http.call("a", &key, "prompts/get", params).await;
    expected[0]["content"]["text"] = json!("2, deep");
    expected[2]["content"]["uri"] = json!("x:2");
    expected[2]["content"]["name"] = json!("2");
    expected[3]["content"]["resource"]["text"] = json!("2");
    expected[4]["content"]["resource"]["text"] = json!("as it is at this moment");
    // The revision of a request without a handshake has no resource links; other tests cover what it receives instead.
    let (got, expected) = (&got["result"]["messages"], expected);
    for at in [0, 1, 3, 4] {
        assert_eq!(got[at], expected[at], "{at}");
    }

    assert_eq!(put(&replica, "研/究 ?", &first.to_string()).await["status"], 201);
    let mut listed = shown.clone();
    listed.as_object_mut().unwrap().remove("messages");
    let list = normalized(&replica.admin("GET", "/agents/a/prompts", None).await);
    let items = json!([listed, {"name": "研/究 ?"}]);
    assert_eq!(list, answered(200, None, &json!({"items": items, "nextCursor": null})));

    let remove = async || normalized(&replica.admin("DELETE", &prompt("p"), None).await);
    assert_eq!(remove().await, answered(204, Some(6), &none));
    let gone = problem(404, "not_found", "no such prompt");
    assert_eq!((remove().await, get(&replica, "p").await), (gone.clone(), gone));
    assert_eq!(get(&replica, "研/究 ?").await["status"], 200);
}

#[tokio::test]
async fn prompt_metadata_is_kept_byte_for_byte() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let raws = r#""icons":[ {"src":"data:,a" } ],"_meta":{"z":12345678901234567890123,  "a":-0.0 }"#;
    let messages = r#"[{"role":"user","content":{"type":"text","text":"é","annotations":{ "priority":1.00},"_meta":{ "n" : 1e2}}}]"#;
    let body = format!(r#"{{"name":"p",{raws},"messages":{messages}}}"#);
    assert_eq!(put(&replica, "p", &body).await["status"], 201);
    let shown = replica.admin("GET", &prompt("p"), None).await.text();
    assert_eq!(shown, body);
    assert_eq!(put(&replica, "p", &shown).await, answered(200, Some(2), &Value::Null));
}

#[tokio::test]
async fn unchanged_prompt_causes_no_notification() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    let body = r#"{"arguments":[{"name":"a","completions":["1"]}],"messages":[{"role":"user","content":{"type":"text","text":"{{ a }}"}}]}"#;
    for (revision, change) in [
        (2, body.to_owned()),
        (2, body.to_owned()),
        (2, body.replace(r#"{"arguments""#, r#"{"title":null,"_meta":null,"name":"p","arguments""#)),
        (3, body.replace("{{ a }}", "{{ a }}!")),
        (4, body.replace("{{ a }}", "{{ a }}!").replace(r#"["1"]"#, "[]")),
        (5, body.replace(r#""name":"a""#, r#""name":"a","required":true"#)),
        (6, body.replace(r#"{"arguments""#, r#"{"title":"t","arguments""#)),
    ] {
        assert_eq!(
            put(&replica, "p", &change).await["headers"]["etag"],
            format!("\"{revision}\""),
            "{change}"
        );
    }
    let recorded = "select count(*) from (select array_agg(kind order by revision) as kinds from changes \
                where subject = 'p') recorded where kinds = array['prompt_added', 'prompt_messages', \
                'prompt_messages', 'prompt_defined', 'prompt_defined']";
    assert_eq!(database.number(recorded).await, 1);
}

#[tokio::test]
async fn prompt_arguments_unusable_in_a_template_are_refused() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    for name in ["x-y", "if", "a b", "{{"] {
        let body = json!({"arguments": [{"name": "ok"}, {"name": name}], "messages": [text("")]}).to_string();
        let wrong = format!(
            "arguments[1].name: expected an identifier that messages can print, such as `topic` in `{{{{ topic }}}}`; \
             found `{name}`"
        );
        assert_eq!(put(&replica, "p", &body).await, problem(400, "invalid_params", &wrong));
    }
}

#[tokio::test]
async fn embedded_reference_keeps_its_metadata_and_type() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let text = json!({"name": "n", "contents": [{"text": "registered", "_meta": {"own": 2}}]});
    let path = crate::support::app::resource("a", "x:text");
    assert_eq!(replica.admin("PUT", &path, Some(text)).await.status, 201);
    let empty = json!({"name": "n", "mimeType": "text/csv", "contents": []});
    let path = crate::support::app::resource("a", "x:empty");
    assert_eq!(replica.admin("PUT", &path, Some(empty)).await.status, 201);
    let embedded =
        |resource: Value| json!({"role": "user", "content": {"type": "resource", "resource": resource}});
    let named = json!({"uri": "x:text", "mimeType": "text/markdown", "_meta": {"a": 1}});
    let named = [named, json!({"uri": "x:empty", "_meta": {}}), json!({"uri": "x:text"})];
    let body = json!({"messages": named.map(embedded)});
    assert_eq!(put(&replica, "p", &body.to_string()).await["status"], 201);
    let got = replica.http.call("a", &key, "prompts/get", json!({"name": "p"})).await;
    let expected = json!([
        embedded(
            json!({"uri": "x:text", "mimeType": "text/markdown", "text": "registered", "_meta": {"a": 1}})
        ),
        embedded(json!({"uri": "x:empty", "mimeType": "text/csv", "text": "", "_meta": {}})),
        embedded(json!({"uri": "x:text", "text": "registered", "_meta": {"own": 2}})),
    ]);
    assert_eq!(got["result"]["messages"], expected);
}
