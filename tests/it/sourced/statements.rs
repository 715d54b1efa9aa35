//! Statements of databases: prepared when a definition is registered, read, and completing.

use std::path::Path;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::answers::{normalized, problem};
use crate::support::app::{Builder, Replica, encode, resource};
use crate::support::cluster::{Database, database};
use crate::support::wait::DEADLINE;

/// Makes a database of forecasts.
fn fill(file: &Path) {
    let database = rusqlite::Connection::open(file).unwrap();
    let rows = "create table forecast (city text, celsius integer); \
                insert into forecast values ('Rome', 24), ('Riga', 9), ('Oslo', 5)";
    database.execute_batch(rows).unwrap();
}

struct Site {
    _database: Database,
    folder: tempfile::TempDir,
    replica: Replica,
    key: String,
}

impl Site {
    /// A gateway with a connection to a SQLite file.
    async fn new() -> Self {
        let (database, folder) = (database().await, tempfile::tempdir().unwrap());
        let root = folder.path().canonicalize().unwrap();
        fill(&root.join("weather.db"));
        let replica = Builder::new(&database).set("WAGGLE_SOURCES__FILE_ROOTS", root.display()).start().await;
        let key = replica.acme("notes").await;
        let statements = json!({
            "forecast": "select celsius from forecast where city = {city}",
            "cities": "select city from forecast order by city",
            "secret_of_the_operator": "select celsius from secret_table",
        });
        let settings =
            json!({"url": format!("sqlite:{}/weather.db", root.display()), "statements": statements});
        let new = json!({"id": "weather", "kind": "sql", "tenants": "*", "settings": settings});
        let made = replica.admin("POST", "/connections", Some(new)).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let files = json!({"id": "docs", "kind": "file", "tenants": "*", "settings": {"root": root.display().to_string()}});
        assert_eq!(replica.admin("POST", "/connections", Some(files)).await.status, 201);
        Self { _database: database, folder, replica, key }
    }

    async fn register(&self, source: Value) -> Value {
        let body = json!({"name": "a", "source": source});
        normalized(&self.replica.admin("PUT", &resource("notes", "test://a"), Some(body)).await)
    }
}

fn statement(statement: &str, format: &str) -> Value {
    json!({"connection": "weather", "statement": statement, "format": format})
}

#[tokio::test]
async fn statement_is_prepared_when_it_is_registered() {
    let site = Site::new().await;
    let columns =
        "source.format does not suit the columns of the statement; blob takes one column of bytes or text";
    let refused =
        "source.statement: the database does not accept it; check its names and types against the database";
    for (source, expected) in [
        (statement("@none", "json"), "source.statement: the connection has no statement of this name"),
        (statement("@secret_of_the_operator", "json"), refused),
        (
            statement("select 1", "json"),
            "source.statement is not allowed; name one of the connection's as @name",
        ),
    ] {
        assert_eq!(site.register(source).await, problem(400, "invalid_params", expected));
    }
    let patch = json!({"settings": {"allowStatements": true}});
    assert_eq!(site.replica.admin("PATCH", "/connections/weather", Some(patch)).await.status, 200);
    assert_eq!(
        site.register(statement("select 1, 2", "blob")).await,
        problem(400, "invalid_params", columns)
    );
    assert_eq!(
        site.register(statement("select nothing", "json")).await,
        problem(400, "invalid_params", refused)
    );
    assert_eq!(site.register(statement("select 1", "json")).await["status"], 201);

    // In a manifest as well, by the position.
    let manifest = json!({"apiVersion": "waggle/v1", "resources": [
        {"uri": "test://b", "name": "b", "source": statement("@none", "text")}]});
    let answer = site.replica.admin("PUT", "/agents/notes/manifest?dryRun=true", Some(manifest)).await;
    let expected = "resources[0] (test://b): source.statement: the connection has no statement of this name";
    assert_eq!(normalized(&answer), problem(400, "invalid_params", expected));
}

#[tokio::test]
async fn statement_is_not_prepared_for_a_write_whose_condition_fails() {
    let site = Site::new().await;
    let bearer = format!("Bearer {}", site.replica.operator);
    let put = async |path: String, condition: (&'static str, &'static str), body: Value| {
        let headers = [("authorization", &*bearer), ("content-type", "application/json"), condition];
        site.replica.http.send("PUT", &format!("/admin/v1{path}"), &headers, body.to_string()).await.status
    };
    let source = statement("@none", "json");
    let body = json!({"name": "a", "source": source});
    let manifest = json!({"apiVersion": "waggle/v1", "resources": [
        {"uri": "test://a", "name": "a", "source": source}]});
    let (one, all) = (resource("notes", "test://a"), "/agents/notes/manifest");
    for (condition, expected) in [(("if-match", "\"9\""), 412), (("if-none-match", "\"9\""), 400)] {
        assert_eq!(put(one.clone(), condition, body.clone()).await, expected, "{condition:?}");
        assert_eq!(put(all.to_owned(), condition, manifest.clone()).await, expected, "{condition:?}");
        assert_eq!(
            put(format!("{all}?dryRun=true"), condition, manifest.clone()).await,
            expected,
            "{condition:?}"
        );
    }
}

