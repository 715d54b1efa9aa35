//! `mounts`: a mount of many files: the time until all are listed, the memory that they take, how soon a changed file is
//! notified, the CPU time of list pages as a multiple of those of inline resources, and what a restart costs.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::cases::{Call, Era};
use crate::closed_loop::{End, Requests};
use crate::error::{Error, excerpt};
use crate::first_use::forged_key;
use crate::growth::{after, cursors, list};
use crate::histogram::Histogram;
use crate::http::Connection;
use crate::memory;
use crate::population::{self, Group};
use crate::report::median;
use crate::run::to_f64;
use crate::site::{self, Site};
use crate::sse::{EventReader, Said};
use crate::waggle::Admin;

/// The wanted time until all files are listed.
const LISTED: Duration = Duration::from_secs(10);
/// The wanted time until a changed file is notified.
const NOTIFIED: Duration = Duration::from_secs(1);
/// How much CPU time a list page may take, as a multiple of the same page of inline resources.
const WANTED: f64 = 1.1;
/// The timeout of a step.
const MAX_WAIT: Duration = Duration::from_mins(5);
const POLL: Duration = Duration::from_millis(10);
/// The pause after a start until background work has ended, and between two changes of a file.
const SETTLES: Duration = Duration::from_secs(3);
const BETWEEN_CHANGES: Duration = Duration::from_millis(1_500);
/// Files of a directory, and items on a page by default.
const PAGE: usize = 100;
const TEXT: &str = "# A page\n\nIt has a few words, as most pages of a manual have more.\n";
/// The agent of the mount, and that of the inline resources, whose rows this module writes.
const MOUNTED: Group = Group { prefix: "mounted", agents: 1, resources: 0, keys: 1, bytes: 0 };
const INLINE: Group = Group { prefix: "inline", agents: 1, resources: 0, keys: 1, bytes: 0 };
const MIB: f64 = 1_048_576.0;

/// The sizes.
#[derive(Args)]
pub(crate) struct Mounts {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Files of the mount, and inline resources that it is compared with
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(200..))]
    files: u32,
    /// Changes of one file that are to be notified
    #[arg(long, default_value_t = 20)]
    changes: usize,
    /// How often each list page is measured; the table gives medians
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each measurement of a list page lasts, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    milliseconds: u64,
    /// Changes in each round after which every page is read once: 1,000 pages take 0.1 s of CPU time, which is counted in
    /// steps of 0.01 s
    #[arg(long, default_value_t = 20)]
    once: usize,
}

/// Measures, and prints a report.
///
/// # Errors
/// If something is slower than wanted, or the gateway or the database cannot be run.
pub(crate) async fn run(options: &Mounts) -> Result<(), Error> {
    site::measured(options.waggle.as_ref(), async |site| measure(site, options).await).await
}

async fn measure(site: &mut Site, options: &Mounts) -> Result<(), Error> {
    let print = |text: String| io::stdout().write_all(text.as_bytes()).map_err(Error::io("write the report"));
    let files = options.files as usize;
    let folder = TempDir::with_prefix("waggle-tree-").map_err(Error::io("create a temporary directory"))?;
    let root = folder.path().canonicalize().map_err(Error::io("find a temporary directory"))?;
    write_files(&root, files)?;
    write_inline(site, files).await?;
    let roots = root.display().to_string();
    let settings = [("WAGGLE_SOURCES__FILE_ROOTS", roots.as_str())];
    let port = site.start(&settings).await?;
    let mut tree = Tree { port, admin: Admin::open(port, &forged_key("wag", 1)).await?, root, files };
    sleep(SETTLES).await;

    let before = memory::of_process(site.pid()?)?;
    let listed = tree.mount().await?;
    sleep(SETTLES).await;
    let (resident, peak) =
        (memory::of_process(site.pid()?)?, memory::peak_of_process(site.pid()?).unwrap_or_default());
    print(format!(
        "{files} files: listed {:.1} s after the mount was made ({} s wanted); {:.0} MiB resident before, {:.0} MiB \
         after, at most {:.0} MiB\n",
        listed.as_secs_f64(),
        LISTED.as_secs(),
        to_f64(before) / MIB,
        to_f64(resident) / MIB,
        to_f64(peak) / MIB,
    ))?;

    let notified = tree.changes(options.changes).await?;
    let ms = |histogram: &Histogram, per_mille| to_f64(histogram.quantile(per_mille)) / 1e3;
    print(format!(
        "A changed file is notified after {:.0} ms (median), at most {:.0} ms ({} wanted)\n",
        ms(&notified, 500),
        ms(&notified, 1_000),
        NOTIFIED.as_millis(),
    ))?;

    let ratio = tree.pages(site, options, &print).await?;

    let restart = tree.restart(site, &settings).await?;
    print(format!(
        "\nAfter a restart the first list was answered {:.0} ms after the process began, and a file changed meanwhile was \
         found after {:.1} s; {} lists were answered until then, after at most {:.0} ms\n",
        restart.first.as_secs_f64() * 1e3,
        restart.rescanned.as_secs_f64(),
        restart.lists.len(),
        ms(&restart.lists, 1_000),
    ))?;
    let latest = Duration::from_micros(notified.quantile(1_000));
    if listed > LISTED || latest > NOTIFIED || ratio > WANTED {
        return Err(Error::MountsTooSlow { listed: LISTED, notified: NOTIFIED, ratio: WANTED });
    }
    Ok(())
}

