//! Waits for conditions.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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

/// Hangs up during a request, and waits until the server has noticed: it closes the connection without an answer.
pub(crate) async fn hang_up(mut client: TcpStream) {
    client.shutdown().await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, client.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}
