//! Long texts, large data and pages of tools.

use serde_json::{Value, json};

use super::{Agent, MODERN, said, shown, text};

const SMALL: (&str, &str) = ("WAGGLE_LIMITS__TOOL_RESULT_BYTES", "1024");

#[tokio::test]
async fn long_text_is_read_in_parts() {
    let agent = Agent::with(json!(["resources"]), &[SMALL]).await;
    let whole = format!("a{}", "é".repeat(1_100));
    let (one, two) = whole.split_at(801);
    let parts = json!([{"text": one}, {"blob": "AAH/", "mimeType": "image/png"}, {"text": two}]);
    agent.put("x:long", json!({"name": "n", "contents": parts})).await;
    let image = json!({"type": "image", "data": "AAH/", "mimeType": "image/png"});
    let next = |offset: usize| {
        text(&format!(
            "The text has 2201 bytes and continues: call read_resource again with \"offset\": {offset}."
        ))
    };
    let read = async |offset: usize| {
        agent.result("read_resource", json!({"uri": "x:long", "offset": offset})).await["content"].clone()
    };
    // The limit is inside a character.
    assert_eq!(read(0).await, json!([text(one), image, text(&two[..222]), next(1_023)]));
    assert_eq!(read(1_023).await, json!([text(&two[222..1_246]), next(2_047)]));
    assert_eq!(read(2_047).await, json!([text(&two[1_246..])]));
    // An offset inside a character is that of the character.
    assert_eq!(read(2_048).await, json!([text(&two[1_246..])]));
    assert_eq!(read(2_201).await, json!([]));
    // An integer of JSON Schema may have a fraction of zero.
    let same = agent.result("read_resource", json!({"uri": "x:long", "offset": 2_047.0})).await;
    assert_eq!(same["content"], json!([text(&two[1_246..])]));
    let far = agent.result("read_resource", json!({"uri": "x:long", "offset": 2_202})).await;
    let fault = "invalid_params: arguments.offset is 2202, after the end of the text at 2201";
    assert_eq!(far, shown(fault));
}

#[tokio::test]
async fn too_much_data_is_an_error() {
    let agent = Agent::with(json!(["resources", "prompts"]), &[SMALL]).await;
    let data = |length: usize| {
        use base64::Engine;
        base64::prelude::BASE64_STANDARD.encode(vec![0; length])
    };
    agent.put("x:fits", json!({"name": "n", "contents": [{"blob": data(1_024)}]})).await;
    agent.put("x:large", json!({"name": "n", "contents": [{"blob": data(1_024)}, {"blob": data(1)}]})).await;
    assert_eq!(agent.result("read_resource", json!({"uri": "x:fits"})).await.get("isError"), None);
    let large = agent.result("read_resource", json!({"uri": "x:large"})).await;
    let fault =
        "payload_too_large: the data has 1025 bytes, more than the 1024 that the result of a tool may have";
    assert_eq!(large, shown(fault));
    for length in [1_024, 1_025] {
        let image = json!({"type": "image", "data": data(length), "mimeType": "image/png"});
        agent.prompt("large", json!({"messages": [said(image.clone())]})).await;
        let expected = if length == 1_024 { json!({"content": [image]}) } else { shown(fault) };
        assert_eq!(agent.result("get_prompt", json!({"name": "large"})).await, expected);
    }
}

#[tokio::test]
async fn long_text_of_a_prompt_ends_at_the_limit() {
    let agent = Agent::with(json!(["prompts"]), &[SMALL]).await;
    let long = format!("a{}", "é".repeat(600));
    let messages = json!([said(text("b")), said(text(&long)), said(text("c"))]);
    agent.prompt("long", json!({"messages": messages})).await;
    let result = agent.result("get_prompt", json!({"name": "long"})).await;
    let note = text("The text of the prompt is longer and ends here, at offset 1024.");
    let content = json!([text("[user]"), text("b"), text("[user]"), text(&long[..1_023]), note]);
    assert_eq!(result, json!({"content": content}));

    let embedded = |text: &str| json!({"type": "resource", "resource": {"uri": "x:y", "text": text}});
    let messages = json!([said(embedded(&long)), said(text("c"))]);
    agent.prompt("long", json!({"messages": messages})).await;
    let note = text("The text of the prompt is longer and ends here, at offset 1023.");
    let content = json!([text("[user]"), embedded(&long[..1_023]), note]);
    assert_eq!(agent.result("get_prompt", json!({"name": "long"})).await, json!({"content": content}));

    let full = "a".repeat(1_024);
    agent.prompt("long", json!({"messages": [said(text(&full)), said(text("c"))]})).await;
    let note = text("The text of the prompt is longer and ends here, at offset 1024.");
    let content = json!([text("[user]"), text(&full), text("[user]"), note]);
    assert_eq!(agent.result("get_prompt", json!({"name": "long"})).await, json!({"content": content}));
}

