//! Waits for conditions.

use std::time::{Duration, Instant};

/// The timeout of a single step of a test, for a machine that is busy with other tests.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// The pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(10);

/// Waits until `condition` holds; fails after [`DEADLINE`].
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    eventually_some(what, async || condition().await.then_some(())).await;
}

/// Waits until `find` returns a value; fails after [`DEADLINE`].
pub(crate) async fn eventually_some<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}
