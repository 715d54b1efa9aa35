//! Tests of mounts.

use super::{Ages, ConnectionId, Mount, MountPlace, NewMount, TreeId};
use crate::model::ids::{ResourceUri, Slug};
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
    let resource = mount.resource(suffix, None, true).unwrap();
    assert_eq!(resource.uri.as_str(), "file:///guides/a/b%20c.md");
    assert_eq!(resource.definition.name, "b c.md");
    assert_eq!(resource.definition.mime_type.as_deref(), Some("text/markdown"));
    let source = resource.source.unwrap();
    assert_eq!(source.text().path.as_deref(), Some("docs/a/b%20c.md"));
    assert_eq!(source.uid(), Some(mount.connection));
}
