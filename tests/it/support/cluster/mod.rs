//! One PostgreSQL cluster for all test processes of a target directory, and a database for each test. `DATABASE_URL`
//! names another cluster to use.
//!
//! The first process that needs the cluster starts a [`keeper`]; later ones find it by its state file, so that a test
//! costs no `initdb`. The databases of tests are copies of a template, which is migrated once for a set of migrations.
//!
//! PostgreSQL takes half of the CPU of all tests. So the template has what every gateway would create at its start, files
//! are copied instead of pages where the server can, and databases are created and dropped on one connection each.

mod keeper;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tokio::process::Command;
use tokio::sync::oneshot;
use waggle::store::{Store, StoreOptions};

use keeper::Lease;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    // Tests run on runtimes of their own, whose tasks end with them.
    let preparing = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Cluster::prepare())
    });
    preparing.join().unwrap()
});
static NEXT: AtomicU32 = AtomicU32::new(0);
static CREATIONS: LazyLock<Statements> = LazyLock::new(Statements::new);
/// One at a time: the databases of all tests of a run together take 7 GB.
static DROPS: LazyLock<Statements> = LazyLock::new(Statements::new);

thread_local! {
    static CREATED: RefCell<Created> = RefCell::default();
}

/// The advisory lock for creating the template.
const TEMPLATE_LOCK: i64 = 0x7761_6767_7465_7374;

/// Creates the partitions of the audit log that a gateway would create at its start. One that starts on a later day
/// creates the others.
const PARTITIONS: &str =
    "select audit_make_partition((now() at time zone 'UTC')::date + n) from generate_series(0, 7) n";
/// The first version that can copy pages through its log instead of files, which it does unless told otherwise, in three
/// times the time.
const COPIES_PAGES: i32 = 150_000;

/// The cluster, as this process uses it.
struct Cluster {
    options: PgConnectOptions,
    /// The description of a database that is a copy of the template.
    copy: String,
    /// The prefix of the names of this process's databases.
    prefix: String,
    _lease: Option<Lease>,
}

impl Cluster {
    async fn prepare() -> Self {
        let prefix = format!("t{:012x}", rand::random::<u64>() >> 16);
        let (options, lease) = match std::env::var("DATABASE_URL") {
            Ok(url) => (url.parse::<PgConnectOptions>().unwrap(), None),
            Err(_) => {
                let (options, lease) = Lease::acquire(&prefix).await;
                (options, Some(lease))
            }
        };
        let template = format!("template_{}", digest_of_migrations());
        let version = make_template(&options, &template).await;
        let strategy = if version < COPIES_PAGES { "" } else { "strategy file_copy" };
        Self { copy: format!("template {template} {strategy}"), options, prefix, _lease: lease }
    }

    /// Creates a database for one test; returns its name.
    async fn create(&self, description: &str) -> String {
        let name = format!("{}_{}", self.prefix, NEXT.fetch_add(1, Ordering::Relaxed));
        let created = CREATIONS.execute(format!("create database {name} {description}"));
        created.await.unwrap();
        CREATED.with_borrow_mut(|created| created.0.push(name.clone()));
        name
    }
}

/// A thread that executes statements in turn on a connection of its own.
struct Statements(mpsc::Sender<(String, oneshot::Sender<()>)>);

impl Statements {
    fn new() -> Self {
        let (sender, statements) = mpsc::channel::<(String, oneshot::Sender<()>)>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut connection = runtime.block_on(CLUSTER.options.connect()).unwrap();
            while let Ok((statement, executed)) = statements.recv() {
                runtime.block_on(connection.execute(AssertSqlSafe(statement))).unwrap();
                let _ = executed.send(());
            }
        });
        Self(sender)
    }

    /// Executes a statement after those before it.
    fn execute(&self, statement: String) -> oneshot::Receiver<()> {
        let (sender, executed) = oneshot::channel();
        // Without the thread, the receiver fails.
        let _ = self.0.send((statement, sender));
        executed
    }
}

/// The databases that a thread has created. A test and its runtime have threads of their own, which end with the test.
#[derive(Default)]
struct Created(Vec<String>);

impl Drop for Created {
    fn drop(&mut self) {
        for name in self.0.drain(..) {
            // If this process ends before, the keeper drops them.
            drop(DROPS.execute(drop_statement(&name)));
        }
    }
}

