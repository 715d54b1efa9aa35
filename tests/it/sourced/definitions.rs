//! Definitions with a source: registered, shown as they were sent, and refused.

use serde_json::{Value, json};

use super::upstream::text;
use super::{Site, source};
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{encode, resource};

#[tokio::test]
async fn definitions_are_shown_with_their_source_as_sent() {
    let site = Site::new().await;
    let place = json!({"connection": "api", "path": "a%20b", "query": {"q": "1"}, "ttlMs": 0, "staleMs": 10});
    let sent = json!({"uri": "test://a", "name": "a", "source": place});
    let path = resource("notes", "test://a");
    let made = site.replica.admin("PUT", &path, Some(sent.clone())).await;
    assert_eq!((made.status.as_u16(), made.revision()), (201, 2), "{}", made.text());
    let same = site.replica.admin("PUT", &path, Some(sent.clone())).await;
    assert_eq!((same.status.as_u16(), same.revision()), (200, 2));
    let shown = normalized(&site.replica.admin("GET", &path, None).await);
    assert_eq!(shown, answered(200, Some(2), &sent));
    let listed = site.replica.admin("GET", "/agents/notes/resources", None).await.json();
    assert_eq!(listed["items"], json!([sent]));
    let content = format!("/agents/notes/resources/content?uri={}", encode("test://a"));
    let elsewhere =
        "the content of the resource comes from a connection and is not stored; read it at the MCP endpoint";
    let refused = normalized(&site.replica.admin("GET", &content, None).await);
    assert_eq!(refused, problem(400, "invalid_params", elsewhere));

    let template = json!({"uriTemplate": "test://c/{city}", "name": "c", "source": source("c/{city}")});
    let made = site.template("test://c/{city}", template.clone()).await;
    assert_eq!((made.status.as_u16(), made.revision()), (201, 3), "{}", made.text());
    let path = format!("/agents/notes/templates?uriTemplate={}", encode("test://c/{city}"));
    let shown = normalized(&site.replica.admin("GET", &path, None).await);
    assert_eq!(shown, answered(200, Some(3), &template));

    let manifest = site.replica.admin("GET", "/agents/notes/manifest", None).await.json();
    assert_eq!((&manifest["resources"], &manifest["templates"]), (&json!([sent]), &json!([template])));
    let applied = site.replica.admin("PUT", "/agents/notes/manifest", Some(manifest)).await.json();
    assert_eq!((&applied["unchanged"], &applied["revision"]), (&json!(2), &json!(3)), "{applied}");

    let mut other = sent;
    other["source"]["path"] = json!("other");
    let changed = site.replica.admin("PUT", &resource("notes", "test://a"), Some(other)).await;
    assert_eq!((changed.status.as_u16(), changed.revision()), (200, 4));
}

#[tokio::test]
async fn content_replaces_a_source_and_a_source_content() {
    let site = Site::new().await;
    site.upstream.answer("a", text("fetched"));
    site.replica.put("notes", "test://a", "registered").await;
    assert_eq!(site.text("test://a").await, "registered");
    site.resource("a", source("a")).await;
    assert_eq!(site.text("test://a").await, "fetched");
    site.replica.put("notes", "test://a", "registered again").await;
    assert_eq!(site.text("test://a").await, "registered again");

    let rendered = json!({"name": "t", "template": "rendered {{ v }}"});
    let sourced = json!({"name": "t", "source": source("{v}")});
    for (body, expected) in [(&rendered, "rendered a"), (&sourced, "fetched"), (&rendered, "rendered a")] {
        assert!(site.template("test://t/{v}", body.clone()).await.status.is_success());
        assert_eq!(site.text("test://t/a").await, expected);
    }
}

