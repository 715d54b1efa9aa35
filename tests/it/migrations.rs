//! Migrations run beside replicas that serve: none may hold a lock that blocks them for long, or wait for one while
//! everybody waits behind it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;

use crate::support::cluster::{Database, database, database_in};
use crate::support::process::Site;
use crate::support::wait::eventually;

/// Files, by number, with something that reads a whole table while writes of it wait. Each was written when that was
/// milliseconds: the tables were new, or hold a row for each tenant. A later one has to do without.
const SCANS: [&str; 10] = ["0007", "0009", "0013", "0014", "0018", "0019", "0020", "0029", "0039", "0045"];

/// The table of one row.
const ONE_ROW: &str = "gateway";

/// A migration without comments, in lower case, and its statements.
struct Migration {
    number: String,
    concurrent: bool,
    statements: Vec<String>,
}

impl Migration {
    fn read(name: &str, text: &str) -> Self {
        let code = text.lines().map(|line| line.split("--").next().unwrap()).collect::<Vec<_>>().join(" ");
        let code = code.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
        // Bodies of functions run later.
        let outside: String = code.split("$$").step_by(2).collect();
        Self {
            number: name[..4].to_owned(),
            concurrent: text.starts_with("-- no-transaction"),
            statements: outside
                .split(';')
                .map(|one| one.trim().to_owned())
                .filter(|one| !one.is_empty())
                .collect(),
        }
    }

    /// The tables that it creates, which are not in use yet.
    fn created(&self) -> BTreeSet<&str> {
        let names = self.statements.iter().filter_map(|one| one.strip_prefix("create table "));
        names.filter_map(|rest| rest.split([' ', '(']).next()).collect()
    }

