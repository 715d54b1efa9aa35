//! Logging: every event goes to standard error, as text or as JSON.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use tracing::Subscriber;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use super::span::{JsonLines, TextFields};
use crate::config::{Log, LogFilter, LogFormat};

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error("log.filter: {0}")]
    Filter(#[from] ParseError),
    /// The filter cannot be replaced: the subscriber was dropped.
    #[error("log.filter: {0}")]
    Reload(#[from] reload::Error),
    /// Logging was started before in this process.
    #[error("logging was started twice: {0}")]
    Started(#[from] TryInitError),
}

/// The format of log lines, once logging has started.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Changes the filter of a process.
#[derive(Clone)]
pub struct FilterHandle(Handle<EnvFilter, Registry>);

impl FilterHandle {
    /// Replaces the filter.
    ///
    /// # Errors
    /// If the filter does not parse, which a validated setting does.
    pub fn set(&self, filter: &LogFilter) -> Result<(), TelemetryError> {
        let filter = parse(filter.as_str())?;
        Ok(self.0.reload(filter)?)
    }
}

/// Starts logging for the whole process. Called once.
///
/// # Errors
/// If logging was started before.
pub fn init(log: &Log) -> Result<FilterHandle, TelemetryError> {
    let terminal = io::stderr().is_terminal();
    let (subscriber, handle) = subscriber(log, terminal, io::stderr)?;
    subscriber.try_init()?;
    FORMAT.set(format(log, terminal)).ok();
    Ok(handle)
}

/// The format of log lines, once logging has started.
pub fn started_format() -> Option<LogFormat> {
    FORMAT.get().copied()
}

/// A filter. Where it does not say otherwise, the watcher of files logs errors only: it warns of each directory that is gone
/// before its watch is removed.
fn parse(filter: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("notify=error,{filter}"))
}

fn format(log: &Log, terminal: bool) -> LogFormat {
    log.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json })
}

type BoxedSubscriber = Box<dyn Subscriber + Send + Sync>;

