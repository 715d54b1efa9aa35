//! Serves a folder as an object store, each folder in it a bucket, for tests of clients. Prints its port, and ends when its
//! standard input does. The credentials are `key` and `secret`.
//!
//! ```sh
//! cargo run --package content-source --example s3 -- /tmp/buckets
//! ```

use std::error::Error;
use std::io::Write;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::host::SingleDomain;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: s3 FOLDER")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut builder =
        S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).map_err(|error| format!("{error:?}"))?);
    builder.set_auth(SimpleAuth::from_single("key", "secret"));
    builder.set_host(SingleDomain::new(&address.to_string())?);
    let service = builder.build();
    writeln!(std::io::stdout(), "{}", address.port())?;
    // Ends when the process that started it closes the pipe.
    std::thread::spawn(|| {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        std::process::exit(0);
    });
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            let server = Builder::new(TokioExecutor::new());
            server.serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}
