//! The rules and dashboards of `deploy/monitoring` agree with the documentation, and show no NaN on a quiet gateway.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

const ALERTS: &str = include_str!("../../deploy/monitoring/alerts.rules.yml");
const RECORDING: &str = include_str!("../../deploy/monitoring/recording.rules.yml");
const CASES: &str = include_str!("../../deploy/monitoring/cases.yml");
const ROUTES: &str = include_str!("../../deploy/monitoring/alertmanager.yml");
const METRICS: &str = include_str!("../../docs/metrics.md");
const AUDIT: &str = include_str!("../../docs/audit.md");
const RUNBOOK: &str = include_str!("../../docs/alerts.md");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a pattern with one group finds in a text.
fn found<'a>(pattern: &str, text: &'a str) -> BTreeSet<&'a str> {
    Regex::new(pattern).unwrap().captures_iter(text).map(|found| found.get(1).unwrap().as_str()).collect()
}

fn alerts() -> BTreeSet<&'static str> {
    let alerts = found(r"(?m)^ +- alert: (\w+)$", ALERTS);
    assert!(alerts.len() > 20, "{alerts:?}");
    alerts
}

/// The queries of the dashboards, and of the recording rules, which dashboards show.
fn shown_queries() -> Vec<String> {
    let mut queries = Vec::new();
    for name in ["overview", "tenant"] {
        let text =
            fs::read_to_string(root().join(format!("deploy/monitoring/dashboards/{name}.json"))).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            let targets = panel["targets"].as_array().unwrap();
            queries.extend(targets.iter().map(|target| target["expr"].as_str().unwrap().to_owned()));
        }
    }
    let rules = RECORDING.split("- record: ").skip(1).map(|rule| rule.split_once("expr:").unwrap().1);
    queries.extend(rules.map(|rule| rule.split_whitespace().collect::<Vec<_>>().join(" ")));
    queries
}

