//! Refused settings, and their messages.

use proptest::prelude::*;

use super::*;
use crate::model::key::{KeyKind, SecretKey};

#[test]
fn shared_database_url_is_validated_where_it_is_used() {
    let refused = variables(&[("DATABASE_URL", "mysql://me:hunter2@a/other")]).refused();
    let expected = "environment variable DATABASE_URL: the value does not begin with postgres:// or postgresql://\n\
                    admin.operator_key: required with a database URL, or admin.operator_keys_file; create one with: waggle key generate --operator --out operator.key";
    assert_eq!(refused, expected);
}

#[test]
fn all_errors_are_reported_at_once_with_their_source() {
    let text = "\
[server]
listn = '127.0.0.1:1'

[limits]
body_bytes = 0

[log]
level = 'debug'

[colour]
background = 'red'
";
    let variables = [
        ("WAGGLE_SERVER__LISTEN_", "x"),
        ("WAGGLE_LISTEN", "x"),
        ("WAGGLE_ACCESS__UNKNOWN_KEYS_PER_SECOND", "many"),
    ];
    let flags = Flags { log_filter: Some("inof".to_owned()), ..Flags::default() };
    let expected = "\
waggle.toml:2: server.listn: unknown setting; did you mean server.listen?
waggle.toml:5: limits.body_bytes: 0 is not a size from 1 to 64 MiB, such as 65536 or \"64 KiB\"
waggle.toml:8: log.level: unknown setting; the section has log.format, log.filter, log.access
waggle.toml:11: colour.background: unknown setting
environment variable WAGGLE_ACCESS__UNKNOWN_KEYS_PER_SECOND: \"many\" is not a whole number from 1 to 1000000
environment variable WAGGLE_LISTEN: unknown setting; did you mean WAGGLE_SERVER__LISTEN?
environment variable WAGGLE_SERVER__LISTEN_: unknown setting; did you mean WAGGLE_SERVER__LISTEN?
--log-filter: \"inof\" is not a filter such as info or warn,waggle=debug; levels are off, error, warn, info, debug, trace";
    assert_eq!(Given { file: text, variables: &variables, flags }.refused(), expected);
}

#[test]
fn invalid_value_is_refused_even_if_overridden() {
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
trusted_proxies = ['10.0.0.0/8', '10.0.0.0/33']
request_seconds = ['30']
[database.url]
host = 'localhost'
[admin.listen]
";
    let expected = "\
waggle.toml:1: log.filter: expected text, a whole number or a list of text, found a boolean
waggle.toml:2: mcp.page_size: expected text, a whole number or a list of text, found a fractional number
waggle.toml:3: mcp.ttl_ms: expected text, a whole number or a list of text, found a number that is too large
waggle.toml:4: cache: unknown setting; the section has cache.bytes, cache.warm_agents
waggle.toml:6: server.listen: \"8094\" is not an address and a port, such as 127.0.0.1:8094 or [::]:8094
waggle.toml:7: server.allowed_hosts: expected text, a whole number or a list of text, found a list with other items than text
waggle.toml:8: server.allowed_origins: \"*\" would allow every web page; list the origins; \"nonsense\" is not an origin such as https://app.example.com or http://localhost:*
waggle.toml:9: server.trusted_proxies: \"10.0.0.0/33\" is not an address or a network such as 10.0.0.0/8
waggle.toml:10: server.request_seconds: expected a single value, found a list
waggle.toml:12: database.url.host: unknown setting; did you mean database.url?
waggle.toml:13: admin.listen: expected a single value, found a table";
    assert_eq!(file(text).refused(), expected);
}

#[test]
fn invalid_toml_is_reported_by_line_without_missing_settings() {
    let text = "[server]\nlisten = 127.0.0.1:80\n\n[admin]\noperator_key = \"wag_hunter2\n[database]\nurl = postgres://me:hunter2@host/db\n";
    let variables = [("DATABASE_URL", "postgres://a/b"), ("WAGGLE_MCP__PAGE", "1")];
    let refused = Given { file: text, variables: &variables, ..Given::default() }.refused();
    let expected = "\
waggle.toml:2: not TOML: invalid float; text needs quotes around it
waggle.toml:5: not TOML: invalid basic string, expected `\"`
waggle.toml:7: not TOML: string values must be quoted, expected literal string
environment variable WAGGLE_MCP__PAGE: unknown setting; the section has WAGGLE_MCP__TTL_MS, WAGGLE_MCP__PAGE_SIZE";
    assert_eq!(refused, expected);
}

