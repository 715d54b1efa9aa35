//! Registering, reading and removing mounts.

use serde_json::{Value, json};
use waggle::store::Store;

use super::{Site, guides};
use crate::support::answers::{normalized, problem};
use crate::support::app::resource;
use crate::support::cluster::store_options;
use crate::support::wait::eventually;

const GUIDES: &str = "/agents/notes/mounts/guides";

#[tokio::test]
async fn mount_is_answered_with_its_state() {
    let site = Site::new().await;
    site.write("guides/a.md", "# a");
    let mut sent = guides();
    (sent["annotations"], sent["ttlMs"]) = (json!({"priority": 0.5}), json!(100));
    (sent["exclude"], sent["labels"]) = (json!(["b/**"]), json!(["staff"]));
    let made = site.replica.admin("PUT", GUIDES, Some(sent.clone())).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let scanning = made.json();
    assert_eq!((&scanning["name"], &scanning["include"]), (&json!("guides"), &sent["include"]));
    assert!(["scanning", "ready"].contains(&scanning["state"].as_str().unwrap()), "{scanning}");
    site.listed("guides").await;
    let read = site.replica.admin("GET", GUIDES, None).await;
    assert_eq!(read.header("etag"), made.header("etag"));
    let mut whole = read.json();
    assert!(whole["checkedAt"].take().is_string());
    let mut expected = sent.clone();
    expected["name"] = json!("guides");
    (expected["state"], expected["entries"]) = (json!("ready"), json!(1));
    (expected["checkedAt"], expected["reason"]) = (Value::Null, Value::Null);
    assert_eq!(whole, expected);
    let listed = site.replica.admin("GET", "/agents/notes/mounts", None).await.json();
    assert_eq!(
        (&listed["items"][0]["state"], listed["items"].as_array().unwrap().len()),
        (&json!("ready"), 1)
    );
    // What is read can be sent, and changes nothing.
    let same = site.replica.admin("PUT", GUIDES, Some(read.json())).await;
    assert_eq!((same.status.as_u16(), same.header("etag")), (200, made.header("etag")));
    let mut answered = same.json();
    assert!(answered["checkedAt"].take().is_string());
    assert_eq!(answered, expected);

    let bearer = format!("Bearer {}", site.replica.operator);
    let (path, headers) =
        (format!("/admin/v1{GUIDES}"), [("authorization", &*bearer), ("if-match", "\"1\"")]);
    assert_eq!(site.replica.http.send("DELETE", &path, &headers, "").await.status, 412);
    assert_eq!(site.replica.admin("DELETE", GUIDES, None).await.status, 204);
    let gone = site.replica.admin("GET", GUIDES, None).await;
    assert_eq!(normalized(&gone), problem(404, "not_found", "no such mount"));
    assert_eq!(site.uris().await, Vec::<String>::new());
}