#[test]
fn documented_alerts_exist() {
    let alerts = alerts();
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let mut named = BTreeSet::new();
    for page in pages.chain([root().join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        let missing: Vec<_> =
            found(r"`(Waggle[A-Z]\w+)`", &text).into_iter().filter(|name| !alerts.contains(name)).collect();
        assert!(missing.is_empty(), "{}: no such alert: {missing:?}", page.display());
        named.extend(found(r"`(Waggle[A-Z]\w+)`", &text).into_iter().map(str::to_owned));
    }
    assert!(named.len() >= 7, "{named:?}");
}

#[test]
fn alerts_of_the_audit_log_are_documented_with_their_metrics() {
    let rows: Vec<_> = AUDIT.lines().filter(|line| line.starts_with("| `waggle_audit_")).collect();
    let rules = ALERTS.split("- alert: ").skip(1).map(|rule| rule.split_once('\n').unwrap());
    let mut count = 0;
    for (name, rule) in rules {
        for metric in found(r"\b(waggle_audit_\w+)", rule.split("labels:").next().unwrap()) {
            let row = rows.iter().find(|row| row.starts_with(&format!("| `{metric}` ")));
            let row = row.unwrap_or_else(|| panic!("{metric} of {name} is not in docs/audit.md"));
            let is_limit = metric.ends_with("_limit");
            assert!(is_limit || row.contains(&format!("`{name}`")), "{row} does not name {name}");
            count += 1;
        }
    }
    assert!(count >= 7, "{count}");
}

#[test]
fn each_alert_has_a_case_and_a_route() {
    let tested = found(r"alertname: (\w+)", CASES);
    let untested: Vec<_> = alerts().into_iter().filter(|alert| !tested.contains(alert)).collect();
    assert!(untested.is_empty(), "add them to deploy/monitoring/cases.yml: {untested:?}");
    let severities = found(r"severity: (\w+)", ALERTS);
    assert_eq!(severities, BTreeSet::from(["info", "page", "ticket"]));
    let (routed, _) = ROUTES.split_once("inhibit_rules:").unwrap();
    let routed = found(r#"severity="(\w+)""#, routed);
    assert_eq!(routed, BTreeSet::from(["info", "page"]), "tickets are the default");
    let receivers = found(r"(?m)^ +receiver: ([\w-]+)$", ROUTES);
    assert_eq!(receivers, found(r"(?m)^ +- name: ([\w-]+)$", ROUTES));
}

#[test]
fn each_alert_links_to_its_section_of_the_runbook() {
    let alerts = alerts();
    assert_eq!(found(r"(?m)^##+ (.+)$", RUNBOOK), alerts, "the headings of docs/alerts.md");
    assert_eq!(RUNBOOK.matches("\n## ").count(), alerts.len(), "a heading of docs/alerts.md occurs twice");
    for (name, rule) in ALERTS.split("- alert: ").skip(1).map(|rule| rule.split_once('\n').unwrap()) {
        // mdBook derives the anchor from the heading.
        let section = format!("docs/alerts.md#{}", name.to_lowercase());
        assert_eq!(found(r"(?m)^ +runbook: (\S+)$", rule), BTreeSet::from([section.as_str()]), "{name}");
    }
}

/// The command of `docs/alerts.md` gives each alert the URL of its section in the pages that mdBook makes.
#[test]
fn alerts_are_given_the_url_of_a_runbook_as_documented() {
    let (_, rest) = RUNBOOK.split_once("```sh\n").unwrap();
    let (command, _) = rest.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("deploy"), folder.path().join("deploy")).unwrap();
    let shell = std::process::Command::new("sh").args(["-ec", command]).current_dir(folder.path()).status();
    assert!(shell.unwrap().success(), "{command}");
    let written = fs::read_to_string(folder.path().join("alerts.rules.yml")).unwrap();
    let alerts = alerts();
    let of = |name: &str| format!("https://docs.example.com/waggle/alerts.html#{}", name.to_lowercase());
    let expected: Vec<_> = alerts.iter().map(|name| of(name)).collect();
    let urls = found(r"(?m)^ +runbook_url: (\S+)$", &written);
    assert_eq!(urls, expected.iter().map(String::as_str).collect::<BTreeSet<_>>());
    assert!(found(r"(?m)^ +(runbook): ", &written).is_empty());
    let pages = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    assert!(pages.contains("(alerts.md)"), "the page is in the book");
}

#[test]
fn queries_name_documented_metrics() {
    let documented = found(r"(?m)^\| `(\w+)` \|", METRICS);
    let queries = [shown_queries().join("\n"), ALERTS.to_owned()].concat();
    let of_histograms = Regex::new(r"_(bucket|count|sum)$").unwrap();
    for metric in found(r"\b((?:waggle|process)_\w+)", &queries) {
        let family = of_histograms.replace(metric, "");
        assert!(documented.contains(metric) || documented.contains(&*family), "{metric}");
    }
}

/// What is divided by may be 0 while nothing happens, and a quantile of nothing is NaN: both are left out.
#[test]
fn queries_of_a_quiet_gateway_give_no_nan() {
    let queries = shown_queries();
    assert!(queries.len() > 50, "{queries:?}");
    let constant = ["process_max_fds", "_limit", "_budget_bytes"];
    for query in queries {
        let quantiles = query.matches("histogram_quantile(").count();
        let divisors: Vec<_> = query.split(" / ").skip(1).collect();
        let guarded = |divisor: &&str| {
            let starts = divisor.starts_with('(') && divisor.contains(" > 0)");
            starts || constant.iter().any(|metric| divisor.contains(metric))
        };
        assert!(divisors.iter().all(guarded), "{query}");
        assert!(quantiles == 0 || quantiles == 1 && query.ends_with(" >= 0"), "{query}");
        assert!(!query.contains("scalar("), "{query}");
    }
}
