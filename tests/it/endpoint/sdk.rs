//! The official Rust SDK as a client, in every revision that it speaks.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue};
use rmcp::model::{
    ClientCapabilities, ClientConfig, GetPromptRequestParams, Implementation, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ResourceContents,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;

use crate::support::app::{Builder, Replica, encode, mistyped, resource};
use crate::support::cluster::database;

/// The header with the key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Credential<'a> {
    ApiKey(&'a str),
    Bearer(&'a str),
}

/// A connection to the agent `a`.
pub(super) fn transport(
    replica: &Replica,
    credential: Credential<'_>,
) -> StreamableHttpClientTransport<reqwest::Client> {
    let uri = format!("http://{}/a/mcp", replica.running.address);
    let config = StreamableHttpClientTransportConfig::with_uri(uri);
    let config = match credential {
        Credential::Bearer(key) => config.auth_header(key),
        Credential::ApiKey(key) => {
            let name = HeaderName::from_static("x-agent-api-key");
            config.custom_headers(HashMap::from([(name, HeaderValue::from_str(key).unwrap())]))
        }
    };
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    StreamableHttpClientTransport::with_client(http, config)
}

async fn connect(
    replica: &Replica,
    credential: Credential<'_>,
    mode: ClientLifecycleMode,
    version: ProtocolVersion,
) -> Result<RunningService<RoleClient, ClientConfig>, ClientInitializeError> {
    let client = ClientConfig::new(ClientCapabilities::default(), Implementation::new("it", "1"))
        .with_protocol_version(version);
    client.serve_with_lifecycle(transport(replica, credential), mode).await
}

/// Lists in pages and reads each resource; returns the URIs with their texts.
async fn read_all(client: &RunningService<RoleClient, ClientConfig>) -> Vec<(String, String)> {
    let first = client.list_resources(Some(PaginatedRequestParams::default())).await.unwrap();
    assert_eq!((first.resources.len(), first.next_cursor.is_some()), (2, true));
    let mut read = Vec::new();
    for listed in client.list_all_resources().await.unwrap() {
        let result = client.read_resource(ReadResourceRequestParams::new(&listed.uri)).await.unwrap();
        match result.contents.as_slice() {
            [ResourceContents::TextResourceContents { uri, text, .. }] => {
                read.push((uri.clone(), text.clone()));
            }
            other => panic!("{other:?}"),
        }
    }
    read
}

async fn register_what_is_rendered(replica: &Replica) {
    let template = json!({
        "name": "t", "template": "<{{ city }}>", "completions": {"city": ["Berlin", "bern", "Bonn"]},
    });
    let path = format!("/agents/a/templates?uriTemplate={}", encode("t://{city}"));
    assert_eq!(replica.admin("PUT", &path, Some(template)).await.status, 201);
    let prompt = json!({
        "arguments": [{"name": "who", "required": true, "completions": ["Ada", "Alan", "Grace"]}],
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hello {{ who }}!"}}],
    });
    assert_eq!(replica.admin("PUT", "/agents/a/prompts/greet", Some(prompt)).await.status, 201);
}

async fn read_what_is_rendered(client: &RunningService<RoleClient, ClientConfig>) {
    let templates = client.list_all_resource_templates().await.unwrap();
    assert_eq!(templates.iter().map(|t| t.uri_template.as_str()).collect::<Vec<_>>(), ["t://{city}"]);
    let read = client.read_resource(ReadResourceRequestParams::new("t://K%C3%B6ln")).await.unwrap();
    let [ResourceContents::TextResourceContents { uri, text, .. }] = read.contents.as_slice() else {
        panic!("{read:?}");
    };
    assert_eq!((uri.as_str(), text.as_str()), ("t://K%C3%B6ln", "<Köln>"));
    let prompts = client.list_all_prompts().await.unwrap();
    assert_eq!(prompts.iter().map(|prompt| prompt.name.as_str()).collect::<Vec<_>>(), ["greet"]);
    let arguments = json!({"who": "二"}).as_object().unwrap().clone();
    let got =
        client.get_prompt(GetPromptRequestParams::new("greet").with_arguments(arguments)).await.unwrap();
    let texts: Vec<_> = got.messages.iter().map(|m| m.content.as_text().unwrap().text.as_str()).collect();
    assert_eq!(texts, ["Hello 二!"]);
    let without = client.get_prompt(GetPromptRequestParams::new("greet")).await;
    let Err(ServiceError::McpError(error)) = without else { panic!("{without:?}") };
    assert_eq!((error.code.0, error.message.as_ref()), (-32602, "missing argument: who"));
    let completed = client.complete_prompt_argument("greet", "who", "a", None).await.unwrap();
    assert_eq!(
        (completed.values, completed.total),
        (vec!["Ada".into(), "Alan".into(), "Grace".into()], Some(3))
    );
    let completed = client.complete_resource_argument("t://{city}", "city", "BER", None).await.unwrap();
    assert_eq!((completed.values, completed.has_more), (vec!["Berlin".into(), "bern".into()], Some(false)));
}

#[tokio::test]
async fn sdk_lists_and_reads_in_every_revision() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 2).start().await;
    let key = replica.acme("a").await;
    let expected: Vec<_> =
        ["x:1", "x:2", "x:%C3%BC"].map(|uri| (uri.to_owned(), format!("text of {uri}"))).into();
    let mut expected = expected;
    expected.sort();
    for (uri, text) in &expected {
        replica.put("a", uri, text).await;
    }
    register_what_is_rendered(&replica).await;
    let newest = ProtocolVersion::V_2026_07_28;
    let discover = || ClientLifecycleMode::Discover { preferred_versions: vec![newest.clone()] };
    let auto =
        || ClientLifecycleMode::Auto { preferred_versions: vec![newest.clone()], legacy_version: None };
    let initialize = || ClientLifecycleMode::Initialize;
    for (mode, requested, agreed) in [
        (initialize(), ProtocolVersion::V_2024_11_05, "2024-11-05"),
        (initialize(), ProtocolVersion::V_2025_03_26, "2025-03-26"),
        (initialize(), ProtocolVersion::V_2025_06_18, "2025-06-18"),
        (initialize(), ProtocolVersion::V_2025_11_25, "2025-11-25"),
        (discover(), newest.clone(), "2026-07-28"),
        (auto(), newest.clone(), "2026-07-28"),
    ] {
        for credential in [Credential::ApiKey(&key), Credential::Bearer(&key)] {
            let client = connect(&replica, credential, mode.clone(), requested.clone()).await.unwrap();
            let server = client.peer_info().unwrap();
            assert_eq!(server.protocol_version.as_str(), agreed);
            assert_eq!(read_all(&client).await, expected, "{agreed} {credential:?}");
            let unknown = client.read_resource(ReadResourceRequestParams::new("x:none")).await;
            let Err(ServiceError::McpError(error)) = unknown else { panic!("{unknown:?}") };
            assert_eq!(error.code.0, if agreed == "2026-07-28" { -32602 } else { -32002 });
            assert_eq!(error.message, "resource not found: x:none");
            assert!(client.list_all_tools().await.unwrap().is_empty());
            read_what_is_rendered(&client).await;
            client.cancel().await.unwrap();
        }
    }
}

#[tokio::test]
async fn sdk_recognizes_refusals() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    let body = json!({"name": "n", "contents": []});
    assert_eq!(replica.admin("PUT", &resource("a", "x:1"), Some(body)).await.status, 201);
    let (_, registry) = replica.key("a", &["registry"]).await;
    for mode in [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    ] {
        let refused = async |key: &str| {
            let version = ProtocolVersion::V_2025_11_25;
            let answer = connect(&replica, Credential::ApiKey(key), mode.clone(), version).await;
            format!("{:?}", answer.err().unwrap())
        };
        let unauthenticated = refused(&mistyped(&key)).await;
        assert!(unauthenticated.contains("AuthRequired"), "{unauthenticated}");
        let scope = refused(&registry).await;
        assert!(scope.contains("InsufficientScope") && scope.contains("Some(\"mcp\")"), "{scope}");
    }
}
