//! Records what is logged as an error on this thread.
//!
//! A test whose runtime has one thread runs its gateway on that thread too, so it records the errors of its own gateway
//! only, regardless of other tests.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The errors that are logged until this is dropped.
pub(crate) struct ErrorLog {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl ErrorLog {
    /// Starts recording.
    pub(crate) fn start() -> Self {
        let lines = Arc::default();
        let subscriber = tracing_subscriber::registry().with(Recorder(Arc::clone(&lines)));
        let log = Self { lines, _guard: tracing::subscriber::set_default(subscriber) };
        tracing::error!("a control");
        tracing::warn!("no error");
        assert_eq!(log.take(), [" message=a control"]);
        log
    }

    /// Removes and returns the recorded errors.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

struct Recorder(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::ERROR {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
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
