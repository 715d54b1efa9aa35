//! The binary on the command line: output, streams and exit codes.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

const OPERATOR_KEY: &str = "wag_00000000000000000000000000000000000000000003NxIRP";

/// Runs the binary in an empty folder, with these environment variables only.
fn waggle(folder: &TempDir, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_waggle"))
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().copied())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Exit code, standard output, standard error.
fn parts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn run(variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String, String) {
    parts(&waggle(&TempDir::new().unwrap(), variables, arguments))
}

fn output(code: i32, out: &str, err: &str) -> (Option<i32>, String, String) {
    (Some(code), out.to_owned(), err.to_owned())
}

/// Answers the first request with the given status line, and returns the request.
fn gateway(status: &'static str) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answered = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let read = connection.read(&mut request).unwrap();
        write!(connection, "HTTP/1.1 {status}\r\nlocation: /\r\ncontent-length: 0\r\n\r\n").unwrap();
        String::from_utf8_lossy(&request[..read]).lines().next().unwrap_or_default().to_owned()
    });
    (address, answered)
}

#[test]
fn each_configuration_error_is_printed_on_its_own_line() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("waggle.toml"), "[limits]\nbody_bytes = 0\n").unwrap();
    let variables = [("WAGGLE_CONFIG", "waggle.toml"), ("WAGGLE_SERVER__LISTN", "127.0.0.1:1")];
    for command in
        [&["serve"][..], &["demo"], &["migrate"], &["config", "check"], &["config", "show"], &["health"]]
    {
        let arguments = [command, &["--log-format", "xml"]].concat();
        let expected = "\
waggle.toml:2: limits.body_bytes: 0 is not a size from 1 to 64 MiB, such as 65536 or \"64 KiB\"
environment variable WAGGLE_SERVER__LISTN: unknown setting; did you mean WAGGLE_SERVER__LISTEN?
--log-format: \"xml\" is neither text nor json
";
        assert_eq!(parts(&waggle(&folder, &variables, &arguments)), output(2, "", expected), "{command:?}");
    }
}

#[test]
fn config_flag_overrides_the_variable() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("flag.toml"), "[mcp]\npage_size = 7\n").unwrap();
    let variables = [("WAGGLE_CONFIG", "nowhere.toml")];
    let (code, out, _) = parts(&waggle(&folder, &variables, &["--config", "flag.toml", "config", "show"]));
    assert_eq!(code, Some(0));
    assert!(out.contains("page_size = 7 # flag.toml:2\n"));
}

#[test]
fn unreadable_file_is_reported_with_other_errors() {
    let variables = [("WAGGLE_CONFIG", "nowhere.toml"), ("WAGGLE_MCP__PAGE_SIZE", "0")];
    let expected = "\
environment variable WAGGLE_CONFIG: cannot read nowhere.toml: No such file or directory (os error 2)
environment variable WAGGLE_MCP__PAGE_SIZE: \"0\" is not a whole number from 1 to 1000
";
    assert_eq!(run(&variables, &["config", "check"]), output(2, "", expected));
    let expected = "--config: cannot read .: Is a directory (os error 21)\n";
    assert_eq!(run(&[], &["config", "check", "--config", "."]), output(2, "", expected));
}

#[test]
fn valid_settings_pass_the_check() {
    let variables = [
        ("DATABASE_URL", "postgres://a/b"),
        ("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY),
        ("WAGGLE_SERVER__LISTEN", "127.0.0.1:0"),
    ];
    assert_eq!(run(&variables, &["config", "check"]), output(0, "the settings are valid\n", ""));
}

/// A database that asks for the password, refuses it, and ends. Returns its port, and the message that has the password.
fn refusing_database() -> (u16, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let mut connection = listener.accept().unwrap().0;
        let mut length = [0; 4];
        connection.read_exact(&mut length).unwrap();
        let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
        connection.read_exact(&mut startup).unwrap();
        connection.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
        let mut password = vec![0; "p....hunter2\0".len()];
        connection.read_exact(&mut password).unwrap();
        connection.write_all(b"E\0\0\0\x1cSFATAL\0C28P01\0Mrefused\0\0").unwrap();
        password
    });
    (port, serving)
}

