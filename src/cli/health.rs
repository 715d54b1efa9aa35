//! `waggle health`: asks a gateway whether it is ready, for containers that have no curl.

use std::{
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use clap::Args;
use reqwest::{Client, Url, redirect::Policy};
use tokio::runtime::Builder;

use super::{
    Sources,
    output::{Failure, print},
};
use crate::config::Purpose;

const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(super) struct Health {
    /// The gateway to ask; without it, the one that the settings describe.
    #[arg(long)]
    url: Option<Url>,
}

impl Health {
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        let base = match self.url {
            Some(url) => url.to_string(),
            None => local_url(sources.load(Purpose::Assist)?.settings.server.listen)?,
        };
        let ready = format!("{}/readyz", base.trim_end_matches('/'));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
        runtime.block_on(ask(&ready))?;
        print("ready\n")
    }
}

/// Where this machine reaches the gateway: one that listens on every address listens on loopback.
fn local_url(listen: SocketAddr) -> Result<String, Failure> {
    if listen.port() == 0 {
        return Err(Failure::Usage("server.listen: has port 0, which says nothing; use --url".to_owned()));
    }
    let ip = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Ok(format!("http://{}", SocketAddr::new(ip, listen.port())))
}

async fn ask(url: &str) -> Result<(), Failure> {
    let not_ready =
        |error: reqwest::Error| Failure::NotReady(format!("not ready: {url}: {}", causes(&error)));
    let client =
        Client::builder().timeout(DEADLINE).redirect(Policy::none()).no_proxy().build().map_err(not_ready)?;
    let status = client.get(url).send().await.map_err(not_ready)?.status();
    if status.is_success() {
        Ok(())
    } else {
        Err(Failure::NotReady(format!("not ready: {url} answers {status}")))
    }
}

/// The innermost cause tells what happened; those around it only that it did.
fn causes(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} seconds", DEADLINE.as_secs());
    }
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
