//! An issuer of access tokens: discovery document and key set on a real socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use http::StatusCode;
use http::header::LOCATION;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::signer::Signer;

/// The state of an issuer.
#[derive(Default)]
struct Published {
    issuer: Option<String>,
    keys: Vec<Value>,
    fetches: usize,
    how: How,
}

/// How an issuer answers a request for its keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum How {
    #[default]
    Well,
    /// With an error status.
    Broken,
    /// With a key set that is too large.
    Endless,
    /// With a redirect to the keys.
    Elsewhere,
    /// Not until the test sets another mode.
    Held,
}

/// A running issuer.
pub(crate) struct Issuer {
    address: SocketAddr,
    published: Arc<Mutex<Published>>,
    server: JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type App = State<(SocketAddr, Arc<Mutex<Published>>)>;

async fn discovery(State((address, published)): App) -> impl IntoResponse {
    let url = format!("http://{address}");
    let issuer = published.lock().issuer.clone().unwrap_or_else(|| url.clone());
    axum::Json(json!({"issuer": issuer, "jwks_uri": format!("{url}/keys")}))
}

async fn keys(State((_, published)): App) -> axum::response::Response {
    published.lock().fetches += 1;
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    while published.lock().how == How::Held {
        looks.tick().await;
    }
    let published = published.lock();
    let keys = json!({"keys": published.keys});
    match published.how {
        How::Well | How::Held => axum::Json(keys).into_response(),
        How::Broken => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        How::Endless => axum::Json(json!({"keys": [], "more": "x".repeat(600 * 1024)})).into_response(),
        How::Elsewhere => (StatusCode::FOUND, [(LOCATION, "/moved")]).into_response(),
    }
}

async fn moved(State((_, published)): App) -> impl IntoResponse {
    axum::Json(json!({"keys": published.lock().keys}))
}

impl Issuer {
    /// Starts an issuer with these keys.
    pub(crate) async fn start(signers: &[&Signer]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let published = Arc::new(Mutex::new(Published::default()));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/moved", get(moved))
            .with_state((address, Arc::clone(&published)));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let issuer = Self { address, published, server };
        issuer.publish(signers);
        issuer
    }

    /// Replaces the published keys.
    pub(crate) fn publish(&self, signers: &[&Signer]) {
        self.publish_keys(signers.iter().map(|signer| signer.jwk()).collect());
    }

    /// Replaces the published keys by JWKs.
    pub(crate) fn publish_keys(&self, keys: Vec<Value>) {
        self.published.lock().keys = keys;
    }

    /// Sets how requests for keys are answered.
    pub(crate) fn answer(&self, how: How) {
        self.published.lock().how = how;
    }

    /// Names another issuer in the discovery document.
    pub(crate) fn pose_as(&self, issuer: &str) {
        self.published.lock().issuer = Some(issuer.to_owned());
    }

    /// The number of requests for its keys.
    pub(crate) fn fetches(&self) -> usize {
        self.published.lock().fetches
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
