//! Operation: start without the database, draining, reload, migrations, and their log events.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use http::StatusCode;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use waggle::model::key::{KeyKind, SecretKey};

use crate::support::cluster::database;
use crate::support::process::{Gateway, Site, free_address};
use crate::support::wait::eventually;

pub(crate) fn operator() -> String {
    SecretKey::generate(KeyKind::Operator, &mut rand::rng()).reveal().to_owned()
}

/// The lines of the log, each a JSON object.
fn log(site: &Site) -> Vec<Value> {
    site.printed("stderr").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn logged(site: &Site, message: &str) -> Value {
    let find = || log(site).into_iter().rfind(|line| line["message"] == message);
    eventually(message, async || find().is_some()).await;
    find().unwrap()
}

fn count(site: &Site, message: &str) -> usize {
    log(site).iter().filter(|line| line["message"] == message).count()
}

#[tokio::test]
async fn gateway_without_database_is_alive_and_says_why_not_ready() {
    let unreachable = free_address();
    let site = Site::new()
        .set("DATABASE_URL", format!("postgres://waggle:hunter2@{unreachable}/books"))
        .set("WAGGLE_ADMIN__OPERATOR_KEY", operator());
    let mut child = site.command("serve");
    let printed = site.folder.root.path().join("stderr");
    let mut child = child.stderr(fs::File::create(&printed).unwrap()).spawn().unwrap();
    let unready = json!({"status": "unready", "reasons": ["database_unreachable"]});
    eventually("readiness states the reason", async || {
        let answer = site.http.try_send("GET", "/readyz", &[], "").await;
        answer
            .is_ok_and(|answer| answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.json() == unready)
    })
    .await;
    let alive = site.http.get("/healthz").await;
    assert_eq!((alive.status, alive.json()), (StatusCode::OK, json!({"status": "alive"})));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let refused = site.http.post_bearer("a", "bak_x", &ping).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")));
    assert_eq!(
        (&refused.json()["id"], &refused.json()["error"]["data"]["code"]),
        (&json!(1), &json!("unavailable"))
    );
    let modern = [("content-type", "application/json"), ("mcp-protocol-version", "2026-07-28")];
    let unread = site.http.send("POST", "/a/mcp", &modern, "[").await.json();
    assert_eq!((unread.get("id"), &unread["error"]["data"]["code"]), (None, &json!("unavailable")));
    let refused = site.http.get("/admin/v1/tenants").await;
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (503, &json!("unavailable")));

    let lines = log(&site);
    let (first, text) = (&lines[0], site.printed("stderr"));
    assert_eq!(
        (&first["message"], &first["version"]),
        (&json!("gateway starting"), &json!(env!("CARGO_PKG_VERSION")))
    );
    assert!(first["instance"].as_str().is_some_and(|id| id.parse::<uuid::Uuid>().is_ok()), "{first}");
    let away = logged(&site, "database unreachable").await;
    let place = (&away["host"], &away["port"], &away["database"]);
    assert_eq!(place, (&json!("127.0.0.1"), &json!(unreachable.port()), &json!("books")));
    let delays = || {
        let away = log(&site).into_iter().filter(|line| line["message"] == "database unreachable");
        away.filter_map(|line| line["retry_in_ms"].as_u64()).collect::<Vec<_>>()
    };
    // Each is varied by half, up or down.
    let grow = |delays: &[u64]| {
        let around = [125..=375, 250..=750, 500..=1_500];
        delays.len() >= 3 && around.iter().zip(delays).all(|(around, delay)| around.contains(delay))
    };
    eventually("connecting is retried with growing delays", async || grow(&delays())).await;
    assert!(!text.contains("hunter2"), "{text}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn draining_gateway_serves_but_is_not_ready() {
    let site = Site::new().set("WAGGLE_SERVER__DRAIN_SECONDS", 600);
    let gateway = site.serve().await;
    gateway.terminate();
    let draining = json!({"status": "unready", "reasons": ["draining"]});
    eventually("readiness fails", async || {
        let answer = site.http.get("/readyz").await;
        answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.json() == draining
    })
    .await;
    assert_eq!(site.admin("GET", "/tenants", None).await.status, StatusCode::OK);
    assert_eq!(site.http.get("/healthz").await.status, StatusCode::OK);
    gateway.terminate();
    assert_eq!(gateway.ended().await.code(), Some(0), "a second signal ends the draining");
}

/// A gateway with a configuration file and a file of operator keys, which it reads again at `SIGHUP`.
pub(crate) struct Reloaded {
    pub(crate) site: Site,
    pub(crate) config: PathBuf,
    keys: PathBuf,
    pub(crate) gateway: Gateway,
}

impl Reloaded {
    pub(crate) async fn start(config: &str, keys: &str) -> Self {
        let site = Site::new().set("WAGGLE_CONFIG", "waggle.toml").set("WAGGLE_LOG__FORMAT", "json");
        let [config_file, keys_file] =
            ["waggle.toml", "operator.keys"].map(|name| site.folder.root.path().join(name));
        fs::write(&config_file, config).unwrap();
        fs::write(&keys_file, keys).unwrap();
        let site = site.set("WAGGLE_ADMIN__OPERATOR_KEYS_FILE", keys_file.display());
        let gateway = site.serve().await;
        Self { site, config: config_file, keys: keys_file, gateway }
    }

    /// Sends `SIGHUP` and waits for one more line with this message.
    pub(crate) async fn hang_up(&self, message: &str) -> Value {
        let before = count(&self.site, message);
        kill(self.gateway.pid(), Signal::SIGHUP).unwrap();
        eventually(message, async || count(&self.site, message) > before).await;
        logged(&self.site, message).await
    }

    async fn status(&self, key: &str) -> u16 {
        self.site.http.admin(key, "GET", "/tenants", None).await.status.as_u16()
    }
}

#[tokio::test]
async fn sighup_replaces_operator_keys_and_rows_name_them() {
    let [first, second] = [operator(), operator()];
    let reloaded = Reloaded::start("", &format!("{first}\n")).await;
    assert_eq!((reloaded.status(&first).await, reloaded.status(&second).await), (200, 401));
    assert!(!reloaded.site.operator_file().exists(), "no key is generated if keys are configured");

    fs::write(&reloaded.keys, format!("{first}\n{second}\n")).unwrap();
    reloaded.hang_up("settings reloaded").await;
    assert_eq!((reloaded.status(&first).await, reloaded.status(&second).await), (200, 200));

    fs::write(&reloaded.keys, "no key\n").unwrap();
    let refused = reloaded.hang_up("settings not reloaded; those in force stay").await;
    assert!(refused["error"].as_str().unwrap().contains("operator.keys:1: "), "{refused}");
    assert_eq!((reloaded.status(&first).await, reloaded.status(&second).await), (200, 200));

    fs::write(&reloaded.keys, &second).unwrap();
    reloaded.hang_up("settings reloaded").await;
    assert_eq!((reloaded.status(&first).await, reloaded.status(&second).await), (401, 200));

    let in_force = log(&reloaded.site).into_iter().filter(|line| line["message"] == "operator key in force");
    let ids: Vec<_> = in_force.map(|line| (line["key_display"].clone(), line["key_id"].clone())).collect();
    let id = |key: &str| ids.iter().find(|(display, _)| *display == key[..12]).unwrap().1.clone();
    for key in [&first, &second] {
        let id = id(key);
        let path = format!("/audit?key={}", id.as_str().unwrap());
        eventually("rows name the key", async || {
            let rows = reloaded.site.http.admin(&second, "GET", &path, None).await.json();
            let rows = rows["items"].as_array().unwrap().clone();
            rows.iter().any(|row| row["method"] == "GET /admin/v1/tenants" && row["principal"] == "operator")
                && rows.iter().all(|row| row["keyId"] == id)
        })
        .await;
    }
    assert!(!reloaded.site.printed("stderr").contains(&first[..20]), "keys are not logged");
    assert_eq!(reloaded.gateway.stop().await.code(), Some(0));
}

#[tokio::test]
async fn sighup_applies_a_valid_configuration_or_none_of_it() {
    let key = operator();
    let reloaded = Reloaded::start("[log]\nfilter = \"info\"\n", &key).await;
    let write = |text: &str| fs::write(&reloaded.config, text).unwrap();
    write("[log]\nfilter = \"info,waggle=debug\"\n[limits]\nbody_bytes = 0\n");
    let refused = reloaded.hang_up("settings not reloaded; those in force stay").await;
    assert!(refused["error"].as_str().unwrap().contains("waggle.toml:4: limits.body_bytes"), "{refused}");
    write("[log]\nfilter = \"error,waggle::app::reload=info\"\n[mcp]\npage_size = 7\n");
    reloaded.hang_up("settings reloaded").await;
    let restart = logged(&reloaded.site, "setting changed; restart waggle to apply it").await;
    assert_eq!(restart["setting"], "mcp.page_size");
    let count_of_stopping = count(&reloaded.site, "stopping");
    let Reloaded { site, gateway, .. } = reloaded;
    assert_eq!(gateway.stop().await.code(), Some(0));
    assert_eq!(count(&site, "stopping"), count_of_stopping, "the new filter drops it");
}

/// Runs a command to its end: exit code, standard output and standard error.
async fn run(site: &Site, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        site.command(arguments[0]).args(&arguments[1..]).output().await.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test]
async fn migrate_reports_what_it_did_or_would_do() {
    let database = database().await;
    database.execute("delete from _sqlx_migrations where version = 2").await;
    let site =
        Site::new().set("DATABASE_URL", database.options.to_url_lossy()).set("WAGGLE_LOG__FILTER", "off");
    let (code, would, _) = run(&site, &["migrate", "--status"]).await;
    assert_eq!(code, Some(0));
    assert!(
        would.starts_with("missing 0002 tenants\n") && would.contains("would apply 1 migrations"),
        "{would}"
    );
    assert_eq!(database.number("select count(*) from _sqlx_migrations where version = 2").await, 0);

    let empty = Site::new().set("WAGGLE_LOG__FILTER", "off");
    let (code, out, error) = run(&empty, &["migrate", "--status"]).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(error.contains("there is no embedded database in "), "{error}");
    assert!(!empty.folder.data_dir().exists(), "a command that only reads makes no database");
}

#[tokio::test]
async fn newer_schema_is_reported_and_not_migrated() {
    let database = database().await;
    let newest = database.number("select max(version) from _sqlx_migrations").await;
    database
        .execute(
            "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
             values (9999, 'of a later version', true, '', 0)",
        )
        .await;
    let site = Site::new()
        .set("DATABASE_URL", database.options.to_url_lossy())
        .set("WAGGLE_ADMIN__OPERATOR_KEY", operator());
    let (code, migrated, _) = run(&site, &["migrate"]).await;
    assert_eq!(code, Some(0));
    assert!(migrated.starts_with("the schema is at 9999, newer than this version of waggle"), "{migrated}");
    let gateway = site.serve().await;
    let newer = logged(&site, "database schema is newer than this version of waggle").await;
    assert_eq!((&newer["schema"], &newer["known"]), (&json!(9999), &json!(newest)));
    assert_eq!(gateway.stop().await.code(), Some(0));
    assert!(!site.printed("stderr").contains("_sqlx_migrations"), "no notices of the library at info");
}

#[tokio::test]
async fn configuration_errors_follow_the_log_format() {
    let site = Site::new().set("WAGGLE_LIMITS__BODY_BYTES", 0);
    let (code, out, error) = run(&site, &["serve", "--log-format", "json"]).await;
    assert_eq!((code, out.as_str(), error.lines().count()), (Some(2), "", 1));
    let line: Value = serde_json::from_str(error.trim()).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(line["error"].as_str().unwrap().contains("WAGGLE_LIMITS__BODY_BYTES"), "{line}");
}

#[tokio::test]
async fn access_log_has_one_line_for_each_request() {
    let site = Site::new().set("WAGGLE_LOG__ACCESS", "on");
    let _gateway = site.serve().await;
    let key = site.tenant("acme", ["research".to_owned()]).await;
    let headers = [
        ("authorization", &*format!("Bearer {key}")),
        ("content-type", "application/json"),
        ("x-request-id", "r-7"),
    ];
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}).to_string();
    assert_eq!(site.http.send("POST", "/research/mcp", &headers, list).await.status, StatusCode::OK);
    let find = || log(&site).into_iter().find(|line| line["request_id"] == "r-7");
    eventually("the request is logged", async || find().is_some()).await;
    let mut line = find().unwrap();
    assert!(line["tenant"].as_str().is_some_and(|id| id.parse::<uuid::Uuid>().is_ok()), "{line}");
    assert!(line["duration_us"].as_u64().is_some_and(|duration| duration > 0), "{line}");
    assert!(line["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{line}");
    for changing in ["timestamp", "tenant", "duration_us", "bytes"] {
        line.as_object_mut().unwrap().remove(changing);
    }
    let expected = json!({
        "level": "INFO", "target": "waggle::access", "message": "request answered", "status": 200,
        "outcome": "ok", "client": "127.0.0.1", "request_id": "r-7", "agent": "research", "method": "resources/list"
    });
    assert_eq!(line, expected);
    let made = log(&site).into_iter().find(|line| line["method"] == "POST /admin/v1/agents").unwrap();
    assert_eq!((&made["status"], &made["target"]), (&json!(201), &json!("waggle::access")));
}