#[tokio::test]
async fn dry_runs_await_databases_without_permits_for_queries() {
    let site = Site::new().await;
    site.replica.tenant("rival").await;
    site.replica.agent("rival", "other").await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://reader@{}/weather?sslmode=disable", silent.local_addr().unwrap());
    let settings = json!({"url": url, "allowNetworks": ["127.0.0.0/8"], "allowStatements": true});
    let new = json!({"id": "silent", "kind": "sql", "tenants": "*", "settings": settings, "limits": {"timeoutMs": 120_000}});
    let made = site.replica.admin("POST", "/connections", Some(new)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let source = json!({"connection": "silent", "statement": "select 1", "format": "json"});
    let manifest =
        json!({"apiVersion": "waggle/v1", "resources": [{"uri": "test://b", "name": "b", "source": source}]});
    // As many as there are permits for queries; a tenant has half of those for manifests.
    let mut checked = JoinSet::new();
    let mut awaited = Vec::new();
    for agent in ["notes", "notes", "other", "other"] {
        let (http, operator, manifest) =
            (site.replica.http.clone(), site.replica.operator.clone(), manifest.clone());
        checked.spawn(async move {
            let path = format!("/agents/{agent}/manifest?dryRun=true");
            http.admin(&operator, "PUT", &path, Some(manifest)).await.status
        });
        awaited.push(timeout(DEADLINE, silent.accept()).await.unwrap().unwrap());
    }
    assert_eq!(site.replica.admin("GET", "/agents", None).await.status, 200);
    // Databases that cannot be asked refuse nothing.
    drop((silent, awaited));
    assert!(checked.join_all().await.iter().all(|status| *status == 200));
}

#[tokio::test]
async fn database_that_cannot_be_asked_refuses_no_statement() {
    let site = Site::new().await;
    std::fs::remove_file(site.folder.path().join("weather.db")).unwrap();
    assert_eq!(site.register(statement("@secret_of_the_operator", "json")).await["status"], 201);
    // What the connection itself knows is refused all the same.
    assert_eq!(site.register(statement("@none", "json")).await["status"], 400);
    let disabled = json!({"enabled": false});
    assert_eq!(site.replica.admin("PATCH", "/connections/weather", Some(disabled)).await.status, 200);
    assert_eq!(site.register(statement("@none", "json")).await["status"], 200);
}

#[tokio::test]
async fn first_column_of_a_statement_completes() {
    let site = Site::new().await;
    let completions = json!({"city": {"source": statement("@cities", "json")}});
    let body = json!({"name": "t", "source": statement("@forecast", "json"), "completions": completions});
    let path = format!("/agents/notes/templates?uriTemplate={}", encode("weather://{city}"));
    let made = site.replica.admin("PUT", &path, Some(body)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let read = site.replica.http.text("notes", &site.key, "weather://Riga").await;
    assert_eq!(read.as_deref(), Some(r#"[{"celsius":9}]"#));
    let params = json!({"ref": {"type": "ref/resource", "uri": "weather://{city}"},
        "argument": {"name": "city", "value": "r"}});
    let answer = site.replica.http.call("notes", &site.key, "completion/complete", params).await;
    let expected = json!({"values": ["Riga", "Rome"], "total": 2, "hasMore": false});
    assert_eq!(answer["result"]["completion"], expected);
    let none = json!({"city": {"source": statement("@none", "json")}});
    let body = json!({"name": "t", "template": "x", "completions": none});
    let refused = normalized(&site.replica.admin("PUT", &path, Some(body)).await);
    let expected = "completions.city: source.statement: the connection has no statement of this name";
    assert_eq!(refused, problem(400, "invalid_params", expected));
}

#[tokio::test]
async fn bound_parameters_take_any_text_but_nul() {
    let site = Site::new().await;
    let database = rusqlite::Connection::open(site.folder.path().join("weather.db")).unwrap();
    let text = async |uri: &str| site.replica.http.text("notes", &site.key, uri).await;
    let put = async |uri_template: &str, body: Value| {
        let path = format!("/agents/notes/templates?uriTemplate={}", encode(uri_template));
        let made = site.replica.admin("PUT", &path, Some(body)).await;
        assert_eq!(made.status, 201, "{}", made.text());
    };
    put("weather:/{city}", json!({"name": "t", "source": statement("@forecast", "text")})).await;
    put("inline:/{city}", json!({"name": "t", "template": "{{ city }}"})).await;
    put("file:/{city}", json!({"name": "t", "source": {"connection": "docs", "path": "{city}"}})).await;
    let cities = ["Rome/Lazio", "..", ".", "a\\b", "a\nb", "../x", "Rome\u{7f}", "'; drop table forecast --"];
    for city in cities {
        database.execute("insert into forecast values (?1, 7)", [city]).unwrap();
        let encoded = encode(city).replace('.', "%2E");
        assert_eq!(text(&format!("weather:/{encoded}")).await.as_deref(), Some("7"), "{city:?}");
    }
    assert_eq!(text("weather:/Rome%00").await, None);
    // A body is rendered, and a path opened, for fewer.
    for city in ["Rome%2FLazio", "%2E%2E", "%2E%2E%2Fx"] {
        assert_eq!(text(&format!("inline:/{city}")).await, None, "{city}");
        assert_eq!(text(&format!("file:/{city}")).await, None, "{city}");
    }
    assert_eq!(text("inline:/a%0Ab").await, None);
    assert_eq!(text("file:/weather.db%00").await, None);
}

#[tokio::test]
async fn statements_that_a_database_rejects_do_not_open_the_circuit() {
    let site = Site::new().await;
    let refused =
        "source.statement: the database does not accept it; check its names and types against the database";
    for _ in 0..10 {
        let answer = site.register(statement("@secret_of_the_operator", "json")).await;
        assert_eq!(answer, problem(400, "invalid_params", refused));
    }
    assert_eq!(site.register(statement("@cities", "text")).await["status"], 201);
    assert!(site.replica.http.text("notes", &site.key, "test://a").await.is_some());
}
