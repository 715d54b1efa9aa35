//! What is refused, and in which words.

use proptest::prelude::*;

use super::*;
use crate::model::key::{KeyKind, SecretKey};

#[test]
fn the_shared_database_url_is_checked_when_it_counts() {
    let refused = variables(&[("DATABASE_URL", "mysql://me:hunter2@a/other")]).refused();
    let expected = "environment variable DATABASE_URL: the value does not begin with postgres:// or postgresql://\n\
                    admin.operator_key: required with a database URL, or admin.operator_keys_file; make one with: waggle key generate --operator --out operator.key";
    assert_eq!(refused, expected);
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
trusted_proxies = ['10.0.0.0/8', '10.0.0.0/33']
request_seconds = ['30']
[database.url]
host = 'localhost'
[admin.listen]
";
    let expected = "\
waggle.toml:1: log.filter: true or false stands here, which no setting takes
waggle.toml:2: mcp.page_size: a number with a fraction stands here, which no setting takes
waggle.toml:3: mcp.ttl_ms: too large a number stands here, which no setting takes
waggle.toml:4: cache: unknown setting; there is cache.agents, cache.tenants, cache.sessions, cache.result_bytes, cache.content_bytes, cache.compiled_bytes
waggle.toml:6: server.listen: \"8094\" is not an address and a port, such as 127.0.0.1:8094 or [::]:8094
waggle.toml:7: server.allowed_hosts: a list of something other than text stands here, which no setting takes
waggle.toml:8: server.allowed_origins: \"*\" would let any web page in; name the origins; \"nonsense\" is not an origin such as https://app.example.com or http://localhost:*
waggle.toml:9: server.trusted_proxies: \"10.0.0.0/33\" is not an address or a network such as 10.0.0.0/8
waggle.toml:10: server.request_seconds: a list stands here, where one value belongs
waggle.toml:12: database.url.host: unknown setting; did you mean database.url?
waggle.toml:13: admin.listen: a table stands here, where one value belongs";
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
    assert_eq!(file("[colours]\n").refused(), "waggle.toml:1: colours: unknown setting");
}

#[test]
fn a_database_of_ones_own_requires_an_operator_key_to_serve() {
    let given = variables(&[("DATABASE_URL", "postgres://a/b")]);
    let expected = "admin.operator_key: required with a database URL, or admin.operator_keys_file; make one with: waggle key generate --operator --out operator.key";
    assert_eq!(given.refused(), expected);
    assert!(given.read(Purpose::Assist).is_ok());
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let text = "[server]\nlisten = '127.0.0.1:1'\n[admin]\nlisten = '127.0.0.1:1'\n[database]\nlisten_url = 'postgres://a/b'\n[tokens]\nstale_seconds = 60";
    let expected = "\
waggle.toml:4: admin.listen: the same as server.listen; leave it out to share that listener
waggle.toml:8: tokens.stale_seconds: less than tokens.refresh_seconds
database.url: required with database.listen_url";
    assert_eq!(file(text).refused(), expected);
}

#[test]
fn issuers_that_could_be_impersonated_and_algorithms_that_could_be_forged_are_refused() {
    let text = "\
[[tokens.issuers]]
issuer = 'http://login.example.com'
tenants = '*'
[[tokens.issuers]]
issuer = 'https://login.example.com?a'
tenants = ['acme']
algorithms = ['none', 'HS256']
tenant = 'A'
scopes_claim = ''";
    let known = "is not one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA";
    let expected = [
        "issuers[0].issuer: \"http://login.example.com\" is not https: whoever is on the way could answer in its place",
        "issuers[1].issuer: \"https://login.example.com?a\" has a query, which an issuer has not",
        "issuers[1].tenant: \"A\" is not the id of a tenant such as acme",
        "issuers[1].scopes_claim: \"\" is not the name of a claim, or a JSON pointer such as /realm_access/roles",
        &format!("issuers[1].algorithms: \"none\" {known}; \"HS256\" {known}"),
    ];
    assert_eq!(file(text).refused(), format!("waggle.toml:1: tokens.issuers: {}", expected.join("; ")));
}

