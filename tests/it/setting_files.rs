//! Files and directories that settings name: `config check`, `doctor` and `serve` agree about each.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use sqlx::ConnectOptions;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::support::cluster::database;
use crate::support::folder::TestFolder;
use crate::support::process::Site;
use crate::support::wait::DEADLINE;

const OPERATOR_KEY: &str = "wag_00000000000000000000000000000000000000000003NxIRP";
/// Not root, for whom nothing is unreadable.
const NOBODY: u32 = 65_534;

/// What is at the path that a setting names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Unreadable,
    Empty,
    Garbage,
    Folder,
}

/// A variable, the setting that the problem is reported under, and what a start refuses.
type Row = (&'static str, &'static str, &'static [Found]);

const FILE: &[Found] = &[Found::Nothing, Found::Unreadable, Found::Empty, Found::Garbage, Found::Folder];
/// Files where a directory is expected, and a directory that cannot be written to.
const DIRECTORY: &[Found] = &[Found::Unreadable, Found::Empty, Found::Garbage];

const ROWS: [Row; 6] = [
    ("WAGGLE_SERVER__TLS_CERTIFICATE", "server.tls_certificate", FILE),
    ("WAGGLE_SERVER__TLS_KEY", "server.tls_key", FILE),
    ("WAGGLE_ADMIN__OPERATOR_KEYS_FILE", "admin.operator_keys_file", FILE),
    ("WAGGLE_AUDIT__SIGNING_KEY_FILE", "audit.signing_key_file", FILE),
    ("WAGGLE_SOURCES__KEY_FILE", "sources.key_file", FILE),
    ("WAGGLE_AUDIT__SPILL_DIR", "audit.spill_dir", DIRECTORY),
];

impl Found {
    fn put(self, path: &Path, is_directory: bool) {
        match self {
            Self::Nothing => return,
            Self::Folder => fs::create_dir(path).unwrap(),
            Self::Unreadable if is_directory => fs::create_dir(path).unwrap(),
            Self::Empty => fs::write(path, "").unwrap(),
            Self::Unreadable | Self::Garbage => fs::write(path, "garbage").unwrap(),
        }
        if self == Self::Unreadable {
            fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
        }
    }
}

/// A folder with a certificate and its key, and a copy of the binary that every user may run.
fn folder() -> TestFolder {
    let folder = TestFolder::new();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let path = |name: &str| folder.root.path().join(name);
    fs::write(path("good.pem"), certificate.pem()).unwrap();
    fs::write(path("good.key"), key.serialize_pem()).unwrap();
    let binary = env!("CARGO_BIN_EXE_waggle");
    fs::hard_link(binary, path("waggle")).or_else(|_| fs::copy(binary, path("waggle")).map(drop)).unwrap();
    folder
}

async fn run(folder: &TestFolder, row: &Row, found: Found, arguments: &[&str]) -> Output {
    let root = folder.root.path();
    let mut command = Command::new(root.join("waggle"));
    command
        .current_dir(root)
        .env_clear()
        .env("DATABASE_URL", "postgres://waggle@127.0.0.1:1/waggle")
        .env("WAGGLE_SERVER__LISTEN", "127.0.0.1:0")
        .env("WAGGLE_LOG__FORMAT", "text")
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if row.0.contains("TLS") {
        command.env("WAGGLE_SERVER__TLS_CERTIFICATE", "good.pem").env("WAGGLE_SERVER__TLS_KEY", "good.key");
    }
    if row.0 != "WAGGLE_ADMIN__OPERATOR_KEYS_FILE" {
        command.env("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY);
    }
    command.env(row.0, "named");
    if found == Found::Unreadable && nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    tokio::time::timeout(DEADLINE, command.output()).await.unwrap().unwrap()
}

async fn is_refused_by_all(row: Row, found: Found) {
    let folder = folder();
    found.put(&folder.root.path().join("named"), row.2 == DIRECTORY);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let checked = run(&folder, &row, found, &["config", "check"]).await;
    let line = text(&checked.stderr);
    let named = line.starts_with(&format!("{}: ", row.1)) && line.lines().count() == 1;
    assert!(named && checked.status.code() == Some(2), "{row:?} {found:?}: {line}");
    assert!(!line.contains("garbage"), "{line}");
    let diagnosed = run(&folder, &row, found, &["doctor", "--json"]).await;
    let report: Value = serde_json::from_slice(&diagnosed.stdout).unwrap();
    let settings = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "settings");
    let settings = settings.unwrap();
    assert_eq!(
        (settings["status"].as_str(), settings["message"].as_str()),
        (Some("fail"), Some(line.trim_end()))
    );
    let served = run(&folder, &row, found, &["serve"]).await;
    assert_eq!((served.status.code(), text(&served.stderr)), (Some(2), line), "{row:?} {found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_files_are_refused_by_check_doctor_and_serve() {
    for row in ROWS {
        let mut cases = JoinSet::new();
        for found in row.2 {
            cases.spawn(is_refused_by_all(row, *found));
        }
        cases.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_starts_without_what_only_a_feature_needs() {
    let database = database().await;
    let site = Site::new();
    fs::write(site.folder.root.path().join("file"), "").unwrap();
    let site = site
        .set("DATABASE_URL", database.options.to_url_lossy())
        .set("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY)
        .set("WAGGLE_AUDIT__SPILL_DIR", "spill")
        .set("WAGGLE_AUDIT__CHECKPOINT_TO", "file")
        .set("WAGGLE_SOURCES__CACHE_DIR", "file")
        .set("WAGGLE_SOURCES__FILE_ROOTS", "/nowhere");
    let checked = site.command("config").arg("check").output().await.unwrap();
    let expected = "warning: audit.checkpoint_to: file is not a directory\n\
                    warning: sources.file_roots: /nowhere: No such file or directory (os error 2)\n\
                    warning: sources.cache_dir: file is not a directory\nthe settings are valid\n";
    assert_eq!((checked.status.code(), checked.stdout), (Some(0), expected.as_bytes().to_vec()));
    let diagnosed = site.command("doctor").arg("--json").output().await.unwrap();
    let report: Value = serde_json::from_slice(&diagnosed.stdout).unwrap();
    let warned = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().any(|check| check["check"] == name && check["status"] == "warn")
    };
    for name in [
        "audit.checkpoint_to",
        "sources.file_roots",
        "sources.cache_dir",
        "audit.signing_key_file",
        "audit.spill_dir",
    ] {
        assert!(warned(name), "{name}: {report}");
    }
    assert_eq!(diagnosed.status.code(), Some(0), "{report}");
    let gateway = site.serve().await;
    assert!(site.folder.root.path().join("spill").is_dir());
    let logged = site.printed("stderr");
    assert_eq!(logged.matches("file or directory of a setting is not usable").count(), 3, "{logged}");
    gateway.stop().await;
}
