//! Records what is logged on this thread, such as errors.
//!
//! A test whose runtime has one thread runs its gateway on that thread too, so it records the events of its own gateway
//! only, regardless of other tests.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The events of a level or a more severe one that are logged until this is dropped; most tests record errors.
pub(crate) struct ErrorLog {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
    /// While there is one subscriber alone, tracing asks that of the thread which comes to an event first, often none in another
    /// test, and disables the event in all threads.
    _second: Dispatch,
}

impl ErrorLog {
    /// Starts recording events of a level and more severe ones.
    pub(crate) fn of(least: Level) -> Self {
        let (lines, second) = (Arc::default(), Dispatch::new(NoSubscriber::default()));
        let subscriber = tracing_subscriber::registry().with(Recorder { lines: Arc::clone(&lines), least });
        Self { lines, _guard: tracing::subscriber::set_default(subscriber), _second: second }
    }

    /// Starts recording errors.
    pub(crate) fn start() -> Self {
        let log = Self::of(Level::ERROR);
        tracing::error!("a control");
        tracing::warn!("no error");
        assert_eq!(log.take(), [" message=a control"]);
        log
    }

    /// The recorded events that contain a text.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        self.lines.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }

    /// Removes and returns the recorded events.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

struct Recorder {
    lines: Arc<Mutex<Vec<String>>>,
    least: Level,
}

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= self.least {
            let mut line = Line::default();
            event.record(&mut line);
            self.lines.lock().unwrap().push(line.0);
        }
    }
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

#[tokio::test]
async fn error_log_records_this_thread_only() {
    let log = ErrorLog::start();
    tokio::spawn(async { tracing::error!(detail = 7, "recorded") }).await.unwrap();
    std::thread::spawn(|| tracing::error!("not recorded")).join().unwrap();
    assert_eq!(log.take(), [" message=recorded detail=7"]);
}
