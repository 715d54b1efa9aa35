//! Privileges of the role that runs the gateway, if another role owns the tables. It may only append to the
//! audit log.

use sqlx::{AssertSqlSafe, Executor, PgConnection};

use super::StoreError;

/// Grants a role the privileges that the gateway needs.
pub(super) async fn grant(connection: &mut PgConnection, role: &str) -> Result<(), StoreError> {
    let statements = sqlx::query_scalar!(
        r#"with tables as (
            select relname, quote_ident(relname) as name from pg_class
            where relnamespace = current_schema()::text::regnamespace and relkind in ('r', 'p')
            and not relispartition and relname <> '_sqlx_migrations'
        ),
        rights as (
            select name, case
                when relname in ('audit_log', 'audit_chains') then 'select, insert'
                when relname = 'audit_heads' then 'select, insert, update'
                else 'select, insert, update, delete'
            end as may from tables
        )
        select format('revoke all on %s from %I; grant %s on %s to %I', name, $1::text, may, name, $1::text)
            as "statement!"
        from rights
        union all
        select format('grant usage on schema %I to %I', current_schema(), $1::text)"#,
        role
    )
    .fetch_all(&mut *connection)
    .await?;
    for statement in statements {
        connection.execute(AssertSqlSafe(statement)).await?;
    }
    Ok(())
}
