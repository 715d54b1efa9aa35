//! Progress of commands: on a terminal only, and never with `--quiet`.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

use crate::apply::{output, waggle};
use crate::support::app::{Replica, gateway};

const DOCUMENTS: &str = "kind: tenant\nid: one\n---\nkind: tenant\nid: two\n";

/// Runs a command whose standard error is a terminal; returns its exit code, its standard output, and what the terminal
/// received.
async fn on_terminal(replica: &Replica, arguments: &[&str]) -> (Option<i32>, String, String) {
    let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_waggle"));
    command
        .env_clear()
        .env("TERM", "xterm")
        .env("WAGGLE_URL", format!("http://{}", replica.running.admin_address))
        .env("WAGGLE_KEY", &replica.operator)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(terminal.slave);
    let run = move || {
        let child = command.spawn().unwrap();
        // The last handle of the terminal but the child's: its end is then that of what the terminal receives.
        drop(command);
        let mut received = Vec::new();
        // Linux reports the end as an error.
        let _ = File::from(terminal.master).read_to_end(&mut received);
        let done = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&received))
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_shown_on_terminals_only() {
    let (_database, replica) = gateway().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tenants.yaml"), DOCUMENTS).unwrap();
    let file = folder.path().to_str().unwrap();
    let created = "+ tenant one\n+ tenant two\ngateway: 2 to create, 0 to update, 0 to delete\n";
    let (code, out, terminal) = on_terminal(&replica, &["diff", "-f", file]).await;
    assert_eq!((code, out.as_str()), (Some(2), created));
    assert!(terminal.contains("comparing"), "{terminal:?}");
    let piped = waggle(&replica, &replica.operator, &["diff", "-f", file], "").await;
    assert_eq!(piped, output(2, created, ""));

    let (code, out, terminal) = on_terminal(&replica, &["apply", "-f", file, "--quiet"]).await;
    assert_eq!((code, out.as_str(), terminal.as_str()), (Some(0), "", ""));
    let applied = "gateway: 0 created, 0 updated, 0 deleted, 2 unchanged\n";
    let (code, out, terminal) = on_terminal(&replica, &["apply", "-f", file]).await;
    assert_eq!((code, out.as_str()), (Some(0), applied));
    assert!(terminal.contains("applying"), "{terminal:?}");
    let exported = folder.path().join("exported");
    let (code, _, terminal) = on_terminal(&replica, &["export", "--dir", exported.to_str().unwrap()]).await;
    assert!(code == Some(0) && terminal.contains("exporting"), "{terminal:?}");
}
