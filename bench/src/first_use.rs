//! `first-use`: valid keys that are used for the first time right after a start of the gateway, while one address
//! presents forged keys. No valid key may be refused.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::Error;
use crate::http::{self, Connection};
use crate::options::gateway_binary;
use crate::waggle::Waggle;

/// Active keys that one agent may have.
const KEYS_PER_AGENT: usize = 10;
/// Connections of the callers with valid keys, and of the one with forged keys.
const VALID_CONNECTIONS: usize = 50;
const FORGED_CONNECTIONS: u32 = 64;
const READY: Duration = Duration::from_mins(2);
const SETTINGS: [(&str, &str); 1] = [("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")];
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The number of keys and the rate of forged ones.
#[derive(Args)]
pub(crate) struct FirstUse {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Valid keys
    #[arg(long, default_value_t = 5_000)]
    keys: usize,
    /// The time after the start within which they are used, in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Forged keys per second, from one address
    #[arg(long, default_value_t = 5_000)]
    forged: u32,
}

/// Runs the check and prints the result.
///
/// # Errors
/// If a valid key is refused, or the gateway cannot be run.
pub(crate) async fn run(options: &FirstUse) -> Result<(), Error> {
    let binary = gateway_binary(options.waggle.as_ref())?;
    let folder = tempfile::tempdir().map_err(Error::io("make a folder"))?;
    let keys = issue(&binary, folder.path(), options.keys).await?;
    let mut gateway = Waggle::start(&binary, folder.path(), &SETTINGS)?;
    gateway.process.ready("/readyz", true, READY).await?;
    let found = measure(gateway.process.port, keys, options).await;
    gateway.stop().await;
    found
}

/// Creates the keys on a gateway that is stopped afterwards; returns each with its agent.
async fn issue(binary: &Path, dir: &Path, many: usize) -> Result<Vec<(String, String)>, Error> {
    let mut gateway = Waggle::start(binary, dir, &SETTINGS)?;
    gateway.register_fixture().await?;
    let mut admin = gateway.admin().await?;
    let mut keys = Vec::with_capacity(many);
    for nth in 0..many.div_ceil(KEYS_PER_AGENT) {
        let agent = format!("first-use-{nth}");
        admin.create(&agent).await?;
        for _ in 0..KEYS_PER_AGENT.min(many - keys.len()) {
            keys.push((agent.clone(), admin.issue(&agent).await?));
        }
    }
    gateway.stop().await;
    Ok(keys)
}

async fn measure(port: u16, keys: Vec<(String, String)>, options: &FirstUse) -> Result<(), Error> {
    let (stop, forged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut flood = JoinSet::new();
    for _ in 0..FORGED_CONNECTIONS {
        let pace = Duration::from_secs(1) * FORGED_CONNECTIONS / options.forged.max(1);
        flood.spawn(present_forged_keys(port, pace, Arc::clone(&stop), Arc::clone(&forged)));
    }
    let began = Instant::now();
    let mut callers = JoinSet::new();
    let each = keys.len().div_ceil(VALID_CONNECTIONS).max(1);
    for (nth, own) in keys.chunks(each).enumerate() {
        let pace = Duration::from_secs(options.seconds) / u32::try_from(each).unwrap_or(u32::MAX);
        callers.spawn(use_keys(port, format!("198.51.100.{nth}"), own.to_vec(), pace));
    }
    let (mut statuses, mut waited) = (BTreeMap::new(), Vec::new());
    while let Some(done) = callers.join_next().await {
        for (status, wait) in done?? {
            *statuses.entry(status).or_insert(0_usize) += 1;
            waited.push(wait);
        }
    }
    let took = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    let mut flooded = BTreeMap::new();
    while let Some(done) = flood.join_next().await {
        for (status, count) in done?? {
            *flooded.entry(status).or_insert(0_u64) += count;
        }
    }
    waited.sort_unstable();
    let at = |percent: usize| waited.get(waited.len() * percent / 100).copied().unwrap_or_default();
    let report = format!(
        "{} valid keys first used within {:.1} s: {statuses:?}; p50 {:.1?}, p99 {:.1?}\n\
         {} forged keys per second from one address: {flooded:?}\n",
        keys.len(),
        took.as_secs_f64(),
        at(50),
        at(99),
        u128::from(flooded.values().sum::<u64>()) * 1_000 / took.as_millis().max(1),
    );
    io::stdout().write_all(report.as_bytes()).map_err(Error::io("write the report"))?;
    let admitted = statuses.get(&200).copied().unwrap_or_default();
    if admitted == keys.len() { Ok(()) } else { Err(Error::Refused(keys.len() - admitted)) }
}

/// Uses each key once, one every `pace`; returns the status and duration of each answer.
async fn use_keys(
    port: u16,
    client: String,
    keys: Vec<(String, String)>,
    pace: Duration,
) -> Result<Vec<(u16, Duration)>, Error> {
    let mut connection = Connection::open(port).await?;
    let mut ticks = interval(pace);
    let mut answers = Vec::with_capacity(keys.len());
    for (agent, key) in keys {
        ticks.tick().await;
        let request = ping(port, &agent, &client, &key);
        let began = Instant::now();
        let status = connection.exchange(&request).await?.status;
        answers.push((status, began.elapsed()));
    }
    Ok(answers)
}

/// Presents a new forged key every `pace` until `stop` is set; returns how often each status was answered.
async fn present_forged_keys(
    port: u16,
    pace: Duration,
    stop: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
) -> Result<BTreeMap<u16, u64>, Error> {
    let mut connection = Connection::open(port).await?;
    let mut ticks = interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut statuses = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let key = forged_key("bak", next.fetch_add(1, Ordering::Relaxed));
        let request = ping(port, "first-use-0", "203.0.113.66", &key);
        let status = connection.exchange(&request).await?.status;
        *statuses.entry(status).or_insert(0) += 1;
    }
    Ok(statuses)
}

fn ping(port: u16, agent: &str, client: &str, key: &str) -> Vec<u8> {
    let body: Value = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let headers = [("X-Forwarded-For", client), ("X-Agent-API-Key", key)];
    http::request("POST", &format!("/{agent}/mcp"), port, &headers, Some(&body))
}

/// A key of this kind of the right form and check sum that was never issued.
pub(crate) fn forged_key(kind: &str, number: u64) -> String {
    let mut key = format!("{kind}_").into_bytes();
    key.extend(base62(number, 43));
    let check = crc32(&key);
    key.extend(base62(check.into(), 6));
    String::from_utf8_lossy(&key).into_owned()
}

fn base62(mut number: u64, length: usize) -> Vec<u8> {
    let mut digits = vec![b'0'; length];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62.get(usize::try_from(number % 62).unwrap_or_default()).copied().unwrap_or(b'0');
        number /= 62;
    }
    digits
}

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1));
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
}

#[cfg(test)]
mod tests {
    use super::{crc32, forged_key};

    #[test]
    fn forged_keys_have_the_form_of_issued_ones() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let key = forged_key("bak", 62);
        assert_eq!((key.len(), &key[..5], &key[45..47]), (53, "bak_0", "10"));
    }
}
