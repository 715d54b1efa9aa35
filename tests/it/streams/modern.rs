//! `subscriptions/listen`.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use serde_json::{Value, json};
use waggle::catalog::Catalog;
use waggle::model::caller::Payer;

use crate::support::answers::{error, exact};
use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;
use crate::support::events::{listen, try_listen};
use crate::support::http::Answer;
use crate::support::wait::eventually;

async fn refusal(response: reqwest::Response) -> Answer {
    let (status, headers) = (response.status(), response.headers().clone());
    Answer { status, headers, body: response.bytes().await.unwrap() }
}

#[tokio::test]
async fn stream_acknowledges_and_delivers_only_honored_filters() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:a", "1").await;
    replica.put("a", "x:b", "1").await;
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": false, "resourcesListChanged": true,
        "resourceSubscriptions": ["x:a", "x:missing", "x:a"],
    });
    let mut stream = listen(&replica, "a", &key, json!("l-1"), filter).await;
    let acknowledged = json!({
        "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": {
            "_meta": {"io.modelcontextprotocol/subscriptionId": "l-1"},
            "notifications": {
                "resourcesListChanged": true, "toolsListChanged": true, "resourceSubscriptions": ["x:a"],
            },
        },
    });
    let first = stream.next().await.unwrap();
    assert_eq!((first.id.clone(), first.retry, first.json()), (None, None, acknowledged));

    replica.put("a", "x:a", "2").await;
    let updated = json!({
        "jsonrpc": "2.0", "method": "notifications/resources/updated",
        "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": "l-1"}, "uri": "x:a"},
    });
    let event = stream.next().await.unwrap();
    assert_eq!((event.id.clone(), event.json()), (None, updated));

    replica.put("a", "x:b", "2").await;
    replica.put("a", "x:c", "1").await;
    let listed = json!({
        "jsonrpc": "2.0", "method": "notifications/resources/list_changed",
        "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": "l-1"}},
    });
    assert_eq!(stream.next().await.unwrap().json(), listed);
    stream.expect_events(&[]).await;
}

#[tokio::test]
async fn each_stream_of_a_client_receives_its_own_filter() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:a", "1").await;
    let mut one = listen(&replica, "a", &key, json!(1), json!({"resourceSubscriptions": ["x:a"]})).await;
    let mut two = listen(&replica, "a", &key, json!(2), json!({"promptsListChanged": true})).await;
    let mut none = listen(&replica, "a", &key, json!(3), json!({})).await;
    let filters = [
        one.next().await.unwrap().json()["params"]["notifications"].clone(),
        two.next().await.unwrap().json()["params"]["notifications"].clone(),
        none.next().await.unwrap().json()["params"]["notifications"].clone(),
    ];
    assert_eq!(
        filters,
        [json!({"resourceSubscriptions": ["x:a"]}), json!({"promptsListChanged": true}), json!({})]
    );
    replica.put("a", "x:a", "2").await;
    let prompt = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "p"}}]});
    assert_eq!(replica.admin("PUT", "/agents/a/prompts/p", Some(prompt)).await.status, 201);
    one.expect_events(&["updated x:a"]).await;
    two.expect_events(&["prompts"]).await;
    none.expect_events(&[]).await;
}

