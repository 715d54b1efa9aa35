//! Every filter answers from an index, in order, however the rows are spread.

use http::StatusCode;

use crate::support::app::{Replica, gateway};
use crate::support::cluster::Database;
use crate::support::wait::eventually;

const ROWS: i64 = 60_000;
const AGENT: &str = "00000000-0000-0000-0000-00000000000a";
const KEY: &str = "00000000-0000-0000-0000-00000000000b";

/// Adds a row for each second of the day before yesterday: `when` says which rows the filters find.
async fn seed(database: &Database, when: &str) {
    database.execute("select audit_make_partition((now() at time zone 'UTC')::date - 2)").await;
    let insert = format!(
        "insert into audit_log (version, chain, seq, previous, at, request, tenant, agent, slug, principal_kind, key,
            client, method, outcome, micros, bytes_in, hash)
        select 1, '00000000-0000-0000-0000-0000000000cc', n, decode(repeat('00', 32), 'hex'),
            (((now() at time zone 'UTC')::date - 2)::timestamp + n * interval '1 second') at time zone 'UTC', n::text,
            case when {when} then (select uid from tenants where slug = 'acme') else gen_random_uuid() end,
            case when {when} then '{AGENT}'::uuid else gen_random_uuid() end,
            case when {when} then 'rare' else 'other-' || n end, 'agent',
            case when {when} then '{KEY}'::uuid else gen_random_uuid() end, '127.0.0.1',
            case when {when} then 'ping' else 'resources/read' end,
            case when {when} then 'not_found' else 'ok' end, 1, 1, decode(repeat('00', 32), 'hex')
        from generate_series(1, {ROWS}) n"
    );
    database.execute(&insert).await;
    database.execute("analyze audit_log").await;
    // Summarizing a range counts as a scan of the table, and a connection reports what it counted at its end.
    let summarize = "set application_name = 'summarizes'; \
        select brin_summarize_new_values((inhrelid::regclass::text || '_ranges')::regclass) \
        from pg_inherits where inhparent = 'audit_log'::regclass";
    database.execute(summarize).await;
    let summarizes = "select count(*) from pg_stat_activity where application_name = 'summarizes'";
    eventually("the connection has ended", async || database.number(summarizes).await == 0).await;
}

/// The request ids of the rows on all pages that a query finds, in their order.
async fn found(replica: &Replica, query: &str) -> Vec<i64> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let answer = replica.admin("GET", &format!("/audit?limit=5&{query}{cursor}"), None).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.text());
        let page = answer.json();
        let items = page["items"].as_array().unwrap();
        ids.extend(items.iter().map(|row| row["requestId"].as_str().unwrap().parse::<i64>().unwrap()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

/// Statistics of the partition with the rows: scans of all its rows, and scans of the index with this ending.
async fn scans(database: &Database, index: &str) -> (i64, i64) {
    let partition = "'audit_log_' || to_char((now() at time zone 'UTC')::date - 2, 'YYYYMMDD')";
    let tables = format!("select seq_scan from pg_stat_user_tables where relname = {partition}");
    let indexes =
        format!("select idx_scan from pg_stat_user_indexes where indexrelname = {partition} || '{index}'");
    (database.number(&tables).await, database.number(&indexes).await)
}

#[tokio::test]
async fn each_filter_finds_rare_rows_by_index() {
    let (database, replica) = gateway().await;
    replica.tenant("acme").await;
    // The first window, the borders of others, pages across windows, and the last row.
    let rare = [59_999, 59_000, 55_905, 55_904, 55_903, 30_000, 29_999, 29_998, 29_997, 20_000, 77, 1];
    let when = format!("n in ({})", rare.map(|n| n.to_string()).join(", "));
    seed(&database, &when).await;
    let before =
        database.number("select extract(epoch from (now() at time zone 'UTC')::date - 1)::bigint").await;
    let to = time::OffsetDateTime::from_unix_timestamp(before).unwrap();
    let to = to.format(&time::format_description::well_known::Rfc3339).unwrap();
    let (scanned, searched) = scans(&database, "_ranges").await;
    let (_, requests) = scans(&database, "_requests").await;
    for filter in [
        "tenant=acme".to_owned(),
        "agent=rare".to_owned(),
        format!("agent={AGENT}"),
        format!("key={KEY}"),
        "method=ping".to_owned(),
        "outcome=not_found".to_owned(),
        format!("tenant=acme&agent=rare&key={KEY}&method=ping&outcome=not_found"),
    ] {
        assert_eq!(found(&replica, &format!("{filter}&to={to}")).await, rare, "{filter}");
    }
    for request in [59_999, 30_000, 1] {
        assert_eq!(found(&replica, &format!("request={request}&to={to}")).await, [request]);
    }
    assert_eq!(found(&replica, &format!("request=absent&to={to}")).await, [0; 0]);
    assert_eq!(found(&replica, &format!("request=30000&agent=rare&to={to}")).await, [30_000]);
    // The statistics of a connection appear after a while, with its next statement.
    eventually("searches are counted", async || {
        found(&replica, &format!("agent=rare&to={to}")).await;
        found(&replica, &format!("request=1&to={to}")).await;
        scans(&database, "_ranges").await.1 > searched && scans(&database, "_requests").await.1 > requests
    })
    .await;
    assert_eq!(scans(&database, "_ranges").await.0, scanned, "no filter reads the whole partition");
}

#[tokio::test]
async fn pages_of_frequent_rows_are_complete_and_ordered() {
    let (database, replica) = gateway().await;
    replica.tenant("acme").await;
    seed(&database, "n % 500 = 0").await;
    let expected: Vec<_> = (1..=ROWS / 500).rev().map(|n| n * 500).collect();
    assert_eq!(found(&replica, "agent=rare").await, expected);
    let streamed = replica
        .http
        .send(
            "GET",
            "/admin/v1/audit?agent=rare",
            &[("authorization", &format!("Bearer {}", replica.operator)), ("accept", "application/x-ndjson")],
            "",
        )
        .await;
    assert_eq!(streamed.text().lines().count(), expected.len());
}
