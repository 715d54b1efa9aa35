//! Random tenants, agents, keys and requests on two replicas, compared with a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use super::expected_state::{AGENTS, Due, ExpectedState, Key, TENANTS, URIS, settled};
use super::probes::{self, Bearer, Probe, UNKNOWN, UNKNOWN_KEY, message};
use crate::support::http::{Answer, Client};

/// The number of sequences, and of steps in each.
const CASES: u32 = 4;
const STEPS: usize = 70;
/// How many probes of each table are sent per step.
const PROBES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Create { tenant: usize, public: bool },
    Delete,
    Patch { public: bool, enabled: bool },
    Put,
    Remove,
    Issue { scopes: usize },
    Revoke,
    Rotate,
    Probe,
}

/// A step: replica, agent, URI, key and probes.
#[derive(Debug, Clone)]
struct Turn {
    step: Step,
    replica: usize,
    agent: usize,
    uri: usize,
    key: usize,
    probe: usize,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let step = prop_oneof![
        3 => (0..TENANTS.len(), prop::bool::weighted(0.2)).prop_map(|(tenant, public)| Step::Create { tenant, public }),
        1 => Just(Step::Delete),
        1 => (prop::bool::weighted(0.3), prop::bool::weighted(0.7))
            .prop_map(|(public, enabled)| Step::Patch { public, enabled }),
        5 => Just(Step::Put),
        1 => Just(Step::Remove),
        5 => (0..5_usize).prop_map(|scopes| Step::Issue { scopes }),
        1 => Just(Step::Revoke),
        1 => Just(Step::Rotate),
        12 => Just(Step::Probe),
    ];
    let turn = (step, 0..2_usize, 0..AGENTS.len(), 0..URIS.len(), any::<usize>(), any::<usize>());
    let turn = turn.prop_map(|(step, replica, agent, uri, key, probe)| Turn {
        step,
        replica,
        agent,
        uri,
        key,
        probe,
    });
    prop::collection::vec(turn, STEPS)
}

