//! Requests that a check sends: to the gateway that may be running, and to what it depends on.

use std::time::Duration;

use reqwest::Response;
use serde::Deserialize;

use super::client::{client, root_cause};

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The answer of a gateway to `GET /healthz`.
const ALIVE: &[u8] = br#"{"status":"alive"}"#;
/// Bytes of the answer of a gateway to `GET /readyz`: more than it has.
const MAX_READINESS: usize = 4 << 10;

/// The body of `/readyz`.
#[derive(Default, Deserialize)]
struct Readiness {
    /// Why it is not ready, or degraded.
    #[serde(default)]
    reasons: Vec<String>,
}

/// The reasons in an answer to `/readyz`, separated by commas; empty if there are none.
pub(crate) async fn readiness_reasons(answer: &mut Response) -> String {
    let body = read_up_to(MAX_READINESS, answer).await.unwrap_or_default();
    serde_json::from_slice::<Readiness>(&body).unwrap_or_default().reasons.join(", ")
}

/// The status of a gateway that may be ready, and its reasons.
pub(super) async fn readiness(url: &str) -> Result<(u16, String), String> {
    let mut answer = send(url, true).await.map_err(|error| root_cause(&error).to_string())?;
    Ok((answer.status().as_u16(), readiness_reasons(&mut answer).await))
}

/// Whether a gateway answers at a local URL, ready or not. Other programs answer `/healthz` too.
pub(super) async fn is_gateway(url: &str) -> bool {
    get(&format!("{url}/healthz"), true).await.is_ok_and(|(_, body)| body == ALIVE)
}

/// The status of a GET, and so much of the body that a gateway is recognized.
pub(super) async fn get(url: &str, local: bool) -> Result<(u16, Vec<u8>), String> {
    get_up_to(ALIVE.len(), url, local).await
}

/// The status and the body of a GET, of which about `most` bytes are read. A local server is trusted with any certificate.
pub(super) async fn get_up_to(most: usize, url: &str, local: bool) -> Result<(u16, Vec<u8>), String> {
    let sent = async {
        let mut answer = send(url, local).await?;
        Ok::<_, reqwest::Error>((answer.status().as_u16(), read_up_to(most, &mut answer).await?))
    };
    sent.await.map_err(|error| root_cause(&error).to_string())
}

async fn send(url: &str, local: bool) -> Result<Response, reqwest::Error> {
    client(url, TIMEOUT, local).build()?.get(url).send().await
}

async fn read_up_to(most: usize, answer: &mut Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    while body.len() <= most
        && let Some(chunk) = answer.chunk().await?
    {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