    /// What it does to a table of replicas that serve: rewrites it, breaks the previous version, or reads all of it.
    fn faults(&self) -> Vec<Fault> {
        let created = self.created();
        let new = |table: &str| created.contains(table) || table == ONE_ROW;
        self.statements.iter().flat_map(|statement| faults(statement, self.concurrent, &new)).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Every row is written anew under an exclusive lock.
    Rewrite,
    /// The previous version does not run on it.
    Contract,
    /// The table is read while writes wait.
    Scan,
    /// It changes how long it waits for locks, while others wait behind it.
    Wait,
}

fn faults(statement: &str, concurrent: bool, new: &dyn Fn(&str) -> bool) -> Vec<Fault> {
    let mut found = Vec::new();
    let mut add = |fault: Fault, is_there: bool| found.extend(is_there.then_some(fault));
    let starts = |text: &str| statement.starts_with(text);
    add(Fault::Rewrite, starts("vacuum full") || starts("cluster") || starts("lock "));
    // The gateway sets how long a migration waits for a lock, and retries.
    add(Fault::Wait, statement.contains("lock_timeout") || statement.contains("statement_timeout"));
    add(Fault::Contract, starts("drop table") || starts("drop view") || starts("truncate"));
    if let Some(rest) =
        statement.strip_prefix("create unique index ").or(statement.strip_prefix("create index "))
    {
        let table = rest.split(" on ").nth(1).and_then(|on| on.split([' ', '(']).next()).unwrap_or_default();
        add(Fault::Scan, !(new(table) || concurrent && rest.starts_with("concurrently ")));
    }
    let Some(rest) = statement.strip_prefix("alter table ") else { return found };
    let mut words = rest.split(' ').skip_while(|word| ["only", "if", "exists"].contains(word));
    if new(words.next().unwrap_or_default()) {
        return found;
    }
    for action in actions(rest) {
        let has = |text: &str| action.contains(text);
        let adds_column = has("add column ");
        let volatile = ["gen_random_uuid(", "clock_timestamp(", "random(", "uuidv7(", "nextval("];
        let fixed = !has("generated always") && !has(" serial") && !volatile.iter().any(|name| has(name));
        let rewrites = has("alter column ") && has(" type ") || has("set tablespace") || has("set logged");
        add(Fault::Rewrite, rewrites || adds_column && !fixed);
        add(Fault::Contract, has("drop column ") || has("rename ") || has(" set not null"));
        add(Fault::Contract, adds_column && has(" not null") && !has(" default "));
        let constrains =
            has("add constraint ") || has("add check") || has("add foreign key") || has("add unique");
        add(Fault::Scan, constrains && !has(" not valid"));
        // PostgreSQL adds a column with a check, and one with a reference but no default, without reading the table
        // only if nothing has to be compared: a constant that is null in each row.
        add(Fault::Scan, adds_column && has(" check ") && has(" default "));
        add(Fault::Scan, has("drop constraint ") && has("pkey"));
    }
    found
}

/// The actions of `alter table`, which commas outside of parentheses separate.
fn actions(text: &str) -> Vec<String> {
    let mut depth = 0;
    let parts = text.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(str::to_owned).collect()
}

fn migrations() -> Vec<Migration> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            Migration::read(&name, &std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    found.sort_by(|a, b| a.number.cmp(&b.number));
    found
}

#[test]
fn migrations_rewrite_nothing_and_scan_no_table_under_a_lock() {
    let found = migrations();
    assert!(found.len() > 30);
    for migration in found {
        let faults = migration.faults();
        let listed = SCANS.contains(&&*migration.number);
        let unexpected = faults.iter().any(|fault| *fault != Fault::Scan || !listed);
        assert!(!unexpected, "{}: {faults:?} in {:?}", migration.number, migration.statements);
    }
}

#[test]
fn statements_that_block_are_recognized() {
    let faults = |text: &str| Migration::read("9999", text).faults();
    for (text, expected) in [
        ("alter table agents add column a text;", None),
        ("alter table agents add column a text[] not null default '{}';", None),
        (
            "create table a (b text); create index c on a (b); alter table a add constraint d check (b > '');",
            None,
        ),
        ("-- no-transaction\ncreate index concurrently a on agents (slug);", None),
        ("alter table agents add constraint a check (b > 0) not valid;", None),
        ("alter table agents set (fillfactor = 90);", None),
        ("create function f() returns int language sql as $$ truncate agents; $$;", None),
        ("create index a on agents (slug);", Some(Fault::Scan)),
        ("alter table agents add column b int, add constraint a check (b > 0);", Some(Fault::Scan)),
        ("alter table agents alter column slug type varchar(9);", Some(Fault::Rewrite)),
        ("alter table agents add column a uuid default gen_random_uuid();", Some(Fault::Rewrite)),
        ("alter table agents add column a text not null;", Some(Fault::Contract)),
        ("alter table agents drop column slug;", Some(Fault::Contract)),
        ("drop table agents;", Some(Fault::Contract)),
        ("set local lock_timeout = 0;", Some(Fault::Wait)),
    ] {
        assert_eq!(faults(text).first().copied(), expected, "{text}");
    }
}

/// A table that something reads for long, such as a dump, is migrated later, and replicas use it meanwhile.
#[tokio::test]
async fn migration_that_gets_no_lock_lets_others_pass() {
    let database = database().await;
    database.execute("alter table agents drop column tools").await;
    database.execute("delete from _sqlx_migrations where version = 33").await;
    let mut dump = database.connect().await;
    let mut reading = dump.begin().await.unwrap();
    reading.execute("select count(*) from agents").await.unwrap();

    let site = Site::new().set("DATABASE_URL", database.options.to_url_lossy());
    let mut migrating = site.command("migrate").stderr(std::process::Stdio::piped()).spawn().unwrap();
    let waiting = "select count(*) from pg_locks l join pg_class c on c.oid = l.relation \
        where c.relname = 'agents' and not granted and l.database = \
        (select oid from pg_database where datname = current_database())";
    for _ in 0..2 {
        eventually("the migration waits", async || database.number(waiting).await == 1).await;
        // The dump goes on for as long as the test likes; this waits for the migration at the most.
        let read = database.number("select count(*) from agents");
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), read).await, Ok(0));
    }
    reading.commit().await.unwrap();
    assert!(migrating.wait().await.unwrap().success());
    assert_eq!(database.number("select count(*) from _sqlx_migrations where version = 33").await, 1);
}

