//! A way to the database that can be closed: connections end, as where its server has gone down.

use sqlx::postgres::PgConnectOptions;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::proxy::Proxy;

pub(super) struct Gate {
    /// The database, by way of the gate.
    pub(super) options: PgConnectOptions,
    closed: watch::Sender<bool>,
}

impl Gate {
    pub(super) async fn before(database: &PgConnectOptions) -> Self {
        let proxy = Proxy::before(database).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = proxy.options.clone().port(listener.local_addr().unwrap().port());
        let (closed, is_closed) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, proxy.options.get_port(), is_closed.clone()));
            }
        });
        Self { options, closed }
    }

    /// From now on every connection is closed, and each new one at once.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// From now on new connections last.
    pub(super) fn open(&self) {
        self.closed.send_replace(false);
    }
}

async fn carry(mut client: TcpStream, port: u16, mut is_closed: watch::Receiver<bool>) {
    let carried = async {
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        // How a connection ends is the gateway's to tell.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    };
    tokio::select! {
        biased;
        _ = is_closed.wait_for(|closed| *closed) => {}
        () = carried => {}
    }
}
