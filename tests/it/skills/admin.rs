//! `/agents/{agent}/skills`, its files, and skills in manifests. Answers are compared whole.

use serde_json::{Value, json};
use tar::EntryType;

use super::{body, digest, file, put, send, skill, skill_md, tar, zip};
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Builder, encode, gateway, resource};
use crate::support::cluster::database;

#[tokio::test]
async fn skill_is_created_read_listed_replaced_and_deleted() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let path = skill("acme/refunds");
    let sent = body("refunds", &[("references/policy.md", "Policy"), ("参考/指南.txt", "中文")]);
    let written = replica.admin("PUT", &path, Some(sent.clone())).await;
    assert_eq!(normalized(&written), answered(201, Some(2), &Value::Null));
    let text = skill_md("refunds");
    let whole = json!({
        "path": "acme/refunds",
        "files": [
            {"path": "参考/指南.txt", "mimeType": "text/plain", "text": "中文"},
            {"path": "SKILL.md", "mimeType": "text/markdown", "text": text},
            {"path": "references/policy.md", "mimeType": "text/markdown", "text": "Policy"},
        ],
    });
    assert_eq!(normalized(&replica.admin("GET", &path, None).await), answered(200, Some(2), &whole));
    let uri = |file: &str| format!("skill://acme/refunds/{file}");
    let listed = json!({"items": [{
        "path": "acme/refunds", "uri": uri("SKILL.md"), "name": "refunds", "description": "Does refunds",
        "files": [
            {"path": "参考/指南.txt", "uri": uri("%E5%8F%82%E8%80%83/%E6%8C%87%E5%8D%97.txt"),
             "mimeType": "text/plain", "size": 6, "digest": digest("中文")},
            {"path": "SKILL.md", "uri": uri("SKILL.md"), "mimeType": "text/markdown", "size": text.len(),
             "digest": digest(&text)},
            {"path": "references/policy.md", "uri": uri("references/policy.md"), "mimeType": "text/markdown",
             "size": 6, "digest": digest("Policy")},
        ],
    }], "nextCursor": null});
    let list = replica.admin("GET", "/agents/a/skills", None).await;
    assert_eq!(normalized(&list), answered(200, None, &listed));

    let same = replica.admin("PUT", &path, Some(sent)).await;
    assert_eq!(normalized(&same), answered(200, Some(2), &Value::Null), "unchanged");
    assert_eq!(put(&replica, "acme/refunds", body("refunds", &[("b", "1")])).await, 3);
    let files = replica.admin("GET", "/agents/a/skills", None).await.json()["items"][0]["files"].clone();
    let paths: Vec<_> = files.as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
    assert_eq!(paths, ["SKILL.md", "b"]);

    let gone = replica.admin("DELETE", &path, None).await;
    assert_eq!(normalized(&gone), answered(204, Some(4), &Value::Null));
    let missing = problem(404, "not_found", "no such skill");
    assert_eq!(normalized(&replica.admin("GET", &path, None).await), missing);
    assert_eq!(normalized(&replica.admin("DELETE", &path, None).await), missing);
}

#[tokio::test]
async fn archives_replace_a_skill_and_keep_its_labels() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let mut labelled = body("refunds", &[]);
    labelled["labels"] = json!(["team"]);
    put(&replica, "refunds", labelled).await;
    let text = skill_md("refunds");
    let bytes: Vec<u8> = (0..=255).collect();
    let path = skill("refunds");
    for (mime, archive) in [
        ("application/zip", zip(&[("SKILL.md", text.as_bytes()), ("a/b.bin", &bytes)])),
        ("application/gzip", tar(&[("refunds/SKILL.md", EntryType::Regular, text.as_bytes())])),
        ("application/zip", zip(&[("refunds/SKILL.md", text.as_bytes()), ("refunds/a/b.bin", &bytes)])),
    ] {
        let answer = send(&replica, ("PUT", &path), mime, archive).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let skill = replica.admin("GET", &path, None).await.json();
    assert_eq!(skill["labels"], json!(["team"]));
    assert_eq!(skill["files"][1]["path"], "a/b.bin");
    assert_eq!(skill["files"][1]["mimeType"], "application/octet-stream");
    let read = replica.admin("GET", &file("refunds", "a/b.bin"), None).await;
    assert_eq!(read.body.to_vec(), bytes);
    assert_eq!(read.header("content-disposition"), Some("attachment"));
    let refused = send(&replica, ("PUT", &path), "application/x-tar", Vec::new()).await;
    let expected = "Content-Type must be application/json, application/zip or application/gzip";
    assert_eq!(normalized(&refused), problem(415, "unsupported_media_type", expected));
}