/// Indexes are created outside of a transaction: a replica that is killed meanwhile leaves one that is invalid, or that
/// is not recorded.
#[tokio::test]
async fn index_of_an_interrupted_migration_is_created_again() {
    let database = database().await;
    let indexes = migrations().into_iter().filter(|migration| migration.concurrent).map(|migration| {
        let [statement] = &migration.statements[..] else { panic!("{}: not alone", migration.number) };
        let name = statement.strip_prefix("create index concurrently ").unwrap().split(' ').next().unwrap();
        (migration.number, name.to_owned())
    });
    let indexes: Vec<_> = indexes.collect();
    let invalid =
        format!("update pg_index set indisvalid = false where indexrelid = '{}'::regclass", indexes[0].1);
    database.execute(&invalid).await;
    for (number, _) in &indexes {
        database.execute(&format!("delete from _sqlx_migrations where version = {number}")).await;
    }
    let site = Site::new().set("DATABASE_URL", database.options.to_url_lossy());
    let migrated = site.command("migrate").output().await.unwrap();
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    for (_, name) in indexes {
        let valid =
            format!("select count(*) from pg_index where indexrelid = '{name}'::regclass and indisvalid");
        assert_eq!(database.number(&valid).await, 1, "{name}");
    }
}

/// The database is full for a while: the migration is one of the things that are tried again.
#[tokio::test]
async fn migration_is_applied_once_a_temporary_error_is_over() {
    let database = database().await;
    database.execute("alter table agents drop column tools").await;
    database.execute("delete from _sqlx_migrations where version = 33").await;
    let full = "create function full_disk() returns event_trigger language plpgsql \
        as $$ begin raise exception 'no space left' using errcode = '53100'; end $$; \
        create event trigger full_disk on ddl_command_start when tag in ('ALTER TABLE') execute function full_disk()";
    database.execute(full).await;
    let site = Site::new().set("DATABASE_URL", database.options.to_url_lossy());
    let mut migrating = site.command("migrate").stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(migrating.stderr.take().unwrap()).lines();
    while !printed.next_line().await.unwrap().unwrap().contains("no space left") {}
    database.execute("drop event trigger full_disk").await;
    assert!(migrating.wait().await.unwrap().success());
    assert_eq!(database.number("select count(*) from _sqlx_migrations where version = 33").await, 1);
}

#[tokio::test]
async fn migration_of_another_replica_is_named_and_waited_for() {
    let database = database().await;
    let mut other = database.connect().await;
    other.execute("select pg_advisory_lock(8602270457152208897)").await.unwrap();
    let site = Site::new().set("DATABASE_URL", database.options.to_url_lossy());
    let mut waiting = site.command("migrate").stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(waiting.stderr.take().unwrap()).lines();
    while !printed.next_line().await.unwrap().unwrap().contains("another replica migrates the database") {}
    other.close().await.unwrap();
    assert!(waiting.wait().await.unwrap().success());
    assert_eq!(printed.next_line().await.unwrap(), None, "logged once");
}

/// The last migration that is applied before the database is filled.
const FILLED_AFTER: i64 = 35;

/// Definitions of each kind, and changes: enough that a rewrite or an index takes time.
const FILLED: &str = "
set session_replication_role = replica;
insert into tenants (uid, slug, name, revision, created_at) values (md5('t')::uuid, 't', 'T', 1, now());
insert into agents (uid, tenant, slug, name, access, enabled, created_at)
    select md5('a' || n)::uuid, md5('t')::uuid, 'a' || n, 'A', 'key', true, now() from generate_series(1, 2000) n;
insert into heads (scope, revision, floor) select uid, 20, 0 from agents;
insert into changes (scope, revision, ordinal, kind, subject)
    select uid, n, 0, 'resource_contents', 'x:1' from agents, generate_series(1, 20) n;
