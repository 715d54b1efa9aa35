//! The OpenAPI document: current, served, browsable and complete.

use serde_json::Value;

use crate::support::app::gateway;

fn document() -> Value {
    serde_json::from_str(waggle::app::openapi()).unwrap()
}

#[test]
fn checked_in_openapi_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let checked_in = std::fs::read_to_string(path).unwrap();
    assert!(checked_in == waggle::app::openapi(), "openapi.json is out of date: run make openapi");
}

#[test]
fn document_is_openapi_3_1_with_valid_references() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 50);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

/// A member that is flattened is never `null`: what is not there has no members.
#[test]
fn parts_of_a_schema_are_objects() {
    let document = document();
    let mut parts = Vec::new();
    all_of(&document, &mut parts);
    assert!(!parts.is_empty());
    for part in parts {
        let is_null = |option: &Value| option["type"] == "null";
        assert!(!part["oneOf"].as_array().is_some_and(|options| options.iter().any(is_null)), "{part}");
    }
    let mounts = &document["components"]["schemas"]["Manifest"]["properties"]["mounts"];
    assert_eq!(mounts["items"]["$ref"], "#/components/schemas/ManifestMount");
}

#[test]
fn reads_with_an_entity_tag_describe_their_preconditions() {
    let mut conditional = Vec::new();
    for (path, item) in document()["paths"].as_object().unwrap() {
        let read = &item["get"];
        let tagged = read["responses"]["200"]["headers"]["ETag"].is_object();
        let names: Vec<_> =
            read["parameters"].as_array().into_iter().flatten().map(|one| &one["name"]).collect();
        for header in ["If-Match", "If-None-Match"] {
            assert_eq!(names.iter().filter(|name| **name == header).count(), usize::from(tagged), "{path}");
        }
        for status in ["304", "412"] {
            assert_eq!(read["responses"][status].is_object(), tagged, "{path}: {status}");
        }
        conditional.extend(tagged.then_some(path.clone()));
    }
    assert!(conditional.len() >= 10, "{conditional:?}");
}

fn all_of<'a>(value: &'a Value, parts: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            parts.extend(members.get("allOf").and_then(Value::as_array).into_iter().flatten());
            members.values().for_each(|value| all_of(value, parts));
        }
        Value::Array(items) => items.iter().for_each(|value| all_of(value, parts)),
        _ => {}
    }
}

fn collect<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            references.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}

#[tokio::test]
async fn document_is_served_with_a_self_contained_browser() {
    let (_database, replica) = gateway().await;
    let served = replica.http.get("/admin/openapi.json").await;
    assert_eq!((served.status.as_u16(), served.header("content-type")), (200, Some("application/json")));
    assert!(served.text() == waggle::app::openapi());

    let page = replica.http.get("/admin/docs/").await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, Some("text/html")));
    let policy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:";
    assert_eq!(page.header("content-security-policy"), Some(policy));
    let page = page.text();
    let assets: Vec<_> =
        page.split('"').filter(|text| [".js", ".css"].iter().any(|end| text.ends_with(end))).collect();
    assert!(assets.len() >= 4, "{assets:?}");
    for asset in assets {
        assert!(!asset.contains("//"), "{asset} is loaded from elsewhere");
        let own = asset.trim_start_matches("./");
        let served = replica.http.get(&format!("/admin/docs/{own}")).await;
        assert_eq!(served.status, 200, "{asset}");
        let gzip = served.body.starts_with(&[0x1f, 0x8b]);
        assert_eq!(gzip, served.header("content-encoding") == Some("gzip"), "{asset}");
        assert!(gzip || served.body.len() < 4_096, "{asset} is large and not compressed");
        if asset.ends_with("initializer.js") {
            assert!(served.text().contains("/admin/openapi.json"), "the page shows the document");
        }
    }
}

/// A route that is not documented fails this test.
#[tokio::test]
async fn every_operation_is_documented_and_requires_a_credential() {
    let (_database, replica) = gateway().await;
    let document = document();
    let mut operations = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.replace(['{', '}'], "");
        for (method, operation) in item.as_object().unwrap() {
            let answer = replica.http.send(&method.to_uppercase(), &path, &[], "").await;
            assert_eq!(answer.json()["code"], "unauthenticated", "{method} {path}");
            let id = operation["operationId"].as_str().unwrap();
            assert!(operations.insert(id), "duplicate operation id {id}");
        }
    }
    assert!(operations.len() >= 22, "{operations:?}");
}