/// The definitions on all pages of a tool, and the number of pages.
async fn pages(agent: &Agent, tool: &str, members: &[&str]) -> (Vec<String>, usize) {
    let (mut found, mut count, mut arguments) = (Vec::new(), 0, json!({}));
    loop {
        let object = agent.result(tool, arguments).await["structuredContent"].clone();
        count += 1;
        for member in members {
            let name = |item: &Value| {
                let key = ["uri", "uriTemplate", "name"].into_iter().find_map(|key| item[key].as_str());
                key.unwrap().to_owned()
            };
            found.extend(object[member].as_array().unwrap().iter().map(name));
        }
        let Some(cursor) = object.get("nextCursor") else { return (found, count) };
        arguments = json!({"cursor": cursor});
    }
}

#[tokio::test]
async fn lists_have_pages_below_the_limit() {
    let agent = Agent::with(json!(["resources", "prompts"]), &[SMALL]).await;
    let mut expected = Vec::new();
    for number in 0..9 {
        let uri = format!("x:{number}");
        let body = json!({"name": "n", "description": "d".repeat(150), "contents": []});
        agent.put(&uri, body).await;
        expected.push(uri);
    }
    for template in ["t:{a}", "u:{a}"] {
        let path = format!("/agents/a/templates?uriTemplate={}", crate::support::app::encode(template));
        let body = json!({"name": "n", "description": "d".repeat(2_000), "template": "x"});
        assert_eq!(agent.replica.admin("PUT", &path, Some(body)).await.status, 201);
        expected.push(template.to_owned());
    }
    let (found, count) = pages(&agent, "list_resources", &["resources", "resourceTemplates"]).await;
    assert_eq!(found, expected);
    // Four resources fit a page; a template alone is larger than a page.
    assert_eq!(count, 5);
    for page in ["list_resources", "list_prompts"] {
        let fault = "invalid_params: cursor is not valid for this list";
        assert_eq!(agent.result(page, json!({"cursor": "AAAA"})).await, shown(fault));
    }
}

#[tokio::test]
async fn lists_have_pages_of_the_set_size() {
    let sets = json!(["resources", "prompts", "prompt_tools"]);
    for size in [1, 2, 3, 100] {
        let agent = Agent::with(sets.clone(), &[("WAGGLE_MCP__PAGE_SIZE", &size.to_string())]).await;
        for name in ["a", "b", "c.c", "d"] {
            agent.prompt(name, json!({"messages": [said(text("p"))]})).await;
            agent.put(&format!("x:{name}"), json!({"name": "n", "contents": []})).await;
        }
        let (found, count) = pages(&agent, "list_resources", &["resources", "resourceTemplates"]).await;
        assert_eq!(
            (found, count),
            (["x:a", "x:b", "x:c.c", "x:d"].map(str::to_owned).to_vec(), 4_usize.div_ceil(size))
        );
        let (found, count) = pages(&agent, "list_prompts", &["prompts"]).await;
        assert_eq!(
            (found, count),
            (["a", "b", "c.c", "d"].map(str::to_owned).to_vec(), 4_usize.div_ceil(size))
        );
        let (mut names, mut pages, mut params) = (Vec::new(), 0, json!({}));
        loop {
            let page = agent.ask(&agent.key, MODERN, "tools/list", params).await.json()["result"].clone();
            pages += 1;
            names.extend(page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()));
            let Some(cursor) = page.get("nextCursor") else { break };
            params = json!({"cursor": cursor});
        }
        let all = ["list_resources", "read_resource", "list_prompts", "get_prompt", "a", "b", "d"];
        assert_eq!(names, all, "{size}");
        assert_eq!(pages, 7_usize.div_ceil(size));
    }
}
