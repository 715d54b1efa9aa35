//! `docs/metrics.md` lists every metric of the gateway, with its labels, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::json;

use crate::support::app::{Builder, resource};
use crate::support::cluster::database;
use crate::support::metric_families::{self, MetricFamily};

const PAGE: &str = "docs/metrics.md";

/// A family of the text format.
#[derive(Default)]
struct Family {
    help: String,
    kind: String,
    labels: BTreeSet<String>,
    samples: usize,
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            current = name.to_owned();
            help.clone_into(&mut families.entry(current.clone()).or_default().help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            kind.clone_into(&mut families.get_mut(name).unwrap().kind);
        } else {
            let family = families.get_mut(&current).unwrap();
            family.samples += 1;
            let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
            let labels = labels.into_iter().flat_map(|(labels, _)| labels.split(','));
            let names = labels.filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            family.labels.extend(names.filter(|name| name != "le"));
        }
    }
    families
}

/// Whether each of its samples is one.
fn has_native_histograms(family: &MetricFamily) -> bool {
    let mut histograms = family.metric.iter().map(|metric| metric.histogram.as_ref());
    histograms.all(|histogram| histogram.is_some_and(|histogram| histogram.zero_threshold() > 0.0))
}

fn page(families: &BTreeMap<String, Family>) -> String {
    let row = |(name, family): (&String, &Family)| {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {} | {} | {} |\n", family.kind, labels.join(", "), family.help)
    };
    let rows: String = families.iter().map(row).collect();
    format!("| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}")
}

#[tokio::test]
async fn every_metric_is_documented_and_no_other() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let builder = Builder::new(&database).set("WAGGLE_METRICS__TENANTS", 1);
    let replica = builder.set("WAGGLE_SOURCES__FILE_ROOTS", folder.path().display()).start().await;
    let key = replica.acme("a").await;
    let limits = json!({"limits": {"callsPerDay": 1_000}});
    assert_eq!(replica.admin("PATCH", "/tenants/acme", Some(limits)).await.status, 200);
    replica.put("a", "x:1", "text").await;
    assert!(replica.http.text("a", &key, "x:1").await.is_some());
    let docs = json!({"id": "docs", "kind": "file", "tenants": "*", "settings": {"root": folder.path()}});
    assert_eq!(replica.admin("POST", "/connections", Some(docs)).await.status, 201);
    std::fs::write(folder.path().join("a"), "text").unwrap();
    let body = json!({"name": "2", "source": {"connection": "docs", "path": "a"}});
    assert_eq!(replica.admin("PUT", &resource("a", "x:2"), Some(body)).await.status, 201);
    assert!(replica.http.text("a", &key, "x:2").await.is_some());
    replica.running.services.identity.count_expiring_keys().await;
    let mut families = families(&replica.http.get("/metrics").await.text());
    for family in metric_families::scrape(&replica.http).await.1 {
        if has_native_histograms(&family) {
            families.get_mut(family.name()).unwrap().kind.push_str(", classic and native");
        }
    }
    let empty: Vec<_> = families.iter().filter(|(_, family)| family.samples == 0).collect();
    assert!(empty.is_empty(), "{:?}", empty.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let table = page(&families);
    let root = env!("CARGO_MANIFEST_DIR");
    let documented = fs::read_to_string(format!("{root}/{PAGE}")).unwrap_or_default();
    if !documented.ends_with(&table) {
        fs::write(format!("{root}/target/metrics.md"), &table).unwrap();
        panic!("the table of {PAGE} does not match the gateway; target/metrics.md has it as it should be");
    }
}
