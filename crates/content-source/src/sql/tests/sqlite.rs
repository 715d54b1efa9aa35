//! SQLite: rows as content, and statements that are refused.

use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{BOUNDS, Case, context, location, text};
use super::*;
use crate::pace::assert_paced;
use crate::source::Content;

const SETUP: &str = "create table city (id integer primary key, name text, warm boolean, height real, more json, raw blob);
    insert into city values (1, 'Zürich', 1, 408.5, '{\"a\": [1]}', x'00ff'), (2, 'a,\"b\"', 0, null, 'no', null);";

fn source(folder: &std::path::Path) -> Sql {
    rusqlite::Connection::open(folder.join("city.db")).unwrap().execute_batch(SETUP).unwrap();
    connect(folder, "city.db")
}

fn connect(folder: &std::path::Path, name: &str) -> Sql {
    let settings = json!({
        "url": format!("sqlite:{}/{name}", folder.display()),
        "statements": {"city": "select name from city where id = {id};"},
        "allowStatements": true,
    });
    Sql::new(&settings, &Map::new(), &context(folder, None)).unwrap()
}

#[tokio::test]
async fn rows_of_sqlite_take_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let location = location("select hex(zeroblob(30000))", &[], Format::Text);
    assert_paced(60_000, async |bounds| source.fetch(&location, None, bounds).await).await;
}

#[tokio::test]
async fn rows_of_sqlite_are_written_in_all_formats() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let all = "select * from city order by id";
    let json = "[{\"id\":1,\"name\":\"Zürich\",\"warm\":true,\"height\":408.5,\"more\":{\"a\": [1]},\"raw\":\"\\\\x00ff\"},\
        {\"id\":2,\"name\":\"a,\\\"b\\\"\",\"warm\":false,\"height\":null,\"more\":\"no\",\"raw\":null}]";
    let csv = "id,name,warm,height,more,raw\r\n1,Zürich,1,408.5,\"{\"\"a\"\": [1]}\",\\x00ff\r\n\
        2,\"a,\"\"b\"\"\",0,,no,\r\n";
    let cases: [Case; 12] = [
        (all, &[], Format::Json, Ok(json)),
        (all, &[], Format::Csv, Ok(csv)),
        ("select name, id from city order by 2", &[], Format::Text, Ok("Zürich\na,\"b\"")),
        ("@city", &[("id", "2")], Format::Text, Ok("a,\"b\"")),
        ("@city", &[("id", "2 or 1=1")], Format::Json, Ok("[]")),
        ("@city", &[], Format::Csv, Ok("name\r\n")),
        ("select name from city limit {n}", &[("n", "1")], Format::Text, Ok("Zürich")),
        ("@city", &[("id", "1")], Format::Blob, Ok("Zürich")),
        ("@city", &[("id", "3")], Format::Blob, Err(FetchError::NotFound)),
        ("select name from city", &[], Format::Blob, Err(FetchError::BadContent)),
        ("select 1, 2", &[], Format::Blob, Err(FetchError::BadContent)),
        ("@town", &[], Format::Json, Err(FetchError::NotFound)),
    ];
    for (statement, parameters, format, expected) in cases {
        let found = text(&source, statement, parameters, format).await;
        assert_eq!(found, expected.map(str::to_owned), "{statement} {parameters:?} {format:?}");
    }
    let fetched =
        source.fetch(&location("select raw from city where id = 1", &[], Format::Blob), None, BOUNDS).await;
    let content = |mime_type: Option<&str>, bytes: &'static [u8]| Content {
        name: None,
        mime_type: mime_type.map(str::to_owned),
        modified: None,
        bytes: bytes::Bytes::from_static(bytes),
    };
    assert_eq!(fetched, Ok(Fetched::Contents { contents: vec![content(None, b"\0\xff")], validator: None }));
    let fetched = source.fetch(&location("select 1 a", &[], Format::Json), None, BOUNDS).await;
    let expected = content(Some("application/json"), b"[{\"a\":1}]");
    assert_eq!(fetched, Ok(Fetched::Contents { contents: vec![expected], validator: None }));
}

