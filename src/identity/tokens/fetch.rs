//! Fetches the documents of an issuer: its discovery document and its key set.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde::Deserialize;

use super::jwk::{KeySet, KeySetError};
use crate::config::SecureUrl;

/// The timeout for one document.
const DEADLINE: Duration = Duration::from_secs(5);
/// The maximum size of a document in bytes.
const MAX_BYTES: usize = 512 * 1024;

/// Why an issuer's keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No answer, or an incomplete one.
    #[error("{0} cannot be read: {1}")]
    Away(String, #[source] reqwest::Error),
    /// The certificates for verifying servers cannot be loaded.
    #[error("issuers cannot be reached: {0}")]
    Client(#[source] reqwest::Error),
    /// The answer is not the document.
    #[error("{0} answers {1}")]
    Status(String, StatusCode),
    /// The document is too long.
    #[error("{0} is longer than {MAX_BYTES} bytes")]
    Long(String),
    /// Not a discovery document.
    #[error("{0} is not a discovery document: expected an issuer and a jwks_uri")]
    Discovery(String),
    /// The discovery document of another issuer.
    #[error("{0} is of another issuer; tokens.issuers must name it exactly, including any trailing slash")]
    Issuer(String),
    /// A discovery document with an insecure location of keys.
    #[error("{0} has a jwks_uri that {1}")]
    KeysUrl(String, String),
    /// Not a key set.
    #[error("{0} has no keys: {1}")]
    Keys(String, String),
}

/// A client that follows no redirects.
pub(super) fn client() -> Result<Client, FetchError> {
    // Installs a crypto provider unless the embedding program has installed one.
    rustls::crypto::ring::default_provider().install_default().ok();
    let builder = Client::builder().timeout(DEADLINE).redirect(Policy::none()).no_proxy();
    builder.build().map_err(FetchError::Client)
}

/// The location of an issuer's keys.
#[derive(Debug)]
pub(super) struct Source {
    client: Client,
    issuer: SecureUrl,
    keys: Option<SecureUrl>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Source {
    /// The keys are at `keys`, or where the issuer's discovery document says.
    pub(super) fn new(client: Client, issuer: SecureUrl, keys: Option<SecureUrl>) -> Self {
        Self { client, issuer, keys }
    }

    pub(super) fn issuer(&self) -> &str {
        self.issuer.as_str()
    }

    /// Fetches the keys.
    pub(super) async fn fetch(&self) -> Result<KeySet, FetchError> {
        let url = match &self.keys {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let text = self.get(url.as_str()).await?;
        let broken = |error: KeySetError| FetchError::Keys(url.to_string(), error.to_string());
        KeySet::parse(&text).map_err(broken)
    }

    /// The location of the keys according to the discovery document (`OpenID` Connect Discovery 1.0, section 4).
    async fn discover(&self) -> Result<SecureUrl, FetchError> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer().trim_end_matches('/'));
        let text = self.get(&url).await?;
        let Ok(found) = serde_json::from_slice::<Discovery>(&text) else {
            return Err(FetchError::Discovery(url));
        };
        if found.issuer != self.issuer() {
            return Err(FetchError::Issuer(url));
        }
        SecureUrl::parse(&found.jwks_uri).map_err(|why| FetchError::KeysUrl(url, why))
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, FetchError> {
        let away = |error: reqwest::Error| FetchError::Away(url.to_owned(), error.without_url());
        let mut response = self.client.get(url).send().await.map_err(away)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(url.to_owned(), response.status()));
        }
        let mut text = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(away)? {
            if text.len() + piece.len() > MAX_BYTES {
                return Err(FetchError::Long(url.to_owned()));
            }
            text.extend_from_slice(&piece);
        }
        Ok(text)
    }
}
