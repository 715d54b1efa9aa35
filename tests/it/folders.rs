//! A gateway described by a folder of files: planned, applied, pruned, exported and imported.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::apply::{Output, output, run};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};

const CONNECTION: &str = "\
kind: connection
id: weather
type: http
tenants: [acme]
settings: {baseUrl: \"http://127.0.0.1:1/v1\", allowNetworks: [127.0.0.0/8]}
secrets: {headers: {authorization: {env: WEATHER_TOKEN}}}
limits: {burst: 7}
";

const AGENT: &str = "\
apiVersion: waggle/v1
kind: agent
id: research
tenant: acme
name: Research
tools: [search, resources]
---
apiVersion: waggle/v1
agent: research
resources:
- uri: x:guide
  name: guide
  contents:
  - text: |
      first
      second
- uri: x:weather
  name: weather
  source: {connection: weather, path: today}
";

/// A gateway with a key for secrets.
async fn gateway() -> (Database, TempDir, Replica) {
    let (database, keys) = (database().await, TempDir::new().unwrap());
    let key_file = keys.path().join("keys");
    fs::write(&key_file, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let replica = Builder::new(&database).set("WAGGLE_SOURCES__KEY_FILE", key_file.display()).start().await;
    (database, keys, replica)
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "tenants.json", r#"{"kind":"tenant","id":"acme","name":"Acme"}"#);
    write(folder.path(), "agents/research.yaml", AGENT);
    write(folder.path(), "weather.yml", CONNECTION);
    write(folder.path(), "README.md", "not: a document");
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs a command whose last argument is a folder; `DIR` stands for it in what is printed.
async fn command(replica: &Replica, line: &str, folder: &Path, token: Option<&str>) -> Output {
    let url = format!("http://{}", replica.running.admin_address);
    let mut variables = vec![("WAGGLE_URL", url.as_str()), ("WAGGLE_KEY", replica.operator.as_str())];
    variables.extend(token.map(|token| ("WEATHER_TOKEN", token)));
    let folder = folder.to_str().unwrap();
    let arguments: Vec<_> = line.split(' ').chain([folder]).collect();
    let (code, out, error) = run(&variables, &arguments, "").await;
    (code, out.replace(folder, "DIR"), error.replace(folder, "DIR"))
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_applied_twice_changes_nothing() {
    let (_database, _keys, replica) = gateway().await;
    let folder = folder();
    let planned = "+ tenant acme\n+ connection weather\n+ agent research\n+ resource x:guide\n+ resource x:weather\n\
                   research: 2 to create, 0 to update, 0 to delete\ngateway: 3 to create, 0 to update, 0 to delete\n";
    assert_eq!(command(&replica, "diff -f", folder.path(), None).await, output(2, planned, ""));
    let dry = "create tenant acme\ncreate connection weather\ncreate agent research\ncreate resource x:guide\n\
               create resource x:weather\nresearch is not yet as described: would be 2 created, 0 updated, 0 deleted, \
               0 unchanged\ngateway: would be 3 created, 0 updated, 0 deleted, 0 unchanged\n";
    assert_eq!(command(&replica, "apply --dry-run -f", folder.path(), None).await, output(0, dry, ""));
    let missing = "connection weather: secrets.headers.authorization: the environment variable WEATHER_TOKEN is not set\n";
    assert_eq!(command(&replica, "apply -f", folder.path(), None).await, output(2, "", missing));
    let tenants = replica.admin("GET", "/tenants", None).await.json();
    assert_eq!(tenants["items"], json!([]), "nothing was changed");

    let done = "create tenant acme\ncreate connection weather\ncreate agent research\ncreate resource x:guide\n\
                create resource x:weather\nresearch is at revision 2: 2 created, 0 updated, 0 deleted, 0 unchanged\n\
                gateway: 3 created, 0 updated, 0 deleted, 0 unchanged\n";
    assert_eq!(command(&replica, "apply -f", folder.path(), Some("hunter2")).await, output(0, done, ""));
    let before = replica.admin("GET", "/connections/weather", None).await;
    let same = "research is at revision 2: 0 created, 0 updated, 0 deleted, 2 unchanged\n\
                gateway: 0 created, 0 updated, 0 deleted, 3 unchanged\n";
    assert_eq!(command(&replica, "apply -f", folder.path(), None).await, output(0, same, ""));
    let none =
        "research: 0 to create, 0 to update, 0 to delete\ngateway: 0 to create, 0 to update, 0 to delete\n";
    assert_eq!(command(&replica, "diff --prune -f", folder.path(), None).await, output(0, none, ""));
    let after = replica.admin("GET", "/connections/weather", None).await;
    assert_eq!((after.revision(), after.json()), (before.revision(), before.json()));

    let again = "update connection weather\nresearch is at revision 2: 0 created, 0 updated, 0 deleted, 2 unchanged\n\
                 gateway: 0 created, 1 updated, 0 deleted, 2 unchanged\n";
    let secrets = command(&replica, "apply --secrets -f", folder.path(), Some("hunter3")).await;
    assert_eq!(secrets, output(0, again, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_folder_is_compared_applied_and_pruned() {
    let (_database, _keys, replica) = gateway().await;
    let folder = folder();
    let first = command(&replica, "apply -f", folder.path(), Some("hunter2")).await;
    assert_eq!(first.0, Some(0), "{first:?}");
    replica.tenant("other").await;
    replica.agent("acme", "leftover").await;
    let changed =
        AGENT.replace("second", "other").replace("name: Research", "name: Search\ntitle: The title");
    write(folder.path(), "agents/research.yaml", &changed);
    write(folder.path(), "weather.yml", &CONNECTION.replace("burst: 7", "burst: 8"));
    let difference = "\
~ connection weather
    @@ -1,2 +1,2 @@
     limits:
    -  burst: 7
    +  burst: 8
~ agent research
    @@ -1,1 +1,2 @@
    -name: Research
    +name: Search
    +title: The title
- agent leftover
- tenant other
~ resource x:guide
    @@ -1,6 +1,6 @@
     contents:
     - text: |
         first
    -    second
    +    other
     name: guide
     uri: x:guide
research: 0 to create, 1 to update, 0 to delete
gateway: 0 to create, 2 to update, 2 to delete
";
    let compared = command(&replica, "diff --prune -f", folder.path(), None).await;
    assert_eq!(compared, output(2, &difference.replace("-1,1 +", "-1 +"), ""));
    let refused = "--prune would delete agent leftover, tenant other; use --yes, since there is no terminal to ask at\n";
    assert_eq!(command(&replica, "apply --prune -f", folder.path(), None).await, output(2, "", refused));
    let done = "update connection weather\nupdate agent research\nupdate resource x:guide\n\
                research is at revision 4: 0 created, 1 updated, 0 deleted, 1 unchanged\ndelete agent leftover\n\
                delete tenant other\ngateway: 0 created, 2 updated, 2 deleted, 1 unchanged\n";
    let pruned = command(&replica, "apply --prune --yes -f", folder.path(), None).await;
    assert_eq!(pruned, output(0, done, ""));
    let none =
        "research: 0 to create, 0 to update, 0 to delete\ngateway: 0 to create, 0 to update, 0 to delete\n";
    assert_eq!(command(&replica, "diff --prune -f", folder.path(), None).await, output(0, none, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_in_the_middle_names_what_was_done() {
    let (_database, _keys, replica) = gateway().await;
    let folder = folder();
    write(folder.path(), "agents/research.yaml", &AGENT.replace("resources:", "resourced:"));
    let (code, out, error) = command(&replica, "apply -f", folder.path(), Some("t")).await;
    assert_eq!(
        (code, out.as_str()),
        (Some(1), "create tenant acme\ncreate connection weather\ncreate agent research\n")
    );
    assert!(
        error.starts_with("manifest of research: unknown field `resourced`")
            && error.ends_with("; 3 changes were made before it; correct it and apply again\n"),
        "{error}"
    );
    write(folder.path(), "agents/research.yaml", &AGENT.replace("tenant: acme", "tenant: other"));
    let moved = "agent research: tenant is \"acme\" and cannot become \"other\"; delete the agent first\n";
    assert_eq!(command(&replica, "apply -f", folder.path(), None).await, output(2, "", moved));
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_apply_would_refuse_are_refused_by_plans() {
    let (_database, _keys, replica) = gateway().await;
    for (text, refused) in [
        ("kind: agent\nid: zz9\n", "agent zz9: tenant is missing; expected the id of a tenant\n"),
        (
            "kind: agent\nid: zz9\ntenant: gone\n",
            "agent zz9: tenant gone does not exist and is not described; create or describe it\n",
        ),
        (
            "kind: connection\nid: c\ntype: http\ntenants: [gone]\nsettings: {baseUrl: \"http://127.0.0.1:1\"}\n",
            "connection c: tenant gone does not exist and is not described; create or describe it\n",
        ),
        (
            "kind: connection\nid: c\ntype: http\n",
            "connection c: settings is invalid: missing field `baseUrl`\n",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        write(folder.path(), "all.yaml", &format!("kind: tenant\nid: part\n---\n{text}"));
        for (line, code) in [("diff -f", 1), ("apply --dry-run -f", 2), ("apply -f", 2)] {
            let found = command(&replica, line, folder.path(), None).await;
            assert_eq!(found, output(code, "", refused), "{line}: {text}");
        }
    }
    let tenants = replica.admin("GET", "/tenants", None).await.json();
    assert_eq!(tenants["items"], json!([]), "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_gateway_is_imported_by_another() {
    let (_database, _keys, replica) = gateway().await;
    let source = folder();
    assert_eq!(command(&replica, "apply -f", source.path(), Some("hunter2")).await.0, Some(0));
    let exported = TempDir::new().unwrap();
    let done = "wrote 4 files to DIR\n";
    assert_eq!(command(&replica, "export --dir", exported.path(), None).await, output(0, done, ""));
    let text = |name: &str| fs::read_to_string(exported.path().join(name)).unwrap();
    assert_eq!(text("tenants/acme.yaml"), "apiVersion: waggle/v1\nkind: tenant\nid: acme\nname: Acme\n");
    let agent = "apiVersion: waggle/v1\nkind: agent\nid: research\naccess: key\nenabled: true\nname: Research\n\
                 tenant: acme\ntools:\n- search\n- resources\n";
    assert_eq!(text("agents/research/agent.yaml"), agent);
    let connection = text("connections/weather.yaml");
    assert!(
        connection.contains("\nsecrets:\n  headers:\n    env: SECRET_WEATHER_HEADERS\n")
            && connection.contains("\ntype: http\n")
            && !connection.contains("hunter2"),
        "{connection}"
    );
    let again = "DIR is not empty; expected a new folder\n";
    assert_eq!(command(&replica, "export --dir", exported.path(), None).await, output(2, "", again));
    let same =
        "research: 0 to create, 0 to update, 0 to delete\ngateway: 0 to create, 0 to update, 0 to delete\n";
    assert_eq!(command(&replica, "diff --prune -f", exported.path(), None).await, output(0, same, ""));

    let (_database, _keys, other) = gateway().await;
    let url = format!("http://{}", other.running.admin_address);
    let variables = [
        ("WAGGLE_URL", url.as_str()),
        ("WAGGLE_KEY", other.operator.as_str()),
        ("SECRET_WEATHER_HEADERS", r#"{"authorization":"hunter2"}"#),
    ];
    let arguments = ["import", exported.path().to_str().unwrap()];
    let imported = "create tenant acme\ncreate connection weather\ncreate agent research\ncreate resource x:guide\n\
                    create resource x:weather\nresearch is at revision 2: 2 created, 0 updated, 0 deleted, 0 unchanged\n\
                    gateway: 3 created, 0 updated, 0 deleted, 0 unchanged\n";
    assert_eq!(run(&variables, &arguments, "").await, output(0, imported, ""));
    let exists = "tenant acme exists already; waggle apply changes what exists\n";
    assert_eq!(run(&variables, &arguments, "").await, output(1, "", exists));
    assert_eq!(command(&other, "diff --prune -f", exported.path(), None).await, output(0, same, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn export_names_agents_whose_manifests_are_too_large() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__MANIFEST_BYTES", 1_024).start().await;
    replica.acme("big").await;
    replica.agent("acme", "small").await;
    let text = json!({"name": "n", "contents": [{"text": "t".repeat(2_000)}]});
    let put = replica.admin("PUT", "/agents/big/resources?uri=x%3A1", Some(text)).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let exported = TempDir::new().unwrap();
    let (code, out, error) = command(&replica, "export --dir", exported.path(), None).await;
    assert_eq!((code, out.as_str()), (Some(1), "wrote 4 files to DIR\n"), "{error}");
    let named = "agent big was exported without its manifest: the manifest is larger than 1024 bytes; read the definitions \
                 one by one (invalid_params)\n";
    assert_eq!(error, named);
    assert!(exported.path().join("agents/small/manifest.json").exists());
}
