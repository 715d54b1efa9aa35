//! Search in what an agent publishes, through the administration API.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waggle::model::system::FailPoint;

use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Builder, Replica, encode, resource};
use crate::support::cluster::{Database, database};
use crate::support::faults::FaultScript;
use crate::support::wait::eventually;

/// The maximum time until a replica finds what another one wrote.
const FRESH: Duration = Duration::from_millis(1_200);

fn path(query: &str) -> String {
    format!("/agents/a/search?q={}", encode(query))
}

/// A replica whose searches wait for the index however long a loaded machine takes.
fn patient(database: &Database) -> Builder {
    Builder::new(database).set("WAGGLE_SEARCH__WAIT_MS", 60_000)
}

async fn gateway() -> (Database, Replica) {
    let database = database().await;
    let replica = patient(&database).start().await;
    (database, replica)
}

async fn write(replica: &Replica, path: &str, body: Value) {
    let answer = replica.admin("PUT", path, Some(body)).await;
    assert!(answer.status.is_success(), "{}", answer.text());
}

/// The ids that a query finds.
async fn found(replica: &Replica, query: &str) -> Vec<String> {
    let answer = replica.admin("GET", &path(query), None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let items = answer.json()["items"].take();
    items.as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// A small library of every kind.
async fn library(replica: &Replica) {
    replica.acme("a").await;
    let long = format!("{} A refund takes 14 days. {}", "Before. ".repeat(40), "After. ".repeat(40));
    for (uri, name, title, description, text) in [
        ("docs://refunds", "refunds", Some("Refund policy"), None, "Money comes back."),
        ("docs://long", "terms", None, Some("All terms"), long.as_str()),
        (
            "docs://weather/%E5%8C%97%E4%BA%AC",
            "天气",
            None,
            Some("北京的天气预报"),
            "今天北京晴，最高气温二十五度。",
        ),
        ("docs://insurance", "Versicherung", None, None, "Die Krankenversicherung für Größere."),
    ] {
        let body = json!({
            "name": name, "title": title, "description": description, "contents": [{"text": text}],
        });
        write(replica, &resource("a", uri), body).await;
    }
    let template = format!("/agents/a/templates?uriTemplate={}", encode("weather://{city}/today"));
    write(replica, &template, json!({"name": "weather", "template": "unseen {{ city }}"})).await;
    let message = json!({"role": "user", "content": {"type": "text", "text": "unseen"}});
    write(replica, "/agents/a/prompts/review", json!({"title": "Refund review", "messages": [message]}))
        .await;
}

#[tokio::test]
async fn definitions_of_every_kind_are_found_with_excerpts() {
    let (_database, replica) = gateway().await;
    library(&replica).await;
    let item = |kind: &str, id: &str, name: &str, title: &str, text: &str| json!({"kind": kind, "id": id, "name": name, "title": title, "text": text});
    let refunds = item("resource", "docs://refunds", "refunds", "Refund policy", "Money comes back.");
    let review = item("prompt", "prompt:review", "review", "Refund review", "");
    let before = "Before. ".repeat(7);
    let excerpt = format!("…{before}A refund takes 14 days. {}After.…", "After. ".repeat(21));
    let long = item("resource", "docs://long", "terms", "terms", &excerpt);
    let answer = normalized(&replica.admin("GET", &path("refund"), None).await);
    assert_eq!(answer, answered(200, None, &json!({"items": [refunds, review, long]})));
    let limited = format!("{}&limit=1", path("refund"));
    let answer = normalized(&replica.admin("GET", &limited, None).await);
    assert_eq!(answer, answered(200, None, &json!({"items": [refunds]})));
    let prompts = format!("{}&kind=prompt", path("refund"));
    let answer = normalized(&replica.admin("GET", &prompts, None).await);
    assert_eq!(answer, answered(200, None, &json!({"items": [review]})));
    for (query, ids) in [
        ("refund policy", vec!["docs://refunds"]),
        ("refund terms", vec!["docs://long"]),
        ("polic", vec!["docs://refunds"]),
        ("北京", vec!["docs://weather/%E5%8C%97%E4%BA%AC"]),
        ("气温", vec!["docs://weather/%E5%8C%97%E4%BA%AC"]),
        ("grossere", vec!["docs://insurance"]),
        ("kranken", vec!["docs://insurance"]),
        ("weather", vec!["weather://{city}/today", "docs://weather/%E5%8C%97%E4%BA%AC"]),
        ("today", vec!["weather://{city}/today"]),
        ("unseen", vec![]),
        ("refund nowhere", vec![]),
        ("?!", vec![]),
    ] {
        assert_eq!(found(&replica, query).await, ids, "{query}");
    }
}

#[tokio::test]
async fn excerpts_show_words_far_behind_the_beginning() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let far = |bytes: usize| format!("{}codeword at the end", "filler ".repeat(bytes / 7));
    replica.put("a", "x:far", &far(200 << 10)).await;
    let text = async || {
        let found = replica.admin("GET", &path("codeword"), None).await.json();
        found["items"][0]["text"].as_str().unwrap().to_owned()
    };
    // The second excerpt is of what was read for the first.
    for _ in 0..2 {
        assert!(text().await.ends_with("filler codeword at the end"), "{}", text().await);
    }
    // More of these than are read further for one answer: the others show their beginnings.
    for number in 1..22 {
        replica.put("a", &format!("x:{number}"), &far((200 << 10) + number)).await;
    }
    let found = replica.admin("GET", &format!("{}&limit=22", path("codeword")), None).await.json();
    let items = found["items"].as_array().unwrap_or_else(|| panic!("{found}"));
    let shown = items.iter().filter(|item| item["text"].as_str().unwrap().contains("codeword"));
    assert_eq!((items.len(), shown.count()), (22, 20));
}

#[tokio::test]
async fn skills_are_found_by_their_frontmatter_and_files() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let text =
        "---\nname: refunds\ndescription: Handles refunds\n---\n\nAsk for the number of the invoice.\n";
    let files = json!([{"path": "SKILL.md", "text": text}, {"path": "notes.md", "text": "A codeword."}]);
    write(&replica, "/agents/a/skills?path=acme/refunds", json!({"files": files})).await;
    for query in ["refunds", "handles", "invoice", "codeword", "acme"] {
        assert_eq!(found(&replica, query).await, ["skill://acme/refunds/SKILL.md"], "{query}");
    }
    let answer = replica.admin("GET", &format!("{}&kind=skill", path("codeword")), None).await.json();
    let id = "skill://acme/refunds/SKILL.md";
    let item =
        json!({"kind": "skill", "id": id, "name": "refunds", "title": "refunds", "text": "A codeword."});
    assert_eq!(answer, json!({"items": [item]}));
}

