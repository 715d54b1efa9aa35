//! Attacks on another tenant's agent.

mod foreign_credentials;
mod paths;
mod recreated;
mod shared;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::probes::message;
use crate::support::app::{Replica, gateway};
use crate::support::cluster::Database;
use crate::support::http::Answer;

/// The content that no credential of `acme` may read.
const SECRET: &str = "rival's secret";

/// A gateway with an agent `a` of `acme` and an agent `b` of `rival`, a key of each, and an owner key of each tenant.
struct Rivals {
    _database: Database,
    replica: Replica,
    a: String,
    b: String,
    acme: String,
    rival: String,
}

async fn rivals() -> Rivals {
    let (database, replica) = gateway().await;
    let mut keys = Vec::new();
    for (tenant, agent, text) in [("acme", "a", "acme's own"), ("rival", "b", SECRET)] {
        replica.tenant(tenant).await;
        replica.agent(tenant, agent).await;
        replica.put(agent, "x:1", text).await;
        keys.push(replica.key(agent, &["mcp", "registry"]).await.1);
        keys.push(owner(&replica, tenant).await);
    }
    let [a, acme, b, rival] = <[String; 4]>::try_from(keys).unwrap();
    Rivals { _database: database, replica, a, b, acme, rival }
}

async fn owner(replica: &Replica, tenant: &str) -> String {
    let made = replica.admin("POST", &format!("/tenants/{tenant}/keys"), Some(json!({}))).await.json();
    made["key"].as_str().unwrap().to_owned()
}

fn read() -> Value {
    message("resources/read", json!({"uri": "x:1"}))
}

fn text_of(answer: &Answer) -> Option<String> {
    let answer: Value = serde_json::from_slice(&answer.body).ok()?;
    answer["result"]["contents"][0]["text"].as_str().map(str::to_owned)
}

impl Rivals {
    /// Sends a request whose target is sent unchanged; returns status and body.
    async fn raw(&self, method: &str, target: &str, headers: &str, body: &str) -> (u16, String) {
        let address = self.replica.running.address;
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\
             Content-Type: application/json\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}
