//! Completions whose values come from a connection.

use serde_json::{Value, json};

use super::upstream::{Reply, status, text};
use super::{Site, source};
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::encode;

const TEMPLATE: &str = "test://{country}/{city}";

impl Site {
    /// Registers the template, whose city is completed from a source.
    async fn completed(&self, source: Value) {
        let body = json!({"name": "t", "template": "x", "completions": {"city": {"source": source}}});
        let made = self.template(TEMPLATE, body).await;
        assert!(made.status.is_success(), "{}", made.text());
    }

    /// Completes a city in a country; the answer's body without its envelope.
    async fn complete(&self, typed: &str, context: Value) -> Value {
        let params = json!({"ref": {"type": "ref/resource", "uri": TEMPLATE},
            "argument": {"name": "city", "value": typed}, "context": {"arguments": context}});
        let answer = self.replica.http.call("notes", &self.key, "completion/complete", params).await;
        answer.get("result").or(answer.get("error")).unwrap_or_else(|| panic!("{answer}")).clone()
    }
}

fn values(values: &[&str]) -> Value {
    json!({"completion": {"values": values, "total": values.len(), "hasMore": false}})
}

fn failed(reason: &str) -> Value {
    json!({"code": -31018, "message": format!("the source of this content failed: {reason}"),
        "data": {"code": "source_failed", "reason": reason}})
}

