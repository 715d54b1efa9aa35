//! What connections do not reach: the files and the database of the gateway itself.

use serde_json::{Value, json};
use waggle::store::StoreOptions;

use crate::connections::Keys;
use crate::support::answers::{exact, problem};
use crate::support::app::{Replica, resource};
use crate::support::cluster::{Database, database};
use crate::support::http::Answer;
use crate::support::proxy::Proxy;

/// Registers a resource with a source; returns the answer to its read.
async fn read(replica: &Replica, key: &str, name: &str, source: Value) -> Value {
    let uri = format!("test://{name}");
    let body = json!({"name": name, "mimeType": "text/plain", "source": source});
    let made = replica.admin("PUT", &resource("notes", &uri), Some(body)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    replica.http.call("notes", key, "resources/read", json!({"uri": uri})).await
}

async fn connect(replica: &Replica, id: &str, kind: &str, settings: Value) -> Answer {
    let new = json!({"id": id, "kind": kind, "tenants": "*", "settings": settings});
    replica.admin("POST", "/connections", Some(new)).await
}

#[tokio::test]
async fn folders_with_the_data_directory_or_keys_are_no_roots() {
    let (database, keys, folder) = (database().await, Keys::new(), tempfile::tempdir().unwrap());
    let of_keys = keys.file().parent().unwrap().canonicalize().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in ["data/postgres", "docs"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("docs/a.md"), "text").unwrap();
    let replica = keys
        .replica(&database)
        .set("WAGGLE_EMBEDDED__DATA_DIR", root.join("data").display())
        .set("WAGGLE_SOURCES__FILE_ROOTS", format!("{},{}", root.display(), of_keys.display()))
        .start()
        .await;
    let key = replica.acme("notes").await;
    let detail = "settings.root must hold neither keys nor data of this process, and not lead out of `sources.file_roots`";
    for root in [&root, &root.join("data"), &root.join("data/postgres"), &of_keys] {
        let refused = connect(&replica, "docs", "file", json!({"root": root})).await;
        assert_eq!(exact(&refused), problem(400, "invalid_params", detail), "{}", root.display());
    }
    let docs = json!({"root": root.join("docs")});
    assert_eq!(connect(&replica, "docs", "file", docs).await.status, 201);
    let answer = read(&replica, &key, "a", json!({"connection": "docs", "path": "a.md"})).await;
    assert_eq!(answer["result"]["contents"][0]["text"], "text", "{answer}");
}

#[tokio::test]
async fn database_of_the_gateway_is_not_read() {
    let (own, other) = (database().await, database().await);
    let proxy = Proxy::before(&own.options).await;
    let keys = Keys::new();
    let through = |options: &mut StoreOptions| {
        options.connect = proxy.options.clone();
        options.listen = proxy.options.clone();
    };
    let replica = keys.replica(&own).store(through).start().await;
    let key = replica.acme("notes").await;
    // A role that is no superuser: such are refused by any database.
    let name = |of: &Database| of.options.get_database().unwrap().to_owned();
    let reader = format!("reader_of_{}", name(&own));
    own.execute(&format!("create role {reader} login")).await;
    let (host, port) = (proxy.options.get_host(), proxy.options.get_port());
    let mut answers = Vec::new();
    for (id, of) in [("other", &other), ("own", &own)] {
        let url = format!("postgres://{reader}@{host}:{port}/{}?sslmode=disable", name(of));
        let statements = json!({"one": "select 'one'"});
        let settings = json!({"url": url, "allowNetworks": ["127.0.0.0/8"], "statements": statements});
        assert_eq!(connect(&replica, id, "sql", settings).await.status, 201);
        let source = json!({"connection": id, "statement": "@one", "format": "text"});
        answers.push(read(&replica, &key, id, source).await);
    }
    assert_eq!(answers[0]["result"]["contents"][0]["text"], "one", "{}", answers[0]);
    let not_allowed = json!({"code": -31018, "message": "the source of this content failed: not_allowed",
        "data": {"code": "source_failed", "reason": "not_allowed"}});
    assert_eq!(answers[1]["error"], not_allowed);
}
