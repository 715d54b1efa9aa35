//! The load balancers of `deploy/balancer` themselves, where they are installed (`scripts/with-balancer cargo test …`): what
//! they answer while no replica does.

use std::fs;
use std::process::{Child, Command, Stdio};

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::http::{Answer, Client};
use crate::support::process::free_address;
use crate::support::wait::eventually;

/// A running load balancer, which is killed when it is dropped.
struct Balancer(Child);

impl Drop for Balancer {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn is_installed(program: &str) -> bool {
    let version = Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Runs a load balancer whose replicas are at addresses where nothing listens, and checks its answers.
async fn check(program: &str, arguments: &[&str], configuration: &str, own: &[(&str, String)]) {
    if !is_installed(program) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [address, one, two] = [(); 3].map(|()| free_address());
    let text = fs::read_to_string(format!("{}/deploy/balancer/{configuration}", env!("CARGO_MANIFEST_DIR")));
    let here = folder.path().display().to_string();
    let common = [
        ("gateway-1:8094", one.to_string()),
        ("gateway-2:8094", two.to_string()),
        ("/tmp/", format!("{here}/")),
    ];
    let text = common.iter().chain(own).fold(text.unwrap(), |text, (from, to)| {
        text.replace(from, &to.replace("ADDRESS", &address.to_string()).replace("FOLDER", &here))
    });
    let file = folder.path().join(configuration);
    fs::write(&file, text).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _balancer = Balancer(command.spawn().unwrap());

    let client = Client::new(address);
    let ask = async |method: &str, path: &str| client.try_send(method, path, &[], "{}").await.ok();
    let is = |answer: &Option<Answer>, media_type: &str, body: &Value| {
        answer.as_ref().is_some_and(|answer| {
            let head = (answer.status, answer.header("content-type"), answer.header("retry-after"));
            let expected = (StatusCode::SERVICE_UNAVAILABLE, Some(media_type), Some("1"));
            let has_id = answer.header("x-request-id").is_some_and(|id| id.len() >= 32);
            head == expected && has_id && answer.json() == *body
        })
    };
    let problem = json!({
        "type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": "no replica answered",
        "code": "unavailable",
    });
    for path in ["/readyz", "/admin/v1/tenants"] {
        let is_problem = async || is(&ask("GET", path).await, "application/problem+json", &problem);
        eventually(&format!("{program} answers {path} with a problem document"), is_problem).await;
    }
    let error = json!({
        "jsonrpc": "2.0", "id": null,
        "error": {"code": -31017, "message": "unavailable: no replica answered", "data": {"code": "unavailable"}},
    });
    let is_error = async || is(&ask("POST", "/research/mcp").await, "application/json", &error);
    eventually(&format!("{program} answers a message with an error"), is_error).await;
    let metrics = ask("GET", "/metrics").await.unwrap();
    assert_eq!(metrics.status, StatusCode::NOT_FOUND, "{program}");
}

#[tokio::test]
async fn nginx_answers_for_absent_replicas() {
    let own = [
        ("listen 8080", "listen ADDRESS".to_owned()),
        ("/dev/stderr", "FOLDER/log".to_owned()),
        ("/dev/stdout", "FOLDER/log".to_owned()),
    ];
    check("nginx", &["-g", "daemon off; master_process off;", "-c"], "nginx.conf", &own).await;
}

#[tokio::test]
async fn haproxy_answers_for_absent_replicas() {
    // As many files as a test process has.
    let own = [("bind :8080", "bind ADDRESS".to_owned()), ("maxconn 16384", "maxconn 100".to_owned())];
    check("haproxy", &["-db", "-f"], "haproxy.cfg", &own).await;
}
