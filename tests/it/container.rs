//! The Dockerfile and `deploy/` agree with the gateway and the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const DOCKERFILE: &str = include_str!("../../Dockerfile");
const COMPOSE: &str = include_str!("../../deploy/compose.yaml");
const EXAMPLE: &str = include_str!("../../deploy/.env.example");
const BALANCERS: [&str; 2] =
    [include_str!("../../deploy/balancer/nginx.conf"), include_str!("../../deploy/balancer/haproxy.cfg")];
const KUBERNETES: &str = include_str!("../../deploy/kubernetes/base/waggle.yaml");
const MANIFEST: &str = include_str!("../../Cargo.toml");

/// The values that a user sets in the copied example.
const FILLED_IN: [(&str, &str); 3] = [
    ("POSTGRES_PASSWORD", "0123456789abcdef"),
    ("WAGGLE_METRICS__TOKEN", "0123456789abcdef"),
    ("WAGGLE_ADMIN__OPERATOR_KEY", "wag_00000000000000000000000000000000000000000003NxIRP"),
];

/// The variables in a text of the compose file: name, and the rest of the expression.
fn variables(text: &str) -> Vec<(&str, &str)> {
    let inside = text.split("${").skip(1).map(|rest| rest.split_once('}').unwrap().0);
    inside.map(|variable| variable.split_at(variable.find(':').unwrap())).collect()
}

/// A value after compose has substituted the variables.
fn filled_in(value: &str) -> String {
    variables(value).into_iter().fold(value.to_owned(), |text, (name, rest)| {
        let given = FILLED_IN.iter().find(|(filled, _)| *filled == name).map(|(_, value)| *value);
        let value = given.or_else(|| rest.strip_prefix(":-")).unwrap();
        text.replace(&format!("${{{name}{rest}}}"), value)
    })
}

/// The settings of a gateway of the compose file: those of the image, and those of the service.
fn settings() -> Vec<(&'static str, String)> {
    let image = DOCKERFILE.lines().filter_map(|line| line.strip_prefix("ENV WAGGLE_")?.split_once('='));
    let given = COMPOSE.lines().filter_map(|line| line.trim().strip_prefix("WAGGLE_")?.split_once(": "));
    image.chain(given).map(|(name, value)| (name, filled_in(value.trim_matches('"')))).collect()
}

#[test]
fn settings_of_image_and_compose_are_valid() {
    let settings = settings();
    assert!(settings.len() > 5, "{settings:?}");
    let variables = settings.into_iter().map(|(name, value)| (format!("WAGGLE_{name}"), value));
    let mut command = Command::new(env!("CARGO_BIN_EXE_waggle"));
    let output = command.env_clear().envs(variables).args(["config", "check"]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let expected = ("the settings are valid\n".to_owned(), String::new());
    assert_eq!((text(output.stdout), text(output.stderr)), expected);
}

#[test]
fn example_environment_lists_the_variables_of_compose() {
    let substituted = variables(COMPOSE);
    let demanded: BTreeSet<_> = substituted
        .iter()
        .filter(|(_, rest)| rest.starts_with(":?"))
        .map(|(name, _)| format!("{name}="))
        .collect();
    let example = EXAMPLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(example.map(str::to_owned).collect::<BTreeSet<_>>(), demanded);

    let named = EXAMPLE.lines().filter_map(|line| line.trim_start_matches('#').split_once('='));
    let named: BTreeSet<_> = named.map(|(name, _)| name).filter(|name| !name.contains(' ')).collect();
    assert_eq!(named, substituted.iter().map(|(name, _)| *name).collect());
}

#[test]
fn image_uses_the_workspace_rust_and_all_manifests() {
    let manifest: toml::Table = MANIFEST.parse().unwrap();
    let rust = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    assert!(DOCKERFILE.contains(&format!("\nFROM docker.io/library/rust:{rust}-bookworm AS build\n")));
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        let copied = match member.strip_suffix("/*") {
            Some(folder) => format!("\nCOPY {folder} {folder}\n"),
            None => format!("\nCOPY {member}/Cargo.toml {member}/\n"),
        };
        assert!(DOCKERFILE.contains(&copied), "{member}");
    }
}

#[test]
fn load_balancers_name_the_replicas_of_compose_and_are_trusted() {
    let services = COMPOSE.lines().filter_map(|line| line.strip_prefix("  gateway-")?.strip_suffix(':'));
    let services: Vec<String> = services.map(|number| format!("gateway-{number}:8094")).collect();
    assert_eq!(services.len(), 2);
    for configuration in BALANCERS {
        let servers = configuration.lines().filter_map(|line| line.trim().strip_prefix("server "));
        let servers = servers.flat_map(|rest| rest.split(' ').find(|word| word.ends_with(":8094")));
        assert_eq!(servers.collect::<Vec<_>>(), services);
    }
    let (_, balancer) = COMPOSE.split_once("\n  balancer:\n").unwrap();
    let address = balancer.split("ipv4_address: ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(COMPOSE.contains(&format!("\n    WAGGLE_SERVER__TRUSTED_PROXIES: \"{address}\"\n")), "{address}");
}

