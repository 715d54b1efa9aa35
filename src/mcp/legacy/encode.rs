//! Encodes results of the legacy era as JSON, without request ids.

use std::borrow::Cow;

use serde::Serialize;

use super::content;
use crate::mcp::result::{ResultMembers, append};
use crate::mcp::server::{Capabilities, Implementation};
use crate::mcp::version::ProtocolVersion;
use crate::model::agent::AgentDescription;
use crate::model::fault::Fault;

/// Appends the result of a call, the same in all revisions of the era except for the content of prompts.
///
/// # Errors
/// [`Fault::Internal`] if stored text is not UTF-8.
pub(in crate::mcp) fn result(
    out: &mut Vec<u8>,
    members: ResultMembers<'_>,
    version: ProtocolVersion,
) -> Result<(), Fault> {
    let members = match members {
        ResultMembers::Messages { description, messages: Cow::Borrowed(messages) } => {
            let messages = content::known(messages, version.content_types());
            ResultMembers::Messages { description, messages }
        }
        members => members,
    };
    out.reserve(members.encoded_len());
    append(out, &members)
}

/// Appends the result of `initialize`.
///
/// # Errors
/// [`Fault::Internal`] if stored text is not UTF-8.
pub fn initialize(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    agent: &AgentDescription,
) -> Result<(), Fault> {
    let result = Initialized {
        protocol_version: version.as_str(),
        capabilities: Capabilities::of(version),
        server_info: Implementation::of(agent, version.knows_titles()),
        instructions: agent.instructions.as_deref(),
    };
    append(out, &result)
}

/// The result of `ping`.
pub const EMPTY: &[u8] = b"{}";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Initialized<'a> {
    protocol_version: &'static str,
    capabilities: Capabilities,
    server_info: Implementation<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::{EMPTY, initialize, result};
    use crate::mcp::fixtures;
    use crate::mcp::result::ResultMembers;
    use crate::mcp::version::ProtocolVersion;
    use crate::model::agent::AgentDescription;
    use crate::model::fault::Fault;

    const NEWEST: ProtocolVersion = ProtocolVersion::NEWEST_LEGACY;

    fn text(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>) -> String {
        let mut out = Vec::new();
        encode(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_page_of_resources_shows_all_that_is_known_of_them() {
        let expected = concat!(
            r#"{"resources":["#,
            r#"{"uri":"a:b","name":"n","annotations":{"lastModified":"2026-03-04T10:30:05Z"}},"#,
            r#"{"uri":"beeos://agent/config","name":"config","title":"Cönfig\n","description":"What it does","#,
            r#""mimeType":"text/plain","#,
            r#""annotations":{ "priority" : 1.0, "audience":["user"] ,"lastModified":"2026-03-04T10:30:05Z"},"#,
            r#""size":6,"icons":[ {"src":"https:\/\/a.example\/i.png"} ],"_meta":{"b":1e2, "a":[ ]}}"#,
            r#"]"#,
        );
        let page = fixtures::page();
        assert_eq!(
            text(|out| result(out, ResultMembers::page(&page, None), NEWEST)),
            format!("{expected}}}")
        );
        let more = text(|out| result(out, ResultMembers::page(&page, Some("c\"1")), NEWEST));
        assert_eq!(more, format!(r#"{expected},"nextCursor":"c\"1"}}"#));
    }

    #[test]
    fn contents_are_text_or_base64_under_their_own_names() {
        let expected = concat!(
            r#"{"contents":["#,
            r#"{"uri":"beeos://agent/config","mimeType":"text/plain","text":"hé \"\n\u0001"},"#,
            r#"{"uri":"a:own","mimeType":"image/png","blob":"+/8AAQ=="},"#,
            r#"{"uri":"beeos://agent/config","mimeType":"text/plain","blob":""}"#,
            r#"]}"#,
        );
        let read = |contents| text(|out| result(out, ResultMembers::contents(&contents), NEWEST));
        assert_eq!(read(fixtures::contents()), expected);
        assert_eq!(read(fixtures::plain_contents(b"x")), r#"{"contents":[{"uri":"a:b","text":"x"}]}"#);
    }

    #[test]
    fn text_that_is_none_is_a_bug_and_no_panic() {
        let contents = fixtures::plain_contents(b"\xff");
        let fault = result(&mut Vec::new(), ResultMembers::contents(&contents), NEWEST);
        let expected = Fault::Internal("cannot encode a result: a text part is not UTF-8".to_owned());
        assert_eq!(fault, Err(expected));
    }

    #[test]
    fn initialize_is_answered_in_the_words_of_each_revision() {
        let answer = |version, agent: AgentDescription| text(|out| initialize(out, version, &agent));
        let expected = |version: ProtocolVersion, title: &str| {
            format!(
                concat!(
                    r#"{{"protocolVersion":"{}","capabilities":{{"resources":{{"subscribe":true,"listChanged":true}},"#,
                    r#""prompts":{{"listChanged":true}},{}"logging":{{}},"tools":{{"listChanged":true}},"extensions":{{"io.modelcontextprotocol/skills":{{"directoryRead":true}}}}}},"#,
                    r#""serverInfo":{{"name":"Research \"R\"",{}"version":"{}"}},"instructions":"Read."}}"#
                ),
                version.as_str(),
                if version.knows_completions() { r#""completions":{},"# } else { "" },
                title,
                env!("CARGO_PKG_VERSION")
            )
        };
        let title = r#""title":"Research Assistant","#;
        for (version, title) in [
            (ProtocolVersion::V2025_11_25, title),
            (ProtocolVersion::V2025_06_18, title),
            (ProtocolVersion::V2025_03_26, ""),
            (ProtocolVersion::V2024_11_05, ""),
        ] {
            assert_eq!(answer(version, fixtures::agent()), expected(version, title));
        }
        let bare = format!(
            concat!(
                r#"{{"protocolVersion":"2025-11-25","capabilities":{{"resources":{{"subscribe":true,"listChanged":true}},"#,
                r#""prompts":{{"listChanged":true}},"completions":{{}},"logging":{{}},"tools":{{"listChanged":true}},"extensions":{{"io.modelcontextprotocol/skills":{{"directoryRead":true}}}}}},"#,
                r#""serverInfo":{{"name":"a","version":"{}"}}}}"#
            ),
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(answer(ProtocolVersion::V2025_11_25, fixtures::nameless_agent()), bare);
    }

    #[test]
    fn small_results_are_encoded_exactly() {
        let none = ResultMembers::Tools { tools: Vec::new(), next_cursor: None };
        assert_eq!(text(|out| result(out, none, NEWEST)), r#"{"tools":[]}"#);
        assert_eq!(EMPTY, b"{}");
    }
}
