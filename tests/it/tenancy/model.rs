//! Random tenants, agents, keys and requests on two replicas, compared with a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use super::probes::{self, Bearer, Probe, UNKNOWN, UNKNOWN_KEY, message};
use super::world::{AGENTS, Due, Key, TENANTS, URIS, World, settled};
use crate::support::http::{Answer, Client};

/// Sequences, and steps of each.
const CASES: u32 = 4;
const STEPS: usize = 70;
/// Of each table of probes, how many are sent at a step.
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
    Ask,
}

/// A step, on which replica, about which agent, URI and key, and with which probes.
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
        12 => Just(Step::Ask),
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
            let mut world = World::new().await;
            ask_all(&world).await;
            for turn in &turns {
                take(&mut world, turn).await;
            }
            look_back(&world).await;
        });
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
}

async fn take(world: &mut World, turn: &Turn) {
    let &Turn { replica, .. } = turn;
    let (slug, uri) = (AGENTS[turn.agent], URIS[turn.uri]);
    let key = turn.key.checked_rem(world.keys.len()).unwrap_or(0);
    match turn.step {
        Step::Create { tenant, public } => world.create(replica, tenant, slug, public).await,
        Step::Delete => world.delete(replica, slug).await,
        Step::Patch { public, enabled } => world.patch(replica, slug, public, enabled).await,
        Step::Put => world.put(replica, slug, uri).await,
        Step::Remove => world.remove(replica, slug, uri).await,
        Step::Issue { scopes } => world.issue(replica, slug, scopes).await,
        Step::Revoke => world.revoke(replica, key).await,
        Step::Rotate => world.rotate(replica, key).await,
        Step::Ask => ask(world, turn).await,
    }
}

/// Asks for everything with one credential, or none, on one replica.
async fn ask(world: &World, turn: &Turn) {
    let holders = world.keys.len() + 1;
    let key = world.keys.get(turn.key % holders);
    let asker = Asker { world, http: &world.replicas[turn.replica].http, key, turn };
    asker.settle().await;
    for slug in AGENTS {
        asker.endpoint(slug).await;
    }
    asker.administration(AGENTS[turn.agent]).await;
    asker.keys().await;
    asker.tenants().await;
}

/// Asks for everything with every credential there is, on both replicas.
async fn ask_all(world: &World) {
    for replica in 0..world.replicas.len() {
        for key in 0..=world.keys.len() {
            ask(
                world,
                &Turn { step: Step::Ask, replica, agent: key % AGENTS.len(), uri: 0, key, probe: key * 7 },
            )
            .await;
        }
    }
}

/// A credential at a replica.
struct Asker<'w> {
    world: &'w World,
    http: &'w Client,
    key: Option<&'w Key>,
    turn: &'w Turn,
}