#[tokio::test]
async fn access_log_names_method_and_outcome_of_refused_requests() {
    let site = Site::new().set("WAGGLE_LOG__ACCESS", "on").set("WAGGLE_LIMITS__BODY_BYTES", 2_048);
    let _gateway = site.serve().await;
    let key = site.tenant("acme", ["research".to_owned()]).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}).to_string();
    let unknown = json!({"jsonrpc": "2.0", "id": 1, "method": "x/y"}).to_string();
    let long = json!({"jsonrpc": "2.0", "id": "x".repeat(4_096), "method": "resources/list"}).to_string();
    let (bad, good) = ("Bearer bak_x".to_owned(), format!("Bearer {key}"));
    let cases = [
        (
            "r-1",
            "POST",
            "/research/mcp",
            vec![("authorization", bad.as_str())],
            &list[..],
            ["resources/list", "unauthenticated"],
        ),
        (
            "r-2",
            "POST",
            "/absent/mcp",
            vec![("authorization", good.as_str())],
            &list[..],
            ["resources/list", "forbidden"],
        ),
        (
            "r-3",
            "POST",
            "/research/mcp",
            vec![("authorization", good.as_str())],
            &unknown[..],
            ["other", "method_not_found"],
        ),
        (
            "r-4",
            "POST",
            "/research/mcp",
            vec![("authorization", bad.as_str())],
            "{",
            ["POST", "unauthenticated"],
        ),
        (
            "r-5",
            "POST",
            "/research/mcp",
            vec![("authorization", good.as_str()), ("mcp-method", "resources/list")],
            &long[..],
            ["resources/list", "payload_too_large"],
        ),
        (
            "r-6",
            "PUT",
            "/research/mcp",
            vec![("authorization", good.as_str())],
            &list[..],
            ["other", "method_not_allowed"],
        ),
        (
            "r-7",
            "GET",
            "/admin/v1/tenants",
            vec![("authorization", bad.as_str())],
            "",
            ["GET /admin/v1/tenants", "unauthenticated"],
        ),
    ];
    for (id, method, path, headers, body, [logged_method, outcome]) in cases {
        let headers = [&headers[..], &[("content-type", "application/json"), ("x-request-id", id)]].concat();
        let answer = site.http.send(method, path, &headers, body.to_owned()).await;
        assert!(answer.status.is_client_error() || answer.status.is_success(), "{id}: {}", answer.text());
        let find = || log(&site).into_iter().find(|line| line["request_id"] == id);
        eventually("the request is logged", async || find().is_some()).await;
        let line = find().unwrap();
        assert_eq!(
            (&line["method"], &line["outcome"]),
            (&json!(logged_method), &json!(outcome)),
            "{id}: {line}"
        );
    }
}