#[test]
fn no_command_prints_a_secret() {
    let (port, database) = refusing_database();
    let url = format!("postgres://me:hunter2@127.0.0.1:{port}/b?sslmode=disable");
    let variables = [("DATABASE_URL", &*url), ("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY)];
    for command in [&["config", "show"][..], &["config", "check"], &["migrate", "--log-filter=trace"]] {
        let (_, out, err) = run(&variables, command);
        assert!(!(out.clone() + &err).is_empty(), "{command:?}");
        assert!(
            ![out, err].iter().any(|text| text.contains("hunter2") || text.contains(OPERATOR_KEY)),
            "{command:?}"
        );
    }
    // Unblocks `accept`, if no command connected.
    drop(TcpStream::connect(("127.0.0.1", port)));
    let sent = database.join().unwrap();
    assert!(sent.ends_with(b"hunter2\0"), "the password was not used");
}

#[test]
fn generated_key_is_one_line_accepted_by_the_configuration() {
    let (code, key, err) = run(&[], &["key", "generate", "--operator"]);
    assert_eq!((code, err.as_str(), key.lines().count()), (Some(0), "", 1));
    let variables = [
        ("DATABASE_URL", "postgres://a/b"),
        ("WAGGLE_ADMIN__OPERATOR_KEY", key.trim_end()),
        ("WAGGLE_SERVER__LISTEN", "127.0.0.1:0"),
    ];
    assert_eq!(run(&variables, &["config", "check"]), output(0, "the settings are valid\n", ""));
    assert_ne!(run(&[], &["key", "generate", "--operator"]).1, key);
}

#[test]
fn operator_key_is_written_to_a_new_private_file() {
    let folder = TempDir::new().unwrap();
    let arguments = ["key", "generate", "--operator", "--out", "operator.key"];
    let (code, out, err) = parts(&waggle(&folder, &[], &arguments));
    let file = folder.path().join("operator.key");
    let key = fs::read_to_string(&file).unwrap();
    let display = &key[..12];
    assert_eq!(
        (code, out),
        (Some(0), format!("wrote the operator key {display}… to operator.key\n")),
        "{err}"
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let variables = [
        ("DATABASE_URL", "postgres://a/b"),
        ("WAGGLE_ADMIN__OPERATOR_KEYS_FILE", "operator.key"),
        ("WAGGLE_SERVER__LISTEN", "127.0.0.1:0"),
    ];
    let checked = parts(&waggle(&folder, &variables, &["config", "check"]));
    assert_eq!(checked, output(0, "the settings are valid\n", ""));
    let expected = "cannot write operator.key: File exists (os error 17)\n";
    assert_eq!(parts(&waggle(&folder, &[], &arguments)), output(1, "", expected));
    assert_eq!(fs::read_to_string(&file).unwrap(), key, "a key in force is not overwritten");
}

#[test]
fn files_directories_and_ports_are_checked() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "no key").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let variables = [
        ("DATABASE_URL", "postgres://a/b"),
        ("WAGGLE_ADMIN__OPERATOR_KEYS_FILE", "file"),
        ("WAGGLE_SERVER__TLS_CERTIFICATE", "nowhere.pem"),
        ("WAGGLE_SERVER__TLS_KEY", "nowhere.pem"),
        ("WAGGLE_AUDIT__SPILL_DIR", "file/spill"),
        ("WAGGLE_SERVER__LISTEN", address.as_str()),
        ("WAGGLE_ADMIN__LISTEN", "192.0.2.1:1"),
    ];
    let (code, out, err) = parts(&waggle(&folder, &variables, &["config", "check"]));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let expected = format!(
        "\
server.tls_certificate: nowhere.pem: No such file or directory (os error 2)
server.tls_key: nowhere.pem: No such file or directory (os error 2)
admin.operator_keys_file: file:1: not an operator key: it does not begin with bak_, oag_ or wag_; an operator key begins with wag_
audit.spill_dir: file is not a directory
admin.listen: cannot listen on 192.0.2.1:1: Cannot assign requested address (os error 99)
server.listen: {address} is in use by another program
"
    );
    assert_eq!(err, expected);
}

#[test]
fn invalid_arguments_are_a_usage_error() {
    for arguments in [&[][..], &["nonsense"], &["serve", "--nonsense"], &["key", "generate"], &["--listen"]] {
        let (code, out, err) = run(&[], arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(err.contains("Usage: waggle") || err.contains("try '--help'"), "{err}");
    }
}

#[test]
fn closed_pipe_is_no_failure_and_a_full_disk_is() {
    let printing = |stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waggle"));
        let output = command.env_clear().args(["config", "show"]).stdout(stdout).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(printing(writer.into()), (Some(0), String::new()));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let expected = "cannot write to standard output: No space left on device (os error 28)\n";
    assert_eq!(printing(full.into()), (Some(1), expected.to_owned()));
}

#[test]
fn ready_gateway_is_healthy() {
    let (address, request) = gateway("200 OK");
    let variables = [("WAGGLE_SERVER__LISTEN", format!("0.0.0.0:{}", address.port()))];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(run(&variables, &["health"]), output(0, "ready\n", ""));
    assert_eq!(request.join().unwrap(), "GET /readyz HTTP/1.1");
}

#[test]
fn health_url_flag_overrides_the_settings() {
    let (address, request) = gateway("204 No Content");
    let url = format!("http://{address}/hub/");
    let variables =
        [("WAGGLE_NONSENSE", "1"), ("HTTP_PROXY", "http://127.0.0.1:1"), ("SSL_CERT_FILE", "/nowhere")];
    assert_eq!(run(&variables, &["health", "--url", &url]), output(0, "ready\n", ""));
    assert_eq!(request.join().unwrap(), "GET /hub/readyz HTTP/1.1");
}

#[test]
fn unready_gateway_is_unhealthy_and_redirects_are_not_followed() {
    for status in ["503 Service Unavailable", "302 Found"] {
        let (address, request) = gateway(status);
        let expected = format!("not ready: http://{address}/readyz answered {status}\n");
        assert_eq!(run(&[], &["health", "--url", &format!("http://{address}")]), output(1, "", &expected));
        request.join().unwrap();
    }
}

#[test]
fn silent_gateway_fails_the_health_check_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let started = Instant::now();
    let expected = format!("not ready: {url}/readyz: no answer within 2 seconds\n");
    assert_eq!(run(&[], &["health", "--url", &url]), output(1, "", &expected));
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn health_check_fails_without_a_gateway() {
    let expected = "not ready: http://127.0.0.1:1/readyz: Connection refused (os error 111)\n";
    assert_eq!(run(&[], &["health", "--listen", "127.0.0.1:1"]), output(1, "", expected));
    let expected = "server.listen: port 0 is chosen at startup; use --url\n";
    assert_eq!(run(&[], &["health", "--listen", "127.0.0.1:0"]), output(2, "", expected));
}