async fn drop_database(options: &PgConnectOptions, name: &str) {
    let mut connection = options.connect().await.unwrap();
    connection.execute(AssertSqlSafe(drop_statement(name))).await.unwrap();
    connection.close().await.unwrap();
}

fn drop_statement(name: &str) -> String {
    format!("drop database if exists {name} with (force)")
}

/// Names a set of migrations.
fn digest_of_migrations() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        digest.update(file.file_name().unwrap().as_encoded_bytes());
        digest.update(std::fs::read(&file).unwrap());
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Creates the template if it is missing; returns the server's version. The template gets its final name when it is
/// complete.
async fn make_template(options: &PgConnectOptions, name: &str) -> i32 {
    let mut connection = options.connect().await.unwrap();
    sqlx::query("select pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut connection).await.unwrap();
    let exists = sqlx::query("select from pg_database where datname = $1").bind(name);
    if exists.fetch_optional(&mut connection).await.unwrap().is_none() {
        let draft = format!("{name}_draft");
        let mut run = async |statement: String| connection.execute(AssertSqlSafe(statement)).await.unwrap();
        run(format!("drop database if exists {draft} with (force)")).await;
        run(format!("create database {draft}")).await;
        let store = Store::new(store_options(options.clone().database(&draft)));
        store.migrate().await.unwrap();
        store.close().await;
        let mut template = options.clone().database(&draft).connect().await.unwrap();
        template.execute(PARTITIONS).await.unwrap();
        template.close().await.unwrap();
        run(format!("alter database {draft} rename to {name}")).await;
        run(format!("alter database {name} with allow_connections false")).await;
    }
    let version = sqlx::query_scalar("select current_setting('server_version_num')::integer");
    let version = version.fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    version
}

async fn cluster() -> &'static Cluster {
    // The first test prepares the cluster, without blocking the runtimes of other tests.
    tokio::task::spawn_blocking(|| &*CLUSTER).await.unwrap()
}

/// A migrated database for one test.
pub(crate) async fn database() -> Database {
    let cluster = cluster().await;
    let name = cluster.create(&cluster.copy).await;
    Database { options: cluster.options.clone().database(&name) }
}

/// An empty database for one test, in another encoding than UTF-8.
pub(crate) async fn database_in(encoding: &str) -> Database {
    let cluster = cluster().await;
    let description = format!("encoding '{encoding}' lc_collate 'C' lc_ctype 'C' template template0");
    let name = cluster.create(&description).await;
    Database { options: cluster.options.clone().database(&name) }
}

#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) options: PgConnectOptions,
}

impl Database {
    pub(crate) async fn connect(&self) -> PgConnection {
        self.options.connect().await.unwrap()
    }

    pub(crate) async fn execute(&self, sql: &str) -> u64 {
        let mut connection = self.connect().await;
        let done = connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
        connection.close().await.unwrap();
        done.rows_affected()
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let mut connection = self.connect().await;
        let number =
            sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        number
    }
}

impl Database {
    /// What `pg_dump` of the server's installation writes, as text.
    pub(crate) async fn dump(&self) -> String {
        let mut connection = self.connect().await;
        let folder = "select setting from pg_config where name = 'BINDIR'";
        let folder: String = sqlx::query_scalar(folder).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let program = Path::new(&folder).join("pg_dump");
        // The server of `DATABASE_URL` may run elsewhere.
        let program = if program.exists() { program } else { "pg_dump".into() };
        let options = &self.options;
        let url = options.to_url_lossy();
        let password = percent_decode_str(url.password().unwrap_or_default()).decode_utf8().unwrap();
        let host = options.get_socket().map_or(Path::new(options.get_host()), PathBuf::as_path);
        let output = Command::new(program)
            .arg("--no-password")
            .arg("--host")
            .arg(host)
            .arg(format!("--port={}", options.get_port()))
            .arg(format!("--username={}", options.get_username()))
            .arg(format!("--dbname={}", options.get_database().unwrap()))
            .env("PGPASSWORD", &*password)
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn store_options(connect: PgConnectOptions) -> StoreOptions {
    StoreOptions {
        listen: connect.clone(),
        owner: None,
        connect,
        max_connections: 16,
        acquire: Duration::from_secs(5),
        statement: Duration::from_secs(30),
        lock: Duration::from_secs(5),
    }
}
