//! PostgreSQL: rows as content, roles and statements that are refused.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;

use super::support::{BOUNDS, Case, Cluster, context, location, text};
use super::*;
use crate::pace::assert_paced;
use crate::source::Content;

const SETUP: &str = "create role reader login;
    create type mood as enum ('good', 'bad');
    create table city (id int primary key, name text, warm bool, height numeric, more jsonb, raw bytea, at timestamptz, mood mood);
    insert into city values
        (1, 'Zürich', true, 408.50, '{\"a\": [1]}', '\\x00ff', '2026-01-02 03:04:05+01', 'good'),
        (2, 'a,\"b\"', false, null, null, null, null, 'bad');
    grant select on city to reader;";

#[tokio::test]
async fn rows_of_postgres_are_written_in_all_formats() {
    let cluster = Cluster::start(SETUP).await;
    let source = cluster.connect(&json!({"statements": {
        "city": "select name from city where id = {id}",
        "mood": "select name from city where mood = {mood} -- {ignored}",
        "maybe": "select name from city where {id}::int is null or id = {id} order by id;",
    }}));
    let all = "select * from city order by id";
    let json = "[{\"id\":1,\"name\":\"Zürich\",\"warm\":true,\"height\":408.50,\"more\":{\"a\": [1]},\"raw\":\"\\\\x00ff\",\
        \"at\":\"2026-01-02T02:04:05+00:00\",\"mood\":\"good\"},\
        {\"id\":2,\"name\":\"a,\\\"b\\\"\",\"warm\":false,\"height\":null,\"more\":null,\"raw\":null,\"at\":null,\"mood\":\"bad\"}]";
    let csv = "id,name,warm,height,more,raw,at,mood\r\n\
        1,Zürich,true,408.50,\"{\"\"a\"\": [1]}\",\\x00ff,2026-01-02 02:04:05+00,good\r\n\
        2,\"a,\"\"b\"\"\",false,,,,,bad\r\n";
    let cases: [Case; 26] = [
        (all, &[], Format::Json, Ok(json)),
        (all, &[], Format::Csv, Ok(csv)),
        ("select name, id from city order by 2", &[], Format::Text, Ok("Zürich\na,\"b\"")),
        ("select id, id from city where id = 1", &[], Format::Csv, Ok("id,id\r\n1,1\r\n")),
        ("@city", &[("id", "2")], Format::Text, Ok("a,\"b\"")),
        ("@city", &[("id", "2 or 1=1")], Format::Json, Err(FetchError::NotFound)),
        ("@city", &[("id", "99999999999")], Format::Json, Err(FetchError::NotFound)),
        ("@city", &[("id", "a\0b")], Format::Json, Err(FetchError::NotFound)),
        ("@city", &[("id", "3")], Format::Json, Ok("[]")),
        ("@city", &[("id", "3")], Format::Csv, Ok("name\r\n")),
        ("@city", &[("id", "3")], Format::Text, Ok("")),
        ("@city", &[("id", "3")], Format::Blob, Err(FetchError::NotFound)),
        ("@city", &[("id", "1")], Format::Blob, Ok("Zürich")),
        ("select more from city where id = 1", &[], Format::Blob, Ok("{\"a\": [1]}")),
        ("select raw from city where id = 2", &[], Format::Blob, Err(FetchError::NotFound)),
        ("select name from city", &[], Format::Blob, Err(FetchError::BadContent)),
        ("select id from city where id = 1", &[], Format::Blob, Err(FetchError::BadContent)),
        ("@mood", &[("mood", "good")], Format::Text, Ok("Zürich")),
        ("@mood", &[("mood", "fine")], Format::Text, Err(FetchError::NotFound)),
        ("@maybe", &[], Format::Text, Ok("Zürich\na,\"b\"")),
        ("@maybe", &[("id", "1")], Format::Text, Ok("Zürich")),
        (
            "select {a} || {b}",
            &[("a", "'"), ("b", "; drop table city; --")],
            Format::Text,
            Ok("'; drop table city; --"),
        ),
        ("select nothing", &[], Format::Json, Err(FetchError::Rejected)),
        ("select 1 / (id - 2) from city order by id", &[], Format::Json, Err(FetchError::Rejected)),
        ("select (select id from city)", &[], Format::Json, Err(FetchError::Rejected)),
        ("@town", &[], Format::Json, Err(FetchError::NotFound)),
    ];
    // Twice: sessions are used again after successes.
    for _ in 0..2 {
        for (statement, parameters, format, expected) in cases {
            let found = text(&source, statement, parameters, format).await;
            assert_eq!(found, expected.map(str::to_owned), "{statement} {parameters:?} {format:?}");
        }
    }
    let fetched =
        source.fetch(&location("select raw from city where id = 1", &[], Format::Blob), None, BOUNDS).await;
    let bytes = bytes::Bytes::from_static(b"\0\xff");
    let content = Content { name: None, mime_type: None, modified: None, bytes };
    assert_eq!(fetched, Ok(Fetched::Contents { contents: vec![content], validator: None }));
    for (statement, format, expected) in [
        ("@city", Format::Json, Ok(())),
        ("@city", Format::Blob, Ok(())),
        ("@town", Format::Json, Err(FetchError::NotFound)),
        ("select nothing", Format::Json, Err(FetchError::Rejected)),
        ("select 1, 2", Format::Blob, Err(FetchError::BadContent)),
    ] {
        assert_eq!(source.check(&location(statement, &[], format)).await, expected, "{statement}");
    }
    let closed = cluster.connect(&json!({"allowStatements": false}));
    assert_eq!(text(&closed, "select 1", &[], Format::Text).await, Err(FetchError::NotAllowed));
    assert_eq!(closed.check(&location("select 1", &[], Format::Text)).await, Err(FetchError::NotAllowed));
    let foreign = cluster.connect(&json!({"allowNetworks": [], "statements": {"city": "select 1"}}));
    assert_eq!(foreign.check(&location("@city", &[], Format::Text)).await, Err(FetchError::Unreachable));
    cluster.stop().await;
}