#[test]
fn random_histories_leak_nothing_between_tenants() {
    let config =
        Config { cases: CASES, max_shrink_iters: 30, failure_persistence: None, ..Config::default() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let done = TestRunner::new(config).run(&turns(), |turns| {
        runtime.block_on(async {
            let mut state = ExpectedState::new().await;
            probe_all(&state).await;
            for turn in &turns {
                take(&mut state, turn).await;
            }
            check_final_state(&state).await;
        });
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
}

async fn take(state: &mut ExpectedState, turn: &Turn) {
    let &Turn { replica, .. } = turn;
    let (slug, uri) = (AGENTS[turn.agent], URIS[turn.uri]);
    let key = turn.key.checked_rem(state.keys.len()).unwrap_or(0);
    match turn.step {
        Step::Create { tenant, public } => state.create(replica, tenant, slug, public).await,
        Step::Delete => state.delete(replica, slug).await,
        Step::Patch { public, enabled } => state.patch(replica, slug, public, enabled).await,
        Step::Put => state.put(replica, slug, uri).await,
        Step::Remove => state.remove(replica, slug, uri).await,
        Step::Issue { scopes } => state.issue(replica, slug, scopes).await,
        Step::Revoke => state.revoke(replica, key).await,
        Step::Rotate => state.rotate(replica, key).await,
        Step::Probe => probe(state, turn).await,
    }
}

/// Sends all probes with one credential, or none, to one replica.
async fn probe(state: &ExpectedState, turn: &Turn) {
    let holders = state.keys.len() + 1;
    let key = state.keys.get(turn.key % holders);
    let prober = Prober { state, http: &state.replicas[turn.replica].http, key, turn };
    prober.settle().await;
    for slug in AGENTS {
        prober.endpoint(slug).await;
    }
    prober.administration(AGENTS[turn.agent]).await;
    prober.keys().await;
    prober.tenants().await;
}

/// Sends all probes with every credential to both replicas.
async fn probe_all(state: &ExpectedState) {
    for replica in 0..state.replicas.len() {
        for key in 0..=state.keys.len() {
            probe(
                state,
                &Turn { step: Step::Probe, replica, agent: key % AGENTS.len(), uri: 0, key, probe: key * 7 },
            )
            .await;
        }
    }
}

/// A credential at a replica.
struct Prober<'w> {
    state: &'w ExpectedState,
    http: &'w Client,
    key: Option<&'w Key>,
    turn: &'w Turn,
}

impl Prober<'_> {
    fn bearer(&self) -> Bearer<'_> {
        self.key.map(|key| key.secret.as_str())
    }

    /// Some probes of a table, different ones at each step.
    fn some(&self, mut probes: Vec<Probe>) -> Vec<Probe> {
        let start = self.turn.probe % probes.len();
        probes.rotate_left(start);
        probes.truncate(PROBES);
        probes
    }

    /// Waits until the replica knows of a revocation, before steps that depend on it.
    async fn settle(&self) {
        let probe = probes::of_endpoints("x:1").swap_remove(0);
        settled(async || {
            let status = probe.send(self.http, self.bearer(), UNKNOWN).await.status.as_u16();
            let expected = if self.key.is_some_and(|key| key.good) { 403 } else { 401 };
            if status == expected { Ok(()) } else { Err(format!("{:?} is answered {status}", self.key)) }
        })
        .await;
    }

    /// A foreign credential learns nothing.
    async fn assert_nothing_revealed(&self, probes: Vec<Probe>, foreign: &str, unknown: &str) {
        for probe in self.some(probes) {
            settled(async || {
                let answer = probe.send(self.http, self.bearer(), foreign).await;
                self.state.assert_no_leak(self.key, &answer.text());
                probe.reveals_nothing(self.http, self.bearer(), foreign, unknown).await
            })
            .await;
        }
    }

    async fn endpoint(&self, slug: &str) {
        match self.state.due(self.key, slug) {
            Due::Nothing => {
                self.assert_nothing_revealed(probes::of_endpoints(URIS[self.turn.uri]), slug, UNKNOWN).await
            }
            Due::Refusal(code) => {
                settled(async || {
                    let answer = self.post(slug, &message("resources/list", json!({}))).await;
                    same(answer.json()["error"]["data"]["code"].as_str(), Some(code))
                })
                .await;
            }
            Due::Texts(texts) => {
                settled(async || same(&self.read_all(slug).await, &texts)).await;
                self.foreign_cursors(slug).await;
            }
        }
    }

    async fn post(&self, slug: &str, message: &serde_json::Value) -> Answer {
        let answer = match self.bearer() {
            Some(bearer) => self.http.post_bearer(slug, bearer, message).await,
            None => {
                let headers = [("content-type", "application/json")];
                self.http.send("POST", &format!("/{slug}/mcp"), &headers, message.to_string()).await
            }
        };
        self.state.assert_no_leak(self.key, &answer.text());
        answer
    }

    /// Every text that the endpoint lists, on all pages.
    async fn read_all(&self, slug: &str) -> BTreeMap<&'static str, String> {
        let mut texts = BTreeMap::new();
        let mut params = json!({});
        loop {
            let page = self.post(slug, &message("resources/list", params)).await.json();
            for listed in page["result"]["resources"].as_array().into_iter().flatten() {
                let uri = URIS.into_iter().find(|uri| listed["uri"] == *uri).unwrap();
                let read = self.post(slug, &message("resources/read", json!({"uri": uri}))).await.json();
                let text = read["result"]["contents"][0]["text"].as_str();
                texts.extend(text.map(|text| (uri, text.to_owned())));
            }
            match &page["result"]["nextCursor"] {
                serde_json::Value::Null => return texts,
                next => params = json!({"cursor": next}),
            }
        }
    }

    /// Cursors of other agents are invalid here.
    async fn foreign_cursors(&self, slug: &str) {
        let garbage = self.post(slug, &message("resources/list", json!({"cursor": "AAAA"}))).await;
        for other in self.state.agents.keys().filter(|other| **other != slug) {
            let list = format!("/agents/{other}/resources?limit=1");
            let page = self.state.replicas[self.turn.replica].admin("GET", &list, None).await.json();
            let list = probes::of_endpoints("x:1").swap_remove(0);
            let listed = list.send(self.http, self.owner_of(other), other).await;
            let cursors = [page["nextCursor"].as_str().map(str::to_owned), next_cursor(&listed)];
            for cursor in cursors.into_iter().flatten() {
                let answer = self.post(slug, &message("resources/list", json!({"cursor": cursor}))).await;
                assert_eq!(answer.visible(), garbage.visible(), "a cursor of {other} at {slug}");
                assert_eq!(answer.json()["error"]["code"], -32602);
            }
        }
    }

    /// A valid key reads its agent.
    fn owner_of(&self, slug: &str) -> Bearer<'_> {
        let agent = self.state.agents.get(slug)?;
        let key = self.state.keys.iter().find(|key| key.mcp && ExpectedState::reaches(key, agent))?;
        Some(&key.secret)
    }

    async fn administration(&self, slug: &str) {
        let agent = self.state.agents.get(slug);
        let own = agent.filter(|agent| self.key.is_some_and(|key| ExpectedState::reaches(key, agent)));
        let Some(own) = own else {
            let probes = probes::of_administration(URIS[self.turn.uri]);
            return self.assert_nothing_revealed(probes, slug, UNKNOWN).await;
        };
        let path = format!("/admin/v1/agents/{slug}/resources");
        let list = Probe::get(path).send(self.http, self.bearer(), slug).await.json();
        if self.key.is_some_and(|key| key.registry) {
            let listed: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| &item["uri"]).collect();
            assert_eq!(listed, own.texts.keys().collect::<Vec<_>>());
        } else {
            assert_eq!(list["code"], "insufficient_scope");
        }
    }

    /// A foreign key is answered like a key that does not exist, also to an agent key.
    async fn keys(&self) {
        let own = |other: &&Key| self.key.is_none_or(|key| key.life.is_some() || key.tenant != other.tenant);
        let others: Vec<_> = self.state.keys.iter().filter(own).collect();
        if let Some(other) = self.turn.probe.checked_rem(others.len()) {
            self.assert_nothing_revealed(probes::of_keys(), &others[other].id, UNKNOWN_KEY).await;
        }
    }

    async fn tenants(&self) {
        let other = TENANTS[self.turn.probe % TENANTS.len()];
        if self.key.is_none_or(|key| !key.good || TENANTS[key.tenant] != other) {
            self.assert_nothing_revealed(probes::of_tenants(), other, UNKNOWN).await;
            let create = Probe::post("/admin/v1/agents", &json!({"id": "e", "tenant": "{}"}));
            let foreign = create.filled(other).send(self.http, self.bearer(), "").await;
            let unknown = create.filled(UNKNOWN).send(self.http, self.bearer(), "").await;
            assert_eq!(foreign.visible(), unknown.visible());
            assert!(probes::refuses(&foreign), "{foreign:?}");
        }
    }
}

