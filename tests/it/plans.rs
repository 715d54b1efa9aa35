//! Statements of the pool are planned once for each connection, knowing no values. With many rows in each table, such a plan
//! must neither scan a whole table nor sort or hash much of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use crate::support::app::Builder;
use crate::support::cluster::database;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// The tables that have a row or more for each agent.
const GROWING: [&str; 19] = [
    "heads",
    "changes",
    "agents",
    "api_keys",
    "contents",
    "resources",
    "resource_contents",
    "templates",
    "prompts",
    "skills",
    "mounts",
    "mount_entries",
    "sessions",
    "subscriptions",
    "agent_usage",
    "quotas",
    "watched",
    "watching",
    "found_contents",
];

/// Fills each of these with rows whose values differ: constraints on them are dropped.
const FILL: &str = "
    set session_replication_role = replica;
    do $$
    declare
        filled name;
        dropped name;
        columns text;
        selected text;
    begin
        for filled in
            select unnest(current_setting('plans.growing')::name[])
        loop
            for dropped in select conname from pg_constraint where conrelid = filled::regclass and contype in ('c', 'f') loop
                execute format('alter table %I drop constraint %I', filled, dropped);
            end loop;
            select string_agg(quote_ident(attname), ', '), string_agg(
                -- Few agents are deleted, few sessions ended, and so on.
                case when attnotnull then value when attndims > 0 then 'null'
                    else 'case when n % 100 = 0 then ' || value || ' end' end, ', ') into columns, selected
            from pg_attribute cross join lateral format_type(atttypid, atttypmod) as type
            cross join lateral (select case type
                when 'uuid' then 'md5(n::text)::uuid'
                when 'bytea' then 'sha256(n::text::bytea)'
                when 'smallint' then '1'
                when 'boolean' then 'n % 2 = 0'
                when 'timestamp with time zone' then 'now() - n * interval ''1 second'''
                when 'date' then 'current_date - n'
                when 'text' then '''x'' || n'
                else case when attndims > 0 or type = 'jsonb' then '''{}''::' || type else 'n::text::' || type end
            end) as of_type (value)
            where attrelid = filled::regclass and attnum > 0 and not attisdropped and attgenerated = '';
            execute format('insert into %I (%s) select %s from generate_series(1, %s) n', filled, columns, selected,
                current_setting('plans.rows'));
        end loop;
    end $$";

/// The most rows that a plan may read of a table without an index, sort or hash.
const MAX_ROWS: u64 = 2_000;

/// Statements that are planned for their values each time, by words of them: the audit log, the pruning of changes, purges, and the
/// keys that were issued.
const PLANNED: [&str; 7] = [
    "from audit_log",
    "from changes where xid >= pg_snapshot_xmax",
    "from changes where at < now() - make_interval(secs => $1) order by at limit $2",
    "from sessions where ended_at < $1 order by ended_at limit $2",
    "from contents c where orphaned_at < $1",
    "from found_contents where expires_at <= clock_timestamp() order by",
    "select hash from api_keys where hash > $1",
];

/// Statements that may read many rows.
const LONG: [&str; 3] = [
    // The sweep, on its own connection.
    "waggle_timeline() as server",
    // Whether a connection is in use, once when it is deleted.
    "where completion_connections @> array[$1::uuid] union all",
    // The agents used last, once at the start.
    "select agent, sum(calls) as calls from agent_usage",
];

/// Further statements that walk an index while nothing was analyzed, once a minute or where a connection is deleted.
const SELDOM: [&str; 3] = [
    "k.expires_at > $1 and k.expires_at <= $2 and not exists",
    "with expired as ( select replica from watchers",
    "with gone as (select tenant, uid from agents where deleted_at is not null)",
];