insert into contents (tenant, agent, hash, bytes) select tenant, uid, sha256('x'), 'x' from agents;
insert into resources (tenant, agent, uri, name, source, revision, last_modified)
    select tenant, uid, 'x:' || n, 'resource', 'inline', n, now() from agents, generate_series(1, 20) n;
insert into templates (tenant, agent, uri_template, name, completions, body, revision)
    select tenant, uid, 'x:{a}/' || n, 'template', '{}', sha256('x'), n from agents, generate_series(1, 10) n;
insert into prompts (tenant, agent, name, arguments, messages, revision)
    select tenant, uid, 'p' || n, '[]', sha256('x'), n from agents, generate_series(1, 10) n;";

/// What replicas do meanwhile: each table is read in a transaction, and written.
const READS: [&str; 5] = ["resources", "templates", "prompts", "heads", "changes"];
const WRITES: [&str; 4] = [
    "update resources set title = 'new' where agent = md5('a1')::uuid",
    "update templates set title = 'new' where agent = md5('a1')::uuid",
    "update prompts set title = 'new' where agent = md5('a1')::uuid",
    "update heads set revision = revision + 1 where scope = md5('a1')::uuid",
];

/// How long a statement of a replica may wait: a migration that gets no lock lets others pass after a second.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The files of all tables, which a rewrite replaces.
async fn table_files(connection: &mut PgConnection) -> Vec<(String, i64)> {
    let query = "select relname::text, pg_relation_filenode(oid)::bigint from pg_class \
        where relkind = 'r' and relnamespace = 'public'::regnamespace order by relname";
    sqlx::query_as(query).fetch_all(connection).await.unwrap()
}

/// Repeats statements, each table in a transaction, until `stop`; returns how long the longest one took, and their number.
async fn repeat(database: &Database, statements: &[String], stop: &CancellationToken) -> (Duration, u32) {
    let mut connection = database.connect().await;
    let (mut longest, mut count) = (Duration::ZERO, 0);
    while !stop.is_cancelled() {
        for statement in statements {
            let began = Instant::now();
            let mut transaction = connection.begin().await.unwrap();
            transaction.execute(AssertSqlSafe(statement.clone())).await.unwrap();
            transaction.commit().await.unwrap();
            longest = longest.max(began.elapsed());
            count += 1;
        }
    }
    (longest, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_of_a_filled_database_block_no_replica() {
    let database = database_in("utf8").await;
    let mut connection = database.connect().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let migrator = Migrator::new(folder).await.unwrap();
    migrator.run_direct(Some(FILLED_AFTER), &mut connection, false).await.unwrap();
    connection.execute(FILLED).await.unwrap();
    let before = table_files(&mut connection).await;

    let stop = CancellationToken::new();
    let reads = READS.map(|table| format!("select count(*) from {table}"));
    let writes = WRITES.map(str::to_owned);
    let site = Site::new().set("DATABASE_URL", database.options.to_url_lossy());
    let migrate = async {
        let migrated = site.command("migrate").output().await.unwrap();
        stop.cancel();
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    };
    let (read, written, ()) =
        tokio::join!(repeat(&database, &reads, &stop), repeat(&database, &writes, &stop), migrate);
    assert!(read.0 < LONGEST_WAIT && written.0 < LONGEST_WAIT, "{read:?} {written:?}");
    assert!(read.1 >= 5 && written.1 >= 4, "{read:?} {written:?}");

    let after = table_files(&mut connection).await;
    let rewritten: Vec<_> = before.iter().filter(|file| !after.contains(file)).collect();
    assert!(after.len() > before.len() && rewritten.is_empty(), "{rewritten:?}");
    // Their templates and prompts were there before the triggers that note such.
    assert_eq!(database.number("select count(*) from agents where only_resources").await, 0);
    let newest = migrations().last().unwrap().number.parse::<i64>().unwrap();
    assert_eq!(database.number("select max(version) from _sqlx_migrations").await, newest);
}
