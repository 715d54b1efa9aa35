//! What a tenant may try with statements of its own, and what an operator may connect to by mistake.

use serde_json::json;

use super::support::{Cluster, context, text};
use super::*;

const SETUP: &str = "create role reader login; create role other login;
    create table secret (text text); insert into secret values ('hidden');
    create table city (id int primary key, name text); insert into city values (1, 'Bern');
    create sequence numbers;
    create function sneak() returns int language sql as 'insert into city values (7, null) returning id';
    grant all on city, numbers to reader;
    create role super login superuser; create role reads login; grant pg_read_server_files to reads;
    create role writes login; grant pg_write_server_files to writes;
    create role runs login; grant pg_execute_server_program to runs;
    create role signals login; grant pg_signal_backend to signals;
    create role middle; grant pg_read_server_files to middle; create role member login noinherit; grant middle to member;
    create role copies login replication;
    create role granted login; grant execute on function pg_read_file(text) to granted;
    create role imports login; grant execute on function lo_import(text) to imports;";

const REJECTED: FetchError = FetchError::Rejected;

#[tokio::test]
async fn free_statements_of_postgres_have_no_effect() {
    let cluster = Cluster::start(SETUP).await;
    let source = cluster.connect(&json!({}));
    let cases: [(&str, Result<&str, FetchError>); 60] = [
        // Leaving the sub-query.
        ("select 1; select 2", Err(FetchError::NotAllowed)),
        ("select 1; drop table city; --", Err(FetchError::NotAllowed)),
        ("select 1) q; drop table city; --", Err(FetchError::NotAllowed)),
        ("select 1) union all (select 2", Err(FetchError::NotAllowed)),
        ("select 1 -- )", Ok("1")),
        ("select 1 /* ) ; */", Ok("1")),
        ("select 1 /*", Err(FetchError::NotAllowed)),
        ("select '1", Err(FetchError::NotAllowed)),
        ("select $$1", Err(FetchError::NotAllowed)),
        ("select E'\\'; drop table city; --'", Ok("'; drop table city; --")),
        ("select E'1'\n'\\') q; drop table city; --'", Err(FetchError::NotAllowed)),
        ("select $1", Err(FetchError::NotAllowed)),
        ("commit", Err(REJECTED)),
        ("rollback and chain", Err(REJECTED)),
        ("begin transaction read write", Err(REJECTED)),
        ("set transaction read write", Err(REJECTED)),
        ("prepare x as select 1", Err(REJECTED)),
        ("do $$ begin perform 1; end $$", Err(REJECTED)),
        ("call sneak()", Err(REJECTED)),
        // Writing.
        ("insert into city values (2, 'x') returning id", Err(REJECTED)),
        ("update city set name = 'x' returning id", Err(REJECTED)),
        ("with a as (delete from city returning id) select id from a", Err(REJECTED)),
        ("select 1 as a into taken", Err(REJECTED)),
        ("select id from city for update", Err(FetchError::NotAllowed)),
        ("select sneak()", Err(FetchError::NotAllowed)),
        ("select nextval('numbers')", Err(FetchError::NotAllowed)),
        ("select setval('numbers', 9)", Err(FetchError::NotAllowed)),
        ("create table taken (a int)", Err(REJECTED)),
        ("truncate city", Err(REJECTED)),
        // Files and programs.
        ("copy city to '/tmp/city'", Err(REJECTED)),
        ("copy city from program 'id'", Err(REJECTED)),
        ("select pg_read_file('/etc/passwd')", Err(FetchError::Denied)),
        ("select pg_read_binary_file('/etc/passwd')::text", Err(FetchError::Denied)),
        ("select pg_ls_dir('/')", Err(FetchError::Denied)),
        ("select size::text from pg_stat_file('/etc/passwd')", Err(FetchError::Denied)),
        ("select lo_import('/etc/passwd')", Err(FetchError::NotAllowed)),
        ("select lo_export(1, '/tmp/x')", Err(FetchError::NotAllowed)),
        ("select lo_from_bytea(0, 'x')", Err(FetchError::NotAllowed)),
        ("select \"lo_creat\"(-1)", Err(FetchError::NotAllowed)),
        // Elsewhere.
        ("select * from dblink('host=127.0.0.1', 'select 1') as x(a int)", Err(FetchError::NotAllowed)),
        ("select U&\"dbl\\0069nk\"('')", Err(FetchError::NotAllowed)),
        ("load '$libdir/dblink'", Err(REJECTED)),
        ("create extension \"dblink\"", Err(FetchError::NotAllowed)),
        // Other sessions.
        ("select pg_notify('x', 'y')", Err(FetchError::NotAllowed)),
        ("notify x", Err(REJECTED)),
        ("listen x", Err(REJECTED)),
        ("select pg_advisory_lock(1)", Err(FetchError::NotAllowed)),
        ("select pg_try_advisory_lock(1)", Err(FetchError::NotAllowed)),
        ("select pg_advisory_xact_lock(1)", Err(FetchError::NotAllowed)),
        ("select PG_Terminate_Backend(pid) from pg_stat_activity", Err(FetchError::NotAllowed)),
        ("select \"pg_cancel_backend\"(pid) from pg_stat_activity", Err(FetchError::NotAllowed)),
        ("select query_to_xml('select pg_advisory_lock(1)', true, true, '')", Err(FetchError::NotAllowed)),
        ("select pg_reload_conf()", Err(FetchError::Denied)),
        ("select pg_switch_wal()", Err(FetchError::Denied)),
        ("lock table city", Err(REJECTED)),
        // Settings, which end with the transaction.
        ("select set_config('work_mem', '1GB', false)", Ok("1GB")),
        ("select set_config('search_path', 'pg_temp', false)", Ok("pg_temp")),
        ("select set_config('statement_timeout', '0', false)", Ok("0")),
        ("set role super", Err(REJECTED)),
        // What the role may not read.
        ("select text from secret", Err(FetchError::Denied)),
    ];
    let state = "select concat_ws('|',
        (select string_agg(concat(c.*), ',') from city c), (select last_value::text || is_called from numbers),
        (select count(*) from pg_locks where locktype = 'advisory'), (select count(*) from pg_largeobject_metadata),
        (select count(*) from pg_class where relname = 'taken'), (select count(*) from pg_extension))";
    let before: String = cluster.client.query_one(state, &[]).await.unwrap().get(0);
    for (statement, expected) in cases {
        let found = text(&source, statement, &[], Format::Text).await;
        assert_eq!(found, expected.map(str::to_owned), "{statement}");
        // In the session that was used, if it is used again: this statement is the only one that is prepared.
        let left =
            "select concat_ws('|', current_setting('work_mem'), current_setting('search_path'), current_user,
            current_setting('statement_timeout'), current_setting('transaction_read_only'),
            (select count(*) from pg_prepared_statements))";
        let left = text(&source, left, &[], Format::Text).await.unwrap();
        assert_eq!(left, "4MB|\"$user\", public|reader|30s|on|1", "{statement}");
    }
    // The operator's own statements may hold locks; they end with the statement.
    let named = cluster.connect(&json!({"statements": {"lock": "select pg_advisory_lock(1)::text"}}));
    assert_eq!(text(&named, "@lock", &[], Format::Text).await, Ok(String::new()));
    let after: String = cluster.client.query_one(state, &[]).await.unwrap().get(0);
    assert_eq!(after, before);
    cluster.stop().await;
}