#[test]
fn an_issuer_without_tenants_is_refused() {
    let refused = |entries: &str| variables(&[("WAGGLE_TOKENS__ISSUERS", entries)]).refused();
    let issuer = r#""issuer":"https://a.example""#;
    for (entries, expected) in [
        (format!("[{{{issuer}}}]"), "issuers[0].tenants: required in every entry"),
        (format!("[{{{issuer},\"tenants\":null}}]"), "issuers[0].tenants: required in every entry"),
        (
            format!("[{{{issuer},\"tenants\":[]}}]"),
            "issuers[0].tenants: the list is empty, which refuses every token",
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
            "issuers[0].tenants: a number stands here, which no setting takes",
        ),
        (
            format!("[{{{issuer},\"tenants\":[\"acme\"],\"tenant\":\"bee\"}}]"),
            "issuers[0].tenant: is not among tenants of the entry, so that no token would reach it",
        ),
        (r#"[{"tenants":"*"}]"#.to_owned(), "issuers[0].issuer: required in every entry"),
        (format!("[{{{issuer},\"tenants\":\"*\",\"tennant\":\"x\"}}]"), "issuers[0].tennant: unknown member"),
        (
            format!("[{{{issuer},\"tenants\":\"*\"}},{{{issuer},\"tenants\":\"*\"}}]"),
            "issuers[1].issuer: named by an earlier entry; expected one entry an issuer",
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
fn half_of_what_tls_needs_is_refused_lest_plain_http_is_spoken() {
    let refused = |setting: &str| file(&format!("[server]\n{setting} = 'x.pem'")).refused();
    assert_eq!(refused("tls_certificate"), "server.tls_key: required with server.tls_certificate");
    assert_eq!(refused("tls_key"), "server.tls_certificate: required with server.tls_key");
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
    let key = SecretKey::generate(KeyKind::Owner, &mut random);
    let expected = "environment variable WAGGLE_ADMIN__OPERATOR_KEY: the value does not begin with wag_, \
                    as operator keys do; make one with: waggle key generate --operator";
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
    fn any_file_is_answered_and_none_panics(text: String, value in "\\PC{0,12}") {
        file(&text).read(Purpose::Serve).ok();
        for key in ["server.listen", "limits.body_bytes", "server.allowed_origins", "log.filter"] {
            file(&format!("{key} = {value}")).read(Purpose::Serve).ok();
            file(&format!("{key} = {value:?}")).read(Purpose::Serve).ok();
        }
    }

    #[test]
    fn a_secret_is_repeated_nowhere(secret in "[!-~]{10,60}") {
        let texts = [secret.clone(), format!("postgres://{secret}"), format!("wag_{secret}")];
        for text in texts {
            let pairs = [("WAGGLE_DATABASE__URL", &*text), ("WAGGLE_ADMIN__OPERATOR_KEY", &*text)];
            let told = match variables(&pairs).read(Purpose::Serve) {
                Ok(loaded) => loaded.listing.to_string(),
                Err(error) => error.to_string(),
            };
            prop_assert!(!told.contains(&secret));
        }
    }

    #[test]
    fn a_value_of_any_setting_is_refused_in_one_line_or_taken(value in "\\PC{1,12}") {
        for name in every_variable() {
            let database = ("DATABASE_URL", "postgres://a/b");
            let tls = [("WAGGLE_SERVER__TLS_CERTIFICATE", "c"), ("WAGGLE_SERVER__TLS_KEY", "k")];
            let lines = variables(&[database, tls[0], tls[1], (&name, &value)]).read(Purpose::Assist).err().map(|error| error.to_string());
            prop_assert!(lines.is_none_or(|lines| lines.lines().count() == 1 && lines.contains(&name)));
        }
    }
}

#[test]
fn costs_above_what_may_be_had_at_once_are_refused() {
    let text = "[costs]\nstream = 20\n[limits]\nkey_burst = 19\nagent_burst = 20\ntenant_burst = 1\ntenant_per_second = 0";
    let expected = "waggle.toml:2: costs.stream: costs.stream is 20, and limits.key_burst only 19: it would be refused for ever";
    assert_eq!(file(text).refused(), expected);
    let given = variables(&[("WAGGLE_LIMITS__AGENT_BURST", "4")]);
    let expected = "environment variable WAGGLE_LIMITS__AGENT_BURST: costs.stream is 5, and limits.agent_burst only 4: it would be refused for ever";
    assert_eq!(given.refused(), expected);
}

#[test]
fn several_operator_keys_are_taken_and_each_is_checked() {
    let other = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let both = format!("{OPERATOR_KEY}, {}", other.reveal());
    let variable = |keys: &str| variables(&[("WAGGLE_ADMIN__OPERATOR_KEY", keys)]).read(Purpose::Serve);
    let keys = |loaded: Loaded| loaded.settings.admin.operator_keys.len();
    assert_eq!(variable(&both).map(keys).ok(), Some(2));
    let list = format!("[admin]\noperator_key = ['{OPERATOR_KEY}', '{}']", other.reveal());
    assert_eq!(file(&list).settings().admin.operator_keys.len(), 2);
    let wrong = variable(&format!("{OPERATOR_KEY},wag_hunter2")).err().map(|error| error.to_string());
    assert!(wrong.is_some_and(|wrong| wrong.contains("not 53 characters") && !wrong.contains("hunter2")));
    let from_file = [("DATABASE_URL", "postgres://a/b"), ("WAGGLE_ADMIN__OPERATOR_KEYS_FILE", "/keys")];
    assert!(variables(&from_file).read(Purpose::Serve).is_ok());
}

#[test]
fn metrics_token_is_no_key_of_the_gateway_and_not_short() {
    let refused = |token| variables(&[("WAGGLE_METRICS__TOKEN", token)]).refused();
    let expected = "environment variable WAGGLE_METRICS__TOKEN: the value is not 8 to 1024 visible ASCII characters \
                    without spaces";
    assert_eq!(refused("short"), expected);
    assert!(refused(OPERATOR_KEY).ends_with("opens more than /metrics; use a random text"));
}
