//! Progress of long commands, on standard error and only if that is a terminal; and `--quiet`, which turns it off.

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{Failure, print};

/// Between two drawings while nothing is counted.
const TICK: Duration = Duration::from_millis(100);

/// Whether a command reports what it does.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Verbosity {
    /// Print nothing on success, and no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// A line of progress, removed when it is dropped. It is hidden in pipes, files and logs.
pub(super) struct Progress {
    bar: ProgressBar,
    quiet: bool,
}

impl Verbosity {
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// The progress of a task whose steps are counted by [`Progress::expect`] and [`Progress::advance`].
    pub(super) fn steps(self, task: &'static str) -> Progress {
        self.progress(task, "{spinner} {msg} [{bar:30}] {pos}/{len} ({elapsed})")
    }

    /// The progress of a task of unknown length.
    pub(super) fn task(self, task: &'static str) -> Progress {
        self.progress(task, "{spinner} {msg} ({elapsed})")
    }

    fn progress(self, task: &'static str, template: &str) -> Progress {
        let Self { quiet } = self;
        let bar = if quiet || !io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr())
        };
        // The default style if the template is invalid.
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_message(task);
        if !bar.is_hidden() {
            bar.tick();
            bar.enable_steady_tick(TICK);
        }
        Progress { bar, quiet }
    }
}

impl Progress {
    /// Adds steps to those that are to be done.
    pub(super) fn expect(&self, steps: usize) {
        self.bar.inc_length(steps.try_into().unwrap_or(u64::MAX));
    }

    /// Counts a step as done.
    pub(super) fn advance(&self) {
        self.bar.inc(1);
    }

    /// Prints a result to standard output, above the progress; nothing if the command is quiet.
    pub(super) fn print(&self, text: &str) -> Result<(), Failure> {
        if self.quiet { Ok(()) } else { self.paused(|| print(text)) }
    }

    /// Removes the line of progress while something else uses the terminal.
    pub(super) fn paused<T>(&self, use_terminal: impl FnOnce() -> T) -> T {
        self.bar.suspend(use_terminal)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
