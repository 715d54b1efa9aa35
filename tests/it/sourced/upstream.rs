//! An HTTP server that answers what a test says, and counts what it was asked.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What is answered at a path.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// This status, with these headers and body.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Another text each time: the number of the answer.
    Clock,
    /// Nothing.
    Hang,
    /// A text, once it is released.
    Held(Arc<Notify>, &'static str),
    /// Heads of status 103 (RFC 8297), one after another, until the connection is closed.
    EarlyHints,
}

/// A text.
pub(crate) fn text(body: &str) -> Reply {
    Reply::Answer(200, vec![("content-type", "text/plain".to_owned())], body.as_bytes().to_vec())
}

/// A text with an entity tag.
pub(crate) fn tagged(body: &str, tag: &str) -> Reply {
    let headers = vec![("content-type", "text/plain".to_owned()), ("etag", format!("\"{tag}\""))];
    Reply::Answer(200, headers, body.as_bytes().to_vec())
}

/// A failure.
pub(crate) fn status(status: u16) -> Reply {
    Reply::Answer(status, Vec::new(), Vec::new())
}

#[derive(Debug, Default)]
struct State {
    /// How many different texts were answered.
    ticks: u64,
    replies: HashMap<String, Reply>,
    /// The targets that were asked for, each with the status answered; none for one that hangs.
    asked: Vec<(String, Option<u16>)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<Mutex<State>>::default());
        let upstream = Self { address, state };
        let served = upstream.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = served.clone();
                tokio::spawn(async move { served.serve(stream).await });
            }
        });
        upstream
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/", self.address)
    }

    /// Answers a path below `/v1/`, with its query, from now on.
    pub(crate) fn answer(&self, path: &str, reply: Reply) {
        self.answer_at(format!("/v1/{path}"), reply);
    }

    /// Answers a whole path from now on.
    pub(crate) fn answer_at(&self, target: String, reply: Reply) {
        self.state.lock().unwrap().replies.insert(target, reply);
    }

    /// The targets that were asked for since the last call, with their statuses.
    pub(crate) fn asked(&self) -> Vec<(String, Option<u16>)> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }

    /// The number of requests since the last call.
    pub(crate) fn count(&self) -> usize {
        self.asked().len()
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        let known = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("if-none-match").then(|| value.trim().to_owned())
        });
        let reply = self.state.lock().unwrap().replies.get(&target).cloned();
        let (status, headers, body) = match reply {
            Some(Reply::Answer(_, headers, _))
                if known.is_some()
                    && headers.iter().any(|(name, tag)| *name == "etag" && known.as_ref() == Some(tag)) =>
            {
                (304, headers, Vec::new())
            }
            Some(Reply::Answer(status, headers, body)) => (status, headers, body),
            Some(Reply::Clock) => {
                let mut state = self.state.lock().unwrap();
                state.ticks += 1;
                (200, vec![("content-type", "text/plain".to_owned())], state.ticks.to_string().into_bytes())
            }
            Some(Reply::Hang) => {
                self.state.lock().unwrap().asked.push((target, None));
                // Until the gateway gives up.
                drop(stream.read_u8().await);
                return;
            }
            Some(Reply::Held(released, body)) => {
                self.state.lock().unwrap().asked.push((target.clone(), None));
                released.notified().await;
                (200, vec![("content-type", "text/plain".to_owned())], body.as_bytes().to_vec())
            }
            Some(Reply::EarlyHints) => {
                self.state.lock().unwrap().asked.push((target, None));
                let mut stream = stream.into_std().unwrap();
                stream.set_nonblocking(false).unwrap();
                let heads = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000);
                // A thread of its own, so that it is the gateway that is busy.
                std::thread::spawn(move || while stream.write_all(&heads).is_ok() {});
                return;
            }
            None => (404, Vec::new(), Vec::new()),
        };
        self.state.lock().unwrap().asked.push((target, Some(status)));
        let mut answer = format!("HTTP/1.1 {status} x\r\nconnection: close\r\n");
        for (name, value) in headers {
            answer += &format!("{name}: {value}\r\n");
        }
        if status != 304 {
            answer += &format!("content-length: {}\r\n", body.len());
        }
        answer += "\r\n";
        drop(stream.write_all(&[answer.as_bytes(), &body].concat()).await);
    }
}