#[tokio::test]
async fn archives_keep_the_mime_types_of_the_files_that_they_replace() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let (text, path) = (skill_md("refunds"), skill("refunds"));
    let archive = |notes: &'static [u8]| {
        zip(&[("SKILL.md", text.as_bytes()), ("notes.txt", notes), ("other.txt", b"other")])
    };
    assert_eq!(send(&replica, ("PUT", &path), "application/zip", archive(b"one")).await.status, 201);
    let typed = send(&replica, ("PUT", &file("refunds", "notes.txt")), "text/x-notes", b"one".to_vec()).await;
    assert_eq!(typed.status, 200, "{}", typed.text());
    for (notes, expected) in [(&b"two"[..], "text/x-notes"), (&b"\0"[..], "application/octet-stream")] {
        assert_eq!(send(&replica, ("PUT", &path), "application/zip", archive(notes)).await.status, 200);
        let files = replica.admin("GET", &path, None).await.json()["files"].clone();
        let types: Vec<_> = files.as_array().unwrap().iter().map(|file| file["mimeType"].clone()).collect();
        assert_eq!(types, ["text/markdown", expected, "text/plain"]);
    }
}

#[tokio::test]
async fn single_files_are_written_read_and_deleted() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let first = file("refunds", "SKILL.md");
    let put_file = async |path: &str, mime: &str, bytes: &[u8]| {
        normalized(&send(&replica, ("PUT", path), mime, bytes.to_vec()).await)
    };
    let none = Value::Null;
    let other = file("refunds", "scripts/run.py");
    let missing = problem(404, "not_found", "no such skill");
    assert_eq!(put_file(&other, "text/x-python", b"pass").await, missing);
    let text = skill_md("refunds");
    assert_eq!(put_file(&first, "text/html", text.as_bytes()).await, answered(201, Some(2), &none));
    assert_eq!(
        put_file(&other, "application/x-www-form-urlencoded", b"pass").await,
        answered(200, Some(3), &none)
    );
    assert_eq!(put_file(&other, "text/x-other", b"pass\n").await, answered(200, Some(4), &none));
    let read = replica.admin("GET", &other, None).await;
    assert_eq!((read.header("content-type"), &read.body[..]), (Some("text/x-other"), &b"pass\n"[..]));
    let read = replica.admin("GET", &first, None).await;
    assert_eq!(read.header("content-type"), Some("text/markdown"), "for any type that was sent");

    let refused = [
        (&first, &b"no frontmatter"[..], "SKILL.md must begin with a line ---"),
        (&first, skill_md("other").as_bytes(), "frontmatter: name \"other\" differs from the folder \"refunds\""),
        (&file("refunds", "../x"), b"", "file has a segment . or .."),
        (&file("refunds", "scripts"), b"", "\"scripts\" is both a file and a directory"),
        (&file("Refunds", "x"), b"", "path does not end in the name of a skill: 1 to 64 of a-z and 0-9, with single hyphens between them"),
    ]
    .map(|(path, bytes, detail)| (path.clone(), bytes.to_vec(), detail));
    for (path, bytes, detail) in refused {
        assert_eq!(put_file(&path, "text/plain", &bytes).await, problem(400, "invalid_params", detail));
    }
    let delete = async |path: &str| normalized(&replica.admin("DELETE", path, None).await);
    let kept = problem(400, "invalid_params", "SKILL.md cannot be deleted; delete the skill");
    assert_eq!(delete(&first).await, kept);
    assert_eq!(delete(&other).await, answered(204, Some(5), &none));
    assert_eq!(delete(&other).await, problem(404, "not_found", "no such file"));
    assert_eq!(
        normalized(&replica.admin("GET", &other, None).await),
        problem(404, "not_found", "no such file")
    );
    let stale = [("if-match", "\"4\""), ("authorization", &format!("Bearer {}", replica.operator))];
    let path = format!("/admin/v1{first}");
    let stale = replica.http.send("PUT", &path, &stale, text).await;
    assert_eq!(stale.status, 412);
}