#[tokio::test]
async fn types_in_types_are_resolved_to_a_depth() {
    let domains = "do $$ begin create domain d0 as text; for n in 1..1000 loop
        execute format('create domain d%s as d%s', n, n - 1); end loop; end $$;";
    let cluster = Cluster::start(&format!("{SETUP} {domains}")).await;
    let source = cluster.connect(&json!({}));
    for (depth, expected) in [(20, Ok("Zürich".to_owned())), (1_000, Err(FetchError::TooLarge))] {
        let statement = format!("select name from city where id = 1 and {{a}}::d{depth} = 'x'");
        assert_eq!(text(&source, &statement, &[("a", "x")], Format::Text).await, expected, "{depth}");
    }
}

#[tokio::test]
async fn what_postgres_sends_is_bounded_and_ends_when_it_is_dropped() {
    let cluster = Cluster::start("create role reader login").await;
    let source = cluster.connect(&json!({}));
    let too_large = [
        ("select generate_series(1, 8000)", Format::Json),
        // 39 kB, and 8 bytes for each row.
        ("select generate_series(1, 8000)", Format::Text),
        ("select repeat('x', 1000) from generate_series(1, 90)", Format::Csv),
        // A single row.
        ("select repeat('x', 65537)", Format::Text),
        ("select repeat('x', 300000000)", Format::Text),
        ("select repeat('x', 300000000)::bytea", Format::Blob),
        ("select string_agg(repeat('x', 100000), '') from generate_series(1, 3000)", Format::Json),
    ];
    for (statement, format) in too_large {
        assert_eq!(text(&source, statement, &[], format).await, Err(FetchError::TooLarge), "{statement}");
    }
    let sixty = location("select repeat('x', 60000)", &[], Format::Text);
    assert_paced(60_000, async |bounds| source.fetch(&sixty, None, bounds).await).await;
    assert_eq!(text(&source, "select repeat('x', 65536)", &[], Format::Text).await, Ok("x".repeat(65536)));
    // More than the files of a directory.
    let rows = text(&source, "select generate_series(1, 4000)", &[], Format::Text).await.unwrap();
    assert_eq!(rows.lines().count(), 4000);

    let sleeping = "select count(*)::int from pg_stat_activity where query like '%pg_sleep(60)%' and pid <> pg_backend_pid()";
    let sleep = location("select pg_sleep(60)::text", &[], Format::Text);
    assert!(timeout(Duration::from_secs(1), source.fetch(&sleep, None, BOUNDS)).await.is_err());
    let deadline = Instant::now() + Duration::from_secs(20);
    while cluster.client.query_one(sleeping, &[]).await.unwrap().get::<_, i32>(0) > 0 {
        assert!(Instant::now() < deadline, "the statement goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.client.batch_execute("alter role reader set statement_timeout = '100ms'").await.unwrap();
    assert_eq!(text(&cluster.connect(&json!({})), "select 1", &[], Format::Text).await, Ok("1".into()));
    // A server that ends its sessions, as when it is restarted, is connected to again.
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'reader'";
    assert_eq!(text(&source, "select 1", &[], Format::Text).await, Ok("1".into()));
    assert!(cluster.client.query_one(end, &[]).await.unwrap().get::<_, i64>(0) > 0);
    assert_eq!(text(&source, "select 1", &[], Format::Text).await, Ok("1".into()));
    cluster.stop().await;
}

#[tokio::test]
async fn notifications_of_the_channel_are_hints() {
    let cluster = Cluster::start("create role reader login").await;
    let tree = Tree { path: crate::Path::default(), reference: None };
    assert!(cluster.connect(&json!({})).watch(&tree).is_none());
    let source = cluster.connect(&json!({"notifyChannel": "Odd \"channel\""}));
    let mut hints = source.watch(&tree).unwrap();
    let wait = Duration::from_secs(20);
    assert_eq!(timeout(wait, hints.next()).await, Ok(Some(ChangeHint::Everything)));
    assert!(timeout(Duration::from_millis(200), hints.next()).await.is_err());
    cluster.client.batch_execute("notify \"Other\"; notify \"Odd \"\"channel\"\"\", '1'").await.unwrap();
    assert_eq!(timeout(wait, hints.next()).await, Ok(Some(ChangeHint::Everything)));
    // Many become few: they arrive together, and those that arrive while a hint waits make no other.
    let notify = "select pg_notify('Odd \"channel\"', n::text) from generate_series(1, 50) n";
    cluster.client.batch_execute(notify).await.unwrap();
    assert_eq!(timeout(wait, hints.next()).await, Ok(Some(ChangeHint::Everything)));
    let mut more = 0;
    while timeout(Duration::from_millis(300), hints.next()).await.is_ok() {
        more += 1;
    }
    assert!(more <= 1, "{more}");
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'reader'";
    cluster.client.query_one(end, &[]).await.unwrap();
    assert_eq!(timeout(wait, hints.next()).await, Ok(None));
    cluster.stop().await;
}

#[tokio::test]
async fn postgres_is_verified_by_tls_outside_allowed_networks() {
    let cluster = Cluster::start_encrypted("create role reader login", "db.test").await;
    let port = cluster.address.port();
    let ca = cluster.ca.clone().unwrap();
    let url = |host: &str, query: &str| format!("postgres://reader@{host}:{port}/test{query}");
    let here = json!(["127.0.0.0/8"]);
    // A name is resolved to loopback, which only `allowNetworks` allows.
    let cases = [
        (
            json!({"url": url("db.test", "?sslmode=verify-full"), "ca": ca, "allowNetworks": here}),
            Ok("1".to_owned()),
        ),
        (
            json!({"url": url("db.test", "?sslmode=require"), "ca": ca, "allowNetworks": here}),
            Ok("1".to_owned()),
        ),
        // Another name, another authority, no TLS where the server asks for it.
        (
            json!({"url": url("other.test", "?sslmode=require"), "ca": ca, "allowNetworks": here}),
            Err(FetchError::Unreachable),
        ),
        (
            json!({"url": url("127.0.0.1", "?sslmode=require"), "ca": ca, "allowNetworks": here}),
            Err(FetchError::Unreachable),
        ),
        (
            json!({"url": url("db.test", "?sslmode=require"), "allowNetworks": here}),
            Err(FetchError::Unreachable),
        ),
        (json!({"url": url("db.test", ""), "ca": ca}), Err(FetchError::NotAllowed)),
        (json!({"url": url("127.0.0.1", ""), "ca": ca}), Err(FetchError::NotAllowed)),
        (json!({"url": url("2130706433", ""), "ca": ca}), Err(FetchError::NotAllowed)),
        (json!({"url": url("[::ffff:127.0.0.1]", ""), "ca": ca}), Err(FetchError::NotAllowed)),
        (json!({"url": url("db.test", "?sslmode=disable"), "ca": ca}), Err(FetchError::NotAllowed)),
        (
            json!({"url": "postgres://reader@8.8.8.8/test?sslmode=disable", "ca": ca}),
            Err(FetchError::NotAllowed),
        ),
        (
            json!({"url": "postgres://reader@8.8.8.8/test?sslmode=disable", "allowNetworks": here}),
            Err(FetchError::NotAllowed),
        ),
    ];
    let mut context = context(cluster.folder.path(), None);
    Arc::get_mut(&mut context).unwrap().resolver = Arc::new(Loopback);
    for (settings, expected) in cases {
        let mut settings = settings;
        settings["allowStatements"] = json!(true);
        let source = Sql::new(&settings, &Map::new(), &context).unwrap();
        assert_eq!(text(&source, "select 1", &[], Format::Text).await, expected, "{settings}");
    }
    cluster.stop().await;
}

/// Resolves all names to loopback.
struct Loopback;

impl crate::Resolve for Loopback {
    fn resolve<'a>(&'a self, _host: &'a str) -> BoxFuture<'a, std::io::Result<Vec<std::net::IpAddr>>> {
        Box::pin(std::future::ready(Ok(vec![std::net::Ipv4Addr::LOCALHOST.into()])))
    }
}