#[tokio::test]
async fn invalid_filter_is_refused_with_the_request_id() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for (filter, wrong) in [
        (json!([]), "params.notifications must be an object"),
        (json!({"promptsListChanged": 1}), "params.notifications.promptsListChanged must be true or false"),
        (json!({"toolsListChanged": "x"}), "params.notifications.toolsListChanged must be true or false"),
        (
            json!({"resourceSubscriptions": "x:a"}),
            "params.notifications.resourceSubscriptions must be a list of strings",
        ),
        (
            json!({"resourceSubscriptions": [1]}),
            "params.notifications.resourceSubscriptions must be a list of strings",
        ),
        (
            json!({"resourceSubscriptions": ["no uri"]}),
            "params.notifications.resourceSubscriptions: a URI is not an absolute URI of RFC 3986",
        ),
    ] {
        let answer = refusal(try_listen(&replica, "a", &key, json!(4), filter).await).await;
        let error = json!({"code": -32602, "message": wrong, "data": {"code": "invalid_params"}});
        assert_eq!(answer.json(), json!({"jsonrpc": "2.0", "id": 4, "error": error}));
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn subscription_count_is_checked_before_matching() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__SUBSCRIPTIONS", 2).start().await;
    let key = replica.acme("a").await;
    // None of them exists, and only the first two are checked.
    let filter = json!({"resourceSubscriptions": ["x:a", "x:b", "no uri"]});
    let answer = refusal(try_listen(&replica, "a", &key, json!(4), filter).await).await;
    let wrong = "params.notifications.resourceSubscriptions names more than 2 resources";
    assert_eq!(answer.json()["error"]["message"], wrong);
    let filter = json!({"resourceSubscriptions": ["x:a", "x:b"]});
    let mut stream = listen(&replica, "a", &key, json!(5), filter).await;
    let acknowledged = stream.next().await.unwrap().json();
    assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn product_of_uris_and_templates_is_bounded() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let templates: Vec<_> = (0..900)
        .map(|n| json!({"uriTemplate": format!("x:{{a}}/{n}"), "name": "n", "template": "t"}))
        .collect();
    let manifest = json!({"apiVersion": "waggle/v1", "agent": "a", "resources": [], "templates": templates, "prompts": []});
    // Templates are compared within a deadline, which a busy machine may exceed.
    eventually("the manifest is applied", async || {
        replica.admin("PUT", "/agents/a/manifest", Some(manifest.clone())).await.status == 200
    })
    .await;
    let uris = |count: usize| json!({"resourceSubscriptions": (0..count).map(|n| format!("x:{n}/none")).collect::<Vec<_>>()});

    let answer = refusal(try_listen(&replica, "a", &key, json!(1), uris(300)).await).await;
    let wrong = "params.notifications.resourceSubscriptions: the URIs and the agent's resource templates take more than \
                 250000 comparisons; name fewer URIs";
    assert_eq!(answer.json()["error"]["message"], wrong);

    let held = hold_renders(&replica.running.services.catalog).await;
    let busy = refusal(try_listen(&replica, "a", &key, json!(2), uris(20)).await).await;
    assert_eq!((busy.status.as_u16(), &busy.json()["error"]["data"]["code"]), (503, &json!("unavailable")));
    // A few comparisons run inline, without a permit.
    assert_eq!(try_listen(&replica, "a", &key, json!(3), uris(1)).await.status(), 200);
    drop(held);
    eventually("many comparisons are answered once there are permits", async || {
        try_listen(&replica, "a", &key, json!(4), uris(20)).await.status() == 200
    })
    .await;
}

/// Takes all permits of the renderer, until the senders are dropped.
async fn hold_renders(catalog: &Arc<Catalog>) -> Vec<Sender<()>> {
    let mut held = Vec::new();
    for _ in 0..catalog.renderer().free() {
        let (release, released) = channel();
        let catalog = Arc::clone(catalog);
        tokio::spawn(async move {
            let job = move || {
                released.recv().ok();
                Ok(())
            };
            catalog.renderer().run(Payer::Gateway, job).await
        });
        held.push(release);
    }
    eventually("all permits are taken", async || catalog.renderer().free() == 0).await;
    held
}