/// The path of a file below the tree.
fn path(number: usize) -> String {
    format!("{:04}/{:02}.md", number / PAGE, number % PAGE)
}

fn uri(number: usize) -> String {
    format!("docs:///{}", path(number))
}

fn write_files(root: &Path, files: usize) -> Result<(), Error> {
    for number in 0..files {
        let file = root.join(path(number));
        if number % PAGE == 0
            && let Some(directory) = file.parent()
        {
            fs::create_dir_all(directory).map_err(Error::io("create a directory"))?;
        }
        fs::write(file, TEXT).map_err(Error::io("write a file"))?;
    }
    Ok(())
}

/// Writes both agents, and as many inline resources with the same URIs, names and types.
async fn write_inline(site: &mut Site, files: usize) -> Result<(), Error> {
    population::write(site, &[MOUNTED, INLINE]).await?;
    let script = ROWS.replace("{agent}", &INLINE.agent(0)).replace("{files}", &files.to_string());
    let file = site.dir.path().join("inline.sql");
    fs::write(&file, script.replace("{text}", TEXT)).map_err(Error::io("write a script of SQL"))?;
    site.database.execute(&file).await
}

const ROWS: &str = "
begin; set local session_replication_role = replica;
create temporary table made on commit drop as
    select tenant, uid, 'docs:///' || lpad((n / 100)::text, 4, '0') || '/' || lpad((n % 100)::text, 2, '0') || '.md' as uri,
    lpad((n % 100)::text, 2, '0') || '.md' as name, convert_to('{text}', 'UTF8') as bytes
    from agents, generate_series(0, {files} - 1) n where slug = '{agent}';
update agents set resource_count = {files} where slug = '{agent}';
insert into contents (tenant, agent, hash, bytes) select distinct tenant, uid, sha256(bytes), bytes from made;
insert into resources (tenant, agent, uri, name, mime_type, source, revision, last_modified)
    select tenant, uid, uri, name, 'text/markdown', 'inline', 1, now() from made;
insert into resource_contents (tenant, agent, uri, ordinal, kind, hash, size)
    select tenant, uid, uri, 0, 'text', sha256(bytes), octet_length(bytes) from made;
commit;
vacuum analyze;
checkpoint;
";

/// The files, and the mount that lists them.
struct Tree {
    port: u16,
    admin: Admin,
    root: PathBuf,
    files: usize,
}

/// What a restart costs.
struct Restart {
    /// From the start of the process until the first list.
    first: Duration,
    /// From the first list until a scan has found what changed meanwhile.
    rescanned: Duration,
    /// The latencies of lists until then.
    lists: Histogram,
}

impl Tree {
    fn late() -> Error {
        Error::TimedOut { server: "waggle", seconds: MAX_WAIT.as_secs() }
    }

