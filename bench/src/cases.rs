//! The table of measured requests: a row is a method, its parameters, and a check of its answer.

use serde_json::{Value, json};

use crate::fixture::{
    CATALOG_LEN, COUNTER, DOCUMENT_BYTES, DOCUMENT_URI, LABELLED_LISTER, LABELLED_READER, LISTER, PROMPT,
    READ_TOOL, READER, RENDERER, rendered,
};
use crate::http;

/// The eras of MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Revision 2026-07-28: self-contained requests with `_meta` and the `Mcp-…` headers.
    Modern,
    /// Revision 2025-11-25, here without a session.
    Legacy,
}

impl Era {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy => "2025-11-25",
        }
    }
}

/// One row of the table.
pub(crate) struct Case {
    /// The name in the report.
    pub(crate) name: &'static str,
    /// The eras in which the method exists.
    pub(crate) eras: &'static [Era],
    /// The agent, and so the path, of the request.
    pub(crate) agent: &'static str,
    method: &'static str,
    /// The value of `Mcp-Name`, for the methods that have one.
    mcp_name: Option<&'static str>,
    params: fn() -> Value,
    /// Whether each request differs from all before it, by a number in the place of [`COUNTER`].
    pub(crate) counted: bool,
    /// A description of what `holds` checks.
    pub(crate) expected: &'static str,
    /// Whether a result is the expected one.
    holds: fn(&Value) -> bool,
}

const BOTH: &[Era] = &[Era::Modern, Era::Legacy];

/// All cases, in the order of the report.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "resources/read 1 KiB",
        eras: BOTH,
        agent: READER,
        method: "resources/read",
        mcp_name: Some(DOCUMENT_URI),
        params: || json!({ "uri": DOCUMENT_URI }),
        counted: false,
        expected: "one text of 1,024 bytes under the requested URI",
        holds: is_the_document,
    },
    Case {
        name: "resources/list of 100",
        eras: BOTH,
        agent: LISTER,
        method: "resources/list",
        mcp_name: None,
        params: || json!({}),
        counted: false,
        expected: "100 definitions with name, description, mimeType and size on one page",
        holds: is_the_catalog,
    },
    Case {
        name: "tools/call, read_resource 1 KiB",
        eras: BOTH,
        agent: READER,
        method: "tools/call",
        mcp_name: Some(READ_TOOL),
        params: || json!({ "name": READ_TOOL, "arguments": { "uri": DOCUMENT_URI } }),
        counted: false,
        expected: "one text block of 1,024 bytes",
        holds: is_the_text,
    },
    Case {
        name: "resources/read, template, kept",
        eras: BOTH,
        agent: RENDERER,
        method: "resources/read",
        mcp_name: Some(CHAPTER),
        params: || json!({ "uri": CHAPTER }),
        counted: false,
        expected: "the rendered text of a chapter",
        holds: |result| is_a_chapter(&result["contents"][0]["text"]),
    },
    Case {
        name: "resources/read, template, rendered",
        eras: BOTH,
        agent: RENDERER,
        method: "resources/read",
        mcp_name: Some(CHAPTER),
        params: || json!({ "uri": CHAPTER }),
        counted: true,
        expected: "the rendered text of a chapter",
        holds: |result| is_a_chapter(&result["contents"][0]["text"]),
    },
    Case {
        name: "prompts/get, kept",
        eras: BOTH,
        agent: RENDERER,
        method: "prompts/get",
        mcp_name: Some(PROMPT),
        params: || json!({ "name": PROMPT, "arguments": { "number": COUNTER } }),
        counted: false,
        expected: "a message with the rendered text of a chapter",
        holds: |result| is_a_chapter(&result["messages"][0]["content"]["text"]),
    },
    Case {
        name: "prompts/get, rendered",
        eras: BOTH,
        agent: RENDERER,
        method: "prompts/get",
        mcp_name: Some(PROMPT),
        params: || json!({ "name": PROMPT, "arguments": { "number": COUNTER } }),
        counted: true,
        expected: "a message with the rendered text of a chapter",
        holds: |result| is_a_chapter(&result["messages"][0]["content"]["text"]),
    },
    Case {
        name: "resources/read 1 KiB, labelled",
        eras: BOTH,
        agent: LABELLED_READER,
        method: "resources/read",
        mcp_name: Some(DOCUMENT_URI),
        params: || json!({ "uri": DOCUMENT_URI }),
        counted: false,
        expected: "one text of 1,024 bytes under the requested URI",
        holds: is_the_document,
    },
    Case {
        name: "resources/list of 100, as many hidden",
        eras: BOTH,
        agent: LABELLED_LISTER,
        method: "resources/list",
        mcp_name: None,
        params: || json!({}),
        counted: false,
        expected: "100 definitions with name, description, mimeType and size on one page",
        holds: is_the_catalog,
    },
    Case {
        name: "initialize",
        eras: &[Era::Legacy],
        agent: READER,
        method: "initialize",
        mcp_name: None,
        params: || {
            let client = json!({ "name": "bench", "version": "1" });
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client })
        },
        counted: false,
        expected: "the requested revision",
        holds: |result| result["protocolVersion"] == "2025-11-25",
    },
];

/// A method of an agent.
pub(crate) struct Call<'a> {
    pub(crate) agent: &'a str,
    pub(crate) method: &'a str,
    /// The value of `Mcp-Name`, for the methods that have one.
    pub(crate) mcp_name: Option<&'a str>,
}