impl Asker<'_> {
    fn bearer(&self) -> Bearer<'_> {
        self.key.map(|key| key.secret.as_str())
    }

    /// Some of a table, others at another step.
    fn some(&self, mut probes: Vec<Probe>) -> Vec<Probe> {
        let start = self.turn.probe % probes.len();
        probes.rotate_left(start);
        probes.truncate(PROBES);
        probes
    }

    /// Waits until the replica knows of a revocation: what comes after may do harm.
    async fn settle(&self) {
        let probe = probes::of_endpoints("x:1").swap_remove(0);
        settled(async || {
            let status = probe.send(self.http, self.bearer(), UNKNOWN).await.status.as_u16();
            let expected = if self.key.is_some_and(|key| key.good) { 403 } else { 401 };
            if status == expected { Ok(()) } else { Err(format!("{:?} is answered {status}", self.key)) }
        })
        .await;
    }

    /// That a stranger learns nothing.
    async fn nothing(&self, probes: Vec<Probe>, there: &str, nowhere: &str) {
        for probe in self.some(probes) {
            settled(async || {
                let answer = probe.send(self.http, self.bearer(), there).await;
                self.world.assert_silent(self.key, &answer.text());
                probe.tells_nothing(self.http, self.bearer(), there, nowhere).await
            })
            .await;
        }
    }

    async fn endpoint(&self, slug: &str) {
        match self.world.due(self.key, slug) {
            Due::Nothing => self.nothing(probes::of_endpoints(URIS[self.turn.uri]), slug, UNKNOWN).await,
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
            Some(bearer) => self.http.ask(slug, bearer, message).await,
            None => {
                let headers = [("content-type", "application/json")];
                self.http.send("POST", &format!("/{slug}/mcp"), &headers, message.to_string()).await
            }
        };
        self.world.assert_silent(self.key, &answer.text());
        answer
    }

    /// Every text that the endpoint lists, page by page.
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

    /// Cursors of other agents are no cursors here.
    async fn foreign_cursors(&self, slug: &str) {
        let garbage = self.post(slug, &message("resources/list", json!({"cursor": "AAAA"}))).await;
        for other in self.world.agents.keys().filter(|other| **other != slug) {
            let list = format!("/agents/{other}/resources?limit=1");
            let page = self.world.replicas[self.turn.replica].admin("GET", &list, None).await.json();
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

    /// A good key that reads an agent.
    fn owner_of(&self, slug: &str) -> Bearer<'_> {
        let agent = self.world.agents.get(slug)?;
        let key = self.world.keys.iter().find(|key| key.mcp && World::reaches(key, agent))?;
        Some(&key.secret)
    }

    async fn administration(&self, slug: &str) {
        let agent = self.world.agents.get(slug);
        let own = agent.filter(|agent| self.key.is_some_and(|key| World::reaches(key, agent)));
        let Some(own) = own else {
            let probes = probes::of_administration(URIS[self.turn.uri]);
            return self.nothing(probes, slug, UNKNOWN).await;
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

    /// A key that is another tenant's, or of which an agent's key asks, is as one that nobody has.
    async fn keys(&self) {
        let own = |other: &&Key| self.key.is_none_or(|key| key.life.is_some() || key.tenant != other.tenant);
        let others: Vec<_> = self.world.keys.iter().filter(own).collect();
        if let Some(other) = self.turn.probe.checked_rem(others.len()) {
            self.nothing(probes::of_keys(), &others[other].id, UNKNOWN_KEY).await;
        }
    }

    async fn tenants(&self) {
        let other = TENANTS[self.turn.probe % TENANTS.len()];
        if self.key.is_none_or(|key| !key.good || TENANTS[key.tenant] != other) {
            self.nothing(probes::of_tenants(), other, UNKNOWN).await;
            let create = Probe::post("/admin/v1/agents", &json!({"id": "e", "tenant": "{}"}));
            let there = create.filled(other).send(self.http, self.bearer(), "").await;
            let nowhere = create.filled(UNKNOWN).send(self.http, self.bearer(), "").await;
            assert_eq!(there.visible(), nowhere.visible());
            assert!(probes::refuses(&there), "{there:?}");
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

/// After everything: what strangers tried has changed nothing.
async fn look_back(world: &World) {
    for (slug, agent) in &world.agents {
        let shown = world.replicas[1].admin("GET", &format!("/agents/{slug}"), None).await.json();
        assert_eq!(shown["name"], world.mark(slug, agent));
        assert_eq!(
            (&shown["enabled"], &shown["tenant"]),
            (&json!(agent.enabled), &json!(TENANTS[agent.tenant]))
        );
        for uri in URIS {
            let path = crate::support::app::resource(slug, uri);
            let full = world.replicas[1].admin("GET", &path, None).await.json();
            assert_eq!(full["contents"][0]["text"].as_str(), agent.texts.get(uri).map(String::as_str));
        }
    }
    let living = "select count(*) from agents where deleted_at is null";
    assert_eq!(world.database.number(living).await, i64::try_from(world.agents.len()).unwrap());
    let good = world.keys.iter().filter(|key| key.good).count();
    let issued = "select count(*) from api_keys where revoked_at is null";
    assert_eq!(world.database.number(issued).await, i64::try_from(good).unwrap());
}