    /// Registers the mount; returns the time until all of its files are listed.
    async fn mount(&mut self) -> Result<Duration, Error> {
        let settings = json!({ "root": self.root });
        let connection = json!({ "id": "tree", "kind": "file", "tenants": "*", "settings": settings });
        self.admin.call("POST", "/connections", &connection).await?;
        let mount = json!({ "connection": "tree", "uri": "docs:///", "include": ["**/*.md"] });
        let began = Instant::now();
        self.admin.call("PUT", &Self::mount_path(), &mount).await?;
        loop {
            let mount = self.admin.get(&Self::mount_path()).await?;
            if mount["state"] == "ready" && mount["entries"] == self.files {
                return Ok(began.elapsed());
            }
            if began.elapsed() > MAX_WAIT || matches!(mount["state"].as_str(), Some("failed" | "degraded")) {
                let (expected, body) = ("a mount that is ready", mount.to_string());
                return Err(Error::Unexpected { server: "waggle", case: "the mount", expected, body });
            }
            sleep(POLL).await;
        }
    }

    fn mount_path() -> String {
        format!("/agents/{}/mounts/tree", MOUNTED.agent(0))
    }

    fn change(&self, number: usize) -> Result<(), Error> {
        let text = format!("{TEXT}{:?}\n", std::time::SystemTime::now());
        fs::write(self.root.join(path(number)), text).map_err(Error::io("change a file"))
    }

    /// Changes a file in the middle of the list repeatedly; the times until each change is notified.
    async fn changes(&self, changes: usize) -> Result<Histogram, Error> {
        let number = self.files / 2;
        let mut stream = self.watch(number).await?;
        let mut times = Histogram::new();
        for _ in 0..changes {
            sleep(BETWEEN_CHANGES).await;
            let began = Instant::now();
            self.change(number)?;
            timeout(MAX_WAIT, stream.updated()).await.map_err(|_| Self::late())??;
            times.record(began.elapsed());
        }
        Ok(times)
    }

    /// Subscribes to a file. What a new watch fetches first counts as a change, which is received here.
    async fn watch(&self, number: usize) -> Result<Stream, Error> {
        let mut stream = Stream::open(self.port, &uri(number)).await?;
        timeout(MAX_WAIT, stream.updated()).await.map_err(|_| Self::late())??;
        Ok(stream)
    }

    /// Measures list pages of both agents, and prints a table. Returns the highest ratio.
    async fn pages(
        &mut self,
        site: &Site,
        options: &Mounts,
        print: &impl Fn(String) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let mut pages = Vec::new();
        for group in [&MOUNTED, &INLINE] {
            let cursors = cursors(group, self.files / PAGE, self.port).await?;
            let requests = |cursors: &[Value]| Requests {
                case: "resources/list",
                bytes: cursors.iter().map(|cursor| list(group, after(cursor), self.port)).collect(),
                // Each item has a URI and a name.
                least: PAGE * 20,
            };
            let last = cursors.len().saturating_sub(1);
            pages.push([requests(&cursors[..1]), requests(&cursors[last..]), requests(&cursors)]);
        }
        let duration = End::After(Duration::from_millis(options.milliseconds));
        let mut costs = [const { [const { Vec::new() }; 2] }; 3];
        let mut stream = self.watch(0).await?;
        for _ in 0..options.rounds {
            for (which, costs) in costs.iter_mut().enumerate() {
                let mut sums = [0.0; 2];
                // Both take turns, so that what else the machine does concerns both.
                let turns = if which < 2 { 1 } else { options.once };
                for _ in 0..turns {
                    for (kind, (pages, sum)) in pages.iter().zip(&mut sums).enumerate() {
                        let end = if which < 2 {
                            duration
                        } else {
                            let stream = (kind == 0).then_some(&mut stream);
                            self.change_listed(stream).await?;
                            End::Times(1)
                        };
                        *sum += pages[which].send(site, self.port, end).await?.gateway;
                    }
                }
                for (costs, sum) in costs.iter_mut().zip(sums) {
                    costs.push(sum / to_f64(turns as u64));
                }
            }
        }
        print(format!(
            "\n| page of {PAGE} | mounted, CPU µs/list | inline, CPU µs/list | times as much ({WANTED} wanted) |\n\
             |:--|--:|--:|--:|\n"
        ))?;
        let mut highest = 0.0_f64;
        let names = ["the first", "the last", "each once after a change"];
        for (name, [mounted, inline]) in names.into_iter().zip(costs) {
            let ratio =
                median(mounted.iter().zip(&inline).map(|(mounted, inline)| mounted / inline).collect());
            highest = highest.max(ratio);
            print(format!("| {name} | {:.1} | {:.1} | {ratio:.2} |\n", median(mounted), median(inline)))?;
        }
        Ok(highest)
    }

