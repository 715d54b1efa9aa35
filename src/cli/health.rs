//! `waggle health`: the health check of a gateway's readiness (`/readyz`), for containers without curl.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;

use super::invocation::Invocation;
use super::output::{Failure, print};
use super::runtime;
use crate::app::{self, root_cause};
use crate::config::{PublicUrl, Purpose, Server};

const DEADLINE: Duration = Duration::from_secs(2);
/// The interval at which a gateway that is not ready is asked again.
const POLL: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(super) struct Health {
    /// The URL of the gateway; default: that of the settings.
    #[arg(long, value_parser = PublicUrl::parse)]
    url: Option<PublicUrl>,
    /// Wait at most this many seconds for it to become ready.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
}

impl Health {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let local = self.url.is_none();
        let url = if let Some(url) = self.url {
            url
        } else {
            let server = invocation.load(Purpose::Assist)?.settings.server;
            local_url(&server, server.listen)?
        };
        let until = Instant::now() + Duration::from_secs(self.wait);
        runtime::run(ask_until(until, &format!("{url}/readyz"), local))??;
        print("ready\n")
    }
}

/// The URL of the gateway from this machine.
pub(super) fn local_url(server: &Server, listen: SocketAddr) -> Result<PublicUrl, Failure> {
    if listen.port() == 0 {
        return Err(Failure::Usage("server.listen: port 0 is chosen at startup; use --url".to_owned()));
    }
    Ok(server.local_url(listen))
}

/// Asks until the gateway is ready, or `until`.
async fn ask_until(until: Instant, url: &str, local: bool) -> Result<(), Failure> {
    loop {
        let answer = ask(url, local).await;
        if answer.is_ok() || Instant::now() + POLL >= until {
            return answer;
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn ask(url: &str, local: bool) -> Result<(), Failure> {
    let not_ready = |error: reqwest::Error| {
        let reason = if error.is_timeout() {
            format!("no answer within {} seconds", DEADLINE.as_secs())
        } else {
            root_cause(&error).to_string()
        };
        Failure::NotReady(format!("not ready: {url}: {reason}"))
    };
    let client = app::client(url, DEADLINE, local).no_proxy().build().map_err(not_ready)?;
    let mut response = client.get(url).send().await.map_err(not_ready)?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let reasons = app::readiness_reasons(&mut response).await;
    let separator = if reasons.is_empty() { "" } else { ": " };
    Err(Failure::NotReady(format!("not ready: {url} answered {status}{separator}{reasons}")))
}