#[tokio::test]
async fn changes_are_found_at_once_and_by_other_replicas_soon() {
    let database = database().await;
    let first = patient(&database).start().await;
    let second = patient(&database).start().await;
    first.acme("a").await;
    first.put("a", "x:1", "alpha").await;
    first.put("a", "x:2", "beta").await;
    for replica in [&first, &second] {
        assert_eq!(found(replica, "alpha").await, ["x:1"]);
    }
    for round in 0..5 {
        let word = format!("gamma{round}");
        first.put("a", "x:1", &word).await;
        let began = Instant::now();
        assert_eq!(found(&first, &word).await, ["x:1"]);
        eventually("the other replica finds it", async || found(&second, &word).await == ["x:1"]).await;
        assert!(began.elapsed() < FRESH, "{:?}", began.elapsed());
    }
    for replica in [&first, &second] {
        assert_eq!(found(replica, "alpha").await, [""; 0]);
    }
    assert_eq!(first.admin("DELETE", &resource("a", "x:1"), None).await.status, 204);
    assert_eq!(found(&first, "gamma4").await, [""; 0]);
    assert_eq!(found(&first, "beta").await, ["x:2"]);
    eventually("the other replica does not find it", async || found(&second, "gamma4").await.is_empty())
        .await;
    // So many changes that the index is built anew.
    let message = json!({"role": "user", "content": {"type": "text", "text": "t"}});
    let prompts: Vec<_> = (0..1_100)
        .map(|n| json!({"name": format!("p{n}"), "title": "delta", "messages": [message]}))
        .collect();
    let manifest = json!({"apiVersion": "waggle/v1", "prompts": prompts});
    write(&first, "/agents/a/manifest", manifest).await;
    assert_eq!(found(&first, "delta").await.len(), 20);
    assert_eq!(found(&first, "p1099").await, ["prompt:p1099"]);
}

