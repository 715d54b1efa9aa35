//! Agents, resources and keys, written into a migrated database in bulk, while no gateway runs.

use std::fmt::Write;
use std::fs;

use crate::error::Error;
use crate::first_use::forged_key;
use crate::site::Site;

/// As many agents as one tenant may have by default.
const AGENTS_PER_TENANT: usize = 10_000;

/// Agents that are alike: `<prefix>-0` and so on, each with resources `x:1` and so on.
pub(crate) struct Group {
    pub(crate) prefix: &'static str,
    pub(crate) agents: usize,
    pub(crate) resources: usize,
    /// Keys of the group, spread over its agents in turn.
    pub(crate) keys: usize,
    /// The size of each resource. Those of one agent have the same contents.
    pub(crate) bytes: usize,
}

impl Group {
    /// The agent of the nth key.
    pub(crate) fn agent(&self, nth: usize) -> String {
        format!("{}-{}", self.prefix, nth % self.agents)
    }

    /// The nth key.
    pub(crate) fn key(&self, nth: usize) -> String {
        // Distinct groups have distinct keys, and none is the key of the operator.
        let group = self.prefix.bytes().fold(7, |hash: u64, byte| hash * 31 % 1_000_003 + u64::from(byte));
        forged_key("bak", group * 100_000_000 + nth as u64)
    }
}

/// Migrates the database of a site and writes these groups into it.
pub(crate) async fn write(site: &mut Site, groups: &[Group]) -> Result<(), Error> {
    site.start(&[]).await?;
    site.stop_gateways().await;
    let file = site.dir.path().join("population.sql");
    fs::write(&file, script(groups)).map_err(Error::io("write a script of SQL"))?;
    site.database.execute(&file).await
}

fn script(groups: &[Group]) -> String {
    // Without triggers and the checks of references, which the rows satisfy.
    let mut script = "begin; set local session_replication_role = replica;\n\
        create temporary table made (uid uuid, tenant uuid, slug text, resources integer, bytes integer) on commit drop;\n\
        create temporary table made_keys (slug text, key text) on commit drop;\n"
        .to_owned();
    let mut line = |text: String| {
        script.push_str(&text);
        script.push('\n');
    };
    for Group { prefix, agents, resources, bytes, .. } in groups {
        let tenants = agents.div_ceil(AGENTS_PER_TENANT);
        line(format!(
            "insert into tenants (uid, slug, name, revision, created_at) \
             select md5('tenant-{prefix}-' || n)::uuid, '{prefix}-' || n, 'Bench', 1, now() \
             from generate_series(0, {tenants} - 1) n;\n\
             insert into made select md5('agent-{prefix}-' || n)::uuid, \
             md5('tenant-{prefix}-' || n % {tenants})::uuid, '{prefix}-' || n, {resources}, {bytes} \
             from generate_series(0, {agents} - 1) n;"
        ));
    }
    line("copy made_keys from stdin;".to_owned());
    line(keys(groups) + "\\.");
    line(ROWS.to_owned());
    script
}

/// The keys as lines for `copy`.
fn keys(groups: &[Group]) -> String {
    let mut lines = String::new();
    for group in groups {
        for nth in 0..group.keys {
            let _infallible = writeln!(lines, "{}\t{}", group.agent(nth), group.key(nth));
        }
    }
    lines
}

const ROWS: &str = "
insert into heads select uid, 1, 0 from tenants union all select uid, 1, 0 from made;
insert into agents (uid, tenant, slug, name, access, enabled, resource_count, created_at)
    select uid, tenant, slug, slug, 'key', true, resources, now() from made;
insert into api_keys (uid, tenant, agent, hash, display, name, scopes, principal, revision, created_at)
    select md5('key-' || key)::uuid, tenant, uid, sha256(key::bytea), left(key, 12), 'bench', '{mcp}',
    md5('principal-' || key)::uuid, 1, now() from made_keys join made using (slug);
insert into contents (tenant, agent, hash, bytes)
    select tenant, uid, sha256(text::bytea), text::bytea
    from made, left(repeat(md5(slug), made.bytes / 32 + 1), made.bytes) text;
insert into resources (tenant, agent, uri, name, source, revision, last_modified)
    select tenant, uid, 'x:' || n, 'resource ' || n, 'inline', 1, now() from made, generate_series(1, resources) n;
insert into resource_contents (tenant, agent, uri, ordinal, kind, hash, size)
    select c.tenant, c.agent, 'x:' || n, 0, 'text', hash, made.bytes
    from contents c join made on made.uid = c.agent, generate_series(1, resources) n;
commit;
vacuum analyze;
checkpoint;";
