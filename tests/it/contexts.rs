//! Contexts of the command line: stored gateways and keys, and which one a command uses.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::apply::{Output, output, run};
use crate::support::app::{Replica, gateway};

/// Runs a command with a file of contexts.
struct Contexts {
    folder: tempfile::TempDir,
}

impl Contexts {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("waggle/contexts.toml")
    }

    async fn run(&self, line: &str, variables: &[(&str, &str)], stdin: &str) -> Output {
        let home = [("XDG_CONFIG_HOME", self.folder.path().to_str().unwrap())];
        let variables: Vec<_> = home.into_iter().chain(variables.iter().copied()).collect();
        let words: Vec<_> = line.split(' ').collect();
        let (code, out, error) = run(&variables, &words, stdin).await;
        let columns = regex::Regex::new(r"[ ]{2,}").unwrap();
        (code, columns.replace_all(&out, " ").into_owned(), error)
    }
}

fn url(replica: &Replica) -> String {
    format!("http://{}", replica.running.admin_address)
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_gateways_are_listed_chosen_and_removed() {
    let (_database, one) = gateway().await;
    let (_other_database, two) = gateway().await;
    one.tenant("of-one").await;
    two.tenant("of-two").await;
    let contexts = Contexts::new();
    let added = contexts
        .run(
            &format!("context add one --url {} --key-from -", url(&one)),
            &[],
            &format!("{}\n", one.operator),
        )
        .await;
    assert_eq!(added, output(0, "added context one\n", ""));
    let file = contexts.folder.path().join("two.key");
    fs::write(&file, &two.operator).unwrap();
    let line = format!("context add two --url {} --key-from file:{}", url(&two), file.display());
    assert_eq!(contexts.run(&line, &[], "").await, output(0, "added context two\n", ""));
    assert_eq!(fs::metadata(contexts.file()).unwrap().permissions().mode() & 0o777, 0o600);
    let shown = |name: &str, mark: &str, replica: &Replica| {
        format!("{name} {mark}{} {}\n", url(replica), &replica.operator[..12])
    };
    let listed =
        format!("NAME IN USE URL KEY CACERT\n{}{}", shown("one", "* ", &one), shown("two", "", &two));
    assert_eq!(contexts.run("context list", &[], "").await, output(0, &listed, ""));

    let tenants = "tenant list -o name";
    assert_eq!(contexts.run(tenants, &[], "").await, output(0, "of-one\n", ""), "the one in use");
    assert_eq!(contexts.run(tenants, &[("WAGGLE_CONTEXT", "two")], "").await, output(0, "of-two\n", ""));
    assert_eq!(contexts.run("context use two", &[], "").await, output(0, "using context two\n", ""));
    assert_eq!(contexts.run(tenants, &[], "").await, output(0, "of-two\n", ""));
    let (one_url, variables) = (url(&one), one.operator.as_str());
    let variables = [("WAGGLE_URL", one_url.as_str()), ("WAGGLE_KEY", variables)];
    assert_eq!(
        contexts.run(tenants, &variables, "").await,
        output(0, "of-one\n", ""),
        "before the one in use"
    );
    let flag = "--context two tenant list -o name";
    assert_eq!(contexts.run(flag, &variables, "").await, output(0, "of-two\n", ""), "before the environment");

    assert_eq!(contexts.run("context remove two", &[], "").await, output(0, "removed context two\n", ""));
    let missing = "WAGGLE_KEY is not set; expected the key to send to the gateway\n";
    assert_eq!(contexts.run(tenants, &[], "").await, output(2, "", missing), "none is in use");
    let unknown = "unknown context two; waggle context list names them\n";
    assert_eq!(contexts.run(flag, &variables, "").await, output(2, "", unknown));
    assert_eq!(contexts.run("context use two", &[], "").await, output(2, "", unknown));
}

#[tokio::test]
async fn keys_are_neither_arguments_nor_readable_by_others() {
    let contexts = Contexts::new();
    let add = "context add one --url http://127.0.0.1:1 --key-from";
    let (code, out, error) = contexts.run(&format!("{add} wag_secret"), &[], "").await;
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert_eq!(error, "--key-from: expected env:VARIABLE, file:PATH or -, never the key itself\n");
    let missing = "--key-from: the environment variable GONE is not set\n";
    assert_eq!(contexts.run(&format!("{add} env:GONE"), &[], "").await, output(2, "", missing));
    assert_eq!(
        contexts.run(&format!("{add} -"), &[], "two words").await,
        output(2, "", "--key-from: not a key\n")
    );
    assert!(!contexts.file().exists());
    let added = contexts.run(add.trim_end_matches(" --key-from"), &[("WAGGLE_KEY", "k")], "").await;
    assert_eq!(added, output(0, "added context one\n", ""));
    let again = contexts.run(add.trim_end_matches(" --key-from"), &[("WAGGLE_KEY", "k")], "").await;
    assert_eq!(again, output(2, "", "context one exists already; remove it first\n"));
    fs::set_permissions(contexts.file(), fs::Permissions::from_mode(0o640)).unwrap();
    let readable =
        format!("{}: holds keys and can be read by others; run chmod 600\n", contexts.file().display());
    assert_eq!(contexts.run("tenant list", &[], "").await, output(2, "", &readable));
}

#[tokio::test]
async fn flags_of_the_gateway_are_refused_by_commands_that_call_one() {
    let contexts = Contexts::new();
    for flag in ["--data-dir", "--listen", "--database-url", "--log-format", "--log-filter"] {
        let refused = format!(
            "{flag} is a flag of the gateway itself; name the gateway to call with WAGGLE_URL or --context\n"
        );
        let run = contexts.run(&format!("tenant list {flag} x"), &[("WAGGLE_KEY", "k")], "").await;
        assert_eq!(run, output(2, "", &refused));
    }
}

#[tokio::test]
async fn flags_of_clients_are_refused_by_commands_that_call_no_gateway() {
    let contexts = Contexts::new();
    for (command, flag) in [("serve", "--context"), ("serve", "--cacert"), ("migrate", "--context")] {
        let refused = format!("{flag} is a flag of commands that call a gateway, which this one does not\n");
        assert_eq!(contexts.run(&format!("{command} {flag} x"), &[], "").await, output(2, "", &refused));
    }
}

#[tokio::test]
async fn help_shows_the_flags_that_mean_something() {
    for (command, own, other) in [
        ("tenant list", "--cacert", "--data-dir"),
        ("apply", "--context", "--database-url"),
        ("serve", "--data-dir", "--cacert"),
    ] {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let (code, help, _) = run(&[], &words, "").await;
        assert_eq!(code, Some(0));
        assert!(help.contains(own) && !help.contains(other), "{command}: {help}");
    }
}