#[tokio::test]
async fn rotated_keys_are_not_named_as_expiring() {
    let site = Site::new();
    let gateway = site.serve().await;
    site.tenant("acme", ["a".to_owned()]).await;
    let in_days = |days| {
        let at = time::OffsetDateTime::now_utc() + time::Duration::days(days);
        at.format(&time::format_description::well_known::Rfc3339).unwrap()
    };
    let make = async |days| {
        let made = site.admin("POST", "/agents/a/keys", Some(json!({"expiresAt": in_days(days)}))).await;
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let (expiring, rotated) = (make(5).await, make(100).await);
    let path = format!("/keys/{rotated}/rotate");
    assert_eq!(
        site.admin("POST", &path, Some(json!({"graceSeconds": 3_600}))).await.status,
        StatusCode::CREATED
    );
    assert_eq!(gateway.stop().await.code(), Some(0));
    // The keys are counted at the start.
    let _gateway = site.serve().await;
    let named = logged(&site, "key expires soon").await;
    let of = (&named["key_id"], &named["agent"], &named["level"]);
    assert_eq!(of, (&json!(expiring), &json!("a"), &json!("WARN")));
    assert!(named["tenant"].as_str().is_some_and(|id| id.parse::<uuid::Uuid>().is_ok()), "{named}");
    assert_eq!(count(&site, "key expires soon"), 1);
}

#[tokio::test]
async fn combined_access_log_is_that_of_web_servers() {
    let site = Site::new().set("WAGGLE_LOG__ACCESS", "combined");
    let _gateway = site.serve().await;
    let headers = [("user-agent", "a \"b\""), ("referer", "http://localhost/")];
    let answer = site.http.send("GET", "/admin/v1/tenants?limit=1", &headers, "").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let find = || site.printed("stdout").lines().find(|line| line.contains("limit=1")).map(str::to_owned);
    eventually("the request is logged", async || find().is_some()).await;
    let line = find().unwrap();
    let (client, rest) = line.split_once(" [").unwrap();
    let (at, rest) = rest.split_once("] ").unwrap();
    let rest_expected = format!(
        r#""GET /admin/v1/tenants?limit=1 HTTP/1.1" 401 {} "http://localhost/" "a \"b\"""#,
        answer.body.len()
    );
    assert_eq!((client, rest), ("127.0.0.1 - -", rest_expected.as_str()));
    assert!(at.len() == "23/Nov/2026:14:55:00 +0000".len() && at.ends_with(" +0000"), "{at}");
    assert_eq!(count(&site, "request answered"), 0);
}

#[tokio::test]
async fn requests_are_not_logged_by_default() {
    let site = Site::new();
    let _gateway = site.serve().await;
    assert_eq!(site.http.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(count(&site, "request answered"), 0);
}
