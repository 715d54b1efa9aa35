//! A server of S3 that keeps its objects in a folder.

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// The server, with a bucket `bucket`. It ends with the test.
pub(crate) struct Bucket {
    folder: TempDir,
    endpoint: String,
}

impl Bucket {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bucket")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single("key", "secret"));
        let service = service.build();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let server = Builder::new(TokioExecutor::new());
                    server.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Self { folder, endpoint }
    }

    /// Writes an object.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = self.folder.path().join("bucket").join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// Removes an object.
    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder.path().join("bucket").join(name)).unwrap();
    }

    /// Has the bucket missing, or not any more.
    pub(crate) fn set_missing(&self, is_missing: bool) {
        let [present, missing] = ["bucket", "missing"].map(|name| self.folder.path().join(name));
        let (from, to) = if is_missing { (present, missing) } else { (missing, present) };
        std::fs::rename(from, to).unwrap();
    }

    /// The settings and secrets of a connection to the bucket.
    pub(crate) fn connection(&self) -> (Value, Value) {
        let settings = json!({"endpoint": self.endpoint, "bucket": "bucket", "pathStyle": true,
            "allowNetworks": ["127.0.0.0/8"]});
        (settings, json!({"accessKeyId": "key", "secretAccessKey": "secret"}))
    }
}