/// What a plan does with many rows.
fn costly(plan: &Value, found: &mut Vec<String>) {
    let children = plan["Plans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let node = plan["Node Type"].as_str().unwrap_or_default();
    let below = children.iter().filter_map(|child| child["Plan Rows"].as_u64()).max().unwrap_or_default();
    // The cost of a scan is that of the rows that it passes; those that it returns may be few.
    let cost = plan["Total Cost"].as_f64().unwrap_or_default();
    if node == "Seq Scan" && cost > 100.0 {
        found.push(format!("{node} on {} for {cost}", plan["Relation Name"]));
    }
    if ["Sort", "Incremental Sort", "Hash", "Materialize"].contains(&node) && below > MAX_ROWS {
        found.push(format!("{node} of {below} rows"));
    }
    children.iter().for_each(|child| costly(child, found));
}

/// The scans of growing tables from one end to the other, with an index or without.
fn unindexed(plan: &Value, found: &mut Vec<String>) {
    let (node, table) = (plan["Node Type"].as_str().unwrap_or_default(), plan["Relation Name"].as_str());
    let growing = table.is_some_and(|table| GROWING.contains(&table));
    let is_whole = match node {
        "Seq Scan" => growing,
        "Index Scan" | "Index Only Scan" => growing && plan["Index Cond"].is_null(),
        "Bitmap Heap Scan" => growing && has_whole_bitmap(plan),
        _ => false,
    };
    if is_whole {
        found.push(format!("{node} on {table:?} by {}", plan["Index Name"]));
    }
    let children = plan["Plans"].as_array().map(Vec::as_slice).unwrap_or_default();
    children.iter().for_each(|child| unindexed(child, found));
}

/// Whether a bitmap is made of a whole index.
fn has_whole_bitmap(plan: &Value) -> bool {
    let children = plan["Plans"].as_array().map(Vec::as_slice).unwrap_or_default();
    (plan["Node Type"] == "Bitmap Index Scan" && plan["Index Cond"].is_null())
        || children.iter().any(has_whole_bitmap)
}

async fn fill(connection: &mut PgConnection, rows: u32) {
    let growing = GROWING.join(",");
    let settings = format!("set plans.rows = {rows}; set plans.growing = '{{{growing}}}'");
    connection.execute(AssertSqlSafe(settings)).await.unwrap();
    connection.execute(FILL).await.unwrap();
}

/// What `check` finds in the plan of each statement but those with words of `others`.
async fn check(
    connection: &mut PgConnection,
    others: &[&'static str],
    check: fn(&Value, &mut Vec<String>),
) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx")).unwrap();
    let mut unused = Vec::from(others);
    for file in files {
        let query: Value = serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap();
        let text = query["query"].as_str().unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if others.iter().any(|other| words.contains(other)) {
            unused.retain(|other| !words.contains(other));
            continue;
        }
        let parameters = query["describe"]["parameters"]["Left"].as_array().map_or(0, Vec::len);
        let values = vec!["null"; parameters].join(", ");
        let execute = if values.is_empty() { "execute q".to_owned() } else { format!("execute q({values})") };
        let prepared = connection.execute(AssertSqlSafe(format!("prepare q as {text}"))).await;
        prepared.unwrap_or_else(|error| panic!("{error}: {text}"));
        let explained = AssertSqlSafe(format!("explain (format json) {execute}"));
        let plan: Value = connection.fetch_one(explained).await.unwrap().get(0);
        let mut costs = Vec::new();
        check(&plan[0]["Plan"], &mut costs);
        if !costs.is_empty() {
            found.insert(words, costs);
        }
        connection.execute("deallocate q").await.unwrap();
    }
    assert_eq!(unused, [""; 0], "no statement has these words any more");
    found
}

#[tokio::test]
async fn statements_planned_without_values_read_few_rows() {
    let database = database().await;
    let mut connection = PgConnection::connect_with(&database.options).await.unwrap();
    fill(&mut connection, 10_000).await;
    connection.execute("analyze; set plan_cache_mode = force_generic_plan").await.unwrap();
    let others = [&PLANNED[..], &LONG].concat();
    assert_eq!(check(&mut connection, &others, costly).await, BTreeMap::new());
}

#[tokio::test]
async fn statements_planned_before_tables_grow_use_their_indexes() {
    let database = database().await;
    let mut connection = PgConnection::connect_with(&database.options).await.unwrap();
    fill(&mut connection, 1).await;
    connection.execute("set plan_cache_mode = force_generic_plan; set enable_seqscan = off").await.unwrap();
    let others = [&PLANNED[..], &LONG, &SELDOM].concat();
    assert_eq!(check(&mut connection, &others, unindexed).await, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn pooled_connections_plan_once_except_batches() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let _replica = Builder::new(&database).store(|store| store.connect = proxy.options.clone()).start().await;
    let mut statements = Vec::new();
    let at = |statements: &[String], words: &str| statements.iter().position(|text| text.contains(words));
    eventually("the issued keys are read", async || {
        statements.extend(proxy.statements.take());
        at(&statements, "select hash from api_keys").is_some()
    })
    .await;
    assert!(at(&statements, "set plan_cache_mode = force_generic_plan").is_some(), "{statements:#?}");
    // Those of the pool, which keep their plans, and those of the sweep and of the audit log.
    eventually("each connection uses indexes", async || {
        statements.extend(proxy.statements.take());
        let count = |words: &str| statements.iter().filter(|text| text.contains(words)).count();
        count("set_config('enable_seqscan', 'off', false) as scans, set_config('jit', 'off', false)")
            == count("set plan_cache_mode = force_generic_plan") + 2
    })
    .await;
    let begun = at(
        &statements,
        "begin; set local plan_cache_mode = force_custom_plan; set local enable_seqscan to default",
    );
    assert!(begun.is_some() && begun < at(&statements, "select hash from api_keys"), "{statements:#?}");
}