#[tokio::test]
async fn stream_limit_of_a_key_frees_when_a_stream_ends() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__STREAMS_PER_KEY", 2)
        .set("WAGGLE_LIMITS__KEY_PER_SECOND", 1_000)
        .start()
        .await;
    let key = replica.acme("a").await;
    let open = async || try_listen(&replica, "a", &key, json!(1), json!({})).await;
    let (first, _second) = (open().await, open().await);
    let rate = first.headers()["ratelimit-policy"].to_str().unwrap();
    assert!(rate.starts_with(r#""key";q="#), "a stream has the status of the rate: {rate}");
    let refused = refusal(open().await).await;
    assert_eq!(refused.status, 429);
    let limits = ["retry-after", "ratelimit-policy", "ratelimit"].map(|name| refused.header(name).unwrap());
    assert_eq!(limits, ["1", r#""streams";q=2"#, r#""streams";r=0;t=1"#]);
    let error = json!({
        "code": -31015, "message": "stream limit exceeded: 2 streams for this key; retry in 1 s",
        "data": {"code": "rate_limited", "retryAfterMs": 1000, "scope": "key"},
    });
    assert_eq!(refused.json(), json!({"jsonrpc": "2.0", "id": 1, "error": error}));

    let other = replica.key("a", &["mcp"]).await.1;
    assert_eq!(try_listen(&replica, "a", &other, json!(1), json!({})).await.status(), 200);
    drop(first);
    eventually("a stream that ended is not counted", async || open().await.status() == 200).await;
}

#[tokio::test]
async fn stream_limit_without_a_key_is_that_of_the_address() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__STREAMS_PER_KEY", 2)
        .set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")
        .start()
        .await;
    replica.acme("a").await;
    replica.agent("acme", "b").await;
    for agent in ["a", "b"] {
        let path = format!("/agents/{agent}");
        assert_eq!(replica.admin("PATCH", &path, Some(json!({"access": "public"}))).await.status, 200);
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"_meta": meta, "notifications": {}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
    let open = async |agent: &str, client: &str| {
        let headers = [
            ("x-forwarded-for", client),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "subscriptions/listen"),
        ];
        let path = format!("/{agent}/mcp");
        replica.http.respond("POST", &path, &headers, message.to_string()).await.unwrap()
    };
    let (first, second) = (open("a", "192.0.2.1").await, open("a", "192.0.2.1").await);
    assert_eq!([first.status(), second.status()], [200, 200]);
    let mut expected = error(
        429,
        "1",
        -31015,
        "rate_limited",
        "stream limit exceeded: 2 streams for this address; retry in 1 s",
    );
    let data = &mut expected["body"]["error"]["data"];
    (data["retryAfterMs"], data["scope"]) = (json!(1000), json!("address"));
    for (name, value) in [
        ("retry-after", "1"),
        ("ratelimit-policy", r#""streams";q=2"#),
        ("ratelimit", r#""streams";r=0;t=1"#),
    ] {
        expected["headers"][name] = json!(value);
    }
    let third = open("a", "192.0.2.1").await;
    // One that is opened does not end.
    assert_eq!(third.status(), 429);
    assert_eq!(exact(&refusal(third).await), expected);
    assert_eq!(open("b", "192.0.2.1").await.status(), 429, "all agents count together");
    assert_eq!(open("a", "192.0.2.2").await.status(), 200);
    drop(first);
    let is_free = async || open("a", "192.0.2.1").await.status() == 200;
    eventually("a stream that ended is not counted", is_free).await;
}

#[tokio::test]
async fn tenant_leaves_a_quarter_of_the_streams_to_others() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__STREAMS", 4).start().await;
    let key = replica.acme("a").await;
    replica.tenant("bee").await;
    replica.agent("bee", "b").await;
    let (_, other) = replica.key("b", &["mcp"]).await;
    let open = async |agent: &str, key: &str| try_listen(&replica, agent, key, json!(1), json!({})).await;
    let _open = [open("a", &key).await, open("a", &key).await, open("a", &key).await];
    let fourth = open("a", &key).await;
    // One that is opened does not end.
    assert_eq!(fourth.status(), 429);
    let refused = refusal(fourth).await;
    let error = json!({
        "code": -31015, "message": "stream limit exceeded: 3 streams for this tenant; retry in 1 s",
        "data": {"code": "rate_limited", "retryAfterMs": 1000, "scope": "tenant"},
    });
    assert_eq!(refused.json()["error"], error);
    let last = open("b", &other).await;
    assert_eq!(last.status(), 200);
    assert_eq!(open("b", &other).await.status(), 503, "the replica has no more");
}

#[tokio::test]
async fn streams_at_public_agents_count_for_the_tenant_of_the_key() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__STREAMS", 8).start().await;
    let key = replica.acme("a").await;
    for tenant in ["bee", "cow"] {
        replica.tenant(tenant).await;
        replica.agent(tenant, &tenant[..1]).await;
        let public = json!({"access": "public"});
        let path = format!("/agents/{}", &tenant[..1]);
        assert_eq!(replica.admin("PATCH", &path, Some(public)).await.status, 200);
    }
    let open = async |agent: &str| try_listen(&replica, agent, &key, json!(1), json!({})).await;
    // Of six streams of a tenant, strangers have three.
    let _strangers = [open("b").await, open("b").await, open("b").await];
    let fourth = open("b").await;
    assert_eq!(fourth.status(), 429);
    let refused = refusal(fourth).await.json();
    let message = "stream limit exceeded: 3 streams for this tenant; retry in 1 s";
    assert_eq!(refused["error"]["message"], message);
    let _own = [open("c").await, open("c").await, open("c").await];
    let seventh = open("a").await;
    assert_eq!(seventh.status(), 429);
    let refused = refusal(seventh).await.json();
    let message = "stream limit exceeded: 6 streams for this tenant; retry in 1 s";
    assert_eq!(refused["error"]["message"], message);
    let (_, theirs) = replica.key("b", &["mcp"]).await;
    assert_eq!(try_listen(&replica, "b", &theirs, json!(1), json!({})).await.status(), 200);
}

#[tokio::test]
async fn accept_header_of_a_stream_must_allow_events() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let send = async |method: &str, accept: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let headers = [
            ("x-agent-api-key", key.as_str()),
            ("content-type", "application/json"),
            ("accept", accept),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        replica.http.respond("POST", "/a/mcp", &headers, message.to_string()).await.unwrap()
    };
    let params = json!({"_meta": meta, "notifications": {}});
    let refused = refusal(send("subscriptions/listen", "application/json", params.clone()).await).await;
    assert_eq!(
        (refused.status.as_u16(), refused.json()["error"]["data"]["code"].clone()),
        (406, json!("not_acceptable"))
    );
    for accept in ["text/event-stream", "*/*", "text/*"] {
        assert_eq!(send("subscriptions/listen", accept, params.clone()).await.status(), 200, "{accept}");
    }
    let refused = refusal(send("prompts/list", "text/event-stream", json!({"_meta": meta})).await).await;
    assert_eq!((refused.status.as_u16(), refused.json()["id"].clone()), (406, json!(1)));
}
