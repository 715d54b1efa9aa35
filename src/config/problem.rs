//! Errors of the configuration: one line per problem, all problems at once, with suggestions for unknown settings.

use std::fmt;

use super::log_format::LogFormat;

/// Where a setting was set. Ordered like the layers: later ones override earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A line of the configuration file.
    File {
        /// The path of the file, as given.
        path: String,
        /// From 1.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command line, such as `--listen`.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Variable(name) => write!(f, "environment variable {}", name.escape_debug()),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One error. Never contains the value of a secret setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the setting was set; `None` if it is missing or contradicts others.
    pub source: Option<Source>,
    /// The setting as `section.key`; `None` if a whole layer could not be read.
    pub setting: Option<String>,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        // The name of a variable or flag names its setting.
        if let (None | Some(Source::File { .. }), Some(setting)) = (&self.source, &self.setting) {
            write!(f, "{}: ", setting.escape_debug())?;
        }
        f.write_str(&self.message)
    }
}

/// All errors of the configuration, displayed one per line.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
    log_format: Option<LogFormat>,
}

impl ConfigError {
    /// Sorts the problems by their source: lines of the file, variables, flags, then the rest.
    pub(super) fn new(mut problems: Vec<Problem>, log_format: Option<LogFormat>) -> Self {
        problems.sort_by_key(|problem| (problem.source.is_none(), problem.source.clone()));
        Self { problems, log_format }
    }

    /// The configured log format, if it could be read.
    pub fn log_format(&self) -> Option<LogFormat> {
        self.log_format
    }

    /// The problems, in the order in which they are displayed.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.problems.iter();
        if let Some(first) = lines.next() {
            write!(f, "{first}")?;
        }
        lines.try_for_each(|problem| write!(f, "\n{problem}"))
    }
}

impl std::error::Error for ConfigError {}

/// Advice for an unknown name: the setting it resembles, else the settings of its section. Empty if there is none.
///
/// `spell` formats a setting for its source: `server.listen` or `WAGGLE_SERVER__LISTEN`.
pub(super) fn advice(unknown: &str, settings: &[&str], spell: impl Fn(&str) -> String) -> String {
    if let Some(near) = nearest(unknown, settings) {
        return format!("; did you mean {}?", spell(near));
    }
    let section = plain(unknown).split('_').next().unwrap_or_default().to_owned();
    let in_section = |setting: &&&str| {
        setting.split_once('.').is_some_and(|(of, _)| strsim::damerau_levenshtein(of, &section) <= 1)
    };
    let keys: Vec<String> = settings.iter().filter(in_section).map(|setting| spell(setting)).collect();
    if keys.is_empty() { String::new() } else { format!("; the section has {}", keys.join(", ")) }
}

fn nearest<'a>(unknown: &str, settings: &[&'a str]) -> Option<&'a str> {
    if let Some(above) = settings.iter().find(|setting| unknown.starts_with(&format!("{setting}."))) {
        return Some(above);
    }
    let unknown = plain(unknown);
    let key_alone = settings.iter().find(|setting| plain(setting).ends_with(&format!("_{unknown}")));
    let distance = |setting: &&&str| strsim::damerau_levenshtein(&plain(setting), &unknown);
    let close = settings.iter().min_by_key(distance).filter(|near| distance(near) <= 1 + unknown.len() / 6);
    close.or(key_alone).copied()
}

/// The name in lower case, with uniform separators.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace("__", "_").replace(['.', '-'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: [&str; 6] =
        ["server.listen", "server.public_url", "database.url", "admin.listen", "log.format", "log.filter"];

    fn near(unknown: &str) -> Option<&'static str> {
        nearest(unknown, &SETTINGS)
    }

    #[test]
    fn misspelt_name_finds_its_setting() {
        assert_eq!(near("server.listn"), Some("server.listen"));
        assert_eq!(near("sever.listen"), Some("server.listen"));
        assert_eq!(near("server_listen"), Some("server.listen"));
        assert_eq!(near("server__LISTEN"), Some("server.listen"));
        assert_eq!(near("server.public-url"), Some("server.public_url"));
        assert_eq!(near("database.uri"), Some("database.url"));
    }

    #[test]
    fn key_without_section_finds_the_first_of_that_name() {
        assert_eq!(near("listen"), Some("server.listen"));
        assert_eq!(near("public_url"), Some("server.public_url"));
    }

    #[test]
    fn setting_written_as_a_table_is_found() {
        assert_eq!(near("database.url.host"), Some("database.url"));
    }

    #[test]
    fn unknown_key_lists_the_settings_of_its_section() {
        for unknown in ["log.level", "log_level", "logs.level", "LOG__LEVEL", "log"] {
            assert_eq!(
                advice(unknown, &SETTINGS, str::to_owned),
                "; the section has log.format, log.filter",
                "{unknown}"
            );
        }
    }

    #[test]
    fn unrelated_name_gets_no_advice() {
        assert_eq!(advice("colour.background", &SETTINGS, str::to_owned), "");
    }
}
