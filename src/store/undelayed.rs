//! Connections over TCP whose messages are sent at once (`TCP_NODELAY`), which sqlx 0.9.0 does not request.
//!
//! Without it, a message that follows another one without an answer between them waits until the server has acknowledged
//! the first, which Linux delays by 40 ms: the end of each `COPY`. sqlx opens its sockets itself and gives no access to
//! them. Therefore it connects to a Unix socket of this process, from which a task copies to a TCP socket with the option.
//! To be removed with the first release of sqlx that requests it.

use std::io;
use std::net::SocketAddr;

use sqlx::postgres::PgConnectOptions;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// Copies between a Unix socket and a TCP socket until one of them is closed, or this is dropped.
#[derive(Debug)]
pub(super) struct Relay(JoinHandle<()>);

impl Relay {
    /// Waits until both sockets are closed.
    pub(super) async fn ended(&mut self) {
        // It is not aborted before it is dropped, and does not panic.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Options for one connection to the server of `options`, and what relays it. The same options without a relay for a server on
/// a Unix socket, and where the operating system has no abstract addresses.
///
/// # Errors
/// If the server cannot be reached.
pub(super) async fn undelayed(options: &PgConnectOptions) -> io::Result<(PgConnectOptions, Option<Relay>)> {
    if options.get_socket().is_some() || options.get_host().starts_with('/') {
        return Ok((options.clone(), None));
    }
    let server = connect(options.get_host(), options.get_port()).await?;
    let Some((folder, listener)) = listen(server.local_addr()?, options.get_port()) else {
        return Ok((options.clone(), None));
    };
    let relay = Relay(tokio::spawn(relay(listener, server)));
    Ok((options.clone().socket(folder), Some(relay)))
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let server = TcpStream::connect((host, port)).await?;
    server.set_nodelay(true)?;
    Ok(server)
}

/// Listens on a Unix socket that PostgreSQL would have in the returned folder. It has an abstract address (`unix(7)`), which
/// takes no space in a file system; while the TCP socket is open, no other has its local address.
fn listen(local: SocketAddr, port: u16) -> Option<(String, UnixListener)> {
    let folder = format!("\0waggle-{local}");
    let listener = UnixListener::bind(format!("{folder}/.s.PGSQL.{port}")).ok()?;
    Some((folder, listener))
}

async fn relay(listener: UnixListener, mut server: TcpStream) {
    while let Ok((mut client, _)) = listener.accept().await {
        if is_own(&client) {
            drop(listener);
            // Either side sees the end of the other as that of its connection.
            copy_bidirectional(&mut client, &mut server).await.ok();
            return;
        }
    }
}

/// Whether the peer is this process: abstract addresses have no permissions.
fn is_own(client: &UnixStream) -> bool {
    let own = i32::try_from(std::process::id()).ok();
    client.peer_cred().is_ok_and(|peer| peer.pid().is_some() && peer.pid() == own)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use sqlx::postgres::PgConnectOptions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, UnixStream};

    use super::{connect, undelayed};

    fn options(port: u16) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port)
    }

    #[tokio::test]
    async fn messages_to_the_server_are_not_delayed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(connect("127.0.0.1", port).await.unwrap().nodelay().unwrap());
    }

    #[tokio::test]
    async fn bytes_and_ends_are_relayed_both_ways() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (relayed, relay) = undelayed(&options(port)).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let path = format!("{}/.s.PGSQL.{port}", relayed.get_socket().unwrap().display());
        let mut client = UnixStream::connect(&path).await.unwrap();
        client.write_all(b"to").await.unwrap();
        server.write_all(b"fro").await.unwrap();
        let (mut to, mut fro) = ([0; 2], [0; 3]);
        server.read_exact(&mut to).await.unwrap();
        client.read_exact(&mut fro).await.unwrap();
        assert_eq!((&to, &fro), (b"to", b"fro"));
        let second = UnixStream::connect(&path).await.unwrap_err();
        assert_eq!(second.kind(), ErrorKind::ConnectionRefused, "one connection");
        client.shutdown().await.unwrap();
        assert_eq!(server.read(&mut to).await.unwrap(), 0);
        drop(server);
        assert_eq!(client.read(&mut to).await.unwrap(), 0);
        relay.unwrap().ended().await;
    }

    #[tokio::test]
    async fn connection_ends_with_its_relay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_, relay) = undelayed(&options(listener.local_addr().unwrap().port())).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        drop(relay);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn unix_sockets_are_not_relayed_and_absent_servers_refuse() {
        let (same, relay) = undelayed(&options(1).host("/run")).await.unwrap();
        assert_eq!((same.get_host(), relay.is_none()), ("/run", true));
        let (same, relay) = undelayed(&options(1).socket("/run")).await.unwrap();
        assert_eq!((same.get_socket().is_some(), relay.is_none()), (true, true));
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        assert_eq!(undelayed(&options(port)).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
