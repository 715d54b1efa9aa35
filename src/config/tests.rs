//! Tests of the layers together: what overrides what, what is refused, and what is shown.

use std::{net::SocketAddr, time::Duration};

use secrecy::ExposeSecret;

use super::*;

/// A key whose check sum is right; made for these tests.
const OPERATOR_KEY: &str = "wag_00000000000000000000000000000000000000000003NxIRP";
const REFERENCE: &str = include_str!("../../config/waggle.toml");

/// The layers of a test.
#[derive(Default)]
struct Given<'a> {
    file: &'a str,
    variables: &'a [(&'a str, &'a str)],
    flags: Flags,
}

impl Given<'_> {
    fn read(&self, purpose: Purpose) -> Result<Loaded, ConfigError> {
        let file = ConfigFile { path: "waggle.toml".to_owned(), text: self.file.to_owned() };
        let environment = self.variables.iter().copied().collect();
        read(Ok(Some(file)), &environment, &self.flags, purpose)
    }

    fn settings(&self) -> Settings {
        match self.read(Purpose::Serve) {
            Ok(loaded) => loaded.settings,
            Err(error) => panic!("refused: {error}"),
        }
    }

    fn refused(&self) -> String {
        self.read(Purpose::Serve).err().expect("accepted").to_string()
    }
}

fn file(file: &str) -> Given<'_> {
    Given { file, ..Given::default() }
}

fn variables<'a>(variables: &'a [(&'a str, &'a str)]) -> Given<'a> {
    Given { variables, ..Given::default() }
}

fn names(loaded: &Loaded) -> Vec<&'static str> {
    loaded.listing.0.iter().map(|entry| entry.name).collect()
}

/// The reference file with its commented settings put in force.
fn uncommented(keep: impl Fn(&str) -> bool) -> String {
    let setting = |line: &&str| {
        let key = line.split_once(" = ").map_or("", |(key, _)| key);
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let line = |line| match str::strip_prefix(line, "# ").filter(setting) {
        Some(example) if keep(example) => example,
        _ => line,
    };
    REFERENCE.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_reference_file_is_the_built_in_defaults() {
    let shown = |text| {
        let mut listing = file(text).read(Purpose::Serve).unwrap_or_else(|error| panic!("{error}")).listing;
        listing.0.iter_mut().for_each(|entry| entry.place = None);
        listing.to_string()
    };
    assert_eq!(shown(REFERENCE), shown(""));
}

#[test]
fn the_reference_file_names_every_setting_in_order() {
    let text = uncommented(|_| true);
    let mut section = "";
    let mut named = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, _)) = line.split_once(" = ") {
            named.push(format!("{section}.{key}"));
        }
    }
    assert_eq!(named, names(&file("").read(Purpose::Serve).ok().unwrap()));
}

#[test]
fn the_commented_defaults_of_the_reference_file_are_the_derived_ones() {
    let derived = uncommented(|line| line.starts_with("public_url") || line.starts_with("allowed_"));
    let [read, default] = [file(&derived), file("")].map(|given| given.settings().server);
    assert_eq!(format!("{read:?}"), format!("{default:?}"));
    assert_ne!(derived, REFERENCE);
}

