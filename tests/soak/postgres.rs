//! A PostgreSQL primary with a standby that can be promoted before it has received everything.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::process::Command;

use crate::fleet::free_port;
use crate::support::cluster::Database;

/// The timeout for starting or copying a server.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The gateway's database.
const DATABASE: &str = "waggle";

/// A primary and its standby.
pub(crate) struct Servers {
    bin: PathBuf,
    folder: TempDir,
    primary: Server,
    standby: Server,
    made: usize,
}

#[derive(Debug, Clone)]
struct Server {
    data: PathBuf,
    port: u16,
}

impl Server {
    fn options(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port)
            .ssl_mode(sqlx::postgres::PgSslMode::Disable)
            .username("waggle")
    }

    fn database(&self, name: &str) -> Database {
        Database { options: self.options().database(name) }
    }
}

impl Servers {
    pub(crate) async fn start() -> Self {
        let find = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/find-postgres");
        let found = Command::new(find).output().await.unwrap();
        let bin = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        if nix::unistd::geteuid().is_root() {
            let user = nix::unistd::User::from_name("postgres").unwrap().unwrap();
            chown(folder.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        let primary = Server { data: folder.path().join("0"), port: free_port() };
        let standby = primary.clone();
        let mut servers = Self { bin, folder, primary, standby, made: 1 };
        let data = servers.primary.data.display().to_string();
        let init = format!("-D {data} --username=waggle --auth=trust --encoding=UTF8 --locale=C --no-sync");
        servers.run("initdb", &init).await;
        servers.up(&servers.primary).await;
        servers.primary.database("postgres").execute(&format!("create database {DATABASE}")).await;
        servers.add_standby().await;
        servers
    }

    /// The gateway's database on the primary.
    pub(crate) fn database(&self) -> Database {
        self.primary.database(DATABASE)
    }

    /// Promotes the standby and stops the primary. The commits of the last `lost` are lost.
    pub(crate) async fn fail_over(&mut self, lost: Duration) {
        let standby = self.standby.database("postgres");
        standby.execute("alter system set primary_conninfo to ''").await;
        standby.execute("select pg_reload_conf()").await;
        tokio::time::sleep(lost).await;
        self.down(&self.primary).await;
        standby.execute("select pg_promote(true, 60)").await;
        std::mem::swap(&mut self.primary, &mut self.standby);
    }

    /// Copies the primary to another standby.
    pub(crate) async fn add_standby(&mut self) {
        let standby = Server { data: self.folder.path().join(self.made.to_string()), port: free_port() };
        self.made += 1;
        let copy = format!(
            "-D {} -R -X stream -c fast -h 127.0.0.1 -p {} -U waggle --no-sync",
            standby.data.display(),
            self.primary.port
        );
        self.run("pg_basebackup", &copy).await;
        self.up(&standby).await;
        self.standby = standby;
    }

    /// Stops both.
    pub(crate) async fn stop(&self) {
        self.down(&self.standby).await;
        self.down(&self.primary).await;
    }

    async fn up(&self, server: &Server) {
        let (data, folder) = (server.data.display(), self.folder.path().display());
        let options = format!(
            "-p {} -k {folder} -c listen_addresses=127.0.0.1 -c max_connections=200 -c fsync=off",
            server.port
        );
        self.run("pg_ctl", &format!("-D {data} -l {data}.log -w -s start -o \"{options}\"")).await;
    }

    async fn down(&self, server: &Server) {
        self.run("pg_ctl", &format!("-D {} -m immediate -s -w stop", server.data.display())).await;
    }

    /// Runs a program of PostgreSQL as a user that it accepts.
    async fn run(&self, program: &str, arguments: &str) {
        let line = format!("cd / && {} {arguments}", self.bin.join(program).display());
        let mut command = if nix::unistd::geteuid().is_root() {
            let mut command = Command::new("su");
            command.args(["-s", "/bin/sh", "postgres", "-c", &line]);
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", &line]);
            command
        };
        let log = self.folder.path().join("programs.log");
        let output = || std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let began = Instant::now();
        let done = command.stdout(output()).stderr(output()).status();
        let done = tokio::time::timeout(TIMEOUT, done).await.unwrap().unwrap();
        assert!(done.success(), "{line} after {:?}: {}", began.elapsed(), read(&log));
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

impl Database {
    /// Ends all connections and refuses new ones while `work` runs from another database.
    async fn alone(&self, work: &[String]) {
        let other = Self { options: self.options.clone().database("postgres") };
        other.execute(&format!("alter database {DATABASE} allow_connections false")).await;
        for statement in work {
            let end = format!(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{DATABASE}'"
            );
            other.execute(&end).await;
            other.execute(statement).await;
        }
        other.execute(&format!("alter database {DATABASE} allow_connections true")).await;
    }

    /// Saves a copy, replacing an earlier one.
    pub(crate) async fn save(&self) {
        let other = Self { options: self.options.clone().database("postgres") };
        other.execute(&format!("drop database if exists {DATABASE}_saved")).await;
        self.alone(&[format!("create database {DATABASE}_saved template {DATABASE}")]).await;
    }

    /// Replaces the database with the copy.
    pub(crate) async fn restore(&self) {
        let drop = format!("drop database {DATABASE} with (force)");
        self.alone(&[drop, format!("alter database {DATABASE}_saved rename to {DATABASE}")]).await;
    }
}