#[tokio::test]
async fn statements_of_sqlite_only_read_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let before = std::fs::read(folder.path().join("city.db")).unwrap();
    let cases = [
        ("attach database '/etc/passwd' as x", FetchError::Rejected),
        ("pragma query_only = off", FetchError::Rejected),
        ("select * from pragma_database_list", FetchError::NotAllowed),
        ("select load_extension('/tmp/x.so')", FetchError::Rejected),
        ("select fts3_tokenizer('simple')", FetchError::Rejected),
        ("select readfile('/etc/passwd')", FetchError::Rejected),
        ("select writefile('/tmp/x', 'x')", FetchError::Rejected),
        ("insert into city (id) values (9) returning id", FetchError::Rejected),
        ("delete from city returning id", FetchError::Rejected),
        ("with a as (select 1) delete from city returning id", FetchError::Rejected),
        ("create table x (a)", FetchError::Rejected),
        ("vacuum into '/tmp/x.db'", FetchError::Rejected),
        ("select json('{')", FetchError::Rejected),
        ("select 1; drop table city", FetchError::NotAllowed),
        ("select 1) union select (2", FetchError::NotAllowed),
        ("select 1 a /* ) */ -- )", FetchError::Busy),
        ("select randomblob(1000000000)", FetchError::TooLarge),
        ("select hex(zeroblob(60000))", FetchError::TooLarge),
        (
            "select group_concat(a) from (with recursive n(a) as (select 1 union all select a + 1 from n limit 300000) select a from n)",
            FetchError::TooLarge,
        ),
        (
            "with recursive n(a) as (select 1 union all select a + 1 from n) select a from n",
            FetchError::TooLarge,
        ),
    ];
    for (statement, expected) in cases {
        let found = text(&source, statement, &[], Format::Json).await;
        // What stays within its comments is a statement.
        let expected = if expected == FetchError::Busy { Ok("[{\"a\":1}]".into()) } else { Err(expected) };
        assert_eq!(found, expected, "{statement}");
    }
    let many = "with recursive n(a) as (select 1 union all select a + 1 from n limit 4000) select a from n";
    let rows = text(&source, many, &[], Format::Text).await.unwrap();
    assert_eq!(rows.lines().count(), 4000);
    assert_eq!(std::fs::read(folder.path().join("city.db")).unwrap(), before);
    let names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["city.db"]);
}

#[tokio::test]
async fn a_file_of_sqlite_is_below_a_root_and_no_link_out() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    source(outside.path());
    drop(source(folder.path()));
    std::fs::create_dir(folder.path().join("denied")).unwrap();
    std::fs::copy(folder.path().join("city.db"), folder.path().join("denied/key.db")).unwrap();
    std::fs::write(folder.path().join("text.db"), "no database, but long enough to have a header".repeat(99))
        .unwrap();
    std::os::unix::fs::symlink(outside.path().join("city.db"), folder.path().join("out.db")).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("out")).unwrap();
    std::os::unix::fs::symlink("city.db", folder.path().join("in.db")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero.db")).unwrap();
    let cases = [
        ("city.db", Ok("2".to_owned())),
        ("in.db", Ok("2".to_owned())),
        ("none.db", Err(FetchError::Unreachable)),
        ("out.db", Err(FetchError::NotAllowed)),
        ("out/city.db", Err(FetchError::NotAllowed)),
        ("zero.db", Err(FetchError::NotAllowed)),
        ("denied/key.db", Err(FetchError::NotAllowed)),
        ("denied", Err(FetchError::NotAllowed)),
        ("text.db", Err(FetchError::BadContent)),
    ];
    for (name, expected) in cases {
        let source = connect(folder.path(), name);
        if name == "denied" {
            assert_eq!(text(&source, "select 1", &[], Format::Text).await, expected, "{name}");
            continue;
        }
        assert_eq!(text(&source, "select count(*) from city", &[], Format::Text).await, expected, "{name}");
    }
}

#[test]
fn a_dropped_statement_of_sqlite_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(drop_statement());
}

async fn drop_statement() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let endless = "with recursive n(a) as (select 1 union all select a + 1 from n) select count(*) from n";
    let location = location(endless, &[], Format::Text);
    let fetch = source.fetch(&location, None, BOUNDS);
    assert!(tokio::time::timeout(Duration::from_millis(200), fetch).await.is_err());
    // Its thread is free again when it may be used for something else: there is one.
    let started = Instant::now();
    tokio::task::spawn_blocking(|| ()).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn statements_of_sqlite_are_checked_by_preparing() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let cases = [
        ("@city", Format::Json, Ok(())),
        ("@town", Format::Json, Err(FetchError::NotFound)),
        ("select nothing from city", Format::Json, Err(FetchError::Rejected)),
        ("select 1, 2", Format::Blob, Err(FetchError::BadContent)),
        ("select 1; select 2", Format::Json, Err(FetchError::NotAllowed)),
    ];
    for (statement, format, expected) in cases {
        assert_eq!(source.check(&location(statement, &[], format)).await, expected, "{statement}");
    }
    // What cannot be read says nothing of a statement.
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let unknown = async || source.check(&location("@city", &[], Format::Json)).await;
    std::fs::write(&file, [b'x'; 4_096]).unwrap();
    assert_eq!(unknown().await, Err(FetchError::Unreachable));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(unknown().await, Err(FetchError::Unreachable));
}
