//! A separate PostgreSQL server that accepts the connections of many replicas.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::{User, geteuid};
use tokio::process::Command;
use tokio::time::timeout;

use crate::error::{Error, excerpt};
use crate::process;

/// The timeout of one of PostgreSQL's programs.
const PATIENCE: Duration = Duration::from_mins(2);
/// The timeout of a script, which may write millions of rows.
const SCRIPT_PATIENCE: Duration = Duration::from_mins(30);
const CONNECTIONS: u16 = 1000;

/// A running server.
pub(crate) struct Database {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
}

impl Database {
    /// Starts a server below `folder`, with a database `waggle`.
    pub(crate) async fn start(folder: &Path) -> Result<Self, Error> {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(Error::io("open a directory"))?;
        let directory = folder.join("postgres");
        fs::create_dir(&directory).map_err(Error::io("create a directory"))?;
        if let Some(user) = other_user()? {
            chown(&directory, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .map_err(Error::io("give a directory"))?;
        }
        let find = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/find-postgres");
        let found = Command::new(find).output().await.map_err(Error::io("find PostgreSQL"))?;
        let programs = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
        let database = Self { programs, folder: directory, port: process::free_port()? };
        let data = database.data().display().to_string();
        let init = format!("-D {data} --username=waggle --auth=trust --encoding=UTF8 --locale=C --no-sync");
        database.run("initdb", &init).await?;
        let (folder, port) = (database.folder.display(), database.port);
        let options =
            format!("-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c max_connections={CONNECTIONS}");
        database.run("pg_ctl", &format!("-D {data} -l {data}.log -w -s start -o \"{options}\"")).await?;
        database.run("createdb", &format!("-h 127.0.0.1 -p {port} -U waggle waggle")).await?;
        Ok(database)
    }

    /// The URL at which a gateway connects.
    pub(crate) fn url(&self) -> String {
        format!("postgres://waggle@127.0.0.1:{}/waggle", self.port)
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The id of the server's first process.
    pub(crate) fn server(&self) -> Result<u32, Error> {
        let file = self.data().join("postmaster.pid");
        let pid = fs::read_to_string(file).ok().and_then(|text| text.lines().next()?.parse().ok());
        pid.ok_or(Error::NotRunning { server: "PostgreSQL" })
    }

    /// Returns the number that a query selects, over a connection to another database.
    pub(crate) async fn number(&self, query: &str) -> Result<u64, Error> {
        let query = format!("-h 127.0.0.1 -p {} -U waggle -XAtc \"{query}\" postgres", self.port);
        let answer = self.run("psql", &query).await?;
        answer.trim().parse().map_err(|_| Error::Database(answer))
    }

    /// Runs a script of SQL, which everyone may read, in the database.
    pub(crate) async fn execute(&self, script: &Path) -> Result<(), Error> {
        let options = format!("-h 127.0.0.1 -p {} -U waggle -Xqo /dev/null -v ON_ERROR_STOP=1", self.port);
        let arguments = format!("{options} -f {} waggle", script.display());
        self.run_within(SCRIPT_PATIENCE, "psql", &arguments).await.map(|_| ())
    }

    /// Returns the rows that a query selects in the database, their columns separated by `|`.
    pub(crate) async fn rows(&self, query: &str) -> Result<String, Error> {
        self.run("psql", &format!("-h 127.0.0.1 -p {} -U waggle -XAtc \"{query}\" waggle", self.port)).await
    }

    /// Stops the server.
    pub(crate) async fn stop(&self) -> Result<(), Error> {
        let data = self.data();
        self.run("pg_ctl", &format!("-D {} -m immediate -s -w stop", data.display())).await.map(|_| ())
    }

    async fn run(&self, program: &str, arguments: &str) -> Result<String, Error> {
        self.run_within(PATIENCE, program, arguments).await
    }

    /// Runs one of PostgreSQL's programs, as a user that it accepts.
    async fn run_within(&self, most: Duration, program: &str, arguments: &str) -> Result<String, Error> {
        let line = format!("cd / && {} {arguments}", self.programs.join(program).display());
        let mut command = Command::new(if other_user()?.is_some() { "su" } else { "sh" });
        if other_user()?.is_some() {
            command.args(["-s", "/bin/sh", "postgres"]);
        }
        command.args(["-c", &line]).stdin(Stdio::null()).kill_on_drop(true);
        let late = |_| Error::TimedOut { server: "PostgreSQL", seconds: most.as_secs() };
        // To files: a started server would keep a pipe open.
        let [out, log] = ["out", "log"].map(|name| self.folder.with_extension(name));
        let file = |path: &Path| fs::File::create(path).map_err(Error::io("write a log"));
        command.stdout(file(&out)?).stderr(file(&log)?);
        let done = timeout(most, command.status()).await.map_err(late)?;
        let read = |path: &Path| fs::read(path).unwrap_or_default();
        match done {
            Ok(status) if status.success() => Ok(String::from_utf8_lossy(&read(&out)).into_owned()),
            _ => Err(Error::Database(excerpt(&read(&log)))),
        }
    }
}

/// The user that the server runs as if this process runs as root, which PostgreSQL refuses.
fn other_user() -> Result<Option<User>, Error> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let named = User::from_name("postgres").map_err(|error| Error::io("find a user")(error.into()))?;
    named.map(Some).ok_or_else(|| Error::Database("there is no user postgres to run it as".to_owned()))
}