#[tokio::test]
async fn typed_text_and_context_are_variables_of_the_source() {
    let site = Site::new().await;
    let place =
        json!({"connection": "api", "path": "c/{country}", "query": {"q": "{value}", "u": "{unknown}"}});
    let body = json!({"name": "t", "template": "x", "completions": {"city": {"source": place}}});
    let wrong = "completions.city: source: unknown is neither `value`, which is the text typed so far, nor a variable of the \
                 template";
    let refused = normalized(&site.template(TEMPLATE, body).await);
    assert_eq!(refused, problem(400, "invalid_params", wrong));

    site.completed(json!({"connection": "api", "path": "c/{country}", "query": {"q": "{value}"}})).await;
    site.upstream.answer("c/de?q=m%C3%BCn", text(r#"["München","Münster","München"]"#));
    let context = json!({"country": "de", "other": "x"});
    // What the source matched by the typed text is not matched again.
    assert_eq!(site.complete("mün", context.clone()).await, values(&["München", "Münster"]));
    assert_eq!(site.upstream.asked(), [("/v1/c/de?q=m%C3%BCn".to_owned(), Some(200))]);
    assert_eq!(site.complete("mün", context).await, values(&["München", "Münster"]));
    assert_eq!(site.upstream.asked(), [], "the values are kept for five seconds");
    for context in [json!({}), json!({"country": ".."}), json!({"country": "a/b"})] {
        assert_eq!(site.complete("mün", context).await, values(&[]));
    }
    assert_eq!(site.upstream.asked(), []);
    assert_eq!(site.complete("x", json!({"country": "de"})).await, values(&[]), "what is not found has none");
}

#[tokio::test]
async fn lines_are_matched_and_bounded() {
    let site = Site::new().await;
    site.completed(source("cities")).await;
    let lines: String = (0..250).map(|n| format!("v{n}\r\n")).collect();
    site.upstream.answer("cities", text(&format!("{lines}\nRome\n")));
    assert_eq!(site.complete("ro", json!({})).await, values(&["Rome"]));
    let first: Vec<_> = (0..100).map(|n| format!("v{n}")).collect();
    let expected = json!({"completion": {"values": first, "total": 250, "hasMore": true}});
    assert_eq!(site.complete("v", json!({})).await, expected);
    assert_eq!(site.upstream.count(), 1);

    site.completed(json!({"connection": "api", "path": "failing", "ttlMs": 0})).await;
    let json = vec![("content-type", "application/json".to_owned())];
    for (reply, reason) in
        [(status(500), "status"), (Reply::Answer(200, json, b"[1]".to_vec()), "bad_content")]
    {
        site.upstream.answer("failing", reply);
        assert_eq!(site.complete("v", json!({})).await, failed(reason));
    }
}

#[tokio::test]
async fn argument_of_a_prompt_is_completed_from_a_source() {
    let site = Site::new().await;
    site.upstream.answer("topics?area=physics", text("quantum\nqualia\n"));
    let place = json!({"connection": "api", "path": "topics", "query": {"area": "{area}"}});
    let message = json!({"role": "user", "content": {"type": "text", "text": "{{ topic }} {{ area }}"}});
    let arguments = json!([{"name": "area"}, {"name": "topic", "completions": {"source": place}}]);
    let body = json!({"name": "ask", "arguments": arguments, "messages": [message]});
    let path = "/agents/notes/prompts/ask";
    let made = site.replica.admin("PUT", path, Some(body.clone())).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(normalized(&site.replica.admin("GET", path, None).await), answered(200, Some(2), &body));
    let params = json!({"ref": {"type": "ref/prompt", "name": "ask"},
        "argument": {"name": "topic", "value": "quan"}, "context": {"arguments": {"area": "physics"}}});
    let answer = site.replica.http.call("notes", &site.key, "completion/complete", params).await;
    assert_eq!(answer["result"], values(&["quantum"]));

    let mut foreign = body.clone();
    foreign["arguments"][1]["completions"]["source"]["path"] = json!("topics/{other}");
    let refused = site.replica.admin("PUT", path, Some(foreign)).await;
    let expected = "arguments[1].completions: source: other is neither `value`, which is the text typed so far, nor an argument \
                    of the prompt";
    assert_eq!(normalized(&refused), problem(400, "invalid_params", expected));
    let mut closed = body.clone();
    closed["arguments"][1]["closed"] = json!(true);
    let refused = site.replica.admin("PUT", path, Some(closed)).await;
    let expected = "arguments[1].closed needs completions, the values to choose from";
    assert_eq!(normalized(&refused), problem(400, "invalid_params", expected));

    let delete = async || normalized(&site.replica.admin("DELETE", "/connections/api", None).await);
    let used = problem(409, "in_use", "definitions name this connection; delete or change them first");
    assert_eq!(delete().await, used);
    assert_eq!(site.replica.admin("DELETE", path, None).await.status, 204);
    assert_eq!(delete().await["status"], 204);
}

#[tokio::test]
async fn sourced_completions_are_stored_shown_and_in_use() {
    let site = Site::new().await;
    let place = json!({"connection": "api", "path": "cities", "ttlMs": 1, "staleMs": 2});
    let completions = json!({"city": {"source": place}, "country": ["de", "fr"]});
    let sent = json!({"uriTemplate": TEMPLATE, "name": "t", "completions": completions, "template": "x"});
    let made = site.template(TEMPLATE, sent.clone()).await;
    assert_eq!((made.status.as_u16(), made.revision()), (201, 2), "{}", made.text());
    let path = format!("/agents/notes/templates?uriTemplate={}", encode(TEMPLATE));
    assert_eq!(normalized(&site.replica.admin("GET", &path, None).await), answered(200, Some(2), &sent));
    let manifest = site.replica.admin("GET", "/agents/notes/manifest", None).await.json();
    assert_eq!(manifest["templates"], json!([sent]));
    let applied = site.replica.admin("PUT", "/agents/notes/manifest", Some(manifest)).await.json();
    assert_eq!((&applied["unchanged"], &applied["revision"]), (&json!(1), &json!(2)), "{applied}");
    let mut other = sent.clone();
    other["completions"]["city"]["source"]["path"] = json!("towns");
    assert_eq!(site.template(TEMPLATE, other).await.revision(), 3);

    let delete = async || normalized(&site.replica.admin("DELETE", "/connections/api", None).await);
    let used = problem(409, "in_use", "definitions name this connection; delete or change them first");
    assert_eq!(delete().await, used);
    // Those of a deleted agent, which are purged later, count no more.
    assert_eq!(site.replica.admin("DELETE", "/agents/notes", None).await.status, 204);
    assert_eq!(delete().await["status"], 204);
}

#[tokio::test]
async fn invalid_sources_of_completions_are_refused_by_name() {
    let site = Site::new().await;
    let settings =
        json!({"id": "foreign", "kind": "http", "tenants": [], "settings": {"baseUrl": "https://x.test"}});
    assert_eq!(site.replica.admin("POST", "/connections", Some(settings)).await.status, 201);
    for (completions, expected) in [
        (
            json!({"source": source("../a")}),
            "completions.city: source.path must be relative, without empty, `.` and `..` segments",
        ),
        (
            json!({"source": {"connection": "foreign", "path": "a"}}),
            "completions.city: source.connection: unknown connection: foreign",
        ),
        (
            json!({"source": {"connection": "none", "path": "a"}}),
            "completions.city: source.connection: unknown connection: none",
        ),
        (
            json!({"source": {"connection": "api", "statement": "@a"}}),
            "completions.city: source.path is required of a connection of kind http",
        ),
        (
            json!({"source": {"connection": "api", "path": 1}}),
            "completions.city.source.path: invalid type: integer `1`, expected a string",
        ),
        (
            json!({"source": {"connection": "api", "path": "a", "staleMs": -1}}),
            "completions.city.source.staleMs: must be a whole number from 0 to 4294967295",
        ),
        (json!({}), "completions must be an object of lists of text, by the names of variables"),
        (
            json!({"source": source("a"), "more": 1}),
            "completions must be an object of lists of text, by the names of variables",
        ),
    ] {
        let body = json!({"name": "t", "template": "x", "completions": {"city": completions}});
        let answer = normalized(&site.template(TEMPLATE, body).await);
        assert_eq!(answer, problem(400, "invalid_params", expected));
    }
}

#[tokio::test]
async fn hidden_template_is_not_completed_from_its_source() {
    let site = Site::new().await;
    site.upstream.answer("cities", text("Rome"));
    let body = json!({"name": "t", "template": "x", "labels": ["team"], "completions": {"city": {"source": source("cities")}}});
    assert_eq!(site.template(TEMPLATE, body).await.status, 201);
    let unknown = site.complete("", json!({})).await;
    assert_eq!(unknown["message"], format!("unknown resource template: {TEMPLATE}"));
    assert_eq!(site.upstream.asked(), []);
}