#[tokio::test]
async fn wrong_mounts_are_refused() {
    let site = Site::new().await;
    let http =
        json!({"id": "api", "kind": "http", "tenants": "*", "settings": {"baseUrl": "https://example.com/"}});
    assert_eq!(site.replica.admin("POST", "/connections", Some(http)).await.status, 201);
    site.replica.tenant("bee").await;
    let foreign =
        json!({"id": "foreign", "kind": "file", "tenants": ["bee"], "settings": {"root": site.root()}});
    assert_eq!(site.replica.admin("POST", "/connections", Some(foreign)).await.status, 201);
    for (member, value, detail) in [
        ("connection", json!("nope"), "connection: unknown connection: nope"),
        ("connection", json!("foreign"), "connection: unknown connection: foreign"),
        ("connection", json!("a b"), "connection: unknown connection: a b"),
        (
            "connection",
            json!("api"),
            "connection: one of kind http has no files to mount; expected file, git or s3",
        ),
        ("uri", json!("guides/"), "uri is not an absolute URI of RFC 3986"),
        ("uri", json!("file:///guides"), "uri must end in /, without a query or a fragment"),
        ("uri", json!("skill://guides/"), "uri has the scheme skill, which only skills have"),
        ("path", json!("guides"), "path must be empty or end in /: it is a directory"),
        ("path", json!("../"), "path must be relative, without empty, `.` and `..` segments"),
        ("path", json!("{a}/"), "path of a mount has no variables"),
        ("include", json!([""]), "include [0] must have 1 to 512 bytes"),
        ("ref", json!("main"), "ref is no member of a connection of kind file"),
        ("ttlMs", json!(86_400_001), "ttlMs must be at most 86400000"),
    ] {
        let mut body = guides();
        body[member] = value;
        let refused = normalized(&site.replica.admin("PUT", GUIDES, Some(body.clone())).await);
        assert_eq!(refused, problem(400, "invalid_params", detail), "{body}");
    }
    let name = site.replica.admin("PUT", "/agents/notes/mounts/A", Some(guides())).await;
    let wrong = "name must match ^[a-z0-9][a-z0-9_-]{0,62}$";
    assert_eq!(normalized(&name), problem(400, "invalid_params", wrong));

    site.mount("guides", guides()).await;
    let taken = problem(409, "already_exists", "a mount with this uri exists already");
    let other = site.replica.admin("PUT", "/agents/notes/mounts/other", Some(guides())).await;
    assert_eq!(normalized(&other), taken);
    let mut moved = guides();
    moved["uri"] = json!("file:///other/");
    site.mount("other", moved).await;
    let other = site.replica.admin("PUT", "/agents/notes/mounts/other", Some(guides())).await;
    assert_eq!(normalized(&other), taken);
}

#[tokio::test]
async fn explain_names_the_mount_and_the_connection() {
    let site = Site::new().await;
    site.write("guides/a.md", "# a");
    site.mount("guides", guides()).await;
    let source = json!({"name": "a", "source": {"connection": "docs", "path": "guides/a.md"}});
    let path = resource("notes", "x:sourced");
    assert_eq!(site.replica.admin("PUT", &path, Some(source)).await.status, 201);
    site.replica.put("notes", "file:///guides/b.md", "registered").await;
    let (key, _) = site.replica.key("notes", &["mcp"]).await;
    let explain = async |method: &str, params: Value| {
        let question = json!({"keyId": key, "request": {"method": method, "params": params}});
        let answer = site.replica.admin("POST", "/agents/notes/explain", Some(question)).await.json();
        assert_eq!(answer["rule"], "allowed", "{answer}");
        answer["source"].clone()
    };
    let mounted = json!({"connection": "docs", "mount": "guides"});
    let file = json!({"uri": "file:///guides/a.md"});
    assert_eq!(explain("resources/read", file.clone()).await, mounted);
    assert_eq!(explain("resources/subscribe", file.clone()).await, mounted);
    let tool = json!({"name": "read_resource", "arguments": file});
    assert_eq!(explain("tools/call", tool).await, mounted);
    assert_eq!(explain("resources/read", json!({"uri": "x:sourced"})).await, json!({"connection": "docs"}));
    // A registered resource goes before the file of its URI.
    assert_eq!(explain("resources/read", json!({"uri": "file:///guides/b.md"})).await, Value::Null);
    assert_eq!(explain("resources/read", json!({"uri": "file:///guides/b.txt"})).await, Value::Null);
    assert_eq!(explain("resources/list", json!({})).await, Value::Null);
}

#[tokio::test]
async fn number_of_mounts_is_limited() {
    let site = Site::with(&[("WAGGLE_LIMITS__MOUNTS_PER_AGENT", "1")]).await;
    site.mount("guides", guides()).await;
    let mut other = guides();
    other["uri"] = json!("file:///other/");
    let refused = site.replica.admin("PUT", "/agents/notes/mounts/other", Some(other)).await;
    let detail = "the agent's limit of mounts is reached; delete one first";
    assert_eq!(normalized(&refused), problem(400, "invalid_params", detail));
}