#[tokio::test]
async fn search_is_unavailable_while_the_index_is_built() {
    let database = database().await;
    let faults = FaultScript::new();
    let replica = Builder::new(&database)
        .fault_injector(faults.clone())
        .set("WAGGLE_SEARCH__WAIT_MS", 200)
        .start()
        .await;
    replica.acme("a").await;
    replica.put("a", "x:1", "alpha").await;
    // The agent is in memory, so that the load which is held is that of the texts.
    assert_eq!(replica.admin("GET", "/agents/a/search?q=", None).await.status, 400);
    let key = replica.key("a", &["mcp"]).await.1;
    assert_eq!(replica.http.text("a", &key, "x:1").await.unwrap(), "alpha");
    let held = faults.hold(FailPoint::Load);
    let search = async || replica.admin("GET", &path("alpha"), None).await;
    let during = tokio::join!(search(), held.meanwhile(search()));
    let expected = problem(503, "unavailable", "the gateway is overloaded or shutting down; try again");
    for answer in [during.0, during.1] {
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(normalized(&answer)["body"], expected["body"]);
    }
    eventually("the index is built", async || search().await.status == 200).await;
    assert_eq!(found(&replica, "alpha").await, ["x:1"]);
}

#[tokio::test]
async fn texts_are_left_out_of_an_index_that_is_too_large() {
    let database = database().await;
    let replica = patient(&database).set("WAGGLE_CACHE__BYTES", 16 << 20).start().await;
    replica.acme("a").await;
    for document in 0..10 {
        let words: Vec<_> = (0..25_000).map(|word| format!("w{document}x{word}")).collect();
        replica.put("a", &format!("x:{document}"), &words.join(" ")).await;
    }
    assert_eq!(found(&replica, "w3x7").await, [""; 0]);
    assert_eq!(found(&replica, "name").await.len(), 10);
    assert!(replica.metric("waggle_cache_bytes{cache=\"search\"}").await > 0.0);
    // It is patched without texts too.
    replica.put("a", "x:3", "alpha").await;
    assert_eq!(found(&replica, "alpha").await, [""; 0]);
}

#[tokio::test]
async fn agents_that_are_not_searched_have_no_index() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "alpha").await;
    assert_eq!(replica.http.text("a", &key, "x:1").await.unwrap(), "alpha");
    let indexes = async || replica.metric("waggle_cache_entries{cache=\"search\"}").await;
    assert_eq!(indexes().await, 0.0);
    assert_eq!(found(&replica, "alpha").await, ["x:1"]);
    assert_eq!(indexes().await, 1.0);
}

#[tokio::test]
async fn as_many_results_are_answered_as_are_asked_for() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let resource = |number: usize| json!({"uri": format!("x:{number:03}"), "name": "n", "contents": [{"text": format!("apple {number}")}]});
    let manifest = json!({"apiVersion": "waggle/v1", "resources": (0..60).map(resource).collect::<Vec<_>>()});
    assert_eq!(replica.admin("PUT", "/agents/a/manifest", Some(manifest)).await.status, 200);
    let items = async |limit: &str| {
        let found = replica.admin("GET", &format!("{}{limit}", path("apple")), None).await.json();
        found["items"].as_array().unwrap().clone()
    };
    let all = items("&limit=500").await;
    assert_eq!((items("").await.len(), items("&limit=45").await.len(), all.len()), (20, 45, 60));
    let mut seen: Vec<_> = all.iter().map(|item| item["id"].as_str().unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 60);
    assert!(all.iter().all(|item| item["text"].as_str().unwrap().starts_with("apple")), "{all:?}");
}

#[tokio::test]
async fn bad_queries_are_refused() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let long = format!("q={}", "a".repeat(257));
    for (query, detail) in [
        ("", "query: missing field `q`"),
        ("q=", "q must have 1 to 256 characters"),
        (&long, "q must have 1 to 256 characters"),
        ("q=a&limit=0", "limit must be 1 to 500"),
        ("q=a&limit=501", "limit must be 1 to 500"),
        ("q=a&limit=-1", "query: limit: must be a whole number"),
        (
            "q=a&kind=tool",
            "query: kind: unknown variant `tool`, expected one of `resource`, `template`, `prompt`, `skill`",
        ),
        ("q=a&cursor=x", "query: unknown field `cursor`, expected one of `q`, `kind`, `limit`"),
    ] {
        let answer = normalized(&replica.admin("GET", &format!("/agents/a/search?{query}"), None).await);
        assert_eq!(answer, problem(400, "invalid_params", detail), "{query}");
    }
    let longest = format!("/agents/a/search?q={}", encode(&"京".repeat(256)));
    assert_eq!(replica.admin("GET", &longest, None).await.json(), json!({"items": []}));
    let unknown = normalized(&replica.admin("GET", "/agents/b/search?q=a", None).await);
    assert_eq!(unknown, problem(404, "not_found", "no such agent"));
}
