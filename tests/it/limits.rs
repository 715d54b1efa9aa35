//! Rate limits, and their isolation between callers.

mod addresses;
mod administration;
mod callers;
mod explain;
mod look_ups;
mod overrides;
mod precedence;
mod rates;

use serde_json::{Value, json};

use crate::support::app::{Builder, Replica};
use crate::support::cluster::Database;
use crate::support::http::Answer;

const LIST: &str = "resources/list";

/// A gateway on which a key has five units at once, of which one comes back in a minute or so: within a test, none.
fn five_for_a_key(database: &Database) -> Builder {
    Builder::new(database).set("WAGGLE_LIMITS__KEY_PER_SECOND", 1).set("WAGGLE_LIMITS__KEY_BURST", 5)
}

fn message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

async fn list(replica: &Replica, agent: &str, key: &str) -> Answer {
    replica.http.post(agent, key, &message(LIST, json!({}))).await
}

/// The statuses of so many lists, one after the other.
async fn lists(replica: &Replica, agent: &str, key: &str, times: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(list(replica, agent, key).await.status.as_u16());
    }
    statuses
}

/// What an answer says is left, without when it comes back.
fn left(answer: &Answer) -> Option<String> {
    answer.header("ratelimit").map(|told| told.split(";t=").next().unwrap().to_owned())
}
