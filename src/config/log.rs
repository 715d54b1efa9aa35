//! `[log]`: what is logged, and in which form.

use std::fmt;

use tracing_subscriber::EnvFilter;

use super::{reader::Reader, text::Text};

/// What is logged, and in which form.
#[derive(Clone, Debug)]
pub struct Log {
    /// `None`: text on a terminal, else JSON.
    pub format: Option<LogFormat>,
    /// What is logged.
    pub filter: LogFilter,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A level, or levels by module: `info` or `warn,waggle::feed=debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// The directives, valid for [`EnvFilter`].
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Log {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            format: reader.optional("log.format", &FORMAT, None),
            filter: reader.value("log.filter", &FILTER, LogFilter("info".to_owned())),
        }
    }
}

const FORMAT: Text<LogFormat> = Text { parse: format, show: LogFormat::to_string };
const FILTER: Text<LogFilter> = Text { parse: filter, show: |filter| filter.0.clone() };
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

fn format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("is neither text nor json".to_owned()),
    }
}

fn filter(text: &str) -> Result<LogFilter, String> {
    // `EnvFilter` takes its places in a directive from the text without the blanks around it, and
    // the parts from the text with them: it misreads what has them, or panics.
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let text = words.join(",");
    // A lone word that is no level would be taken for a module, all of whose lines are logged.
    let slip = || words.iter().any(|word| is_lone_word(word) && !is_level(word));
    if text.is_empty() || !text.contains('[') && slip() || EnvFilter::try_new(&text).is_err() {
        return Err(format!(
            "is not a filter such as info or warn,waggle=debug; levels are {}",
            LEVELS.join(", ")
        ));
    }
    Ok(LogFilter(text))
}

fn is_lone_word(word: &str) -> bool {
    !word.contains('=')
}

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn levels_and_directives_are_filters() {
        for text in ["info", "OFF", "warn,waggle=debug", "[request{id=7}]=debug"] {
            assert_eq!(filter(text), Ok(LogFilter(text.to_owned())));
        }
    }

    #[test]
    fn blanks_around_directives_mean_nothing() {
        for text in [" waggle::feed=trace, info", "waggle::feed=trace ,\tinfo\n"] {
            assert_eq!(filter(text), Ok(LogFilter("waggle::feed=trace,info".to_owned())));
        }
        assert!(filter(" Î=<").is_err());
    }

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_module() {
        for text in ["", " ", "inof", "warn,debgu", "waggle=loud", "[[", "info,"] {
            let expected = "is not a filter such as info or warn,waggle=debug; \
                            levels are off, error, warn, info, debug, trace";
            assert_eq!(filter(text), Err(expected.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_directive_is_answered_and_none_panics(text in "[ \u{85}aÎ深=,:{}\"\\[\\]\\-]{0,12}") {
            filter(&text).ok();
        }
    }
}
