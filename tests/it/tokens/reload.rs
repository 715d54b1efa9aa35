//! Issuers added and removed by a reload.

use std::fs;

use serde_json::{Value, json};

use super::{claims_for, with};
use crate::operations::{Reloaded, operator};
use crate::support::app::resource;
use crate::support::events::Events;
use crate::support::http::Client;
use crate::support::issuer::Issuer;
use crate::support::signer::Signer;

/// An issuer with the one key that it signs with.
struct Signed {
    issuer: Issuer,
    signer: Signer,
}

impl Signed {
    async fn start() -> Self {
        let signer = Signer::new("k1", "ES256");
        Self { issuer: Issuer::start(&[&signer]).await, signer }
    }

    fn entry(&self) -> String {
        format!("[[tokens.issuers]]\nissuer = '{}'\ntenants = '*'\n", self.issuer.url())
    }

    /// A token for the agent `a` of the gateway at an address.
    fn token(&self, http: &str) -> String {
        let claims = claims_for(&self.issuer.url(), "a");
        self.signer.token(&with(claims, json!({"aud": format!("{http}/a/mcp")})))
    }
}

async fn listen(http: &Client, token: &str) -> Events {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"_meta": meta, "notifications": {"resourcesListChanged": true}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let mut stream = Events::of(http.respond("POST", "/a/mcp", &headers, message.to_string()).await.unwrap());
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    stream
}

async fn status(http: &Client, token: &str) -> u16 {
    let ping: Value = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
    http.post_bearer("a", token, &ping).await.status.as_u16()
}

#[tokio::test]
async fn sighup_ends_streams_and_tokens_of_removed_issuers() {
    let (kept, removed) = (Signed::start().await, Signed::start().await);
    let key = operator();
    let reloaded = Reloaded::start(&(kept.entry() + &removed.entry()), &key).await;
    let http = &reloaded.site.http;
    for (path, body) in
        [("/tenants", json!({"id": "acme"})), ("/agents", json!({"id": "a", "tenant": "acme"}))]
    {
        assert_eq!(http.admin(&key, "POST", path, Some(body)).await.status, 201);
    }
    let public_url = format!("http://{}", reloaded.site.address);
    let tokens = [kept.token(&public_url), removed.token(&public_url)];
    let mut streams = [listen(http, &tokens[0]).await, listen(http, &tokens[1]).await];

    fs::write(&reloaded.config, kept.entry()).unwrap();
    reloaded.hang_up("settings reloaded").await;
    assert_eq!(streams[1].next_summary().await, "result", "the stream ends in good order");
    assert_eq!([status(http, &tokens[0]).await, status(http, &tokens[1]).await], [200, 401]);
    let document = http.get("/.well-known/oauth-protected-resource").await.json();
    assert_eq!(document["authorization_servers"], json!([kept.issuer.url()]));
    let definition = json!({"name": "n", "contents": [{"text": "new"}]});
    http.admin(&key, "PUT", &resource("a", "x:1"), Some(definition)).await;
    assert_eq!(streams[0].next_summary().await, "resources", "the other stream goes on");

    fs::write(&reloaded.config, kept.entry().replace("'*'", "['other']") + &removed.entry()).unwrap();
    reloaded.hang_up("settings reloaded").await;
    assert_eq!(streams[0].next_summary().await, "result", "its entry has changed");
    assert_eq!([status(http, &tokens[0]).await, status(http, &tokens[1]).await], [403, 200]);

    fs::write(&reloaded.config, "").unwrap();
    reloaded.hang_up("settings reloaded").await;
    assert_eq!(http.get("/.well-known/oauth-protected-resource").await.status, 404);
    assert_eq!(status(http, &tokens[1]).await, 401);
    assert_eq!(reloaded.gateway.stop().await.code(), Some(0));
}
