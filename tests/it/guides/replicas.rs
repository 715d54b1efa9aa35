//! The commands of `docs/containers.md` that start replicas without containers.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use http::StatusCode;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use sqlx::ConnectOptions;

use super::docs;
use crate::support::cluster::database;
use crate::support::http::Client;
use crate::support::process::free_address;
use crate::support::wait::eventually;

/// A shell and what it started, which are stopped when it is dropped.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        killpg(group, Signal::SIGTERM).ok();
        self.0.wait().ok();
    }
}

/// The first commands of a section.
fn commands(page: &str, heading: &str) -> String {
    let text = fs::read_to_string(docs().join(page)).unwrap();
    let (_, section) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let (_, block) = section.split_once("\n```sh\n").unwrap();
    block.split_once("\n```").unwrap().0.to_owned()
}

fn replaced(script: String, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(script, |script, (from, to)| {
        assert!(script.contains(from), "{from}");
        script.replace(from, to)
    })
}

fn waggle(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waggle"));
    assert!(command.args(arguments).current_dir(folder).env_clear().status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_without_containers_are_ready_signed_and_found_healthy() {
    let database = database().await;
    let folder = tempfile::tempdir().unwrap();
    let [balancer, one, two] = [(); 3].map(|()| free_address());
    waggle(folder.path(), &["key", "generate", "--operator", "--out", "operator.key"]);
    fs::write(folder.path().join("ports"), format!("{}\n{}\n", one.port(), two.port())).unwrap();
    let url = format!("'{}'", database.options.to_url_lossy());
    let changes = [
        ("postgres://waggle:password@127.0.0.1:5432/waggle", url.as_str()),
        ("819$((n + 4))", "$(sed -n ${n}p ports)"),
        ("8094", &balancer.port().to_string()),
    ];
    let script = replaced(commands("containers.md", "### Without containers"), &changes);
    let programs = Path::new(env!("CARGO_BIN_EXE_waggle")).parent().unwrap();
    let (printed, failed) = (folder.path().join("printed"), folder.path().join("failed"));
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", &format!("{script}\necho complete")])
        .env_clear()
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
        .current_dir(&folder)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&printed).unwrap())
        .stderr(fs::File::create(&failed).unwrap());
    let mut shell = Shell(shell.spawn().unwrap());
    let printed = || fs::read_to_string(&printed).unwrap();
    eventually("the commands end", async || shell.0.try_wait().unwrap().is_some()).await;
    let text = printed();
    assert!(text.ends_with("complete\n"), "{text}\n{}", fs::read_to_string(&failed).unwrap());
    assert_eq!(text.matches("ready\n").count(), 2, "{text}");
    assert!(text.contains(&format!("ready at {one}")) && text.contains(&format!("ready at {two}")), "{text}");
    assert!(text.contains("2 listening for changes") && !text.contains("fail  "), "{text}");
    for address in [one, two] {
        assert_eq!(Client::new(address).get("/readyz").await.status, StatusCode::OK);
    }
    let keys = fs::read_to_string(folder.path().join("audit-public-keys")).unwrap();
    assert_eq!(keys.lines().count(), 2);
    let signed = "select count(distinct signer) from audit_chains where signer is not null";
    eventually("each signs with a key of its own", async || database.number(signed).await == 2).await;
}