#[test]
fn empty_sections_and_variables_change_nothing() {
    let variables =
        [("WAGGLE_DATABASE__URL", ""), ("DATABASE_URL", ""), ("WAGGLE_NONSENSE", ""), ("WAGGLE_URL", "x")];
    let given = Given { file: "[server]\n[database]\n", variables: &variables, ..Given::default() };
    assert!(given.settings().database.url.is_none());
    assert_eq!(file("[colours]\n").refused(), "waggle.toml:1: colours: unknown setting");
}

#[test]
fn database_url_requires_an_operator_key_to_serve() {
    let given = variables(&[("DATABASE_URL", "postgres://a/b")]);
    let expected = "admin.operator_key: required with a database URL, or admin.operator_keys_file; create one with: waggle key generate --operator --out operator.key";
    assert_eq!(given.refused(), expected);
    assert!(given.read(Purpose::Assist).is_ok());
}

#[test]
fn contradicting_settings_are_refused() {
    let text = "[server]\nlisten = '127.0.0.1:1'\n[admin]\nlisten = '127.0.0.1:1'\n[database]\nlisten_url = 'postgres://a/b'\n[tokens]\nstale_seconds = 60";
    let expected = "\
waggle.toml:4: admin.listen: the same as server.listen; omit it to share that listener
waggle.toml:8: tokens.stale_seconds: is less than tokens.refresh_seconds
database.url: required with database.listen_url";
    assert_eq!(file(text).refused(), expected);
}

#[test]
fn checkpoints_inside_the_data_directory_are_refused() {
    let text =
        |data: &str, to: &str| format!("[embedded]\ndata_dir = '{data}'\n[audit]\ncheckpoint_to = '{to}'");
    for (data, to) in [("/data", "/data/checkpoints"), ("/data", "/data"), ("data", "./data/checkpoints")] {
        let expected =
            format!("waggle.toml:4: audit.checkpoint_to: must be outside embedded.data_dir, which is {data}");
        assert_eq!(file(&text(data, to)).refused(), expected);
    }
    for (data, to) in
        [("/data", "/database"), ("/data/waggle", "/data/checkpoints"), ("/data", "https://a/data")]
    {
        assert!(file(&text(data, to)).read(Purpose::Serve).is_ok(), "{data} {to}");
    }
}

#[test]
fn insecure_issuers_and_algorithms_are_refused() {
    let text = "\
[[tokens.issuers]]
issuer = 'http://login.example.com'
tenants = '*'
[[tokens.issuers]]
issuer = 'https://login.example.com?a'
tenants = ['acme']
algorithms = ['none', 'HS256']
tenant = 'A'
scopes_claim = ''
labels_claim = ''";
    let known = "is not one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA";
    let expected = [
        "issuers[0].issuer: \"http://login.example.com\" is not https; http is accepted on loopback only",
        "issuers[1].issuer: \"https://login.example.com?a\" has a query; an issuer has none",
        "issuers[1].tenant: \"A\" is not the id of a tenant such as acme",
        "issuers[1].scopes_claim: \"\" is not the name of a claim, or a JSON pointer such as /realm_access/roles",
        "issuers[1].labels_claim: \"\" is not the name of a claim, or a JSON pointer such as /realm_access/roles",
        &format!("issuers[1].algorithms: \"none\" {known}; \"HS256\" {known}"),
    ];
    assert_eq!(file(text).refused(), format!("waggle.toml:1: tokens.issuers: {}", expected.join("; ")));
}