impl Call<'_> {
    /// The bytes of the request to the server on `port`, with `key` as the agent key.
    pub(crate) fn request(&self, params: Value, era: Era, port: u16, key: &str) -> Vec<u8> {
        self.request_in(None, params, era, port, key)
    }

    /// As [`request`](Self::request), in a session.
    pub(crate) fn request_in(
        &self,
        session: Option<&str>,
        mut params: Value,
        era: Era,
        port: u16,
        key: &str,
    ) -> Vec<u8> {
        let mut headers = vec![
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", era.version()),
            ("X-Agent-API-Key", key),
        ];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        if era == Era::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": era.version(),
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            headers.push(("Mcp-Method", self.method));
            headers.extend(self.mcp_name.map(|name| ("Mcp-Name", name)));
        }
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": self.method, "params": params });
        http::request("POST", &path(self.agent), port, &headers, Some(&message))
    }
}

/// Reads a resource of an agent.
pub(crate) fn read(agent: &str, uri: &str, port: u16, key: &str) -> Vec<u8> {
    let call = Call { agent, method: "resources/read", mcp_name: Some(uri) };
    call.request(json!({ "uri": uri }), Era::Modern, port, key)
}

/// The URI of the chapter whose number is [`COUNTER`].
const CHAPTER: &str = "bench://chapters/00000000/text";

impl Case {
    /// The bytes of this case's request to the server on `port`, with `key` as the agent key.
    pub(crate) fn request(&self, era: Era, port: u16, key: &str) -> Vec<u8> {
        let call = Call { agent: self.agent, method: self.method, mcp_name: self.mcp_name };
        call.request((self.params)(), era, port, key)
    }

    /// Whether a body is the JSON-RPC answer that this case expects.
    pub(crate) fn holds(&self, body: &[u8]) -> bool {
        serde_json::from_slice::<Value>(body)
            .is_ok_and(|message| message["id"] == 1 && (self.holds)(&message["result"]))
    }
}

/// The path of an agent's MCP endpoint, the same on every server.
pub(crate) fn path(agent: &str) -> String {
    format!("/{agent}/mcp")
}

fn is_the_document(result: &Value) -> bool {
    let contents = &result["contents"];
    contents.as_array().is_some_and(|contents| contents.len() == 1)
        && contents[0]["uri"] == DOCUMENT_URI
        && contents[0]["text"].as_str().is_some_and(|text| text.len() == DOCUMENT_BYTES)
}

fn is_the_text(result: &Value) -> bool {
    let content = &result["content"];
    content.as_array().is_some_and(|blocks| blocks.len() == 1)
        && content[0]["text"].as_str().is_some_and(|text| text.len() == DOCUMENT_BYTES)
}

/// Whether it is the text of any chapter.
fn is_a_chapter(text: &Value) -> bool {
    let number = text.as_str().and_then(|text| text.strip_prefix("# Chapter ")?.get(..COUNTER.len()));
    number.is_some_and(|number| *text == rendered(number))
}

fn is_the_catalog(result: &Value) -> bool {
    let complete = |resource: &Value| {
        ["uri", "name", "description", "mimeType"].iter().all(|member| resource[member].is_string())
            && resource["size"].is_u64()
    };
    result["nextCursor"].is_null()
        && result["resources"]
            .as_array()
            .is_some_and(|resources| resources.len() == CATALOG_LEN && resources.iter().all(complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modern_request_carries_its_headers_and_its_meta() {
        let request = CASES[0].request(Era::Modern, 8094, "bak_x");
        assert_eq!(
            String::from_utf8(request).unwrap(),
            concat!(
                "POST /bench-read/mcp HTTP/1.1\r\nHost: 127.0.0.1:8094\r\n",
                "Accept: application/json, text/event-stream\r\n",
                "MCP-Protocol-Version: 2026-07-28\r\nX-Agent-API-Key: bak_x\r\n",
                "Mcp-Method: resources/read\r\nMcp-Name: bench://documents/guide\r\n",
                "Content-Type: application/json\r\nContent-Length: 206\r\n\r\n",
                r#"{"id":1,"jsonrpc":"2.0","method":"resources/read","params":{"_meta":{"#,
                r#""io.modelcontextprotocol/clientCapabilities":{},"#,
                r#""io.modelcontextprotocol/protocolVersion":"2026-07-28"},"#,
                r#""uri":"bench://documents/guide"}}"#,
            )
        );
    }

    #[test]
    fn a_legacy_request_has_its_version_in_a_header_only() {
        let request = CASES[1].request(Era::Legacy, 8094, "bak_x");
        assert_eq!(
            String::from_utf8(request).unwrap(),
            concat!(
                "POST /bench-list/mcp HTTP/1.1\r\nHost: 127.0.0.1:8094\r\n",
                "Accept: application/json, text/event-stream\r\n",
                "MCP-Protocol-Version: 2025-11-25\r\nX-Agent-API-Key: bak_x\r\n",
                "Content-Type: application/json\r\nContent-Length: 62\r\n\r\n",
                r#"{"id":1,"jsonrpc":"2.0","method":"resources/list","params":{}}"#,
            )
        );
    }

    #[test]
    fn errors_and_shorter_lists_are_not_accepted_as_the_answer() {
        assert!(!CASES[0].holds(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602}}"#));
        assert!(!CASES[1].holds(br#"{"jsonrpc":"2.0","id":1,"result":{"resources":[]}}"#));
        assert!(!CASES[1].holds(b"no json"));
    }
}
