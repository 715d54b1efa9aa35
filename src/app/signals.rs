//! The signals of the process: SIGTERM for a graceful shutdown, SIGHUP for a reload.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signal handlers, installed at the start: the first process of a container has no default action.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// The command that a signal gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// `SIGTERM`: drain, then stop.
    Terminate,
    /// `SIGINT`: stop at once.
    Interrupt,
    /// `SIGHUP`: reload the settings.
    Reload,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn handle() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Command {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Command::Terminate,
            _ = self.interrupt.recv() => Command::Interrupt,
            _ = self.hangup.recv() => Command::Reload,
        }
    }

    /// Waits for a signal to stop. A `SIGHUP` meanwhile is kept for [`next`](Self::next).
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Exits the process at the next `SIGINT`.
    pub(super) fn exit_at_interrupt(mut self) {
        tokio::spawn(async move {
            self.interrupt.recv().await;
            std::process::exit(130);
        });
    }
}
