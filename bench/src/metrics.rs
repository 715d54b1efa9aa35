//! The metrics of a gateway.

use std::iter::Sum;
use std::str::FromStr;

use crate::error::Error;
use crate::http::{self, Connection};

/// Reads `/metrics` of the gateway on `port`.
pub(crate) async fn scrape(port: u16) -> Result<String, Error> {
    let request = http::request("GET", "/metrics", port, &[], None);
    let mut connection = Connection::open(port).await?;
    let answer = connection.exchange(&request).await?;
    Ok(String::from_utf8_lossy(answer.body).into_owned())
}

/// The sum of all values whose line begins with `prefix`.
pub(crate) fn sum<T: FromStr + Sum>(text: &str, prefix: &str) -> T {
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse().ok());
    text.lines().filter(|line| line.starts_with(prefix)).filter_map(value).sum()
}
