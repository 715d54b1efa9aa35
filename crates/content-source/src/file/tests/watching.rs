//! Notifications.

use futures_util::stream::BoxStream;
use notify::event::{AccessKind, AccessMode, Flag, ModifyKind};
use notify::{Event, EventKind};

use super::super::watch::Collected;
use super::*;

/// The next hint within a second.
async fn next(hints: &mut BoxStream<'static, ChangeHint>) -> Option<ChangeHint> {
    tokio::time::timeout(Duration::from_secs(1), hints.next()).await.expect("a hint within a second")
}

/// Hints until one is for the path.
async fn hinted(hints: &mut BoxStream<'static, ChangeHint>, text: &str) {
    let expected = path(text).unwrap().segments;
    loop {
        match next(hints).await {
            Some(ChangeHint::Path(path)) if path.segments == expected => return,
            Some(ChangeHint::Path(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Nothing is notified for a while.
async fn quiet(hints: &mut BoxStream<'static, ChangeHint>) {
    let hint = tokio::time::timeout(Duration::from_millis(400), hints.next()).await;
    assert!(hint.is_err(), "{hint:?}");
}

#[tokio::test]
async fn changes_of_a_tree_are_notified_within_a_second() {
    let files = Files::new();
    files.write("tree/a", "1");
    files.write("tree/deep/b", "1");
    files.write("other/c", "1");
    fs::create_dir(files.path("outside/linked")).unwrap();
    symlink("../../outside/linked", files.path("root/tree/link")).unwrap();
    let source = files.source();
    let tree = Tree { path: path("tree/").unwrap(), reference: None };
    let mut hints = source.watch(&tree).unwrap();
    assert_eq!(next(&mut hints).await, Some(ChangeHint::Everything));

    files.write("tree/a", "2");
    hinted(&mut hints, "tree/a").await;
    files.write("tree/deep/b", "2");
    hinted(&mut hints, "tree/deep/b").await;
    files.write("tree/new/d", "1");
    hinted(&mut hints, "tree/new").await;
    fs::rename(files.path("root/tree/a"), files.path("root/tree/e")).unwrap();
    hinted(&mut hints, "tree/e").await;
    fs::remove_file(files.path("root/tree/e")).unwrap();
    hinted(&mut hints, "tree/e").await;
    let times = fs::File::open(files.path("root/tree/deep/b")).unwrap();
    times.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    hinted(&mut hints, "tree/deep/b").await;

    // Neither reads nor what is not of the tree.
    quiet(&mut hints).await;
    assert!(texts(&source, "tree/deep/b").await.is_ok());
    files.write("other/c", "2");
    fs::write(files.path("outside/linked/f"), "1").unwrap();
    quiet(&mut hints).await;
}

#[test]
fn many_changes_and_lost_notifications_are_everything() {
    let (root, watched) = (std::path::Path::new("/r"), std::path::Path::new("/r/tree"));
    let changed = |path: &str| Event::new(EventKind::Modify(ModifyKind::Any)).add_path(path.into());
    let hint = |text: &str| ChangeHint::Path(path(text).unwrap());
    let lost = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    let read = Event::new(EventKind::Access(AccessKind::Open(AccessMode::Any))).add_path("/r/tree/a".into());
    let many: Vec<_> = (0..1001).map(|n| Some(changed(&format!("/r/tree/{n}")))).collect();
    let same = vec![Some(changed("/r/tree/a")); 1001];
    let cases = [
        (
            vec![Some(changed("/r/tree/a")), Some(changed("/r/tree/b/c"))],
            vec![hint("tree/a"), hint("tree/b/c")],
        ),
        (same, vec![hint("tree/a")]),
        (many[..1000].to_vec(), (0..1000).map(|n| hint(&format!("tree/{n}"))).collect()),
        (many, vec![ChangeHint::Everything]),
        (vec![Some(changed("/r/tree/a")), Some(lost)], vec![ChangeHint::Everything]),
        (vec![None], vec![ChangeHint::Everything]),
        (vec![Some(changed("/elsewhere"))], vec![ChangeHint::Everything]),
        (vec![Some(changed("/r/tree/d/a\\b"))], vec![hint("tree/d/")]),
        (vec![Some(read)], vec![]),
    ];
    for (events, mut expected) in cases {
        let collected = Collected::default();
        let case = format!("{:?} of {}", events[0], events.len());
        for event in events {
            collected.add(event, root, watched);
        }
        let mut found = collected.take().into_hints();
        let text = |hint: &ChangeHint| format!("{hint:?}");
        found.sort_unstable_by_key(text);
        expected.sort_unstable_by_key(text);
        assert_eq!(found, expected, "{case}");
    }
}

#[tokio::test]
async fn more_trees_are_watched_than_a_system_has_instances() {
    let files = Files::new();
    let names: Vec<_> = (0..200).map(|n| format!("{n}/deep")).collect();
    for name in &names {
        files.write(&format!("{name}/a"), "1");
    }
    let source = files.source();
    let mut watches = Vec::new();
    for name in &names {
        let tree = Tree { path: path(&format!("{name}/")).unwrap(), reference: None };
        let mut hints = source.watch(&tree).unwrap();
        assert_eq!(next(&mut hints).await, Some(ChangeHint::Everything));
        watches.push(hints);
    }
    for (name, hints) in names.iter().zip(&mut watches) {
        files.write(&format!("{name}/a"), "2");
        hinted(hints, &format!("{name}/a")).await;
    }
    // One that goes ends those below it alone.
    fs::remove_dir_all(files.path("root/7")).unwrap();
    let mut gone = watches.remove(7);
    let rest: Vec<_> = tokio::time::timeout(Duration::from_secs(2), gone.by_ref().collect()).await.unwrap();
    assert_eq!(rest.last(), Some(&ChangeHint::Everything));
    files.write("8/deep/a", "3");
    hinted(&mut watches[7], "8/deep/a").await;
}

#[tokio::test]
async fn a_watch_ends_when_its_directory_goes() {
    let files = Files::new();
    files.write("tree/a", "1");
    let source = files.source();
    let tree = Tree { path: path("tree/").unwrap(), reference: None };
    let mut hints = source.watch(&tree).unwrap();
    assert_eq!(next(&mut hints).await, Some(ChangeHint::Everything));
    fs::remove_dir_all(files.path("root/tree")).unwrap();
    let rest: Vec<_> = tokio::time::timeout(Duration::from_secs(2), hints.by_ref().collect()).await.unwrap();
    assert_eq!(rest.last(), Some(&ChangeHint::Everything));
    // What cannot be watched tells so, and is left alone.
    let mut hints = source.watch(&tree).unwrap();
    assert_eq!(next(&mut hints).await, Some(ChangeHint::Everything));
    quiet(&mut hints).await;
}
