//! Rows that cannot be written: refused by the database, or lost in a corrupt spill file.

use std::fs;

use serde_json::json;
use sqlx::ConnectOptions;
use waggle::model::key::{KeyKind, SecretKey};

use super::adopted_spill::CHAINS;
use crate::support::app::encode;
use crate::support::audit_site::AuditSite;
use crate::support::cluster::database_in;
use crate::support::faults::Fault;
use crate::support::process::Site;

/// Makes the database refuse the marked rows, like one that cannot encode them.
const REFUSE: &str = "create function refuse_poison() returns trigger language plpgsql as $$
    begin raise exception 'no equivalent in encoding LATIN1' using errcode = '22P05'; end $$;
    create trigger refuse_poison before insert on audit_log
    for each row when (new.subject like '%poison%') execute function refuse_poison()";

#[tokio::test(flavor = "multi_thread")]
async fn rows_with_invalid_values_are_quarantined() {
    let (audit_site, gateway) = AuditSite::new(&[("WAGGLE_AUDIT__DURABILITY", "sync")]).await;
    audit_site.is_written().await;
    audit_site.database.execute(REFUSE).await;
    let mut ids = vec!["known".to_owned()];
    ids.extend(audit_site.read_often("before", 2).await);
    assert_eq!(audit_site.read("refused", "test://poison").await.status, 200);
    let body = json!({"name": "a", "contents": [{"text": "a"}]});
    let path = format!("/agents/research/resources?uri={}", encode("test://poison"));
    assert_eq!(audit_site.site.admin("PUT", &path, Some(body)).await.status, 201);
    ids.extend(audit_site.read_often("after", 2).await);
    audit_site.is_written().await;
    assert_eq!(audit_site.reads().await, ids);
    assert_eq!(audit_site.number("quarantined_total").await, 2);
    assert!(gateway.stop().await.success());

    let files = audit_site
        .files()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "quarantined"));
    let kept: Vec<_> = files.flat_map(|file| fs::read(file).unwrap()).collect();
    assert_eq!(kept.windows(13).filter(|bytes| bytes == b"test://poison").count(), 2);
    let (code, text) = audit_site.verify().await;
    assert_eq!(
        (code, text.matches("is quarantined: the database rejected it").count()),
        (Some(0), 2),
        "{text}"
    );
    assert_eq!(audit_site.texts(CHAINS).await.join(" ").matches("quarantined").count(), 2);

    // Its position cannot be declared for several rows.
    let cut = "set session_replication_role = replica; \
        update audit_chains set first = first - 1 where number = (select min(number) from audit_chains where kind = 'quarantined')";
    audit_site.database.execute(cut).await;
    assert_eq!(audit_site.verify().await.0, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_spill_record_is_reported_and_later_rows_are_kept() {
    let (audit_site, gateway) = AuditSite::new(&[]).await;
    audit_site.is_written().await;
    audit_site.proxy.fail(Fault::Refused);
    let mut ids = Vec::new();
    for name in ["first", "second", "third"] {
        ids.push(audit_site.read_often(name, 3).await);
        audit_site.is_safe().await;
    }
    gateway.kill().await;
    let [file] = audit_site.files().try_into().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let place = bytes.windows(8).position(|bytes| bytes == b"second-0").unwrap();
    bytes[place] ^= 1;
    fs::write(&file, &bytes).unwrap();

    let gateway = audit_site.start_without_database().await;
    audit_site.is_written().await;
    let reads = audit_site.reads().await;
    assert!(ids[0].iter().chain(&ids[2]).all(|id| reads.contains(id)), "{reads:?}");
    assert!(!reads.contains(&ids[1][0]), "{reads:?}");
    assert_eq!(audit_site.number("spill_damaged_total").await, 1);
    assert!(gateway.stop().await.success());
    let kept = file.with_extension("damaged");
    assert_eq!(audit_site.files(), std::slice::from_ref(&kept));
    assert_eq!(fs::read(kept).unwrap(), bytes);
    assert_eq!(audit_site.texts(CHAINS).await, ["opened damaged interrupted", "opened closed"]);
    let (code, text) = audit_site.verify().await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(": corrupt spill file: row") && text.contains(": 1 finding"), "{text}");
    assert!(audit_site.site.printed("stderr").contains("audit spill file corrupt"));
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_not_utf8_is_refused() {
    let database = database_in("LATIN1").await;
    let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let site = Site::new()
        .set("DATABASE_URL", database.options.to_url_lossy())
        .set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal());
    for command in ["serve", "migrate"] {
        let output = site.command(command).output().await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
        assert!(text.contains("encoded in LATIN1") && text.contains("expected UTF8"), "{command}: {text}");
    }
    let tables = "select count(*) from pg_tables where schemaname = 'public'";
    assert_eq!(database.number(tables).await, 0);
}
