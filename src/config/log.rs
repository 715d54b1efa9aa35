//! `[log]`: log format and filter.

use tracing_subscriber::EnvFilter;

use super::log_format::LogFormat;
use super::section::section;
use super::text::Text;

section! {
    /// Log format and filter.
    #[derive(Clone, Debug)]
    pub struct Log["log"] {
        /// text or json. Default: text on a terminal, else json.
        format: optional(LogFormat, FORMAT, "json"),
        /// What is logged: a level, or levels by module such as "warn,waggle=debug".
        filter: value(LogFilter, FILTER) = LogFilter("info".to_owned()),
        /// on, combined or off: one line for each request. "on" logs an event at info, with its method, status, agent and
        /// duration; "combined" writes the combined format of web servers to standard output.
        access: value(AccessLog, ACCESS) = AccessLog::Off,
    }
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

/// Whether and how each request is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Not at all.
    Off,
    /// As an event of the log.
    Event,
    /// In the combined format of web servers, on standard output.
    Combined,
}

impl AccessLog {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::Event),
            "combined" => Ok(Self::Combined),
            _ => Err("is none of on, combined and off".to_owned()),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Event => "on",
            Self::Combined => "combined",
        }
    }
}

const ACCESS: Text<AccessLog> =
    Text { parse: AccessLog::parse, display: |access| access.as_str().to_owned() };
const FORMAT: Text<LogFormat> = Text { parse: LogFormat::parse, display: LogFormat::to_string };
const FILTER: Text<LogFilter> = Text { parse: filter, display: |filter| filter.0.clone() };
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

fn filter(text: &str) -> Result<LogFilter, String> {
    // `EnvFilter` computes the offsets of a directive without surrounding blanks and applies them to the text with
    // blanks, so it misreads such text or panics.
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let text = words.join(",");
    // `EnvFilter` takes a single word that is not a level for a module, and logs all its events.
    let misspelt = || words.iter().any(|word| is_single_word(word) && !is_level(word));
    if text.is_empty() || !text.contains('[') && misspelt() || EnvFilter::try_new(&text).is_err() {
        return Err(format!(
            "is not a filter such as info or warn,waggle=debug; levels are {}",
            LEVELS.join(", ")
        ));
    }
    Ok(LogFilter(text))
}

fn is_single_word(word: &str) -> bool {
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
    fn levels_and_directives_are_accepted() {
        for text in ["info", "OFF", "warn,waggle=debug", "[request{id=7}]=debug"] {
            assert_eq!(filter(text), Ok(LogFilter(text.to_owned())));
        }
    }

    #[test]
    fn blanks_around_directives_are_ignored() {
        for text in [" waggle::feed=trace, info", "waggle::feed=trace ,\tinfo\n"] {
            assert_eq!(filter(text), Ok(LogFilter("waggle::feed=trace,info".to_owned())));
        }
        assert!(filter(" Î=<").is_err());
    }

    #[test]
    fn misspelt_level_is_not_taken_for_a_module() {
        for text in ["", " ", "inof", "warn,debgu", "waggle=loud", "[[", "info,"] {
            let expected = "is not a filter such as info or warn,waggle=debug; \
                            levels are off, error, warn, info, debug, trace";
            assert_eq!(filter(text), Err(expected.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_directive_panics(text in "[ \u{85}aÎ深=,:{}\"\\[\\]\\-]{0,12}") {
            filter(&text).ok();
        }
    }
}