fn subscriber<W>(log: &Log, terminal: bool, writer: W) -> Result<(BoxedSubscriber, FilterHandle), ParseError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(parse(log.filter.as_str())?);
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(writer);
    let subscriber: BoxedSubscriber = match format(log, terminal) {
        LogFormat::Text => Box::new(registry.with(lines.with_ansi(terminal).fmt_fields(TextFields))),
        LogFormat::Json => {
            let json = fmt::format().json().flatten_event(true);
            Box::new(registry.with(lines.json().event_format(JsonLines(json))))
        }
    };
    Ok((subscriber, FilterHandle(handle)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use parking_lot::Mutex;

    use super::*;
    use crate::config::{Environment, Flags, Purpose, load};
    use crate::telemetry::RepeatedWork;
    use crate::telemetry::span::{RequestSpan, record_agent};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log lines of two events, without the time.
    fn logged(format: Option<&str>, filter: &str, terminal: bool) -> String {
        logged_by(format, filter, terminal, || {
            tracing::info!(agent = 7, "served");
            tracing::debug!("looked");
        })
    }

    /// The log lines of `work`, without the time.
    fn logged_by(format: Option<&str>, filter: &str, terminal: bool, work: impl FnOnce()) -> String {
        let format = format.map(str::to_owned);
        let flags = Flags { log_format: format, log_filter: Some(filter.to_owned()), ..Flags::default() };
        let settings = load(&Environment::default(), &flags, Purpose::Assist).map(|loaded| loaded.settings);
        let kept = Kept::default();
        let writer = kept.clone();
        let (subscriber, _) = subscriber(&settings.unwrap().log, terminal, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, work);
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        let timeless = text.lines().map(|line| line.split_once('Z').map_or("", |(_, rest)| rest).to_owned());
        timeless.collect::<Vec<_>>().join("\n")
    }

    const JSON: &str =
        r#"","level":"INFO","message":"served","agent":7,"target":"waggle::telemetry::logs::tests"}"#;
    const TEXT: &str = "  INFO waggle::telemetry::logs::tests: served agent=7";

    #[test]
    fn logs_are_text_on_a_terminal_and_json_elsewhere() {
        assert_eq!(logged(None, "info", false), JSON);
        assert!(logged(None, "info", true).contains("\u{1b}["), "coloured");
    }

    #[test]
    fn repeated_failures_are_warned_of_once_and_their_end_is_logged() {
        let repeat = || {
            let work = RepeatedWork::default();
            for result in [Ok(()), Err("refused"), Err("refused"), Ok(()), Ok(()), Err("late")] {
                work.record("purge", &result);
            }
        };
        let logged = logged_by(Some("text"), "info", false, repeat);
        let lines: Vec<_> = logged.lines().filter_map(|line| line.split_once(": ")).collect();
        assert_eq!(
            lines.iter().map(|(_, line)| *line).collect::<Vec<_>>(),
            [
                "purge failed; retried later error=refused",
                "purge recovered",
                "purge failed; retried later error=late"
            ]
        );
    }

    #[test]
    fn slow_statements_are_logged_without_their_text() {
        let slow = || {
            let statement = "\n\nselect secret\nfrom notes where true\n";
            tracing::warn!(
                target: "sqlx::query", summary = "select secret from notes …", db.statement = statement,
                elapsed_secs = 2.5, "slow statement"
            );
        };
        let text =
            "  WARN sqlx::query: slow statement summary=\"select secret from notes …\" elapsed_secs=2.5";
        assert_eq!(logged_by(Some("text"), "info", false, slow), text);
        let json = logged_by(Some("json"), "info", false, slow);
        assert!(json.starts_with(r#"","level":"WARN","message":"slow statement","#), "{json}");
        assert!(json.contains(r#","elapsed_secs":2.5,"#) && !json.contains("where true"), "{json}");
    }

    #[test]
    fn an_event_in_a_request_carries_the_fields_of_its_span() {
        let in_request = || {
            let work = pin!(async {
                record_agent("a \"quoted\" one");
                tracing::info!(agents = 7, "served");
            });
            let run = pin!(RequestSpan::new("r-1", &http::Method::POST).run(work));
            assert!(run.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        };
        let target = module_path!();
        let fields = r#""request_id":"r-1","agent":"a \"quoted\" one","method":"POST"}"#;
        let expected =
            format!(r#"","level":"INFO","message":"served","agents":7,"target":"{target}",{fields}"#);
        assert_eq!(logged_by(None, "info", false, in_request), expected);
        let fields = r#"request_id="r-1" agent="a \"quoted\" one" method="POST""#;
        let expected = format!("  INFO {target}: served agents=7 {fields}");
        assert_eq!(logged_by(Some("text"), "info", false, in_request), expected);
    }

    #[test]
    fn the_configured_format_takes_precedence_over_the_terminal() {
        assert_eq!(logged(Some("text"), "info", false), TEXT);
        assert_eq!(logged(Some("json"), "info", true), JSON);
    }

    #[test]
    fn warnings_of_the_file_watcher_are_logged_only_on_request() {
        let watched = |filter: &str| {
            let lines = logged_by(Some("text"), filter, false, || {
                tracing::error!(target: "notify::inotify", "failed");
                tracing::warn!(target: "notify::inotify", "gone");
                tracing::warn!(target: "notified", "other");
            });
            let messages = lines.lines().filter_map(|line| line.rsplit(' ').next());
            messages.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(watched("info"), ["failed", "other"]);
        assert_eq!(watched("warn,notify=warn"), ["failed", "gone", "other"]);
        assert_eq!(watched("off,notify=error"), ["failed"]);
    }

    #[test]
    fn the_filter_decides_what_is_logged() {
        assert_eq!(logged(None, "warn", false), "");
        assert_eq!(logged(None, "info,waggle::telemetry=debug", false).lines().count(), 2);
    }
}