#[tokio::test]
async fn skills_and_resources_do_not_overlap() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    put(&replica, "acme/refunds", body("refunds", &[])).await;
    replica.put("a", "skill://x/y/z", "").await;
    replica.put("a", "skill://prefix", "").await;
    let occupied =
        problem(409, "already_exists", "a skill or a resource above, at or below this path exists already");
    for path in ["acme/refunds/inner", "x", "x/y", "x/y/z", "acme", "prefix/s", "prefix/s/t"] {
        let name = path.rsplit('/').next().unwrap();
        let answer = replica.admin("PUT", &skill(path), Some(body(name, &[]))).await;
        assert_eq!(normalized(&answer), occupied, "{path}");
    }
    let inside = problem(409, "already_exists", "a skill above, at or below this URI exists already");
    let definition = json!({"name": "n", "contents": []});
    for uri in [
        "skill://acme/refunds/x",
        "skill://acme/refunds",
        "skill://acme",
        "skill://ACME/",
        "skill://acme/refunds/SKILL.md",
        "skill://ACME/refunds/x",
        "skill://acme//refunds/x",
        "skill://acme/refund%73/x",
        "skill://acme/x/../refunds/x",
    ] {
        let answer = replica.admin("PUT", &resource("a", uri), Some(definition.clone())).await;
        assert_eq!(normalized(&answer), inside, "{uri}");
    }
    // Nor below one that is added later.
    let written = "uri must be written skill://later/s/x, as the URIs of skills are";
    let answer = replica.admin("PUT", &resource("a", "skill://Later/s/x"), Some(definition)).await;
    assert_eq!(normalized(&answer), problem(400, "invalid_params", written));
    let resources = json!([{"uri": "skill://later//s/x", "name": "n", "contents": []}]);
    let manifest = json!({"apiVersion": "waggle/v1", "resources": resources});
    let answer = replica.admin("PUT", "/agents/a/manifest", Some(manifest)).await;
    assert_eq!(normalized(&answer), problem(400, "invalid_params", written));
    replica.put("a", "skill://acme/refunds-2", "").await;
    put(&replica, "acme/refund", body("refund", &[])).await;
    let template = json!({"name": "n", "template": ""});
    let answer =
        replica.admin("PUT", "/agents/a/templates?uriTemplate=skill:%2F%2Fa%2F%7Bb%7D", Some(template)).await;
    let refused = "uriTemplate has the scheme skill, which only skills have";
    assert_eq!(normalized(&answer), problem(400, "invalid_params", refused));
}

#[tokio::test]
async fn manifest_without_skills_leaves_them_and_an_empty_list_deletes_them() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let apply = async |members: Value| {
        let mut manifest = json!({"apiVersion": "waggle/v1"});
        manifest.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        replica.admin("PUT", "/agents/a/manifest", Some(manifest)).await
    };
    let of = |name: &str, files: &[(&str, &str)]| {
        let mut skill = body(name, files);
        skill["path"] = json!(format!("acme/{name}"));
        skill
    };
    let of_skills = |skills: &[&str]| json!({"count": skills.len(), "resources": [], "templates": [], "prompts": [], "skills": skills, "mounts": []});
    let (none, some) = (of_skills(&[]), |path: &str| of_skills(&[path]));
    let expected = |revision: i64, created: &Value, updated: &Value, deleted: &Value, unchanged: usize| {
        let body = json!({
            "revision": revision, "created": created, "updated": updated, "deleted": deleted, "unchanged": unchanged,
        });
        answered(200, Some(revision), &body)
    };
    let before = replica.admin("GET", "/agents/a/manifest", None).await.json();
    let answer = apply(json!({"skills": [of("refunds", &[])]})).await;
    assert_eq!(normalized(&answer), expected(2, &some("acme/refunds"), &none, &none, 0));
    assert_eq!(normalized(&apply(json!({})).await), expected(2, &none, &none, &none, 0));
    let answer = apply(json!({"skills": [of("refunds", &[("a", "1")])]})).await;
    assert_eq!(normalized(&answer), expected(3, &none, &some("acme/refunds"), &none, 0));
    let exported = replica.admin("GET", "/agents/a/manifest", None).await.json();
    assert_eq!(exported["skills"][0]["files"].as_array().unwrap().len(), 2);
    let again = replica.admin("PUT", "/agents/a/manifest", Some(exported)).await;
    assert_eq!(
        normalized(&again),
        expected(3, &none, &none, &none, 1),
        "an exported manifest changes nothing"
    );

    let over = json!({"resources": [{"uri": "skill://acme/refunds/x", "name": "n", "contents": []}]});
    let inside = problem(409, "already_exists", "a skill above, at or below this URI exists already");
    assert_eq!(normalized(&apply(over).await), inside);
    let nested = json!({"skills": [of("a", &[]), {"path": "acme/a/b", "files": body("b", &[])["files"]}]});
    let occupied =
        problem(409, "already_exists", "a skill or a resource above, at or below this path exists already");
    assert_eq!(normalized(&apply(nested).await), occupied);
    let bad = apply(json!({"skills": [{"path": "acme/a", "files": []}]})).await;
    assert_eq!(normalized(&bad), problem(400, "invalid_params", "skills[0] (acme/a): SKILL.md is missing"));
    // An export of before there were skills has none of them.
    let restored = replica.admin("PUT", "/agents/a/manifest", Some(before)).await;
    assert_eq!(normalized(&restored), expected(4, &none, &none, &some("acme/refunds"), 0));
    apply(json!({"skills": [of("refunds", &[])]})).await;
    assert_eq!(
        normalized(&apply(json!({"skills": []})).await),
        expected(6, &none, &none, &some("acme/refunds"), 0)
    );
}