/// What load balancers answer while no replica does, as the gateway would: in the problem document of the administration API,
/// and in an error of the protocol with the gateway's code.
#[test]
fn load_balancers_answer_for_absent_replicas_as_the_gateway_does() {
    let codes = String::from_utf8(
        Command::new(env!("CARGO_BIN_EXE_waggle")).env_clear().arg("errors").output().unwrap().stdout,
    );
    let codes = codes.unwrap();
    let row = codes.lines().find(|line| line.starts_with("| `unavailable` |")).unwrap();
    for configuration in BALANCERS {
        let texts = configuration.split('\'').skip(1).step_by(2).filter(|text| text.starts_with('{'));
        let answers: Vec<Value> = texts.map(|text| serde_json::from_str(text).unwrap()).collect();
        let problems: Vec<_> = answers.iter().filter(|answer| answer["title"].is_string()).collect();
        let unavailable = json!({
            "type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": "no replica answered",
            "code": "unavailable",
        });
        assert!(problems.contains(&&unavailable), "{problems:?}");
        let [error] = answers.iter().filter(|answer| answer["jsonrpc"] == "2.0").collect::<Vec<_>>()[..]
        else {
            panic!("{answers:?}")
        };
        let code = error["error"]["code"].to_string();
        assert!(row.contains(&code) && error["id"].is_null(), "{row}: {error}");
        assert_eq!(configuration.matches("application/problem+json").count(), problems.len());
    }
}

/// Runs `deploy/generate-env` with a program in the place of docker.
fn generate_env(folder: &Path, engine: &str, arguments: &[&str]) -> (bool, String, String) {
    let program = folder.join("engine");
    fs::write(&program, format!("#!/bin/sh\n{engine}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/generate-env");
    let output =
        Command::new(script).args(arguments).current_dir(folder).env("ENGINE", &program).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn environment_of_compose_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(".env");
    let (made, _, error) = generate_env(folder.path(), "exit 125", &[".env"]);
    assert!(!made && error.contains("does not run; build it first") && !file.exists(), "{error}");

    let key = format!("echo {}", FILLED_IN[2].1);
    let (made, printed, error) = generate_env(folder.path(), &key, &[".env"]);
    assert_eq!((made, printed.as_str(), error.as_str()), (true, "", ""));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    let given = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let given: BTreeMap<_, _> = given.map(|line| line.split_once('=').unwrap()).collect();
    assert_eq!(given.keys().copied().collect::<BTreeSet<_>>(), FILLED_IN.map(|(name, _)| name).into());
    assert!(given.values().all(|value| value.len() >= 48), "{given:?}");

    // Secrets that are in use are not replaced.
    let (made, _, error) = generate_env(folder.path(), &key, &[".env"]);
    assert!(!made && error.contains(".env exists"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // An empty file is what a failed redirection leaves.
    fs::write(&file, "").unwrap();
    assert!(generate_env(folder.path(), &key, &[".env"]).0);
}

#[test]
fn settings_of_kubernetes_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<&str> = KUBERNETES.lines().map(str::trim).collect();
    let given = lines.windows(2).filter_map(|pair| {
        Some((pair[0].strip_prefix("- name: WAGGLE_")?, pair[1].strip_prefix("value: ")?.trim_matches('\'')))
    });
    // What mounts and secrets hold there.
    let held = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (settings, keys) = (held("waggle.toml", "# None."), held("operator-keys", FILLED_IN[2].1));
    let mut variables: BTreeMap<String, String> =
        given.map(|(name, value)| (format!("WAGGLE_{name}"), value.to_owned())).collect();
    assert_eq!(
        variables.insert("WAGGLE_CONFIG".to_owned(), settings).as_deref(),
        Some("/etc/waggle/waggle.toml")
    );
    let mounted = variables.insert("WAGGLE_ADMIN__OPERATOR_KEYS_FILE".to_owned(), keys);
    assert_eq!(mounted.as_deref(), Some("/etc/waggle-secrets/operator-keys"));
    assert!(variables.len() > 6, "{variables:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_waggle"));
    command
        .env_clear()
        .envs(variables)
        .env("WAGGLE_DATABASE__URL", "postgres://waggle@db.example.com/waggle");
    let output = command.args(["config", "check"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(output.status.success());
}

#[test]
fn settings_of_the_package_are_valid() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/package/waggle.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_waggle"));
    let output = command.env_clear().args(["config", "check", "--config", file]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let expected = ("the settings are valid\n".to_owned(), String::new());
    assert_eq!((text(output.stdout), text(output.stderr)), expected);
}

/// systemd finds nothing in the unit that it does not know, where it is installed.
#[test]
fn unit_of_the_package_is_understood_by_systemd() {
    let folder = tempfile::tempdir().unwrap();
    let unit = include_str!("../../deploy/package/waggle.service");
    assert!(unit.contains("ExecStart=/usr/bin/waggle serve"));
    let file = folder.path().join("waggle.service");
    fs::write(&file, unit.replace("/usr/bin/waggle", env!("CARGO_BIN_EXE_waggle"))).unwrap();
    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output() else {
        println!("systemd-analyze is not installed");
        return;
    };
    // Other units of this machine may have faults of their own.
    let found = String::from_utf8(output.stderr).unwrap();
    let own: Vec<_> = found.lines().filter(|line| line.contains("waggle")).collect();
    assert!(own.is_empty(), "{own:?}");
}