    /// Changes one file, if it is given the stream on which that is notified, or one inline resource, so that no page of its
    /// list is in memory.
    async fn change_listed(&mut self, stream: Option<&mut Stream>) -> Result<(), Error> {
        if let Some(stream) = stream {
            sleep(BETWEEN_CHANGES).await;
            self.change(0)?;
            return timeout(MAX_WAIT, stream.updated()).await.map_err(|_| Self::late())?;
        }
        let text = format!("{TEXT}{:?}\n", std::time::SystemTime::now());
        let body = json!({ "name": "00.md", "mimeType": "text/markdown", "contents": [{ "text": text }] });
        let target = format!(
            "/agents/{}/resources?uri={}",
            INLINE.agent(0),
            utf8_percent_encode(&uri(0), NON_ALPHANUMERIC)
        );
        self.admin.call("PUT", &target, &body).await.map(|_| ())
    }

    /// Stops the gateway, changes a file, and starts the gateway.
    async fn restart(&mut self, site: &mut Site, settings: &[(&str, &str)]) -> Result<Restart, Error> {
        let number = self.files / 3;
        // The page of the file, whose size shows that a change is found.
        let page = cursors(&MOUNTED, number / PAGE + 1, self.port).await?.pop().unwrap_or_default();
        site.stop_gateways().await;
        self.change(number)?;
        let length = fs::metadata(self.root.join(path(number))).map_err(Error::io("look at a file"))?.len();
        let began = Instant::now();
        self.port = site.start(settings).await?;
        let mut connection = Connection::open(self.port).await?;
        let request = list(&MOUNTED, after(&page), self.port);
        let answer = connection.exchange(&request).await?;
        if answer.status != 200 {
            let (status, body) = (answer.status, excerpt(answer.body));
            return Err(Error::Status { server: "waggle", case: "resources/list", status, body });
        }
        let (first, began) = (began.elapsed(), Instant::now());
        let mut lists = Histogram::new();
        loop {
            let asked = Instant::now();
            let answer = connection.exchange(&request).await?;
            lists.record(asked.elapsed());
            let message: Value = serde_json::from_slice(answer.body).unwrap_or_default();
            let resources = message["result"]["resources"].as_array();
            let found = resources.into_iter().flatten().find(|found| found["uri"] == uri(number).as_str());
            if found.is_some_and(|found| found["size"] == length) {
                return Ok(Restart { first, rescanned: began.elapsed(), lists });
            }
            if began.elapsed() > MAX_WAIT {
                return Err(Self::late());
            }
            sleep(POLL).await;
        }
    }
}

/// A stream that is subscribed to one resource.
struct Stream {
    connection: TcpStream,
    events: EventReader,
    /// What was received and is not returned yet.
    said: Vec<Said>,
}

impl Stream {
    /// Opens a stream; every change after its return is sent on it.
    async fn open(port: u16, uri: &str) -> Result<Self, Error> {
        let call = Call { agent: &MOUNTED.agent(0), method: "subscriptions/listen", mcp_name: None };
        let params = json!({ "notifications": { "resourceSubscriptions": [uri] } });
        let request = call.request(params, Era::Modern, port, &MOUNTED.key(0));
        let (status, connection, received) = Connection::open(port).await?.begin_stream(&request).await?;
        if status != 200 {
            return Err(Error::NoStream { server: "waggle", status });
        }
        let mut events = EventReader::default();
        let said = events.read(&received);
        Ok(Self { connection, events, said })
    }

    /// Waits for the next `updated`.
    async fn updated(&mut self) -> Result<(), Error> {
        loop {
            if let Some(at) = self.said.iter().position(|said| matches!(said, Said::Updated(_))) {
                self.said.drain(..=at);
                return Ok(());
            }
            let mut received = Vec::with_capacity(4_096);
            if self.connection.read_buf(&mut received).await.map_err(Error::io("read a stream"))? == 0 {
                return Err(Error::StreamEnded { server: "waggle" });
            }
            self.said.extend(self.events.read(&received));
        }
    }
}