#[tokio::test]
async fn connection_of_a_mount_is_not_deleted() {
    let site = Site::new().await;
    site.mount("guides", guides()).await;
    let used = problem(409, "in_use", "definitions name this connection; delete or change them first");
    assert_eq!(normalized(&site.replica.admin("DELETE", "/connections/docs", None).await), used);
    assert_eq!(site.replica.admin("DELETE", "/agents/notes", None).await.status, 204);
    let is_deleted =
        async || site.replica.admin("DELETE", "/connections/docs", None).await.status.as_u16() == 204;
    eventually("mounts of a deleted agent do not count", is_deleted).await;
}

#[tokio::test]
async fn manifest_has_the_mounts() {
    let site = Site::new().await;
    site.write("guides/a.md", "# a");
    let manifest = "/agents/notes/manifest";
    let mut guides = guides();
    (guides["name"], guides["exclude"]) = (json!("guides"), json!([]));
    let with = |mounts: Value| json!({"apiVersion": "waggle/v1", "agent": "notes", "mounts": mounts});
    let applied = site.replica.admin("PUT", manifest, Some(with(json!([guides])))).await;
    assert_eq!(applied.json()["created"]["mounts"], json!(["guides"]), "{}", applied.text());
    site.listed("guides").await;
    let exported = site.replica.admin("GET", manifest, None).await.json();
    assert_eq!(exported["mounts"], json!([guides]));
    let without = json!({"apiVersion": "waggle/v1", "agent": "notes"});
    let same = site.replica.admin("PUT", manifest, Some(without)).await.json();
    assert_eq!((&same["deleted"]["count"], &same["unchanged"]), (&json!(0), &json!(0)));
    assert_eq!(site.uris().await, ["file:///guides/a.md"]);

    let mut twice = guides.clone();
    twice["name"] = json!("twice");
    let refused = site.replica.admin("PUT", manifest, Some(with(json!([guides, twice])))).await;
    assert_eq!(normalized(&refused), problem(409, "already_exists", "a mount with this uri exists already"));
    // Two may exchange their URIs.
    twice["uri"] = json!("file:///twice/");
    let both = site.replica.admin("PUT", manifest, Some(with(json!([guides, twice])))).await;
    assert_eq!(both.status, 200, "{}", both.text());
    let (one, other) = (guides["uri"].take(), twice["uri"].take());
    (guides["uri"], twice["uri"]) = (other, one);
    let exchanged = site.replica.admin("PUT", manifest, Some(with(json!([guides, twice])))).await;
    assert_eq!(exchanged.json()["updated"]["mounts"], json!(["guides", "twice"]), "{}", exchanged.text());
    let none = site.replica.admin("PUT", manifest, Some(with(json!([])))).await;
    assert_eq!(none.json()["deleted"]["mounts"], json!(["guides", "twice"]), "{}", none.text());
    assert_eq!(site.uris().await, Vec::<String>::new());
}

#[tokio::test]
async fn mounts_of_a_tenant_take_no_places_of_others() {
    let site = Site::new().await;
    site.replica.tenant("bee").await;
    site.replica.agent("bee", "b").await;
    let all = json!({"tenants": "*"});
    assert_eq!(site.replica.admin("PATCH", "/connections/docs", Some(all)).await.status, 200);
    let mounts = (0..4).map(|nth| ("notes", format!("m{nth}"))).chain([("b", "own".to_owned())]);
    for (agent, name) in mounts {
        let mount = json!({"connection": "docs", "path": "", "uri": format!("file:///{name}/")});
        let path = format!("/agents/{agent}/mounts/{name}");
        assert_eq!(site.replica.admin("PUT", &path, Some(mount)).await.status, 201);
    }
    let store = Store::new(store_options(site.database.options.clone()));
    let scanned = async |limit, of_tenant| {
        let mounts = store.scanned_mounts(limit, of_tenant).await.unwrap();
        let mut names: Vec<_> = mounts.iter().map(|(mount, _)| mount.name.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(scanned(2, 4).await, ["m0", "own"], "as many of each tenant");
    assert_eq!(scanned(3, 4).await, ["m0", "m1", "own"], "what one does not use the other may");
    assert_eq!(scanned(10, 2).await, ["m0", "m1", "own"], "at most so many of each tenant");
    assert_eq!(scanned(10, 4).await, ["m0", "m1", "m2", "m3", "own"]);
    store.close().await;
}
