//! Commands that only read: exit codes, and that they create nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::support::audit_site::AuditSite;
use crate::support::faults::Fault;
use crate::support::process::Site;
use crate::support::wait::eventually;

/// A command line, in the site's environment.
async fn run(site: &Site, arguments: &[&str]) -> (Option<i32>, String, String) {
    // `export` calls a gateway, and refuses the flags of one.
    let mut command = match arguments[0] {
        "export" => site.client("export"),
        subcommand => site.command(subcommand),
    };
    let Output { status, stdout, stderr } = command.args(&arguments[1..]).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[tokio::test]
async fn read_only_commands_never_create_a_database() {
    let site = Site::new().set("WAGGLE_KEY", "wag_none");
    let checkpoint = site.folder.root.path().join("checkpoint.json");
    for arguments in [
        &["audit", "verify"][..],
        &["audit", "verify", "--against", checkpoint.to_str().unwrap()],
        &["audit", "key"],
        &["audit", "tail"],
        &["audit", "export"],
        &["audit", "checkpoint"],
        &["config", "check"],
        &["config", "show"],
        &["export", "research"],
        &["health"],
        &["key", "generate", "--operator"],
        &["openapi"],
    ] {
        let (code, _, stderr) = run(&site, arguments).await;
        let expected = match arguments {
            ["audit", "verify", ..] => 2,
            ["config", ..] | ["key", ..] | ["openapi"] => 0,
            _ => 1,
        };
        assert_eq!(code, Some(expected), "{arguments:?}: {stderr}");
        assert!(!site.folder.data_dir().exists(), "{arguments:?}");
    }
    let (_, _, stderr) = run(&site, &["audit", "verify"]).await;
    assert!(stderr.contains("there is no embedded database in"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_exit_codes_distinguish_tampering_from_failure() {
    let (audit_site, gateway) = AuditSite::new(&[]).await;
    audit_site.is_written().await;
    assert!(gateway.stop().await.success());
    let (code, stdout, _) = run(&audit_site.site, &["audit", "verify"]).await;
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("\nunsigned: ") || stdout.starts_with("unsigned: "), "{stdout}");

    let folder = audit_site.site.folder.root.path();
    let (missing, broken, empty) = (folder.join("missing"), folder.join("broken.json"), folder.join("empty"));
    fs::write(&broken, "{}").unwrap();
    fs::create_dir(&empty).unwrap();
    for unusable in [&missing, &broken, &empty] {
        let (code, stdout, stderr) =
            run(&audit_site.site, &["audit", "verify", "--against", unusable.to_str().unwrap()]).await;
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    }
    let (code, _, stderr) =
        run(&audit_site.site, &["audit", "verify", "--trust", broken.to_str().unwrap()]).await;
    assert_eq!(code, Some(2), "{stderr}");

    let edit = "set session_replication_role = replica; update audit_log set outcome = 'x' where seq = 2";
    audit_site.database.execute(edit).await;
    let (code, stdout, _) = run(&audit_site.site, &["audit", "verify"]).await;
    assert_eq!(code, Some(1), "{stdout}");

    audit_site.database.execute("alter table audit_chains rename column version to other").await;
    let (code, _, stderr) = run(&audit_site.site, &["audit", "verify"]).await;
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("`waggle migrate`"), "{stderr}");
    audit_site.proxy.fail(Fault::Refused);
    let (code, _, stderr) = run(&audit_site.site, &["audit", "verify"]).await;
    assert_eq!(code, Some(2), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_gateway_signs_with_its_own_key() {
    let site = Site::new();
    let outside = site.folder.root.path().join("checkpoints");
    let site = site.set("WAGGLE_AUDIT__CHECKPOINT_TO", outside.display());
    let gateway = site.serve().await;
    let file = site.folder.data_dir().join("audit.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let (_, key, _) = run(&site, &["audit", "key"]).await;
    assert!(key.starts_with("ed25519:"), "{key}");
    eventually("a checkpoint is written", async || {
        fs::read_dir(&outside).is_ok_and(|mut entries| entries.next().is_some())
    })
    .await;
    assert!(gateway.stop().await.success());
    let trust = site.folder.root.path().join("trusted.pub");
    fs::write(&trust, format!("# one a replica\n{key}")).unwrap();
    let verify =
        ["audit", "verify", "--trust", trust.to_str().unwrap(), "--against", outside.to_str().unwrap()];
    let (code, stdout, stderr) = run(&site, &verify).await;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("signed since ledger entry 1, verified with the trusted keys"), "{stdout}");

    // A successor signs from the next start on, and is trusted because its predecessor entered it.
    let (_, successor, _) = run(&site, &["audit", "key", "--new"]).await;
    assert_ne!(successor, key);
    assert!(site.serve().await.stop().await.success());
    let (code, stdout, stderr) = run(&site, &verify).await;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    fs::write(&trust, successor).unwrap();
    let (code, stdout, _) = run(&site, &verify).await;
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains("is not a trusted key"), "{stdout}");
}