#[tokio::test]
async fn roles_and_databases_that_are_too_powerful_are_refused() {
    let cluster = Cluster::start(SETUP).await;
    let port = cluster.address.port();
    let own = |host: &str, database: &str| Some((host.to_owned(), port, database.to_owned()));
    let refused = Err(FetchError::NotAllowed);
    let cases = [
        ("reader", None, Ok("1".to_owned())),
        ("other", None, Ok("1".to_owned())),
        ("test", None, refused.clone()),
        ("super", None, refused.clone()),
        ("reads", None, refused.clone()),
        ("writes", None, refused.clone()),
        ("runs", None, refused.clone()),
        ("signals", None, refused.clone()),
        ("member", None, refused.clone()),
        ("copies", None, refused.clone()),
        ("granted", None, refused.clone()),
        ("imports", None, refused.clone()),
        ("unknown", None, Err(FetchError::Denied)),
        // The process's own database, under any name of this machine.
        ("reader", own("127.0.0.1", "test"), refused.clone()),
        ("reader", own("localhost", "test"), refused.clone()),
        ("reader", own("[::1]", "test"), refused.clone()),
        ("reader", own("/var/run/postgresql", "test"), refused.clone()),
        ("reader", own("unknown.invalid", "test"), refused),
        ("reader", own("127.0.0.1", "other"), Ok("1".to_owned())),
        ("reader", own("192.0.2.1", "test"), Ok("1".to_owned())),
        ("reader", Some(("127.0.0.1".to_owned(), 1, "test".to_owned())), Ok("1".to_owned())),
    ];
    for (role, own, expected) in cases {
        let settings = json!({
            "url": cluster.url(role, "test"),
            "allowNetworks": ["127.0.0.1"],
            "statements": {"one": "select 1"},
        });
        let context = context(cluster.folder.path(), own.clone());
        let source = Sql::new(&settings, &Map::new(), &context).unwrap();
        assert_eq!(text(&source, "@one", &[], Format::Text).await, expected, "{role} {own:?}");
    }
    cluster.stop().await;
}
