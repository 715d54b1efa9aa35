//! Resources whose content is a directory of a connection.

use serde_json::json;

use super::Files;
use crate::support::app::resource;

#[tokio::test]
async fn directory_is_listed_as_one_and_has_a_content_for_each_file() {
    let site = Files::new().await;
    for (path, text) in [("guides/a.md", "# a"), ("guides/b.txt", "b"), ("guides/deep/c.md", "# c")] {
        site.write(path, text);
    }
    site.resource("guides", "guides/").await;
    site.resource("one", "guides/a.md").await;
    let body = json!({"name": "typed", "mimeType": "text/x-typed",
        "source": {"connection": "docs", "path": "guides/"}});
    let typed = site.replica.admin("PUT", &resource("notes", "test://typed"), Some(body)).await;
    assert_eq!(typed.status, 201, "{}", typed.text());

    let listed = site.replica.http.call("notes", &site.key, "resources/list", json!({})).await;
    let mut resources = listed["result"]["resources"].clone();
    for resource in resources.as_array_mut().unwrap() {
        assert!(resource["annotations"]["lastModified"].take().is_string(), "{resource}");
    }
    let annotations = json!({"lastModified": null});
    let expected = json!([
        {"uri": "test://guides", "name": "guides", "mimeType": "inode/directory", "annotations": annotations},
        {"uri": "test://one", "name": "one", "annotations": annotations},
        {"uri": "test://typed", "name": "typed", "mimeType": "text/x-typed", "annotations": annotations},
    ]);
    assert_eq!(resources, expected);
    let read =
        site.replica.http.call("notes", &site.key, "resources/read", json!({"uri": "test://guides"})).await;
    let contents = json!([
        {"uri": "test://guides/a.md", "mimeType": "text/markdown", "text": "# a"},
        {"uri": "test://guides/b.txt", "mimeType": "text/plain", "text": "b"},
    ]);
    assert_eq!(read["result"]["contents"], contents, "{read}");
}
