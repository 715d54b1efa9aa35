//! What a write and a read cost in an agent with many resources.

use crate::support::app::{Builder, gateway};
use crate::support::wait::eventually;

/// Resources of the agent. The database expects a handful, since other agents have one each.
const RESOURCES: i64 = 5_000;
const WRITES: i64 = 20;

/// Adds resources to the agent `a`, and as many agents with one resource.
const FILL: &str = "begin;
    set local session_replication_role = replica;
    create temp table added on commit drop as
        select tenant, uid as agent, 'x:' || n as uri, sha256(n::text::bytea) as hash
        from agents, generate_series(1, 5000) n where slug = 'a'
        union all
        select gen_random_uuid(), gen_random_uuid(), 'x:' || n, sha256(n::text::bytea)
        from generate_series(1, 5000) n;
    insert into contents (tenant, agent, hash, bytes) select tenant, agent, hash, '\\x78' from added;
    insert into resources (tenant, agent, uri, name, source, revision, last_modified)
        select tenant, agent, uri, 'a name', 'inline', 1, now() from added;
    insert into resource_contents (tenant, agent, uri, ordinal, kind, hash, size)
        select tenant, agent, uri, 0, 'text', hash, 1 from added;
    update agents set resource_count = 5000 where slug = 'a';
    commit;
    analyze resources, resource_contents, contents;
    select pg_stat_reset()";

#[tokio::test(flavor = "multi_thread")]
async fn writing_a_resource_reads_no_others_of_its_agent() {
    let (database, first) = gateway().await;
    let key = first.acme("a").await;
    drop(first);
    database.execute(FILL).await;
    // What the server does with a statement that a connection has run some times.
    let name = database.options.get_database().unwrap();
    database.execute(&format!("alter database {name} set plan_cache_mode = force_generic_plan")).await;
    let (writer, reader) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    for n in 0..WRITES {
        let text = format!("text {n}");
        writer.put("a", "x:7", &text).await;
        eventually("the other replica has read it", async || {
            reader.http.text("a", &key, "x:7").await.as_ref() == Some(&text)
        })
        .await;
    }
    // A connection adds what it has counted at its end.
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid()";
    database.execute(end).await;
    let updated = "select n_tup_upd from pg_stat_user_tables where relname = 'resources'";
    eventually("the writes are counted", async || database.number(updated).await >= WRITES).await;
    let read = database
        .number(
            "select sum(seq_tup_read + idx_tup_fetch)::bigint from pg_stat_user_tables \
             where relname in ('resources', 'resource_contents', 'contents')",
        )
        .await;
    // Each replica loads the agent, perhaps more than once; a write that read all of it would add 300,000.
    assert!(read < 20 * RESOURCES, "{read} rows were read for {WRITES} writes");
}