#[tokio::test]
async fn connection_that_a_definition_names_is_in_use() {
    let site = Site::new().await;
    let delete = async || normalized(&site.replica.admin("DELETE", "/connections/api", None).await);
    let refused = problem(409, "in_use", "definitions name this connection; delete or change them first");
    site.resource("a", source("a")).await;
    let template = json!({"name": "t", "source": source("{v}")});
    assert_eq!(site.template("test://t/{v}", template).await.status, 201);
    for path in [
        resource("notes", "test://a"),
        format!("/agents/notes/templates?uriTemplate={}", encode("test://t/{v}")),
    ] {
        assert_eq!(delete().await, refused);
        assert_eq!(site.replica.admin("DELETE", &path, None).await.status, 204);
    }
    // Those of a deleted agent, which are purged later, count no more.
    site.resource("a", source("a")).await;
    assert_eq!(delete().await, refused);
    assert_eq!(site.replica.admin("DELETE", "/agents/notes", None).await.status, 204);
    assert_eq!(delete().await["status"], 204);
}

#[tokio::test]
async fn invalid_sources_are_refused_by_name() {
    let site = Site::new().await;
    site.replica.tenant("other").await;
    site.connection("foreign", json!(["other"]), json!({})).await;
    let both = json!({"name": "a", "source": source("a"), "contents": []});
    let of = |source: Value| json!({"name": "a", "source": source});
    let unknown_member = "source: unknown field `url`, expected one of `connection`, `path`, `query`, `ref`, `statement`, \
                          `format`, `ttlMs`, `staleMs`";
    let relative = "source.path must be relative, without empty, `.` and `..` segments";
    for (body, expected) in [
        (both, "contents and source exclude each other"),
        (of(json!({"connection": "none", "path": "a"})), "source.connection: unknown connection: none"),
        (of(json!({"connection": "foreign", "path": "a"})), "source.connection: unknown connection: foreign"),
        (of(json!({"connection": "NO", "path": "a"})), "source.connection: unknown connection: NO"),
        (of(json!({"connection": "api", "path": "a", "url": 1})), unknown_member),
        (
            of(json!({"connection": "api", "path": 1})),
            "source.path: invalid type: integer `1`, expected a string",
        ),
        (
            of(json!({"connection": "api", "path": "a", "ttlMs": "1"})),
            "source.ttlMs: must be a whole number from 0 to 4294967295",
        ),
        (of(json!({"connection": "api", "path": "a", "query": []})), "source.query: must be an object"),
        (of(source("../a")), relative),
        (of(source("/a")), relative),
        (of(source("%2e%2e/a")), relative),
        (of(source("http://host/a")), "source.path must be relative, without a scheme"),
        (
            of(json!({"connection": "api", "statement": "@a"})),
            "source.path is required of a connection of kind http",
        ),
        (
            of(json!({"connection": "api", "path": "a", "ref": "main"})),
            "source.ref is no member of a connection of kind http",
        ),
        (
            of(json!({"connection": "api", "path": "a", "ttlMs": 86_400_001})),
            "source.ttlMs must be at most 86400000",
        ),
        (of(source("{v}")), "source has variables, which only templates have"),
    ] {
        let answer = site.replica.admin("PUT", &resource("notes", "test://a"), Some(body)).await;
        assert_eq!(normalized(&answer), problem(400, "invalid_params", expected));
    }
    let slashes = "uriTemplate: {v} does not match slashes, which source.path takes as {+v}; write {+v} in uriTemplate, or {v} \
                   in source.path";
    for (path, expected) in [("{w}", "source: w is not a variable of the template"), ("{+v}", slashes)] {
        let answer = site.template("test://t/{v}", of(source(path))).await;
        assert_eq!(normalized(&answer), problem(400, "invalid_params", expected));
    }
    let manifest = json!({"apiVersion": "waggle/v1", "resources": [
        {"uri": "test://a", "name": "a", "source": {"connection": "foreign", "path": "a"}}]});
    let answer = site.replica.admin("PUT", "/agents/notes/manifest", Some(manifest)).await;
    let expected = "resources[0] (test://a): source.connection: unknown connection: foreign";
    assert_eq!(normalized(&answer), problem(400, "invalid_params", expected));
}