#[test]
fn the_examples_of_the_reference_file_are_valid_but_for_the_key() {
    let expected = "waggle.toml:53: admin.operator_key: the value is not 53 characters long: part of it is missing, \
                    or something was added; make one with: waggle key generate --operator";
    assert_eq!(file(&uncommented(|_| true)).refused(), expected);
}

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
fn the_shared_database_url_gives_way_to_our_own() {
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
fn the_shared_database_url_is_checked_when_it_counts() {
    let refused = variables(&[("DATABASE_URL", "mysql://me:hunter2@a/other")]).refused();
    let expected = "environment variable DATABASE_URL: the value does not begin with postgres:// or postgresql://\n\
                    admin.operator_key: required with a database URL; make one with: waggle key generate --operator";
    assert_eq!(refused, expected);
}

#[test]
fn notifications_are_listened_for_on_the_database_unless_told_otherwise() {
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
fn everything_wrong_is_told_at_once_with_its_place() {
    let text = "\
[server]
listn = '127.0.0.1:1'

[limits]
body_bytes = 12

[log]
level = 'debug'

[colour]
background = 'red'
";
    let variables =
        [("WAGGLE_SERVER__LISTEN_", "x"), ("WAGGLE_LISTEN", "x"), ("WAGGLE_CACHE__AGENTS", "many")];
    let flags = Flags { log_filter: Some("inof".to_owned()), ..Flags::default() };
    let expected = "\
waggle.toml:2: server.listn: unknown setting; did you mean server.listen?
waggle.toml:5: limits.body_bytes: 12 is not a size from 1 KiB to 64 MiB, such as 65536 or \"64 KiB\"
waggle.toml:8: log.level: unknown setting; there is log.format, log.filter
waggle.toml:11: colour.background: unknown setting
environment variable WAGGLE_CACHE__AGENTS: \"many\" is not a whole number from 1 to 1000000
environment variable WAGGLE_LISTEN: unknown setting; did you mean WAGGLE_SERVER__LISTEN?
environment variable WAGGLE_SERVER__LISTEN_: unknown setting; did you mean WAGGLE_SERVER__LISTEN?
--log-filter: \"inof\" is not a filter such as info or warn,waggle=debug; levels are off, error, warn, info, debug, trace";
    assert_eq!(Given { file: text, variables: &variables, flags }.refused(), expected);
}

#[test]
fn a_bad_value_is_refused_even_where_it_is_overridden() {
    let variables = [("WAGGLE_MCP__PAGE_SIZE", "50")];
    let given = Given { file: "[mcp]\npage_size = 0", variables: &variables, ..Given::default() };
    let expected = "waggle.toml:2: mcp.page_size: 0 is not a whole number from 1 to 1000";
    assert_eq!(given.refused(), expected);
}

#[test]
fn values_of_a_wrong_type_are_refused_by_name() {
    let text = "\
log.filter = true
mcp.page_size = 1.5
mcp.ttl_ms = 99999999999999999999
cache = 5
[server]
listen = 8094
allowed_hosts = ['localhost', 5]
allowed_origins = ['*', 'http://ok.example', 'nonsense']
request_seconds = ['30']
[database.url]
host = 'localhost'
[admin.listen]
";
    let expected = "\
waggle.toml:1: log.filter: true or false stands here, which no setting takes
waggle.toml:2: mcp.page_size: a number with a fraction stands here, which no setting takes
waggle.toml:3: mcp.ttl_ms: too large a number stands here, which no setting takes
waggle.toml:4: cache: unknown setting; there is cache.agents, cache.tenants, cache.result_bytes, cache.content_bytes
waggle.toml:6: server.listen: \"8094\" is not an address and a port, such as 127.0.0.1:8094 or [::]:8094
waggle.toml:7: server.allowed_hosts: a list of something other than text stands here, which no setting takes
waggle.toml:8: server.allowed_origins: \"*\" would let any web page in; name the origins; \"nonsense\" is not an origin such as https://app.example.com or http://localhost:*
waggle.toml:9: server.request_seconds: a list stands here, where one value belongs
waggle.toml:11: database.url.host: unknown setting; did you mean database.url?
waggle.toml:12: admin.listen: a table stands here, where one value belongs";
    assert_eq!(file(text).refused(), expected);
}

#[test]
fn a_file_that_is_not_toml_is_told_by_line_and_nothing_seems_missing() {
    let text = "[server]\nlisten = 127.0.0.1:80\n\n[admin]\noperator_key = \"wag_hunter2\n[database]\nurl = postgres://me:hunter2@host/db\n";
    let variables = [("DATABASE_URL", "postgres://a/b"), ("WAGGLE_MCP__PAGE", "1")];
    let refused = Given { file: text, variables: &variables, ..Given::default() }.refused();
    let expected = "\
waggle.toml:2: not TOML: invalid float; text needs quotes around it
waggle.toml:5: not TOML: invalid basic string, expected `\"`
waggle.toml:7: not TOML: string values must be quoted, expected literal string
environment variable WAGGLE_MCP__PAGE: unknown setting; there is WAGGLE_MCP__TTL_MS, WAGGLE_MCP__PAGE_SIZE";
    assert_eq!(refused, expected);
}

#[test]
fn empty_sections_and_empty_variables_change_nothing() {
    let variables =
        [("WAGGLE_DATABASE__URL", ""), ("DATABASE_URL", ""), ("WAGGLE_NONSENSE", ""), ("WAGGLE_URL", "x")];
    let given = Given { file: "[server]\n[database]\n", variables: &variables, ..Given::default() };
    assert!(given.settings().database.url.is_none());
    assert_eq!(file("[servers]\n").refused(), "waggle.toml:1: servers: unknown setting");
}

#[test]
fn a_database_of_ones_own_requires_an_operator_key_to_serve() {
    let given = variables(&[("DATABASE_URL", "postgres://a/b")]);
    let expected =
        "admin.operator_key: required with a database URL; make one with: waggle key generate --operator";
    assert_eq!(given.refused(), expected);
    assert!(given.read(Purpose::Assist).is_ok());
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let text = "[server]\nlisten = '127.0.0.1:1'\n[admin]\nlisten = '127.0.0.1:1'\n[database]\nlisten_url = 'postgres://a/b'";
    let expected = "\
database.url: required with database.listen_url
admin.listen: the same as server.listen; leave it out to share that listener";
    assert_eq!(file(text).refused(), expected);
}

#[test]
fn a_wrong_secret_is_refused_without_being_repeated() {
    let given = [
        ("WAGGLE_ADMIN__OPERATOR_KEY", "wag_00000000000000000000000000000000000000000003NxIRQ"),
        ("WAGGLE_DATABASE__URL", "postgres://me:hunter2@host:port/db"),
        ("WAGGLE_SERVER__PUBLIC_URL", "https://me:hunter2@host"),
    ];
    let expected = "\
environment variable WAGGLE_ADMIN__OPERATOR_KEY: the value does not match its own check sum: a character of it is wrong; make one with: waggle key generate --operator
environment variable WAGGLE_DATABASE__URL: the value is not a URL (invalid port number); in a password, characters such as / # ? @ : are percent-encoded
environment variable WAGGLE_SERVER__PUBLIC_URL: the value holds a user name or password, which a public URL does not";
    assert_eq!(variables(&given).refused(), expected);
}

#[test]
fn another_kind_of_key_is_no_operator_key() {
    let mut random = rand::rng();
    let key = crate::model::key::SecretKey::generate(crate::model::key::KeyKind::Owner, &mut random);
    let expected = "environment variable WAGGLE_ADMIN__OPERATOR_KEY: the value is no operator key, \
                    they begin with wag_; make one with: waggle key generate --operator";
    assert_eq!(variables(&[("WAGGLE_ADMIN__OPERATOR_KEY", key.reveal())]).refused(), expected);
}

#[test]
fn the_surroundings_follow_the_address() {
    let server = variables(&[("WAGGLE_SERVER__LISTEN", "0.0.0.0:80")]).settings().server;
    assert_eq!(server.public_url.as_str(), "http://0.0.0.0");
    assert_eq!(server.allowed_hosts, None);
    assert_eq!(server.allowed_origins, [AllowedOrigin::parse("http://0.0.0.0").unwrap()]);
}

#[test]
fn a_port_chosen_by_the_system_reaches_a_derived_public_url_alone() {
    let bound: SocketAddr = "127.0.0.1:40404".parse().unwrap();
    let listen = ("WAGGLE_SERVER__LISTEN", "127.0.0.1:0");
    let derived = variables(&[listen]).settings().server.bound_to(bound);
    assert_eq!((derived.listen, derived.public_url.as_str()), (bound, "http://127.0.0.1:40404"));
    let url = ("WAGGLE_SERVER__PUBLIC_URL", "https://mcp.example.com");
    let given = variables(&[listen, url]).settings().server.bound_to(bound);
    assert_eq!((given.listen, given.public_url.as_str()), (bound, "https://mcp.example.com"));
}

#[test]
fn settings_arrive_typed() {
    let text = "[limits]\nbody_bytes = '1 MiB'\n[changes]\nnotify_ms = 7\n[database]\nlock_seconds = 9";
    let settings = file(text).settings();
    assert_eq!(settings.limits.body_bytes, 1 << 20);
    assert_eq!(settings.changes.notify, Duration::from_millis(7));
    assert_eq!(settings.database.lock, Duration::from_secs(9));
}

#[test]
fn the_settings_show_as_a_file_with_masked_secrets_and_their_places() {
    let variables = [
        ("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY),
        ("WAGGLE_DATABASE__URL", "postgres://me:hunter2@host/db"),
        ("WAGGLE_SERVER__ALLOWED_HOSTS", "mcp.example.com, localhost"),
    ];
    let flags = Flags { listen: Some("127.0.0.1:9".to_owned()), ..Flags::default() };
    let given = Given { file: "[mcp]\npage_size = 5", variables: &variables, flags };
    let shown = given.read(Purpose::Serve).ok().unwrap().listing.to_string();
    let expected = r#"[server]
listen = "127.0.0.1:9" # --listen
public_url = "http://127.0.0.1:9"
allowed_hosts = ["mcp.example.com", "localhost"] # environment variable WAGGLE_SERVER__ALLOWED_HOSTS
allowed_origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*", "https://localhost:*", "https://127.0.0.1:*", "https://[::1]:*"]
shutdown_seconds = 10
request_seconds = 30

[database]
url = "********" # environment variable WAGGLE_DATABASE__URL
listen_url = "********"
max_connections = 16
connect_seconds = 5
acquire_seconds = 5
statement_seconds = 30
lock_seconds = 5
probe_ms = 250
sweep_ms = 1000

[embedded]
# bin_dir is not set
data_dir = "./waggle-data"

[admin]
operator_key = "********" # environment variable WAGGLE_ADMIN__OPERATOR_KEY
# listen is not set

[access]
stale_seconds = 60
unknown_keys_per_second = 200
unknown_keys_remembered = 10000

[limits]
body_bytes = 4194304
content_bytes = 16777216
resources_per_agent = 100000
concurrent_requests = 1024

[writes]
queue_per_agent = 1024
wait_seconds = 10

[cache]
agents = 1000
tenants = 10000
result_bytes = 268435456
content_bytes = 268435456

[changes]
notify_ms = 3

[mcp]
ttl_ms = 0
page_size = 5 # waggle.toml:2

[log]
# format is not set
filter = "info"
"#;
    assert_eq!(shown, expected);
}

#[test]
fn what_is_shown_reads_back_as_it_was() {
    let text =
        "[server]\nlisten = '[::]:80'\n[embedded]\nbin_dir = 'a \"quoted\" \\ path'\n[log]\nformat = 'json'";
    let shown = |text: &str| {
        let mut listing = file(text).read(Purpose::Serve).unwrap_or_else(|error| panic!("{error}")).listing;
        listing.0.iter_mut().for_each(|entry| entry.place = None);
        listing.to_string()
    };
    assert_eq!(shown(&shown(text)), shown(text));
}