fn next_cursor(answer: &Answer) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    answer["result"]["nextCursor"].as_str().map(str::to_owned)
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, due: T) -> Result<(), String> {
    if found == due { Ok(()) } else { Err(format!("{found:?} instead of {due:?}")) }
}

/// At the end: foreign requests have changed nothing.
async fn check_final_state(state: &ExpectedState) {
    for (slug, agent) in &state.agents {
        let shown = state.replicas[1].admin("GET", &format!("/agents/{slug}"), None).await.json();
        assert_eq!(shown["name"], state.mark(slug, agent));
        assert_eq!(
            (&shown["enabled"], &shown["tenant"]),
            (&json!(agent.enabled), &json!(TENANTS[agent.tenant]))
        );
        for uri in URIS {
            let path = crate::support::app::resource(slug, uri);
            let full = state.replicas[1].admin("GET", &path, None).await.json();
            assert_eq!(full["contents"][0]["text"].as_str(), agent.texts.get(uri).map(String::as_str));
        }
    }
    let existing = "select count(*) from agents where deleted_at is null";
    assert_eq!(state.database.number(existing).await, i64::try_from(state.agents.len()).unwrap());
    let good = state.keys.iter().filter(|key| key.good).count();
    let issued = "select count(*) from api_keys where revoked_at is null";
    assert_eq!(state.database.number(issued).await, i64::try_from(good).unwrap());
}