#[tokio::test]
async fn page_of_skills_has_the_default_of_lists_and_ends_by_its_files() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let apply = async |skills: Vec<Value>| {
        let manifest = json!({"apiVersion": "waggle/v1", "skills": skills});
        let applied = replica.admin("PUT", "/agents/a/manifest", Some(manifest)).await;
        assert_eq!(applied.status, 200, "{}", applied.text());
    };
    let named = |number: usize, files: &[(&str, &str)]| {
        let name = format!("s{number:03}");
        let mut skill = body(&name, files);
        skill["path"] = json!(name);
        skill
    };
    let pages = async |limit: &str| {
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = replica.admin("GET", &format!("/agents/a/skills?{limit}{cursor}"), None).await.json();
            pages.push(page["items"].as_array().unwrap_or_else(|| panic!("{page}")).len());
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={}", encode(next)),
                None => return pages,
            }
        }
    };
    apply((0..120).map(|number| named(number, &[])).collect()).await;
    assert_eq!((pages("").await, pages("limit=500").await), (vec![100, 20], vec![120]));
    // Their lists of files have more than three megabytes together.
    let paths: Vec<_> = (0..500).map(|number| format!("{number:03}{}", "y".repeat(200))).collect();
    let files: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
    apply((0..20).map(|number| named(number, &files)).collect()).await;
    let pages = pages("").await;
    assert!(pages.len() > 1 && pages.iter().sum::<usize>() == 20, "{pages:?}");
}

#[tokio::test]
async fn files_count_as_resources_and_free_their_places() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__RESOURCES_PER_AGENT", 4).start().await;
    replica.acme("a").await;
    put(&replica, "one", body("one", &[("a", "1"), ("b", "2")])).await;
    replica.put("a", "x:1", "").await;
    let full = problem(400, "invalid_params", "the agent's limit of resources is reached; delete one first");
    let definition = json!({"name": "n", "contents": []});
    let another = replica.admin("PUT", &resource("a", "x:2"), Some(definition)).await;
    assert_eq!(normalized(&another), full);
    assert_eq!(normalized(&replica.admin("PUT", &skill("two"), Some(body("two", &[]))).await), full);
    let grown = body("one", &[("a", "1"), ("b", "2"), ("c", "3")]);
    assert_eq!(normalized(&replica.admin("PUT", &skill("one"), Some(grown.clone())).await), full);
    // A dry run of a manifest counts them too.
    let resources = json!([{"uri": "x:1", "name": "n", "contents": []}]);
    let skills = json!([{"path": "one", "files": grown["files"]}]);
    let manifest = json!({"apiVersion": "waggle/v1", "resources": resources, "skills": skills});
    for path in ["/agents/a/manifest", "/agents/a/manifest?dryRun=true"] {
        let answer = replica.admin("PUT", path, Some(manifest.clone())).await;
        assert_eq!(normalized(&answer), full, "{path}");
    }
    put(&replica, "one", body("one", &[])).await;
    put(&replica, "two", body("two", &[])).await;
    replica.put("a", "x:2", "").await;
    assert_eq!(replica.admin("DELETE", &skill("one"), None).await.status, 204);
    replica.put("a", "x:3", "").await;
}
