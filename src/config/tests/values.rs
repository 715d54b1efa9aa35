//! The precedence of layers, and the displayed settings.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::ExposeSecret;

use super::*;

#[test]
fn each_layer_overrides_the_one_before() {
    let listening = |file, variables, flag: Option<&str>| {
        let flags = Flags { listen: flag.map(str::to_owned), ..Flags::default() };
        Given { file, variables, flags }.settings().server.listen.port()
    };
    let text = "[server]\nlisten = '127.0.0.1:2'";
    let variable = [("WAGGLE_SERVER__LISTEN", "127.0.0.1:3")];
    assert_eq!(listening("", &[], None), 8094);
    assert_eq!(listening(text, &[], None), 2);
    assert_eq!(listening(text, &variable, None), 3);
    assert_eq!(listening(text, &variable, Some("127.0.0.1:4")), 4);
}

#[test]
fn shared_database_url_is_overridden_by_waggle_database_url() {
    let url = |variables: &[(&str, &str)]| {
        let settings = Given { variables, ..Given::default() }.settings();
        settings.database.url.map(|url| url.expose_secret().to_owned())
    };
    let key = ("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY);
    let [shared, own] =
        [("DATABASE_URL", "postgres://a/shared"), ("WAGGLE_DATABASE__URL", "postgres://a/own")];
    assert_eq!(url(&[key, shared]).as_deref(), Some("postgres://a/shared"));
    assert_eq!(url(&[key, shared, own]).as_deref(), Some("postgres://a/own"));
    let foreign = ("DATABASE_URL", "mysql://a/other");
    assert_eq!(url(&[key, foreign, own]).as_deref(), Some("postgres://a/own"));
}

#[test]
fn listen_url_defaults_to_the_database_url() {
    let listening = |variables: &[(&str, &str)]| {
        let settings = Given { variables, ..Given::default() }.settings();
        settings.database.listen_url.map(|url| url.expose_secret().to_owned())
    };
    let key = ("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY);
    let url = ("WAGGLE_DATABASE__URL", "postgres://pooler/db");
    assert_eq!(listening(&[key, url]).as_deref(), Some("postgres://pooler/db"));
    let direct = ("WAGGLE_DATABASE__LISTEN_URL", "postgres://direct/db");
    assert_eq!(listening(&[key, url, direct]).as_deref(), Some("postgres://direct/db"));
    assert_eq!(listening(&[]), None);
}

#[test]
fn derived_defaults_follow_the_address() {
    let server = variables(&[("WAGGLE_SERVER__LISTEN", "0.0.0.0:80")]).settings().server;
    assert_eq!(server.public_url.as_str(), "http://0.0.0.0");
    assert_eq!(server.allowed_hosts, None);
    assert_eq!(server.trusted_proxies, []);
    assert_eq!(server.allowed_origins, [AllowedOrigin::parse("http://0.0.0.0").unwrap()]);
}

#[test]
fn port_chosen_by_the_system_changes_only_a_derived_public_url() {
    let bound: SocketAddr = "127.0.0.1:40404".parse().unwrap();
    let listen = ("WAGGLE_SERVER__LISTEN", "127.0.0.1:0");
    let derived = variables(&[listen]).settings().server.bound_to(bound);
    assert_eq!((derived.listen, derived.public_url.as_str()), (bound, "http://127.0.0.1:40404"));
    let url = ("WAGGLE_SERVER__PUBLIC_URL", "https://mcp.example.com");
    let given = variables(&[listen, url]).settings().server.bound_to(bound);
    assert_eq!((given.listen, given.public_url.as_str()), (bound, "https://mcp.example.com"));
}

#[test]
fn with_tls_the_derived_defaults_are_https() {
    let listen = ("WAGGLE_SERVER__LISTEN", "0.0.0.0:443");
    let files = [("WAGGLE_SERVER__TLS_CERTIFICATE", "c.pem"), ("WAGGLE_SERVER__TLS_KEY", "k.pem")];
    let server = variables(&[listen, files[0], files[1]]).settings().server;
    assert_eq!(server.tls(), Some(TlsFiles { certificate: "c.pem".into(), key: "k.pem".into() }));
    assert_eq!(server.public_url.as_str(), "https://0.0.0.0");
    assert_eq!(server.allowed_origins, [AllowedOrigin::parse("https://0.0.0.0").unwrap()]);
    let bound = server.bound_to("127.0.0.1:40404".parse().unwrap());
    assert_eq!(bound.public_url.as_str(), "https://127.0.0.1:40404");
}

#[test]
fn settings_have_types() {
    let text = "[limits]\nbody_bytes = '1 MiB'\n[changes]\nnotify_ms = 7\n[database]\nlock_seconds = 9\n[sessions]\nidle_seconds = 2";
    let settings = file(text).settings();
    assert_eq!(settings.limits.body_bytes, 1 << 20);
    assert_eq!(settings.changes.notify, Duration::from_millis(7));
    assert_eq!(settings.database.lock, Duration::from_secs(9));
    assert_eq!(settings.sessions.idle, Duration::from_secs(2));
}

/// The displayed settings of the test below.
const SHOWN: &str = r#"[server]
listen = "127.0.0.1:9" # --listen
# tls_certificate is not set
# tls_key is not set
public_url = "http://127.0.0.1:9"
allowed_hosts = ["mcp.example.com", "localhost"] # environment variable WAGGLE_SERVER__ALLOWED_HOSTS
allowed_origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*", "https://localhost:*", "https://127.0.0.1:*", "https://[::1]:*"]
trusted_proxies = []
forwarded_header = "X-Forwarded-For"
shutdown_seconds = 10
drain_seconds = 5
request_seconds = 30
body_window_seconds = 5
body_bytes_per_second = 65536
answer_seconds = 60
answer_bytes_per_second = 16384
head_seconds = 15
idle_seconds = 95
header_count = 100
header_bytes = 32768
connections = 10000
connections_per_address = 1000

[database]
url = "********" # environment variable WAGGLE_DATABASE__URL
listen_url = "********"
# owner_url is not set
max_connections = 16
connect_seconds = 5
acquire_seconds = 5
statement_seconds = 30
lock_seconds = 5
probe_ms = 250
sweep_ms = 500

[embedded]
# bin_dir is not set
data_dir = "./waggle-data"

[admin]
operator_key = "********" # environment variable WAGGLE_ADMIN__OPERATOR_KEY
# operator_keys_file is not set
# listen is not set

[metrics]
# token is not set
tenants = 0

[access]
stale_seconds = 60
unknown_keys_per_second = 200

[tokens]
issuers = []
leeway_seconds = 60
refresh_seconds = 300
stale_seconds = 86400
unknown_key_seconds = 10

[limits]
body_bytes = 4194304
content_bytes = 16777216
skill_files = 512
skill_bytes = 16777216
manifest_bytes = 67108864
tool_result_bytes = 262144
agents_per_tenant = 10000
retired_slugs_per_tenant = 100000
active_keys = 1000
resources_per_agent = 100000
templates_per_agent = 1000
prompts_per_agent = 10000
mounts_per_agent = 100
mount_entries = 100000
concurrent_renders = 4
waiting_renders = 256
concurrent_requests = 1024
refused_bodies = 128
upload_bytes = 268435456
upload_bytes_per_tenant = 67108864
upload_bytes_per_key = 67108864
streams_per_key = 100
streams = 10000
key_per_second = 200
key_burst = 400
agent_per_second = 200
agent_burst = 400
tenant_per_second = 200
tenant_burst = 400
address_per_second = 200
address_burst = 400
strangers_percent = 100
address_penalty_seconds = 10
concurrent_per_key = 256
concurrent_per_agent = 512
remembered = 100000

[costs]
list = 1
read = 1
prompt = 1
search = 1
complete = 1
stream = 5
discover = 0
other = 1
admin_read = 1
admin_write = 1

[usage]
settle_seconds = 5
retain_days = 400

[writes]
queue_per_agent = 1024
wait_seconds = 10

[cache]
# bytes is not set
warm_agents = 1000

[search]
document_bytes = 262144
concurrent_builds = 2
wait_ms = 2000

[sources]
file_roots = []
# key_file is not set
ttl_ms = 5000
# cache_dir is not set
cache_bytes = 1073741824
watched_bytes = 67108864
bytes_per_second = 67108864

[changes]
notify_ms = 3
retain_seconds = 86400

[sessions]
idle_seconds = 1800
subscriptions = 1000
per_principal = 1000
keep_alive_seconds = 15

[mcp]
ttl_ms = 0
page_size = 5 # waggle.toml:2

[audit]
durability = "batched"
events = "all"
retain_days = 90
queue = 65536
patience_ms = 250
# spill_dir is not set
spill_bytes = 1073741824
# signing_key_file is not set
checkpoint_minutes = 60
# checkpoint_to is not set

[log]
# format is not set
filter = "info"
access = "off"

[traces]
resource_uri = "off"
"#;

#[test]
fn settings_are_displayed_with_masked_secrets_and_sources() {
    let variables = [
        ("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY),
        ("WAGGLE_DATABASE__URL", "postgres://me:hunter2@host/db"),
        ("WAGGLE_SERVER__ALLOWED_HOSTS", "mcp.example.com, localhost"),
    ];
    let flags = Flags { listen: Some("127.0.0.1:9".to_owned()), ..Flags::default() };
    let given = Given { file: "[mcp]\npage_size = 5", variables: &variables, flags };
    let shown = given.read(Purpose::Serve).ok().unwrap().listing.to_string();
    assert_eq!(shown, SHOWN);
}

#[test]
fn displayed_settings_parse_to_the_same_settings() {
    let text =
        "[server]\nlisten = '[::]:80'\n[embedded]\nbin_dir = 'a \"quoted\" \\ path'\n[log]\nformat = 'json'";
    assert_eq!(shown(&shown(text)), shown(text));
}

#[test]
fn issuers_of_file_and_environment_are_equal() {
    let text = "\
[[tokens.issuers]]
issuer = 'https://a.example'
tenants = ['acme', 'bee']
agents_claim = '/x/agents'
labels_claim = '/realm_access/roles'
algorithms = ['ES256']
audience = 'api://waggle'
[[tokens.issuers]]
issuer = 'https://b.example'
tenants = '*'
tenant = 'acme'
jwks_url = 'https://b.example/keys'";
    let variable = r#"[
        {"issuer":"https://a.example","tenants":["acme","bee"],"agents_claim":"/x/agents","labels_claim":"/realm_access/roles","algorithms":["ES256"],"audience":"api://waggle"},
        {"issuer":"https://b.example","tenants":"*","tenant":"acme","jwks_url":"https://b.example/keys"}
    ]"#;
    let [of_file, of_environment] = [file(text), variables(&[("WAGGLE_TOKENS__ISSUERS", variable)])]
        .map(|given| given.settings().tokens.issuers);
    assert_eq!(of_file, of_environment);
    let [first, second] = of_file.as_slice() else { panic!("{of_file:?}") };
    let [acme, cee] = ["acme", "cee"].map(|slug| crate::model::ids::Slug::parse(slug).unwrap());
    assert_eq!((first.tenants.contains(&acme), first.tenants.contains(&cee)), (true, false));
    assert_eq!((second.tenants.contains(&acme), second.tenants.contains(&cee)), (true, true));
    assert_eq!((first.tenant_claim.as_str(), first.scopes_claim.as_str()), ("waggle_tenant", "scope"));
    assert_eq!(first.agents_claim.as_deref(), Some("/x/agents"));
    assert_eq!(first.labels_claim.as_deref(), Some("/realm_access/roles"));
    assert_eq!((second.labels_claim.as_ref(), second.tenant.as_ref()), (None, Some(&acme)));
    assert_eq!(shown(&shown(text)), shown(text), "displayed settings parse again");
}
