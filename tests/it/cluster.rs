//! One PostgreSQL cluster a run, a database a test; `DATABASE_URL` names another cluster to use.

use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use embedded_postgres::Embedded;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use waggle::store::{Store, StoreOptions};

use crate::embedded::support::options;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let (send, receive) = std::sync::mpsc::channel();
    // The cluster outlives the runtime of the test that happens to need it first.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (cluster, _embedded) = Cluster::start().await;
            send.send(cluster).unwrap();
            std::future::pending::<()>().await;
        });
    });
    receive.recv().unwrap()
});
static NEXT: AtomicU32 = AtomicU32::new(0);

struct Cluster {
    options: PgConnectOptions,
    prefix: String,
}

impl Cluster {
    async fn start() -> (Self, Option<Embedded>) {
        let (options, embedded) = match std::env::var("DATABASE_URL") {
            Ok(url) => (url.parse::<PgConnectOptions>().unwrap(), None),
            Err(_) => {
                let folder = tempfile::Builder::new().prefix("waggle-it-").tempdir().unwrap().keep();
                std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
                remove_at_exit(&folder);
                let mut options = options(&folder.join("data"));
                options.limits.max_connections = 400;
                let embedded = Embedded::start(options).await.unwrap();
                (embedded.connect_options(), Some(embedded))
            }
        };
        let cluster = Self { options, prefix: format!("it_{}", std::process::id()) };
        cluster.create("template", None).await;
        let store = Store::new(store_options(cluster.options.clone().database(&cluster.name("template"))));
        store.migrate(Duration::from_secs(60)).await.unwrap();
        store.close().await;
        (cluster, embedded)
    }

    fn name(&self, test: &str) -> String {
        format!("{}_{test}", self.prefix)
    }

    async fn create(&self, name: &str, template: Option<&str>) {
        let mut connection = self.options.connect().await.unwrap();
        let template = template.map(|t| format!(" template {}", self.name(t))).unwrap_or_default();
        let statement = format!("create database {}{template}", self.name(name));
        connection.execute(AssertSqlSafe(statement)).await.unwrap();
        connection.close().await.unwrap();
    }
}

/// A shell that waits for this process to end, however it does, and then removes what it leaves.
fn remove_at_exit(folder: &std::path::Path) {
    let script = "while kill -0 \"$1\" 2>/dev/null; do sleep 1; done; sleep 2; rm -rf \"$2\"";
    let waiting = std::process::Command::new("sh")
        .args(["-c", script, "sh", &std::process::id().to_string()])
        .arg(folder)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // It outlives this process: nobody waits for it.
    drop(waiting);
}

/// A migrated database of the test's own.
pub(crate) async fn database() -> Database {
    // The first test waits for the cluster; none of them may block the others' runtime meanwhile.
    let cluster = tokio::task::spawn_blocking(|| &*CLUSTER).await.unwrap();
    let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    cluster.create(&name, Some("template")).await;
    Database { options: cluster.options.clone().database(&cluster.name(&name)) }
}

/// An empty database of the test's own, in another encoding than UTF-8.
pub(crate) async fn database_in(encoding: &str) -> Database {
    let cluster = tokio::task::spawn_blocking(|| &*CLUSTER).await.unwrap();
    let name = cluster.name(&format!("{encoding}_{}", NEXT.fetch_add(1, Ordering::Relaxed)).to_lowercase());
    let options = cluster.options.clone();
    let statement = format!(
        "create database {name} encoding '{encoding}' lc_collate 'C' lc_ctype 'C' template template0"
    );
    Database { options: options.clone() }.execute(&statement).await;
    Database { options: options.database(&name) }
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
