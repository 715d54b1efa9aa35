//! When results are cached, and which one answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::{
    DOORKEEPER_SLOTS, DialectKey, PageSubject, ReadVersion, ResultForm, ResultKey, ResultSubject, Results,
    Stamp,
};
use crate::cache::MemoryBudget;
use crate::mcp::version::{ContentTypes, ToolMembers};
use crate::model::call::List;
use crate::model::ids::{AgentId, ResourceUri, TenantId};
use crate::model::label::{CallerLabels, Labels};
use crate::model::prompt::PromptName;
use crate::model::scope::Revision;
use crate::model::variant::Variant;
use crate::sources::FetchId;

const RESULT: Bytes = Bytes::from_static(b"{}");
const NEWER: Bytes = Bytes::from_static(b"[]");
const TENANT: TenantId = TenantId(Uuid::nil());

fn key(subject: ResultSubject, revision: Option<i64>) -> ResultKey {
    ResultKey {
        agent: AgentId(Uuid::nil()),
        dialect: DialectKey::Legacy,
        subject,
        form: ResultForm::Method,
        timeline: 0,
        revision: revision.map(Revision),
        cursor: None,
    }
}

fn read_key(uri_text: &str) -> ResultKey {
    key(ResultSubject::Read(uri(uri_text)), None)
}

fn prompt(revision: i64) -> ResultKey {
    let name = PromptName::parse("p").unwrap();
    key(ResultSubject::Prompt(name, Arc::default(), ContentTypes::First), Some(revision))
}

fn uri(text: &str) -> ResourceUri {
    ResourceUri::parse(text).unwrap()
}

/// Of a registered resource.
fn version(revision: i64) -> ReadVersion {
    let (variant, revision) = (Variant::from(uri("a:b")), Revision(revision));
    ReadVersion { variant, is_rendered: false, revision, stamp: None }
}

fn mounted(mount: &str, revision: i64) -> ReadVersion {
    ReadVersion { variant: Variant::by(mount, &uri("a:b")), ..version(revision) }
}

fn rendered(revision: i64) -> ReadVersion {
    ReadVersion { is_rendered: true, ..mounted("a:{n}", revision) }
}

fn stamped(fetched: u64, ttl: u64) -> ReadVersion {
    let stamp = Stamp { fetched: FetchId(fetched), ttl: Some(Duration::from_millis(ttl)) };
    ReadVersion { stamp: Some(stamp), ..version(1) }
}

fn results() -> Results {
    Results::new(&MemoryBudget::new(1 << 20))
}

impl Results {
    /// Keeps the result of a read, at revision 1 of the agent.
    fn kept(&self, key: &ResultKey, version: &ReadVersion, result: &Bytes) {
        self.keep_read(key.clone(), version.clone(), Revision(1), (result, TENANT));
    }
}

#[test]
fn results_of_resources_are_cached_at_once_and_made_up_ones_on_the_second_request() {
    let results = results();
    for (version, times) in [(version(1), 1), (rendered(1), 2)] {
        let key = read_key(&format!("a:{times}"));
        for time in 0..times {
            assert_eq!(
                results.read(&key, &version, Revision(1)),
                None,
                "{version:?}, asked for {time} times"
            );
            results.kept(&key, &version, &RESULT);
        }
        assert_eq!(results.read(&key, &version, Revision(1)), Some(RESULT), "{version:?}");
    }
    let key =
        ResultKey { form: ResultForm::Tool { members: ToolMembers::First, offset: 1 }, ..read_key("a:3") };
    results.kept(&key, &version(1), &RESULT);
    assert_eq!(results.read_at(&key, Revision(1)), None, "an offset that a client made up");
    for time in 0..2 {
        assert_eq!(results.get(&prompt(1)), None, "asked for {time} times");
        results.keep(prompt(1), &RESULT, TENANT);
    }
    assert_eq!(results.get(&prompt(1)), Some(RESULT));
}

#[test]
fn another_revision_counts_as_not_requested() {
    let results = results();
    for revision in 1..4 {
        results.keep(prompt(revision), &RESULT, TENANT);
        results.kept(&read_key("a:b"), &rendered(revision), &RESULT);
    }
    assert!((1..4).all(|revision| results.get(&prompt(revision)).is_none()));
    assert_eq!(results.read(&read_key("a:b"), &rendered(3), Revision(3)), None);
}

