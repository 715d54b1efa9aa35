//! Errors of the configuration: one line per problem, all problems at once.

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
