//! The signals of the process: SIGTERM for a graceful shutdown, SIGHUP for a reload.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are handled from the start on: the first process of a container has no default for them.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// `SIGTERM`: to stop, after a load balancer had time to notice.
    Terminate,
    /// `SIGINT`: to stop at once.
    Interrupt,
    /// `SIGHUP`: to read the settings again.
    Reload,
}

impl Signals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// When the system refuses.
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

    /// Ends the process at the next `SIGINT`, whatever it is doing.
    pub(super) fn exit_at_interrupt(mut self) {
        tokio::spawn(async move {
            self.interrupt.recv().await;
            std::process::exit(130);
        });
    }
}
