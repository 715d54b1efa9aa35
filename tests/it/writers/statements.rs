//! What a write takes of the database: counted in statements, each of which is a round trip.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor};

use crate::support::app::{Builder, gateway, resource};
use crate::support::cluster::database;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// Parts of the statements that are not of background tasks. Others begin transactions as well, so that those of the
/// write are not counted.
const OF_WRITES: [&str; 3] = ["from agents a join tenants", "from heads where scope", "insert into changes"];

#[tokio::test(flavor = "multi_thread")]
async fn write_takes_three_statements_and_a_transaction() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let recorded = Builder::new(&database).store(|store| store.connect = proxy.options.clone());
    let replica = recorded.start().await;
    replica.acme("a").await;
    let template = "/agents/a/templates?uriTemplate=t:%7Ba%7D";
    let prompt = "/agents/a/prompts/p";
    let body = |text: &str| {
        let message = json!({"role": "user", "content": {"type": "text", "text": text}});
        [
            (resource("a", "x:1"), json!({"name": "n", "contents": [{"text": text}, {"text": "the same"}]})),
            (template.to_owned(), json!({"name": "n", "template": text})),
            (prompt.to_owned(), json!({"messages": [message]})),
        ]
    };
    for (path, body) in body("old") {
        assert_eq!(replica.admin("PUT", &path, Some(body)).await.status, StatusCode::CREATED);
    }
    for (path, body) in body("new") {
        proxy.statements.take();
        assert_eq!(replica.admin("PUT", &path, Some(body)).await.status, StatusCode::OK);
        let statements = proxy.statements.take();
        let of_write = |text: &&String| {
            let of_table = ["contents", "resources", "templates", "prompts", "audit_outbox"];
            OF_WRITES.iter().any(|part| text.contains(part))
                || of_table.iter().any(|table| text.contains(&format!("into {table} ")))
        };
        let written: Vec<_> = statements.iter().filter(of_write).collect();
        assert_eq!(written.len(), 3, "the agent, the definition under the lock, the write: {written:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_waited_for_the_lock_reads_again() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    let revision = replica.put("a", "x:1", "one").await;
    // A write of another replica that is about to commit.
    let mut other = database.connect().await;
    let written = format!(
        "begin; update heads set revision = {next} where scope = (select uid from agents where slug = 'a'); \
         update resources set name = 'other', revision = {next} where uri = 'x:1'",
        next = revision + 1
    );
    other.execute(AssertSqlSafe(written)).await.unwrap();
    let replica = Arc::new(replica);
    let writing = {
        let replica = Arc::clone(&replica);
        tokio::spawn(async move {
            let (bearer, tag) = (format!("Bearer {}", replica.operator), format!("\"{revision}\""));
            let headers =
                [("authorization", &*bearer), ("content-type", "application/json"), ("if-match", &*tag)];
            let path = format!("/admin/v1{}", resource("a", "x:1"));
            let body = json!({"name": "mine", "contents": [{"text": "two"}]}).to_string();
            replica.http.send("PUT", &path, &headers, body).await
        })
    };
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                   and wait_event_type = 'Lock' and query like '%for no key update%'";
    eventually("the write waits for the lock", async || database.number(waiting).await == 1).await;
    other.execute("commit").await.unwrap();

    let refused = writing.await.unwrap();
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED, "{}", refused.text());
    assert!(
        refused.text().contains(&format!("the current revision is {}", revision + 1)),
        "{}",
        refused.text()
    );
    assert_eq!(replica.put("a", "x:1", "three").await, revision + 2);
}
