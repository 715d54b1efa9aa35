//! Spill files of terminated processes.

use std::fs;

use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::support::audit_site::AuditSite;
use crate::support::faults::Fault;

/// All rows of the oldest chain with reads.
const FIRST_CHAIN: &str = "select r::text from audit_log r where chain = \
    (select chain from audit_chains where kind = 'opened' order by number limit 1) order by seq";

/// How each chain began and ended, in the order in which they began.
pub(super) const CHAINS: &str = "select string_agg(kind, ' ' order by number) from audit_chains \
    group by chain order by min(number)";

impl AuditSite {
    pub(super) async fn texts(&self, query: &str) -> Vec<String> {
        let mut connection = self.database.connect().await;
        sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_all(&mut connection).await.unwrap()
    }

    /// How each chain began and ended, in the order in which they began.
    async fn chains(&self) -> Vec<String> {
        self.texts(CHAINS).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_spilled_by_two_terminated_processes_precede_newer_ones() {
    let (audit_site, gateway) = AuditSite::new(&[]).await;
    let mut ids = vec!["known".to_owned()];
    ids.extend(audit_site.read_often("first-written", 3).await);
    audit_site.is_written().await;
    audit_site.proxy.fail(Fault::Refused);
    ids.extend(audit_site.read_often("first-spilled", 5).await);
    audit_site.is_safe().await;
    gateway.kill().await;

    // The second process is stopped at the first one's rows, which are locked; then the database is unreachable again.
    let hold = "begin; select from audit_heads for update";
    let mut holder = audit_site.database.connect().await;
    audit_site.proxy.fail(Fault::None);
    let gateway = {
        let starts = audit_site.site.serve();
        holder.execute(hold).await.unwrap();
        starts.await
    };
    ids.extend(audit_site.read_often("second", 5).await);
    audit_site.proxy.fail(Fault::Refused);
    audit_site.is_safe().await;
    gateway.kill().await;
    assert_eq!(audit_site.files().len(), 2);

    // The third is stopped there too, until it has rows of its own.
    let gateway = audit_site.start_without_database().await;
    ids.extend(audit_site.read_often("third", 5).await);
    audit_site.is_safe().await;
    assert_eq!(audit_site.files().len(), 3);
    holder.close().await.unwrap();
    audit_site.is_written().await;
    assert_eq!(audit_site.reads().await, ids);
    assert_eq!(audit_site.files().len(), 1);
    assert_eq!(audit_site.chains().await, ["opened interrupted", "opened interrupted", "opened"]);
    assert!(gateway.stop().await.success());
    assert_eq!(audit_site.files().len(), 0);
    assert_eq!(audit_site.chains().await, ["opened interrupted", "opened interrupted", "opened closed"]);
    let (code, output) = audit_site.verify().await;
    assert_eq!(code, Some(0), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn partly_written_spill_of_a_terminated_process_is_completed() {
    let (audit_site, gateway) = AuditSite::new(&[]).await;
    audit_site.is_written().await;
    audit_site.proxy.fail(Fault::Refused);
    audit_site.read_often("spilled", 20).await;
    audit_site.is_safe().await;
    gateway.kill().await;
    let [file] = audit_site.files().try_into().unwrap();
    let kept = fs::read(&file).unwrap();
    let gateway = audit_site.start_without_database().await;
    audit_site.has_read(21).await;
    assert!(gateway.stop().await.success());
    let rows = audit_site.texts(FIRST_CHAIN).await;

    // As if a process had stopped at the seventh of those rows.
    let first = "(select chain from audit_chains where kind = 'opened' order by number limit 1)";
    let last = "(select seq from audit_log where request = 'spilled-6')";
    let older = format!(
        "set session_replication_role = replica; \
        update audit_heads h set (seq, hash) = (select seq, hash from audit_log where request = 'spilled-6') \
            where chain = {first}; \
        delete from audit_log where chain = {first} and seq > {last}"
    );
    audit_site.database.execute(&older).await;
    assert_eq!(audit_site.texts(FIRST_CHAIN).await, rows[..rows.len() - 13]);
    fs::write(&file, kept).unwrap();
    let gateway = audit_site.site.serve().await;
    audit_site.is_written().await;
    assert_eq!(audit_site.texts(FIRST_CHAIN).await, rows);
    assert_eq!(audit_site.chains().await, ["opened interrupted", "opened closed", "opened"]);
    assert!(gateway.stop().await.success());
    let (code, output) = audit_site.verify().await;
    assert_eq!(code, Some(0), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_written_after_the_timeout_are_counted_once() {
    let (audit_site, gateway) = AuditSite::new(&[]).await;
    audit_site.is_written().await;
    let mut holder = audit_site.database.connect().await;
    holder.execute("begin; select from audit_heads for update").await.unwrap();
    audit_site.read_often("late", 20).await;
    audit_site.is_safe().await;
    assert!(audit_site.number("spilled_bytes").await > 0);
    holder.close().await.unwrap();
    audit_site.is_written().await;
    let rows = audit_site.database.number("select count(*) from audit_log").await;
    assert_eq!((rows, audit_site.number("rows_total").await), (25, 25));
    assert!(gateway.stop().await.success());
}
