//! Requests to inbound webhooks, signed as Standard Webhooks says.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac::{HMAC_SHA256, Key, sign};
use time::OffsetDateTime;

use super::app::Replica;
use super::http::Answer;

/// A request to a hook.
pub(crate) struct Message<'m> {
    pub(crate) id: &'m str,
    pub(crate) at: OffsetDateTime,
    pub(crate) body: &'m str,
    /// What is signed in place of the body.
    pub(crate) signed: Option<&'m str>,
}

impl Message<'_> {
    pub(crate) fn new(id: &str) -> Message<'_> {
        Message { id, at: OffsetDateTime::now_utc(), body: "{}", signed: None }
    }

    pub(crate) async fn send(&self, replica: &Replica, hook: &str, secret: &str) -> Answer {
        self.send_with(replica, hook, secret, &[]).await
    }

    /// Sends it through a proxy, from an address.
    pub(crate) async fn send_from(&self, replica: &Replica, hook: &str, secret: &str, from: &str) -> Answer {
        self.send_with(replica, hook, secret, &[("x-forwarded-for", from)]).await
    }

    async fn send_with(&self, replica: &Replica, hook: &str, secret: &str, more: &[(&str, &str)]) -> Answer {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let timestamp = self.at.unix_timestamp().to_string();
        let text = format!("{}.{timestamp}.{}", self.id, self.signed.unwrap_or(self.body));
        let signature = sign(&Key::new(HMAC_SHA256, &key), text.as_bytes());
        let signature = format!("v1,{}", STANDARD.encode(signature));
        let headers = [
            ("webhook-id", self.id),
            ("webhook-timestamp", timestamp.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        let headers: Vec<_> = headers.into_iter().chain(more.iter().copied()).collect();
        replica.http.send("POST", &format!("/hooks/{hook}"), &headers, self.body.to_owned()).await
    }
}