#[test]
fn read_answers_at_the_revision_of_the_agent_at_which_it_was_compared_last() {
    let (results, key, own) = (results(), read_key("a:b"), version(1));
    results.kept(&key, &own, &RESULT);
    assert_eq!(results.read_at(&key, Revision(1)), Some(RESULT));
    assert_eq!(results.read_at(&key, Revision(2)), None, "the agent has changed");
    assert_eq!(results.read(&key, &own, Revision(2)), Some(RESULT), "but not this resource");
    assert_eq!(results.read_at(&key, Revision(2)), Some(RESULT));
    assert_eq!(results.read_at(&key, Revision(1)), None);
}

#[test]
fn read_of_another_version_is_not_the_answer_and_is_replaced() {
    let budget = MemoryBudget::new(1 << 20);
    let (results, key) = (Results::new(&budget), read_key("a:b"));
    // A manifest changes definitions of several kinds at one revision.
    let versions = [version(1), mounted("m", 1), mounted("n", 1), rendered(1)];
    let own = version(2);
    results.kept(&key, &own, &RESULT);
    for other in &versions {
        assert_eq!(results.read(&key, other, Revision(2)), None, "{other:?}");
    }
    assert_eq!(results.read_at(&key, Revision(2)), None, "what was found to differ does not answer");
    results.kept(&key, &versions[0], &NEWER);
    assert_eq!(results.read(&key, &own, Revision(2)), None);
    assert_eq!(results.read(&key, &versions[0], Revision(2)), Some(NEWER));
    assert_eq!(budget.stats()[0].entries, 1);
}

#[test]
fn result_with_another_stamp_replaces_the_kept_one() {
    let budget = MemoryBudget::new(1 << 20);
    let (results, key) = (Results::new(&budget), read_key("a:b"));
    let read = |version: &ReadVersion| results.read(&key, version, Revision(1));
    let mut before = version(1);
    for (version, result) in [(stamped(1, 8), RESULT), (stamped(2, 8), NEWER), (stamped(2, 7), RESULT)] {
        for _ in 0..2 {
            assert_eq!(read(&version), None);
            results.kept(&key, &version, &result);
        }
        assert_eq!(read(&version), Some(result));
        assert_eq!(read(&before), None);
        assert_eq!(results.read_at(&key, Revision(1)), None, "the source is asked each time");
        before = version;
    }
    assert_eq!(budget.stats()[0].entries, 1);
}

#[test]
fn content_that_always_differs_fills_no_memory() {
    let budget = MemoryBudget::new(1 << 30);
    let results = Results::new(&budget);
    for number in 0..1_000 {
        results.kept(&read_key("a:b"), &stamped(number, 1), &RESULT);
    }
    assert_eq!(budget.used(), 0);
}

#[test]
fn requests_that_all_differ_fill_no_memory() {
    let budget = MemoryBudget::new(1 << 30);
    let results = Results::new(&budget);
    for number in 0..4 * DOORKEEPER_SLOTS {
        results.kept(&read_key(&format!("a:{number}")), &rendered(1), &RESULT);
    }
    assert_eq!(budget.used(), 0);
}

#[test]
fn pages_for_ten_thousand_label_sets_stay_within_the_budget() {
    let budget = MemoryBudget::new(8 << 20);
    let results = Results::new(&budget);
    let result = Bytes::from(vec![b'x'; 10_000]);
    let page = |number: usize| {
        let labels = Labels::parse([format!("label-{number}").as_str()]).unwrap();
        key(
            ResultSubject::Page(
                List::Resources,
                Box::new(PageSubject { after: None, labels: CallerLabels::These(labels) }),
            ),
            Some(1),
        )
    };
    for number in 0..10_000 {
        results.keep(page(number), &result, TENANT);
        assert!(budget.used() <= 8 << 20);
    }
    assert_eq!(results.get(&page(9_999)), Some(result));
    assert!((0..10_000).filter(|number| results.get(&page(*number)).is_some()).count() < 900);
}
