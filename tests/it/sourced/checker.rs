//! No change of watched content is lost, and none is notified twice, while the watching replica is killed repeatedly.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::app::resource;
use crate::support::cluster::database;
use crate::support::events::try_listen_at;
use crate::support::process::{Gateway, Site, lease_holder};
use crate::support::wait::{eventually, eventually_some};
use waggle::model::key::{KeyKind, SecretKey};

/// The files that change.
const FILES: usize = 8;
/// The time between two changes.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the replica that watches is killed.
const KILL_EVERY: Duration = Duration::from_secs(5);
/// Within which a change is read by a client after its notification, even if the watching replica was killed: the time
/// until another one watches, and that of a poll, on a machine that is busy with other tests.
const BOUND: Duration = Duration::from_secs(20);

/// What clients have read of each file, and when some client first had.
#[derive(Default)]
struct Ledger {
    /// By client.
    seen: BTreeMap<(usize, usize), u64>,
    first: BTreeMap<(usize, u64), Instant>,
}

type Shared = Arc<Mutex<Ledger>>;

fn uri(file: usize) -> String {
    format!("test://{file}")
}

/// A client of a replica, which reads what it is notified of, and everything when its stream begins.
async fn follow(number: usize, site: Arc<Site>, key: String, ledger: Shared) {
    loop {
        // The replica may be down.
        if site.is_ready().await {
            let uris: Vec<_> = (0..FILES).map(uri).collect();
            let filter = json!({"resourceSubscriptions": uris});
            let listening = tokio::spawn({
                let (site, key) = (Arc::clone(&site), key.clone());
                async move { try_listen_at(&site.http, "notes", &key, json!(1), filter).await }
            });
            if let Ok(response) = listening.await
                && response.status() == 200
            {
                read_all(number, &site, &key, &ledger, response).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn read_all(number: usize, site: &Site, key: &str, ledger: &Shared, mut response: reqwest::Response) {
    let mut text = String::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        text += std::str::from_utf8(&chunk).unwrap();
        while let Some((event, rest)) = text.split_once("\n\n") {
            let data = event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
            text = rest.to_owned();
            let Some(data) = data.filter(|data| !data.is_empty()) else { continue };
            let message: Value = serde_json::from_str(&data).unwrap();
            let files: Vec<usize> = match message["method"].as_str() {
                Some("notifications/resources/updated") => {
                    let uri = message["params"]["uri"].as_str().unwrap();
                    vec![uri.strip_prefix("test://").unwrap().parse().unwrap()]
                }
                _ => (0..FILES).collect(),
            };
            for file in files {
                read(number, site, key, ledger, file).await;
            }
        }
    }
}

async fn read(number: usize, site: &Site, key: &str, ledger: &Shared, file: usize) {
    let message =
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri(file)}});
    let headers = [("x-agent-api-key", key), ("content-type", "application/json")];
    let answer = site.http.try_send("POST", "/notes/mcp", &headers, message.to_string()).await;
    // The stream ends too, and everything is read again.
    let Ok(answer) = answer else { return };
    let answer = answer.json();
    let Some(content) = answer["result"]["contents"][0]["text"].as_str() else { return };
    let content: u64 = content.parse().unwrap();
    let mut ledger = ledger.lock().unwrap();
    let before = ledger.seen.insert((number, file), content).unwrap_or(0);
    for value in before + 1..=content {
        ledger.first.entry((file, value)).or_insert_with(Instant::now);
    }
}

fn write(folder: &Path, file: usize, content: u64) {
    let draft = folder.join(".draft");
    fs::write(&draft, content.to_string()).unwrap();
    fs::rename(draft, folder.join(file.to_string())).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_change_is_lost_or_notified_twice_while_watchers_are_killed() {
    let changes = std::env::var("VERIFY_WATCHING_CHANGES").map_or(50, |changes| changes.parse().unwrap());
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let mut sites = Vec::new();
    let mut gateways: Vec<Option<Gateway>> = Vec::new();
    for _ in 0..3 {
        let site = Site::unlimited()
            .set("WAGGLE_DATABASE__URL", sqlx::ConnectOptions::to_url_lossy(&database.options))
            .set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal())
            .set("WAGGLE_SOURCES__FILE_ROOTS", root.display());
        gateways.push(Some(site.serve().await));
        sites.push(Arc::new(site));
    }
    let admin = async |method: &str, path: &str, body: Value| {
        let made = sites[0].http.admin(operator.reveal(), method, path, Some(body)).await;
        assert!(made.status.is_success(), "{}", made.text());
        made
    };
    admin("POST", "/tenants", json!({"id": "acme"})).await;
    admin("POST", "/agents", json!({"id": "notes", "tenant": "acme"})).await;
    let key = admin("POST", "/agents/notes/keys", json!({"scopes": ["mcp"]})).await.json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let limits = json!({"perSecond": 1_000, "burst": 1_000});
    let connection =
        json!({"id": "docs", "kind": "file", "tenants": "*", "settings": {"root": root}, "limits": limits});
    admin("POST", "/connections", connection).await;
    for file in 0..FILES {
        write(&root, file, 0);
        let source = json!({"connection": "docs", "path": file.to_string()});
        admin(
            "PUT",
            &resource("notes", &uri(file)),
            json!({"name": uri(file), "mimeType": "text/plain", "source": source}),
        )
        .await;
    }
    let (ledger, stop) = (Shared::default(), CancellationToken::new());
    let clients: Vec<_> = (0..3)
        .map(|number| {
            let following = follow(number, Arc::clone(&sites[number]), key.clone(), Arc::clone(&ledger));
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(following).await })
        })
        .collect();
    eventually_some("a replica watches", async || lease_holder(&database, &sites).await).await;

    let (mut written, mut at) = ([0_u64; FILES], BTreeMap::new());
    let (mut killed, mut kills) = (Instant::now(), 0);
    for _ in 0..changes {
        let file = rand::random_range(0..FILES);
        written[file] += 1;
        write(&root, file, written[file]);
        at.insert((file, written[file]), Instant::now());
        if killed.elapsed() >= KILL_EVERY
            && let Some(number) = lease_holder(&database, &sites).await
        {
            gateways[number].take().unwrap().kill().await;
            gateways[number] = Some(sites[number].serve().await);
            (killed, kills) = (Instant::now(), kills + 1);
        }
        tokio::time::sleep(PAUSE).await;
    }
    eventually("every client has read the last content", async || {
        let ledger = ledger.lock().unwrap();
        (0..3).all(|client| {
            (0..FILES).all(|file| ledger.seen.get(&(client, file)).copied().unwrap_or(0) == written[file])
        })
    })
    .await;
    stop.cancel();
    for client in clients {
        client.await.unwrap();
    }
    let longest = {
        let ledger = ledger.lock().unwrap();
        at.iter().map(|(change, at)| ledger.first[change].duration_since(*at)).max().unwrap()
    };
    println!("{changes} changes, {kills} watchers killed; longest until a client had read one: {longest:?}");
    assert!(kills > 0 && longest < BOUND, "{kills} kills, {longest:?}");
    // A revision is a change: what a stale watcher tells again would be more.
    for (file, written) in written.iter().enumerate() {
        let notified = format!(
            "select count(*) from changes where kind = 'resource_touched' and subject = '{}'",
            uri(file)
        );
        let notified = database.number(&notified).await;
        assert!(
            notified <= i64::try_from(*written).unwrap() + 1,
            "{notified} revisions of {written} changes"
        );
    }
}
