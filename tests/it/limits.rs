//! Rate limits, and their isolation between callers.

mod addresses;
mod administration;
mod callers;
mod explain;
mod look_ups;
mod order;
mod overrides;
mod precedence;
mod rates;

use serde_json::{Value, json};

use crate::support::app::{Builder, Replica};
use crate::support::cluster::Database;
use crate::support::http::Answer;

const LIST: &str = "resources/list";

/// A gateway on which a key has a burst of five units, of which one is restored in about a minute: none within a test.
fn five_for_a_key(database: &Database) -> Builder {
    Builder::new(database).set("WAGGLE_LIMITS__KEY_PER_SECOND", 1).set("WAGGLE_LIMITS__KEY_BURST", 5)
}

fn message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

async fn list(replica: &Replica, agent: &str, key: &str) -> Answer {
    replica.http.post(agent, key, &message(LIST, json!({}))).await
}

/// The statuses of this many lists, one after another.
async fn lists(replica: &Replica, agent: &str, key: &str, times: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(list(replica, agent, key).await.status.as_u16());
    }
    statuses
}

/// The remaining units that an answer reports, without the time until they are restored.
fn left(answer: &Answer) -> Option<String> {
    answer.header("ratelimit").map(|header| header.split(";t=").next().unwrap().to_owned())
}
