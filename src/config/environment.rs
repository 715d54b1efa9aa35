//! The layer of the environment: `WAGGLE_` + section + `__` + key, in upper case.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::layers::{Layers, Raw};
use super::problem::Source;

const PREFIX: &str = "WAGGLE_";
/// Names the configuration file.
pub(super) const CONFIG_FILE: &str = "WAGGLE_CONFIG";
/// Set by many platforms; `WAGGLE_DATABASE__URL` takes precedence.
pub(super) const SHARED_DATABASE_URL: &str = "DATABASE_URL";
/// The URL of the gateway whose administration API the command line calls.
const ADMIN_URL: &str = "WAGGLE_URL";
/// The key it sends.
const ADMIN_KEY: &str = "WAGGLE_KEY";
/// The name of the context that the command line uses.
const CONTEXT: &str = "WAGGLE_CONTEXT";
/// The file with the contexts of the command line.
const CONTEXTS_FILE: &str = "WAGGLE_CONTEXTS";
/// Read by the command line only: not settings.
const OF_THE_COMMAND_LINE: [&str; 5] = [CONFIG_FILE, ADMIN_URL, ADMIN_KEY, CONTEXT, CONTEXTS_FILE];

/// The variables of the environment. An empty one counts as not set, so that `${VARIABLE:-}` in a compose file keeps the
/// default.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// The variables of this process. Nothing else in the program reads the environment.
    pub fn of_process() -> Self {
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect()
    }

    /// The configuration file that the environment names.
    pub(super) fn config_file(&self) -> Option<&OsStr> {
        self.0.get(CONFIG_FILE).map(OsString::as_os_str)
    }

    /// `WAGGLE_URL`: the gateway whose administration API the command line calls.
    pub fn admin_url(&self) -> Option<&OsStr> {
        self.0.get(ADMIN_URL).map(OsString::as_os_str)
    }

    /// `WAGGLE_KEY`: the key that the command line sends.
    pub fn admin_key(&self) -> Option<&OsStr> {
        self.0.get(ADMIN_KEY).map(OsString::as_os_str)
    }

    /// `WAGGLE_CONTEXT`: the context that the command line uses.
    pub fn context(&self) -> Option<&OsStr> {
        self.0.get(CONTEXT).map(OsString::as_os_str)
    }

    /// The file with the contexts of the command line: `WAGGLE_CONTEXTS`, or one in the user's configuration directory.
    pub fn contexts_file(&self) -> Option<PathBuf> {
        let path = |name: &str| self.0.get(name).map(PathBuf::from);
        let config = || path("XDG_CONFIG_HOME").or_else(|| Some(path("HOME")?.join(".config")));
        path(CONTEXTS_FILE).or_else(|| Some(config()?.join("waggle").join("contexts.toml")))
    }

    /// The variable that an argument of the command line names as the source of a secret.
    pub fn secret(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|value| value.to_str())
    }

    /// A variable of the system, which is not a setting.
    pub(super) fn of_the_system(&self, name: &str) -> Option<OsString> {
        self.0.get(name).cloned()
    }

    pub(super) fn add_to(&self, layers: &mut Layers) {
        for (name, value) in &self.0 {
            if let Some(setting) = setting_of(name, value) {
                let raw = match value.to_str() {
                    Some(text) => Raw::Text(text.to_owned()),
                    None => Raw::Unsupported("text that is not UTF-8"),
                };
                layers.push(&setting, Source::Variable(name.clone()), raw);
            }
        }
    }
}

impl<N: Into<String>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(variables.filter(|(_, value): &(String, OsString)| !value.is_empty()).collect())
    }
}

/// The setting that a variable names, known or not; `None` for a variable of another program. One without `__` is refused
/// only if it resembles a setting ([`Reader::finish`](super::reader::Reader::finish)).
///
/// Variables are sorted by name, so `DATABASE_URL` precedes `WAGGLE_…` and is overridden by it.
fn setting_of(name: &str, value: &OsStr) -> Option<String> {
    if name == SHARED_DATABASE_URL {
        return Some("database.url".to_owned());
    }
    let rest = name.strip_prefix(PREFIX)?;
    if OF_THE_COMMAND_LINE.contains(&name) || is_service_link(rest, value) {
        return None;
    }
    let upper = !rest.contains(|character: char| character.is_ascii_lowercase());
    Some(if upper { rest.replacen("__", ".", 1).to_ascii_lowercase() } else { rest.to_owned() })
}

/// Whether Kubernetes set the variable: every pod of a namespace with a service named `waggle` or `waggle-db` has
/// `WAGGLE_SERVICE_HOST`, `WAGGLE_DB_PORT_5432_TCP_ADDR` and the like.
fn is_service_link(rest: &str, value: &OsStr) -> bool {
    let address = || value.to_str().is_some_and(|value| value.contains("://"));
    let protocol_of = |port: &str| {
        port.trim_start_matches(|character: char| character.is_ascii_digit())
            .strip_prefix('_')
            .is_some_and(|rest| ["TCP", "UDP", "SCTP"].iter().any(|protocol| rest.starts_with(protocol)))
    };
    let rest = format!("_{rest}");
    rest.ends_with("_SERVICE_HOST")
        || rest.contains("_SERVICE_PORT")
        || rest.split_once("_PORT_").is_some_and(|(_, port)| protocol_of(port))
        || rest.ends_with("_PORT") && address()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_kubernetes_service_are_not_settings() {
        let ours = [
            ("WAGGLE_SERVICE_HOST", "10.96.0.7"),
            ("WAGGLE_SERVICE_PORT", "8094"),
            ("WAGGLE_SERVICE_PORT_HTTP", "8094"),
            ("WAGGLE_PORT", "tcp://10.96.0.7:8094"),
            ("WAGGLE_PORT_8094_TCP", "tcp://10.96.0.7:8094"),
            ("WAGGLE_PORT_8094_TCP_PROTO", "tcp"),
            ("WAGGLE_DB_SERVICE_HOST", "10.96.0.8"),
            ("WAGGLE_DB_PORT_5432_TCP_ADDR", "10.96.0.8"),
        ]
        .map(|(name, value)| setting_of(name, OsStr::new(value)));
        assert_eq!(ours, [const { None }; 8]);
    }

    #[test]
    fn variable_that_resembles_a_service_link_is_a_setting() {
        let names = [("WAGGLE_PORT", "8094"), ("WAGGLE_SERVER__PORT", "1"), ("WAGGLE_PORT_X_TCP", "1")]
            .map(|(name, value)| setting_of(name, OsStr::new(value)));
        assert_eq!(names, ["port", "server.port", "port_x_tcp"].map(|name| Some(name.to_owned())));
    }

    #[test]
    fn lower_case_name_is_not_a_setting() {
        assert_eq!(
            setting_of("WAGGLE_server__listen", OsStr::new("x")),
            Some("server__listen".to_owned()),
            "kept unchanged, so that it is refused as unknown",
        );
        assert_eq!(setting_of("waggle_server__listen", OsStr::new("x")), None);
    }
}
