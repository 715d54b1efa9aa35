//! Tests of mounts.

use content_source::{Location, Segment};
use proptest::prelude::*;
use time::OffsetDateTime;

use super::{Ages, ConnectionId, Mount, MountEntry, MountPlace, NewMount, TreeId};
use crate::model::ids::{MAX_URI_BYTES, ResourceUri, Slug};
use crate::model::label::Labels;
use crate::model::scope::Revision;

fn new(uri: &str, path: &str) -> NewMount {
    NewMount {
        name: Slug::parse("guides").unwrap(),
        uri: ResourceUri::parse(uri).unwrap(),
        place: MountPlace {
            connection: "docs".to_owned(),
            path: path.to_owned(),
            reference: None,
            include: vec!["**/*.md".to_owned()],
            exclude: Vec::new(),
        },
        ages: Ages::default(),
        annotations: None,
        labels: Labels::default(),
    }
}

fn mount(uri: &str, path: &str) -> Mount {
    let ids = (ConnectionId(uuid::Uuid::nil()), TreeId(1));
    Mount::new(new(uri, path), ids, Revision(1), None).unwrap()
}

#[test]
fn mounts_are_checked() {
    for (uri, path, wrong) in [
        ("file:///guides", "", "uri must end in /, without a query or a fragment"),
        ("file:///guides?a=/", "", "uri must end in /, without a query or a fragment"),
        ("skill://guides/", "", "uri has the scheme skill, which only skills have"),
        ("SKILL:guides/", "", "uri has the scheme skill, which only skills have"),
        ("file:///", "guides", "path must be empty or end in /: it is a directory"),
        ("file:///", "../guides/", "path must be relative, without empty, `.` and `..` segments"),
        ("file:///", "a%3Ab/", "path must be relative, without a scheme"),
        ("file:///", "{name}/", "path of a mount has no variables"),
    ] {
        let fault = new(uri, path).check().map(drop).unwrap_err();
        assert_eq!(fault.to_string(), wrong, "{uri} {path}");
    }
    assert!(new("file:///guides/", "a%20b/").check().is_ok());
}

#[test]
fn files_are_resources_below_the_uri() {
    let mount = mount("file:///guides/", "docs/");
    let (suffix, path) = mount.path_of("file:///guides/a/b%20c.md").unwrap();
    assert_eq!((suffix, path.as_str()), ("a/b%20c.md", "a/b c.md"));
    for other in ["file:///guides/a.txt", "file:///guides/", "file:///guides/a/../b.md", "file:///a.md"] {
        assert_eq!(mount.path_of(other), None, "{other}");
    }
    let resource = mount.resource(suffix, None).unwrap();
    assert_eq!(resource.uri.as_str(), "file:///guides/a/b%20c.md");
    assert_eq!(resource.definition.name, "b c.md");
    assert_eq!(resource.definition.mime_type, None, "that of the source");
    let source = resource.source.unwrap();
    assert_eq!(source.text().path.as_deref(), Some("docs/a/b%20c.md"));
    assert_eq!(source.uid(), Some(mount.connection));
}

#[test]
fn paths_of_no_file_have_no_uri() {
    let mount = mount("file:///guides/", "");
    let longest = "a".repeat(MAX_URI_BYTES - mount.uri.as_str().len());
    assert_eq!(mount.uri_of(&longest), ResourceUri::parse(&format!("file:///guides/{longest}")).ok());
    for path in [format!("{longest}a"), "a//b".to_owned(), "../a".to_owned(), "a b".to_owned(), String::new()]
    {
        assert_eq!((mount.uri_of(&path), mount.resource(&path, None).map(drop)), (None, None), "{path}");
    }
}

proptest! {
    #[test]
    fn listed_files_are_those_that_are_read(path in "[^/\\\\\u{0}]{1,8}(/[^/\\\\\u{0}]{1,8}){0,2}") {
        prop_assume!(path.split('/').all(|segment| segment != "." && segment != ".."));
        let (mount, suffix) = (mount("docs:///", "a%20b/"), file_tree::encode(&path));
        let modified = OffsetDateTime::UNIX_EPOCH;
        let entry = MountEntry { size: Some(7), modified, validator: [0; 16], revision: Revision(3) };
        let uri = mount.uri.below(&suffix).unwrap();
        prop_assert_eq!(Ok(uri.clone()), ResourceUri::parse(&format!("docs:///{suffix}")));
        let listed = mount.listed(uri, &suffix, &entry).unwrap();
        let read = mount.resource(&suffix, Some(&entry)).unwrap();
        prop_assert_eq!((listed.uri, listed.revision), (read.uri, read.revision));
        prop_assert_eq!(&listed.definition.name, path.rsplit('/').next().unwrap());
        prop_assert_eq!(&listed.definition.name, &read.definition.name);
        prop_assert_eq!(listed.definition.mime_type.as_deref(), ::skill::mime_type_by_name(&read.definition.name));
        prop_assert_eq!((listed.parts[0].size, read.parts.len()), (7, 0));
        let Some(Location::Path { path: located, .. }) = read.source.unwrap().locate(&[]) else {
            panic!("{path}")
        };
        let segments: Vec<_> = located.segments.iter().map(Segment::as_str).collect();
        prop_assert_eq!((segments.join("/"), located.is_directory), (format!("a b/{path}"), false));
    }
}
