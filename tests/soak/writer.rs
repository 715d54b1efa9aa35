//! Writers: every kind of change that causes a notification, through any replica. Each write is conditional on the
//! revision that it builds on, so that an older one never overwrites a newer one, even if its answer was lost.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::pause;
use crate::fixture::{DELETED, Fixture, SERVED, SHADOWED, TEMPLATE, WRITTEN, resource, template, text};
use crate::fleet::{Fleet, encode};
use crate::http::Answer;
use crate::ledger::{Ledger, count};

const JSON: (&str, &str) = ("content-type", "application/json");
const ABSENT: (&str, &str) = ("if-none-match", "*");
/// How often a deleted resource is written again while the outcome is in doubt.
const TRIES: usize = 5;

/// Writes to random agents.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) fixture: Arc<Fixture>,
}

impl Writer {
    pub(crate) async fn write(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.change(&self.fixture.any().slug).await;
            pause(10..60).await;
        }
    }

    /// One change, or two that belong together; `None` if another writer was faster or no replica answered.
    async fn change(&self, agent: &str) -> Option<()> {
        let uri = WRITTEN[rand::random_range(0..WRITTEN.len())];
        match rand::random_range(0..100) {
            0..50 => self.put(agent, uri, false).await,
            50..60 => self.put(agent, uri, true).await,
            60..67 => self.touch(agent, uri).await,
            67..73 => self.delete_and_put(agent).await,
            73..82 => self.put_template(agent, false).await,
            82..85 => self.put_template(agent, true).await,
            85..89 => self.shadow(agent).await,
            89..93 => self.put_prompt(agent).await,
            93..96 => self.apply(agent).await,
            _ => self.put_raw(agent, uri).await,
        }
    }

    async fn get(&self, path: &str) -> Option<(i64, Value)> {
        let answer = self.fleet.admin(self.fleet.any(), "GET", path, &[], String::new()).await?;
        if answer.status == 200 { Some((answer.etag?, answer.json())) } else { None }
    }

    /// Sends a write; returns its revision.
    async fn send(&self, method: &str, path: &str, more: &[(&str, &str)], body: String) -> Option<i64> {
        let answer = self.fleet.admin(self.fleet.any(), method, path, more, body).await;
        match answer {
            Some(Answer { status: 200..300, etag, .. }) => {
                count(&self.ledger.writes);
                Some(etag.unwrap_or_default())
            }
            Some(Answer { status: 404 | 412, .. }) => None,
            Some(answer) if answer.status < 500 => {
                self.ledger.refused.add(format!("{method} {path}: {} {}", answer.status, answer.text()));
                None
            }
            _ => {
                count(&self.ledger.unclear);
                None
            }
        }
    }

    async fn put(&self, agent: &str, uri: &str, renames: bool) -> Option<()> {
        let path = path(agent, uri);
        let (revision, shown) = self.get(&path).await?;
        let number = self.ledger.number();
        let name = if renames { format!("name {number}") } else { shown["name"].as_str()?.to_owned() };
        let body = resource(uri, &name, &text(agent, number)).to_string();
        let written = self.send("PUT", &path, &[JSON, ("if-match", &tag(revision))], body).await?;
        self.ledger.written(agent, uri, written, Some(number));
        Some(())
    }

    async fn put_raw(&self, agent: &str, uri: &str) -> Option<()> {
        let (revision, _) = self.get(&path(agent, uri)).await?;
        let number = self.ledger.number();
        let path = path(agent, uri).replace("resources?", "resources/content?");
        let headers = [("content-type", "text/plain"), ("if-match", &tag(revision))];
        let written = self.send("PUT", &path, &headers, text(agent, number)).await?;
        self.ledger.written(agent, uri, written, Some(number));
        Some(())
    }

    async fn touch(&self, agent: &str, uri: &str) -> Option<()> {
        let path = path(agent, uri).replace("resources?", "resources/touch?");
        self.send("POST", &path, &[], String::new()).await.map(drop)
    }

    async fn delete_and_put(&self, agent: &str) -> Option<()> {
        let path = path(agent, DELETED);
        if let Some((revision, _)) = self.get(&path).await {
            self.ledger.deleting(agent, DELETED);
            self.send("DELETE", &path, &[("if-match", &tag(revision))], String::new()).await;
            pause(50..300).await;
        }
        // It is created again soon: clients that subscribe to it wait for it.
        for _ in 0..TRIES {
            let number = self.ledger.number();
            let body = resource(DELETED, "name", &text(agent, number)).to_string();
            if let Some(written) = self.send("PUT", &path, &[JSON, ABSENT], body).await {
                self.ledger.written(agent, DELETED, written, Some(number));
                return Some(());
            }
            pause(50..100).await;
        }
        None
    }

    async fn put_template(&self, agent: &str, renames: bool) -> Option<()> {
        let path = template_path(agent);
        let (revision, shown) = self.get(&path).await?;
        let number = self.ledger.number();
        let name = if renames { format!("name {number}") } else { shown["name"].as_str()?.to_owned() };
        let body = template(&name, agent, number).to_string();
        let written = self.send("PUT", &path, &[JSON, ("if-match", &tag(revision))], body).await?;
        self.ledger.written(agent, SERVED, written, Some(number));
        Some(())
    }

    /// Registers a resource that the template served, or deletes it again.
    async fn shadow(&self, agent: &str) -> Option<()> {
        let path = path(agent, SHADOWED);
        match self.get(&path).await {
            Some((revision, _)) => {
                self.send("DELETE", &path, &[("if-match", &tag(revision))], String::new()).await?;
            }
            None => {
                let body = resource(SHADOWED, "name", &text(agent, self.ledger.number())).to_string();
                self.send("PUT", &path, &[JSON, ABSENT], body).await?;
            }
        }
        Some(())
    }

    async fn put_prompt(&self, agent: &str) -> Option<()> {
        let path = format!("/agents/{agent}/prompts/p{}", rand::random_range(0..2));
        let messages = json!([{"role": "user", "content": {"type": "text", "text": "hello"}}]);
        let prompt = json!({"description": self.ledger.number().to_string(), "messages": messages});
        self.send("PUT", &path, &[JSON], prompt.to_string()).await.map(drop)
    }

    /// Changes several definitions of an agent in one write.
    async fn apply(&self, agent: &str) -> Option<()> {
        let path = format!("/agents/{agent}/manifest");
        let (revision, mut manifest) = self.get(&path).await?;
        let number = self.ledger.number();
        let resources = manifest["resources"].as_array_mut()?;
        for one in resources.iter_mut().filter(|one| WRITTEN[..2].iter().any(|uri| one["uri"] == *uri)) {
            one["contents"] = json!([{"text": text(agent, number)}]);
        }
        resources.retain(|one| one["uri"] != "soak://more");
        resources.push(resource("soak://more", &format!("name {number}"), &text(agent, number)));
        let headers = [JSON, ("if-match", &tag(revision))];
        let written = self.send("PUT", &path, &headers, manifest.to_string()).await?;
        for uri in &WRITTEN[..2] {
            self.ledger.written(agent, uri, written, Some(number));
        }
        Some(())
    }
}

pub(crate) fn path(agent: &str, uri: &str) -> String {
    format!("/agents/{agent}/resources?uri={}", encode(uri))
}

pub(crate) fn template_path(agent: &str) -> String {
    format!("/agents/{agent}/templates?uriTemplate={}", encode(TEMPLATE))
}

fn tag(revision: i64) -> String {
    format!("\"{revision}\"")
}
