//! The load balancers of `deploy/`, with their own configuration files, before replicas on this machine.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use tokio::process::Command;

use crate::error::Error;
use crate::process::{self, Process};

const NGINX: &str = include_str!("../../deploy/balancer/nginx.conf");
const HAPROXY: &str = include_str!("../../deploy/balancer/haproxy.cfg");
/// What begins the line of the first replica in both files, and those of the others.
const SERVER: &str = "server gateway-";
const START: Duration = Duration::from_secs(20);

/// A load balancer, found on the PATH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Balancer {
    Nginx,
    Haproxy,
}

impl Balancer {
    /// Starts it before the replicas on `ports`, and waits until a replica answers through it.
    pub(crate) async fn start(self, ports: &[u16], dir: &Path) -> Result<Process, Error> {
        let port = process::free_port()?;
        let file = dir.join("balancer.conf");
        fs::write(&file, self.configuration(port, ports, dir)).map_err(Error::io("write a configuration"))?;
        let mut command = match self {
            Self::Nginx => {
                let mut command = Command::new("nginx");
                command.args(["-e", "stderr", "-g", "daemon off;", "-p"]).arg(dir).arg("-c");
                command
            }
            Self::Haproxy => {
                let mut command = Command::new("haproxy");
                command.args(["-db", "-f"]);
                command
            }
        };
        command.arg(&file);
        let mut started = Process::start(self.name(), command, port, dir)?;
        started.ready("/readyz", true, START).await?;
        Ok(started)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        }
    }

    /// The configuration of `deploy/` with the addresses of this machine, and files in `dir`.
    fn configuration(self, port: u16, ports: &[u16], dir: &Path) -> String {
        let mut text = String::new();
        let original = match self {
            Self::Nginx => NGINX,
            Self::Haproxy => HAPROXY,
        };
        for line in original.lines() {
            let written = match line.trim_start().strip_prefix(SERVER) {
                None => writeln!(text, "{line}"),
                Some(first) if first.starts_with('1') => {
                    ports.iter().enumerate().try_for_each(|(nth, port)| {
                        let name =
                            if self == Self::Haproxy { format!("gateway-{nth} ") } else { String::new() };
                        let rest = first.rsplit_once(":8094").map_or("", |(_, rest)| rest);
                        writeln!(text, "    server {name}127.0.0.1:{port}{rest}")
                    })
                }
                Some(_) => Ok(()),
            };
            // Writing to a string cannot fail.
            written.unwrap_or_default();
        }
        let dir = dir.display();
        text.replace("listen 8080;", &format!("listen 127.0.0.1:{port};"))
            .replace("bind :8080", &format!("bind 127.0.0.1:{port}"))
            // Within the limit on open files that most shells have.
            .replace("maxconn 16384", "maxconn 4096")
            .replace("worker_connections 16384", "worker_connections 4096")
            .replace(" /tmp/", &format!(" {dir}/"))
            .replace("access_log /dev/stdout", &format!("access_log {dir}/access.log"))
    }
}

/// How many requests nginx passed to more than one replica, by what each of these answered: `502, 200` was refused once.
pub(crate) fn passed_on(dir: &Path) -> BTreeMap<String, u64> {
    let log = fs::read_to_string(dir.join("access.log")).unwrap_or_default();
    let mut found = BTreeMap::new();
    // The last text in quotes is the status of each attempt.
    for status in
        log.lines().filter_map(|line| line.rsplit('"').nth(1)).filter(|status| status.contains(", "))
    {
        *found.entry(status.to_owned()).or_insert(0) += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_name_the_replicas_of_this_machine_alone() {
        for balancer in [Balancer::Nginx, Balancer::Haproxy] {
            let text = balancer.configuration(1, &[2, 3, 4], Path::new("/somewhere"));
            assert_eq!(text.matches("127.0.0.1:").count(), 4, "{text}");
            assert!(!text.contains(":8094") && !text.contains("8080") && !text.contains(" /tmp/"), "{text}");
        }
    }

    #[test]
    fn requests_that_went_to_several_replicas_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let line =
            |status| format!("127.0.0.1 [now] \"POST /a/mcp\" 200 9 0.1 \"127.0.0.1:2\" \"{status}\" id\n");
        let log = [line("200"), line("502, 200"), line("503, 200"), line("502, 200")].concat();
        fs::write(dir.path().join("access.log"), log).unwrap();
        let expected = BTreeMap::from([("502, 200".to_owned(), 2), ("503, 200".to_owned(), 1)]);
        assert_eq!(passed_on(dir.path()), expected);
    }
}
