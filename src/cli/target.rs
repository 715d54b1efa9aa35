//! Which gateway a command calls, and with which key.
//!
//! The first that is there: the context of `--context`; `WAGGLE_URL` and `WAGGLE_KEY`; the context of `WAGGLE_CONTEXT`; the
//! context in use. Each counts as a whole, so that no key is sent to the gateway of another.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use reqwest::Certificate;

use super::contexts::{self, Context};
use super::health::local_url;
use super::invocation::Invocation;
use super::output::Failure;
use crate::config::{PublicUrl, Purpose};

/// A gateway and a key.
pub(super) struct Target {
    pub(super) url: PublicUrl,
    pub(super) key: String,
    /// The only certificates that the gateway's certificate is verified by; without them, those of the system.
    pub(super) certificates: Option<Vec<Certificate>>,
}

impl Target {
    pub(super) fn of(invocation: &Invocation<'_>) -> Result<Self, Failure> {
        let certificates = invocation.cacert.as_deref().map(certificates).transpose()?;
        let target = match context(invocation)? {
            Some(context) => Self::of_context(context)?,
            None => Self::of_environment(invocation)?,
        };
        Ok(Self { certificates: certificates.or(target.certificates), ..target })
    }

    fn of_context(Context { url, key, cacert }: Context) -> Result<Self, Failure> {
        let url = PublicUrl::parse(&url)
            .map_err(|wrong| Failure::Usage(format!("the URL of the context {wrong}")))?;
        let certificates = cacert.as_deref().map(certificates).transpose()?;
        Ok(Self { url, key, certificates })
    }

    /// URL and key of the environment; without `WAGGLE_URL`, the gateway of the settings.
    fn of_environment(invocation: &Invocation<'_>) -> Result<Self, Failure> {
        let usage = |message: String| Failure::Usage(message);
        let key = invocation.environment.admin_key().ok_or_else(|| {
            usage("WAGGLE_KEY is not set; expected the key to send to the gateway".to_owned())
        })?;
        let key = text(key).filter(|key| is_key(key));
        let key = key.ok_or_else(|| usage("WAGGLE_KEY: not a key".to_owned()))?;
        let url = if let Some(url) = invocation.environment.admin_url() {
            let url = PublicUrl::parse(&text(url).unwrap_or_default());
            url.map_err(|wrong| usage(format!("WAGGLE_URL {wrong}")))?
        } else {
            let settings = invocation.load(Purpose::Assist)?.settings;
            local_url(&settings.server, settings.admin.listen.unwrap_or(settings.server.listen))?
        };
        Ok(Self { url, key, certificates: None })
    }
}

/// Whether a text can be sent as a key.
pub(super) fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The context to use, if any.
fn context(invocation: &Invocation<'_>) -> Result<Option<Context>, Failure> {
    let environment = invocation.environment;
    if let Some(name) = &invocation.context {
        return contexts::read(environment)?.take(name).map(Some);
    }
    if environment.admin_url().is_some() || environment.admin_key().is_some() {
        return Ok(None);
    }
    let mut stored = contexts::read(environment)?;
    match environment.context().map(OsStr::to_string_lossy) {
        Some(name) => stored.take(&name).map(Some),
        None => stored.take_current(),
    }
}

/// The certificates of a PEM file.
fn certificates(file: &Path) -> Result<Vec<Certificate>, Failure> {
    let pem = fs::read(file).map_err(|error| Failure::Input(file.display().to_string(), error))?;
    let wrong = || Failure::InvalidInput(file.display().to_string(), "expected PEM certificates".to_owned());
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|_| wrong())?;
    if certificates.is_empty() { Err(wrong()) } else { Ok(certificates) }
}

fn text(value: &OsStr) -> Option<String> {
    value.to_str().map(str::to_owned)
}
