//! The official Rust SDK subscribes, receives, reads and unsubscribes, in both eras.

#![expect(deprecated, reason = "subscribing by request is deprecated with the revisions that have it")]

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::ClientHandler;
use rmcp::model::{
    ClientConfig, ProtocolVersion, ReadResourceRequestParams, ResourceContents,
    ResourceUpdatedNotificationParam, ServerNotification, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, RoleClient, RunningService, SubscriptionEnd,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::sync::mpsc;

use crate::support::app::{Replica, gateway};

const QUIET: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

/// Passes on the notifications that it receives.
struct Receiver(mpsc::UnboundedSender<String>, ClientConfig);

impl ClientHandler for Receiver {
    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.send(params.uri).unwrap();
    }

    fn get_info(&self) -> ClientConfig {
        self.1.clone()
    }
}

async fn connect(
    replica: &Replica,
    key: &str,
    mode: ClientLifecycleMode,
    version: ProtocolVersion,
) -> (RunningService<RoleClient, Receiver>, mpsc::UnboundedReceiver<String>) {
    let uri = format!("http://{}/a/mcp", replica.running.address);
    let name = HeaderName::from_static("x-agent-api-key");
    let config = StreamableHttpClientTransportConfig::with_uri(uri)
        .custom_headers([(name, HeaderValue::from_str(key).unwrap())].into());
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let transport = StreamableHttpClientTransport::with_client(http, config);
    let (send, received) = mpsc::unbounded_channel();
    let client = Receiver(send, ClientConfig::default().with_protocol_version(version));
    (client.serve_with_lifecycle(transport, mode).await.unwrap(), received)
}

async fn read(client: &RunningService<RoleClient, Receiver>) -> String {
    let read = client.read_resource(ReadResourceRequestParams::new("x:a")).await.unwrap();
    let [ResourceContents::TextResourceContents { text, .. }] = read.contents.as_slice() else {
        panic!("{read:?}");
    };
    text.clone()
}

#[tokio::test]
async fn sdk_receives_its_subscriptions_in_a_session() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:a", "old").await;
    for version in [ProtocolVersion::V_2024_11_05, ProtocolVersion::V_2025_11_25] {
        let (client, mut received) = connect(&replica, &key, ClientLifecycleMode::Initialize, version).await;
        client.subscribe(SubscribeRequestParams::new("x:a")).await.unwrap();
        replica.put("a", "x:a", "new").await;
        assert_eq!(tokio::time::timeout(PATIENCE, received.recv()).await.unwrap().unwrap(), "x:a");
        assert_eq!(read(&client).await, "new");
        client.unsubscribe(UnsubscribeRequestParams::new("x:a")).await.unwrap();
        replica.put("a", "x:a", "old").await;
        assert!(tokio::time::timeout(QUIET, received.recv()).await.is_err());
        client.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn sdk_receives_events_of_a_listen_stream() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:a", "old").await;
    let newest = ProtocolVersion::V_2026_07_28;
    let mode = ClientLifecycleMode::Discover { preferred_versions: vec![newest.clone()] };
    let (client, _told) = connect(&replica, &key, mode, newest).await;
    let filter = SubscriptionFilter::builder().resource_subscriptions(["x:a", "x:none"]).build();
    let mut listening = client.listen(filter).await.unwrap();
    let honored = SubscriptionFilter::builder().resource_subscriptions(["x:a"]).build();
    assert_eq!(*listening.acknowledged(), honored);
    replica.put("a", "x:a", "new").await;
    let next = tokio::time::timeout(PATIENCE, listening.next()).await.unwrap().unwrap();
    let Some(ServerNotification::ResourceUpdatedNotification(updated)) = next else { panic!("{next:?}") };
    assert_eq!(updated.params.uri, "x:a");
    assert_eq!(read(&client).await, "new");
    assert!(tokio::time::timeout(QUIET, listening.next()).await.is_err());
    let (_, ended) = tokio::join!(replica.running.stop(), listening.next());
    assert!(ended.unwrap().is_none());
    assert!(matches!(listening.end(), Some(SubscriptionEnd::Graceful(_))), "{:?}", listening.end());
}
