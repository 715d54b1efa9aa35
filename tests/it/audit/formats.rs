//! The log as NDJSON and CSV, and its filters.

use serde_json::Value;

use super::calls::reaches;
use crate::support::app::gateway;
use crate::support::audit_site::AuditSite;
use crate::support::faults::Fault;

#[tokio::test]
async fn audit_rows_are_returned_as_ndjson_and_csv_newest_first() {
    let (database, replica) = gateway().await;
    replica.acme("research").await;
    for number in 0..1_200 {
        replica.put("research", &format!("test://{number}"), "x").await;
    }
    reaches(&database, 1_203).await;
    let bearer = format!("Bearer {}", replica.operator);
    let get = async |accept: &str, query: &str| {
        let headers = [("authorization", bearer.as_str()), ("accept", accept)];
        replica.http.send("GET", &format!("/admin/v1/audit{query}"), &headers, "").await
    };
    let lines = get("application/x-ndjson", "?agent=research").await;
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    let rows: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 1_202);
    let times: Vec<_> = rows.iter().map(|row| row["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older));
    assert_eq!(rows[0]["subject"], "test://1199");

    let (from, to) = (rows[9]["at"].as_str().unwrap(), rows[4]["at"].as_str().unwrap());
    let csv = get("text/csv", &format!("?agent=research&outcome=ok&from={from}&to={to}")).await;
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let text = csv.text();
    let found: Vec<_> = text.split("\r\n").collect();
    assert!(found[0].starts_with("version,chain,seq,previous,at,requestId,"), "{}", found[0]);
    let expected: Vec<_> = rows[5..10].iter().map(|row| row["hash"].as_str().unwrap()).collect();
    let hashes: Vec<_> = found[1..].iter().filter_map(|row| row.rsplit(',').next()).collect();
    assert_eq!(hashes[..5], expected);
    assert_eq!(hashes.len(), 6, "and nothing behind the last line");
    assert_eq!(get("text/csv", "?limit=3").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_is_unavailable_in_every_format_while_the_database_is_away() {
    let (audit_site, gateway) = AuditSite::new(&[]).await;
    let bearer = format!("Bearer {}", audit_site.site.operator());
    audit_site.proxy.fail(Fault::Refused);
    for accept in ["application/json", "application/x-ndjson", "text/csv"] {
        let headers = [("authorization", bearer.as_str()), ("accept", accept)];
        let answer = audit_site.site.http.send("GET", "/admin/v1/audit", &headers, "").await;
        let code = answer.json()["code"].clone();
        assert_eq!((answer.status.as_u16(), code), (503, "storage_unavailable".into()), "{accept}");
        assert_eq!(answer.header("retry-after"), Some("1"), "{accept}");
    }
    audit_site.proxy.fail(Fault::None);
    assert!(gateway.stop().await.success());
}
