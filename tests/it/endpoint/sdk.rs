//! The official Rust SDK as a client, in every revision that it speaks.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue};
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ResourceContents,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::app::{Builder, Replica, resource};
use crate::cluster::database;

/// How the client presents the key.
#[derive(Clone, Copy, Debug)]
enum Credential<'a> {
    ApiKey(&'a str),
    Bearer(&'a str),
}

async fn connect(
    replica: &Replica,
    credential: Credential<'_>,
    mode: ClientLifecycleMode,
    version: ProtocolVersion,
) -> Result<RunningService<RoleClient, ClientConfig>, ClientInitializeError> {
    let uri = format!("http://{}/a/mcp", replica.running.address);
    let config = StreamableHttpClientTransportConfig::with_uri(uri);
    let config = match credential {
        Credential::Bearer(key) => config.auth_header(key),
        Credential::ApiKey(key) => {
            let name = HeaderName::from_static("x-agent-api-key");
            config.custom_headers(HashMap::from([(name, HeaderValue::from_str(key).unwrap())]))
        }
    };
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let transport = StreamableHttpClientTransport::with_client(http, config);
    let client = ClientConfig::new(ClientCapabilities::default(), Implementation::new("it", "1"))
        .with_protocol_version(version);
    client.serve_with_lifecycle(transport, mode).await
}

/// Lists in pages and reads each resource; answers the URIs with their text.
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

#[tokio::test]
async fn the_sdk_lists_and_reads_in_every_revision_with_either_header() {
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
    let newest = ProtocolVersion::V_2026_07_28;
    let discover = || ClientLifecycleMode::Discover { preferred_versions: vec![newest.clone()] };
    let auto =
        || ClientLifecycleMode::Auto { preferred_versions: vec![newest.clone()], legacy_version: None };
    let initialize = || ClientLifecycleMode::Initialize;
    for (mode, asked, agreed) in [
        (initialize(), ProtocolVersion::V_2024_11_05, "2024-11-05"),
        (initialize(), ProtocolVersion::V_2025_03_26, "2025-03-26"),
        (initialize(), ProtocolVersion::V_2025_06_18, "2025-06-18"),
        (initialize(), ProtocolVersion::V_2025_11_25, "2025-11-25"),
        (discover(), newest.clone(), "2026-07-28"),
        (auto(), newest.clone(), "2026-07-28"),
    ] {
        for credential in [Credential::ApiKey(&key), Credential::Bearer(&key)] {
            let client = connect(&replica, credential, mode.clone(), asked.clone()).await.unwrap();
            let server = client.peer_info().unwrap();
            assert_eq!(server.protocol_version.as_str(), agreed);
            assert_eq!(read_all(&client).await, expected, "{agreed} {credential:?}");
            let unknown = client.read_resource(ReadResourceRequestParams::new("x:none")).await;
            let Err(ServiceError::McpError(error)) = unknown else { panic!("{unknown:?}") };
            assert_eq!(error.code.0, if agreed == "2026-07-28" { -32602 } else { -32002 });
            assert_eq!(error.message, "resource not found: x:none");
            assert!(client.list_all_tools().await.unwrap().is_empty());
            client.cancel().await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_sdk_sees_a_refusal_for_what_it_is() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    let body = serde_json::json!({"name": "n", "contents": []});
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
        let unauthenticated = refused(&format!("{}x", &key[..52])).await;
        assert!(unauthenticated.contains("AuthRequired"), "{unauthenticated}");
        let scope = refused(&registry).await;
        assert!(scope.contains("InsufficientScope") && scope.contains("Some(\"mcp\")"), "{scope}");
    }
}