#[test]
fn issuer_without_tenants_is_refused() {
    let refused = |entries: &str| variables(&[("WAGGLE_TOKENS__ISSUERS", entries)]).refused();
    let issuer = r#""issuer":"https://a.example""#;
    for (entries, expected) in [
        (format!("[{{{issuer}}}]"), "issuers[0].tenants: required in every entry"),
        (format!("[{{{issuer},\"tenants\":null}}]"), "issuers[0].tenants: required in every entry"),
        (
            format!("[{{{issuer},\"tenants\":[]}}]"),
            "issuers[0].tenants: the list is empty, which would refuse every token",
        ),
        (
            format!("[{{{issuer},\"tenants\":\"acme\"}}]"),
            "issuers[0].tenants: \"acme\" is neither a list of tenants nor \"*\"",
        ),
        (
            format!("[{{{issuer},\"tenants\":[\"*\"]}}]"),
            "issuers[0].tenants: \"*\" is not the id of a tenant such as acme",
        ),
        (
            format!("[{{{issuer},\"tenants\":7}}]"),
            "issuers[0].tenants: expected text, a whole number or a list of text, found a number",
        ),
        (
            format!("[{{{issuer},\"tenants\":[\"acme\"],\"tenant\":\"bee\"}}]"),
            "issuers[0].tenant: is not one of the entry's tenants",
        ),
        (r#"[{"tenants":"*"}]"#.to_owned(), "issuers[0].issuer: required in every entry"),
        (format!("[{{{issuer},\"tenants\":\"*\",\"tennant\":\"x\"}}]"), "issuers[0].tennant: unknown member"),
        (
            format!("[{{{issuer},\"tenants\":\"*\"}},{{{issuer},\"tenants\":\"*\"}}]"),
            "issuers[1].issuer: named by an earlier entry; expected one entry per issuer",
        ),
        (
            "https://a.example".to_owned(),
            "\"https://a.example\" is not a JSON list of objects, such as \
             [{\"issuer\":\"https://login.example.com\",\"tenants\":[\"acme\"]}]",
        ),
    ] {
        assert_eq!(refused(&entries), format!("environment variable WAGGLE_TOKENS__ISSUERS: {expected}"));
    }
    let expected = "waggle.toml:2: tokens.issuers: expected a table for each issuer, found text; write \
                    [[tokens.issuers]] with issuer and tenants";
    assert_eq!(file("[tokens]\nissuers = ['https://a.example']").refused(), expected);
}

#[test]
fn one_file_of_tls_without_the_other_is_refused() {
    let refused = |setting: &str| file(&format!("[server]\n{setting} = 'x.pem'")).refused();
    assert_eq!(refused("tls_certificate"), "server.tls_key: required with server.tls_certificate");
    assert_eq!(refused("tls_key"), "server.tls_certificate: required with server.tls_key");
}

#[test]
fn invalid_secret_is_refused_without_repeating_it() {
    let given = [
        ("WAGGLE_ADMIN__OPERATOR_KEY", "wag_00000000000000000000000000000000000000000003NxIRQ"),
        ("WAGGLE_DATABASE__URL", "postgres://me:hunter2@host:port/db"),
        ("WAGGLE_SERVER__PUBLIC_URL", "https://me:hunter2@host"),
    ];
    let expected = "\
environment variable WAGGLE_ADMIN__OPERATOR_KEY: the value does not match its checksum: a character is wrong; create one with: waggle key generate --operator
environment variable WAGGLE_DATABASE__URL: the value is not a URL (invalid port number); in a password, characters such as / # ? @ : are percent-encoded
environment variable WAGGLE_SERVER__PUBLIC_URL: the value contains a user name or password; remove it";
    assert_eq!(variables(&given).refused(), expected);
}

#[test]
fn key_of_another_kind_is_not_an_operator_key() {
    let mut random = rand::rng();
    let key = SecretKey::generate(KeyKind::Owner, &mut random);
    let expected = "environment variable WAGGLE_ADMIN__OPERATOR_KEY: the value does not begin with wag_, \
                    as operator keys do; create one with: waggle key generate --operator";
    assert_eq!(variables(&[("WAGGLE_ADMIN__OPERATOR_KEY", key.reveal())]).refused(), expected);
}

/// Every variable that names a setting.
fn every_variable() -> Vec<String> {
    let listing = file("").read(Purpose::Serve).ok().unwrap().listing;
    let name = |setting: &str| format!("WAGGLE_{}", setting.replace('.', "__").to_ascii_uppercase());
    listing.0.iter().map(|entry| name(entry.name)).collect()
}

proptest! {
    #[test]
    fn no_file_panics(text: String, value in "\\PC{0,12}") {
        file(&text).read(Purpose::Serve).ok();
        for key in ["server.listen", "limits.body_bytes", "server.allowed_origins", "log.filter"] {
            file(&format!("{key} = {value}")).read(Purpose::Serve).ok();
            file(&format!("{key} = {value:?}")).read(Purpose::Serve).ok();
        }
    }

    #[test]
    fn secret_is_never_displayed(secret in "[!-~]{10,60}") {
        let texts = [secret.clone(), format!("postgres://{secret}"), format!("wag_{secret}")];
        for text in texts {
            let pairs = [("WAGGLE_DATABASE__URL", &*text), ("WAGGLE_ADMIN__OPERATOR_KEY", &*text)];
            let output = match variables(&pairs).read(Purpose::Serve) {
                Ok(loaded) => loaded.listing.to_string(),
                Err(error) => error.to_string(),
            };
            prop_assert!(!output.contains(&secret));
        }
    }

    #[test]
    fn value_of_any_setting_is_accepted_or_refused_in_one_line(value in "\\PC{1,12}") {
        for name in every_variable() {
            let database = ("DATABASE_URL", "postgres://a/b");
            let tls = [("WAGGLE_SERVER__TLS_CERTIFICATE", "c"), ("WAGGLE_SERVER__TLS_KEY", "k")];
            let lines = variables(&[database, tls[0], tls[1], (&name, &value)]).read(Purpose::Assist).err().map(|error| error.to_string());
            prop_assert!(lines.is_none_or(|lines| lines.lines().count() == 1 && lines.contains(&name)));
        }
    }
}

#[test]
fn costs_above_the_burst_are_refused() {
    let text = "[costs]\nstream = 20\n[limits]\nkey_burst = 19\nagent_burst = 20\ntenant_burst = 1\ntenant_per_second = 0";
    let expected = "waggle.toml:2: costs.stream: costs.stream is 20, but limits.key_burst is 19: such a request would always be refused";
    assert_eq!(file(text).refused(), expected);
}

#[test]
fn default_cost_of_a_stream_is_at_most_the_smallest_burst() {
    let costs = |given: &Given<'_>| given.read(Purpose::Assist).ok().unwrap().settings.costs;
    let given = variables(&[("WAGGLE_LIMITS__AGENT_BURST", "4"), ("WAGGLE_LIMITS__KEY_BURST", "2")]);
    assert_eq!(costs(&given).stream, 2);
    let given = variables(&[("WAGGLE_LIMITS__KEY_BURST", "2"), ("WAGGLE_LIMITS__KEY_PER_SECOND", "0")]);
    assert_eq!(costs(&given).stream, 5, "a rate that is off has no burst");
}

#[test]
fn variable_without_section_that_resembles_no_setting_is_ignored() {
    let names = ["WAGGLE_BIN", "WAGGLE_TEST", "WAGGLE_BASE_URL", "WAGGLE_PORT"];
    let given: Vec<_> = names.iter().map(|name| (*name, "x")).collect();
    assert!(variables(&given).read(Purpose::Assist).is_ok());
    let expected = "environment variable WAGGLE_COLOUR__RED: unknown setting";
    assert_eq!(variables(&[("WAGGLE_COLOUR__RED", "x")]).refused(), expected);
}

#[test]
fn several_operator_keys_are_accepted_and_each_is_validated() {
    let other = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let both = format!("{OPERATOR_KEY}, {}", other.reveal());
    let variable = |keys: &str| variables(&[("WAGGLE_ADMIN__OPERATOR_KEY", keys)]).read(Purpose::Serve);
    let keys = |loaded: Loaded| loaded.settings.admin.operator_keys().len();
    assert_eq!(variable(&both).map(keys).ok(), Some(2));
    let list = format!("[admin]\noperator_key = ['{OPERATOR_KEY}', '{}']", other.reveal());
    assert_eq!(file(&list).settings().admin.operator_keys().len(), 2);
    let wrong = variable(&format!("{OPERATOR_KEY},wag_hunter2")).err().map(|error| error.to_string());
    assert!(wrong.is_some_and(|wrong| wrong.contains("not 53 characters") && !wrong.contains("hunter2")));
    let from_file = [("DATABASE_URL", "postgres://a/b"), ("WAGGLE_ADMIN__OPERATOR_KEYS_FILE", "/keys")];
    assert!(variables(&from_file).read(Purpose::Serve).is_ok());
}

#[test]
fn metrics_token_is_not_a_key_and_not_short() {
    let refused = |token| variables(&[("WAGGLE_METRICS__TOKEN", token)]).refused();
    let expected = "environment variable WAGGLE_METRICS__TOKEN: the value is not 8 to 1024 visible ASCII characters \
                    without spaces";
    assert_eq!(refused("short"), expected);
    assert!(refused(OPERATOR_KEY).ends_with("grants access to more than /metrics; use a random text"));
}
