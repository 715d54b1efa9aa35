//! Paths that try to leave the root, and files that are none.

use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{RenameFlags, renameat_with};

use super::*;

/// What a path answers.
#[derive(Debug, PartialEq)]
enum Answer {
    /// No location has such a path.
    Refused,
    Failed(FetchError),
    Text(String),
    Names(Vec<String>),
}

use Answer::Refused;

const MISSING: Answer = Answer::Failed(FetchError::NotFound);
const NOT: Answer = Answer::Failed(FetchError::NotAllowed);

async fn answer(source: &Arc<dyn Source>, text: &str) -> Answer {
    if path(text).is_none() {
        return Refused;
    }
    match tokio::time::timeout(Duration::from_secs(5), texts(source, text)).await.unwrap() {
        Err(error) => Answer::Failed(error),
        Ok(found) => match &found[..] {
            [(None, text)] => Answer::Text(text.clone()),
            _ => Answer::Names(found.into_iter().filter_map(|(name, _)| name).collect()),
        },
    }
}

async fn answers(source: &Arc<dyn Source>, cases: Vec<(&str, Answer)>) {
    let mut found = Vec::new();
    for (text, _) in &cases {
        found.push((*text, answer(source, text).await));
    }
    assert_eq!(found, cases);
}

fn attacked() -> Files {
    let files = Files::new();
    files.write("a", "inside");
    files.write("d/b", "inside b");
    files.write("Caf\u{e9}", "composed");
    files.write("%2e%2e", "a name");
    files.write("..%2f", "a name");
    files.write("...", "three dots");
    files.write(" ", "a space");
    files.write("~", "a tilde");
    files.write("-rf", "a dash");
    files.write("line\nbreak", "two lines");
    fs::write(files.path("outside/secret"), "secret").unwrap();
    fs::write(files.path("data/key"), "secret").unwrap();
    let root = files.path("root");
    let links = [
        ("out", "../outside"),
        ("out-file", "../outside/secret"),
        ("out-far", "../../../../../../../../etc/passwd"),
        ("absolute", "/etc/passwd"),
        ("slash", "/"),
        ("self", "."),
        ("up", ".."),
        ("in", "d/b"),
        ("in-dir", "d"),
        ("d/back", "../a"),
        ("d/out", "../../outside/secret"),
        ("chain", "chain2"),
        ("chain2", "out-file"),
        ("in-chain", "in"),
        ("circle", "circle2"),
        ("circle2", "circle"),
        ("dangling", "nowhere"),
        ("null", "/dev/null"),
        ("proc", "/proc/self/environ"),
        ("there-and-back", "../root/a"),
    ];
    for (link, to) in links {
        symlink(to, root.join(link)).unwrap();
    }
    // An absolute link leads out even where it leads back.
    symlink(root.join("a"), root.join("absolute-inside")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("fifo")).status().unwrap().success());
    files
}

#[tokio::test]
async fn no_path_leads_out_of_the_root() {
    let files = attacked();
    let text = |text: &str| Answer::Text(text.into());
    let cases = vec![
        ("a", text("inside")),
        ("d/b", text("inside b")),
        // No location.
        ("..", Refused),
        ("../outside/secret", Refused),
        ("../root/a", Refused),
        ("d/../a", Refused),
        ("d/../../outside/secret", Refused),
        ("./a", Refused),
        ("d/./b", Refused),
        ("d/..", Refused),
        ("../", Refused),
        ("/etc/passwd", Refused),
        ("//etc/passwd", Refused),
        ("d//b", Refused),
        ("a//", Refused),
        ("//", Refused),
        ("..\\outside\\secret", Refused),
        ("d\\b", Refused),
        ("a\0", Refused),
        ("a\0.md", Refused),
        ("\0", Refused),
        // A segment is taken literally: nothing is decoded or expanded.
        ("%2e%2e/outside/secret", MISSING),
        ("%2e%2e", text("a name")),
        ("..%2f", text("a name")),
        ("..%2foutside%2fsecret", MISSING),
        ("%2Fetc%2Fpasswd", MISSING),
        ("d%2fb", MISSING),
        ("%252e%252e/a", MISSING),
        ("..%00/a", MISSING),
        ("...", text("three dots")),
        (".../a", MISSING),
        (" ", text("a space")),
        ("~", text("a tilde")),
        ("~root/a", MISSING),
        ("-rf", text("a dash")),
        ("$HOME/a", MISSING),
        ("*", MISSING),
        ("line\nbreak", text("two lines")),
        ("file:/etc/passwd", MISSING),
        ("C:/a", MISSING),
        ("a:stream", MISSING),
        // Characters that look like dots and slashes.
        ("\u{ff0e}\u{ff0e}/outside/secret", MISSING),
        ("\u{2024}\u{2024}/outside/secret", MISSING),
        ("\u{2025}/outside/secret", MISSING),
        ("..\u{2215}outside\u{2215}secret", MISSING),
        ("..\u{ff0f}outside", MISSING),
        ("\u{c0}\u{ae}", MISSING),
        // Case and normal forms are those of the file system.
        ("A", MISSING),
        ("D/b", MISSING),
        ("Caf\u{e9}", text("composed")),
        ("Cafe\u{301}", MISSING),
        // A file is no directory, and a directory no file.
        ("a/", MISSING),
        ("a/b", MISSING),
        ("d", MISSING),
        ("d/", Answer::Names(vec!["b".into(), "back".into()])),
        ("nowhere/", MISSING),
    ];
    let too_long = "x".repeat(256);
    answers(&files.source(), cases).await;
    assert_eq!(answer(&files.source(), &too_long).await, MISSING);
    assert_eq!(answer(&files.source(), &"d/".repeat(3000)).await, MISSING);
}

