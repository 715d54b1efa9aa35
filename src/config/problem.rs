//! What is wrong with the configuration, and where: one line a problem, all of them at once.

use std::fmt;

use super::log::LogFormat;

/// Where a setting was given. Ordered as the layers are: what stands later overrides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A line of the configuration file.
    File {
        /// The file, as it was named.
        path: String,
        /// Counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command line, such as `--listen`.
    Flag(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Variable(name) => write!(f, "environment variable {}", name.escape_debug()),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong. Never holds the value of a secret setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands; `None` for what is missing or does not fit together.
    pub place: Option<Place>,
    /// The setting as `section.key`; `None` where no setting could be read at all.
    pub setting: Option<String>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        // A variable and a flag name their setting already.
        if let (None | Some(Place::File { .. }), Some(setting)) = (&self.place, &self.setting) {
            write!(f, "{}: ", setting.escape_debug())?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with the configuration, shown one problem a line.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
    log_format: Option<LogFormat>,
}

impl ConfigError {
    /// Orders the problems by their place: the file by its lines, variables, flags, then the rest.
    pub(super) fn new(mut problems: Vec<Problem>, log_format: Option<LogFormat>) -> Self {
        problems.sort_by_key(|problem| (problem.place.is_none(), problem.place.clone()));
        Self { problems, log_format }
    }

    /// The form of log lines that the settings ask for, as far as they could be read.
    pub fn log_format(&self) -> Option<LogFormat> {
        self.log_format
    }

    /// The problems, in the order in which they are shown.
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
