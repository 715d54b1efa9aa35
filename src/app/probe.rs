//! Requests that a check sends: to the gateway that may be running, and to what it depends on.

use std::time::Duration;

use super::client::{client, root_cause};

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The answer of a gateway to `GET /healthz`.
const ALIVE: &[u8] = br#"{"status":"alive"}"#;

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
        let mut answer = client(url, TIMEOUT, local).build()?.get(url).send().await?;
        let (status, mut body) = (answer.status().as_u16(), Vec::new());
        while body.len() <= most
            && let Some(chunk) = answer.chunk().await?
        {
            body.extend_from_slice(&chunk);
        }
        Ok::<_, reqwest::Error>((status, body))
    };
    sent.await.map_err(|error| root_cause(&error).to_string())
}
