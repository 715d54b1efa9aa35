//! Reports to the service manager that started the process (`sd_notify`): ready, reloading, stopping, and alive, for its
//! watchdog. Nothing is sent where none waits for it.

use sd_notify::NotifyState;

/// The gateway serves.
pub(super) fn ready() {
    send(&[NotifyState::Ready]);
}

/// The settings are being reloaded, until [`ready`].
pub(super) fn reloading() {
    let since = NotifyState::monotonic_usec_now().ok();
    let states: Vec<_> = [Some(NotifyState::Reloading), since].into_iter().flatten().collect();
    send(&states);
}

/// The gateway drains, or stops.
pub(super) fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Reports twice in each interval of the watchdog that tasks still run; never returns.
pub(super) async fn keep_alive() {
    let interval = sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero());
    let Some(interval) = interval else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(interval / 2);
    loop {
        ticks.tick().await;
        send(&[NotifyState::Watchdog]);
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "service manager not notified");
    }
}