#[tokio::test]
async fn links_lead_within_the_root_only() {
    let files = attacked();
    let text = |text: &str| Answer::Text(text.into());
    let cases = vec![
        ("in", text("inside b")),
        ("in-dir/b", text("inside b")),
        ("in-chain", text("inside b")),
        ("d/back", text("inside")),
        ("self/a", text("inside")),
        ("self/self/self/a", text("inside")),
        ("out/secret", NOT),
        ("out/", NOT),
        ("out", NOT),
        ("out-file", NOT),
        ("out-far", NOT),
        ("absolute", NOT),
        ("absolute-inside", NOT),
        ("slash/etc/passwd", NOT),
        ("slash/", NOT),
        ("up/outside/secret", NOT),
        ("up/root/a", NOT),
        ("up/", NOT),
        ("there-and-back", NOT),
        ("d/out", NOT),
        ("chain", NOT),
        ("self/out-file", NOT),
        ("proc", NOT),
        ("null", NOT),
        ("circle", MISSING),
        ("circle/", MISSING),
        ("dangling", MISSING),
    ];
    answers(&files.source(), cases).await;
}

#[tokio::test]
async fn only_regular_files_are_read() {
    let files = attacked();
    let listener = UnixListener::bind(files.path("root/socket")).unwrap();
    answers(&files.source(), vec![("fifo", MISSING), ("socket", MISSING), ("fifo/", MISSING)]).await;
    drop(listener);
    let system = context(vec!["/dev".into(), "/proc".into()], &files.path("data"));
    let devices = source("/dev".as_ref(), &system);
    let cases =
        vec![("null", MISSING), ("zero", MISSING), ("full", MISSING), ("random", MISSING), ("tty", MISSING)];
    answers(&devices, cases).await;
    // What leads to other files by magic and not by a path.
    let processes = source("/proc".as_ref(), &system);
    for path in ["self/root/etc/passwd", "self/cwd/Cargo.toml", "self/exe", "self/fd/0"] {
        let found = answer(&processes, path).await;
        assert!(matches!(found, Answer::Failed(_)), "{path}: {found:?}");
    }
    // Longer than its length, which is 0.
    let fetched = processes
        .fetch(&at("meminfo"), None, Bounds { bytes: 10, entries: 1, since: None, pace: None })
        .await;
    assert_eq!(fetched, Err(FetchError::TooLarge));
}

/// A process that waits for a reader of a pipe goes on waiting: the pipe is not even opened.
#[tokio::test]
async fn what_is_no_regular_file_is_not_opened() {
    let files = attacked();
    let pipe = files.path("root/fifo");
    let writing = std::thread::spawn({
        let pipe = pipe.clone();
        move || drop(fs::File::options().write(true).open(pipe).unwrap())
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    answers(&files.source(), vec![("fifo", MISSING)]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!writing.is_finished());
    drop(fs::File::open(pipe).unwrap());
    writing.join().unwrap();
}

/// A file and a pipe change places all the time, so that some reads check the one and open the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_opened_is_checked_again() {
    let files = attacked();
    let (done, root) = (Arc::new(AtomicBool::new(false)), files.path("root"));
    let exchanging = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let root = fs::File::open(root).unwrap();
            while !done.load(Ordering::Relaxed) {
                renameat_with(&root, "a", &root, "fifo", RenameFlags::EXCHANGE).unwrap();
            }
        }
    });
    let source = files.source();
    let until = std::time::Instant::now() + Duration::from_secs(2);
    while std::time::Instant::now() < until {
        let found = answer(&source, "a").await;
        assert!(found == MISSING || found == Answer::Text("inside".into()), "{found:?}");
    }
    done.store(true, Ordering::Relaxed);
    exchanging.join().unwrap();
}

/// Something replaces a file by links that lead out, by a pipe and by a directory, all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_replaced_during_the_read_does_not_lead_out() {
    let files = attacked();
    let (done, root) = (Arc::new(AtomicBool::new(false)), files.path("root"));
    let replacing = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let place = root.join("swapped");
            let next = root.join("next");
            while !done.load(Ordering::Relaxed) {
                for to in ["../outside/secret", "/etc/passwd", "fifo", "d", "a"] {
                    symlink(to, &next).unwrap();
                    fs::rename(&next, &place).unwrap();
                }
                fs::write(&next, "inside").unwrap();
                fs::rename(&next, &place).unwrap();
            }
        }
    });
    let source = files.source();
    let until = std::time::Instant::now() + Duration::from_secs(2);
    let mut read = 0;
    while std::time::Instant::now() < until {
        match answer(&source, "swapped").await {
            Answer::Text(text) => {
                assert_eq!(text, "inside");
                read += 1;
            }
            found => assert!(found == MISSING || found == NOT, "{found:?}"),
        }
    }
    done.store(true, Ordering::Relaxed);
    replacing.join().unwrap();
    assert!(read > 10, "{read}");
}
