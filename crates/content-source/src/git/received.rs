//! What is received from a server of repositories: within a limit, at a pace, and no longer than anyone waits for it.

use std::any::Any;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gix::protocol::transport::client::blocking_io::http::reqwest::Remote as Client;
use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};
use tokio::time::Instant;

use crate::pace::Pace;

/// The maximum number of bytes of what is received before a pack: what the server can do, and its references.
const REFERENCES_BYTES: u64 = 16 << 20;

/// How often a pause looks whether it is still waited for.
const STEP: Duration = Duration::from_millis(50);

/// What may be received by an update, which all of its answers share.
pub(super) struct Receive {
    left: AtomicU64,
    pace: Option<Arc<Pace>>,
    interrupt: Arc<AtomicBool>,
}

impl Receive {
    pub(super) fn new(pace: Option<Arc<Pace>>, interrupt: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(REFERENCES_BYTES), pace, interrupt })
    }

    /// Allows to receive so many bytes from now on.
    pub(super) fn allow(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Whether more was sent than may be received.
    pub(super) fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Whether no caller waits for the update any more.
    pub(super) fn interrupt(&self) -> &AtomicBool {
        &self.interrupt
    }

    /// Counts bytes. Returns when they are paid.
    fn charge(&self, bytes: usize) -> Option<Instant> {
        let left = self.left.load(Ordering::Relaxed);
        self.allow(left.saturating_sub(u64::try_from(bytes).unwrap_or(u64::MAX)));
        self.pace.as_ref().map(|pace| pace.charge(bytes))
    }

    /// Fails if no more may be received; waits until what was received is paid.
    fn wait(&self, paid: Option<Instant>) -> io::Result<()> {
        loop {
            if self.is_used_up() || self.interrupt.load(Ordering::Relaxed) {
                return Err(io::Error::other("no more is received"));
            }
            let left = paid.map(|paid| paid.saturating_duration_since(Instant::now()));
            match left.filter(|left| !left.is_zero()) {
                Some(left) => thread::sleep(left.min(STEP)),
                None => return Ok(()),
            }
        }
    }
}

/// A client whose answers have bounds.
pub(super) struct Bounded {
    pub(super) client: Client,
    pub(super) receive: Arc<Receive>,
}

impl Bounded {
    fn body<B>(&self, body: B) -> BoundedBody<B> {
        BoundedBody { body, receive: Arc::clone(&self.receive), paid: None }
    }
}

impl Http for Bounded {
    type Headers = <Client as Http>::Headers;
    type ResponseBody = BoundedBody<<Client as Http>::ResponseBody>;
    type PostBody = <Client as Http>::PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<GetResponse<Self::Headers, Self::ResponseBody>, gix::Error> {
        self.receive.wait(None).map_err(gix::Error::from_error)?;
        let GetResponse { headers, body } = self.client.get(url, base_url, headers)?;
        Ok(GetResponse { headers, body: self.body(body) })
    }

    fn post(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        kind: PostBodyDataKind,
    ) -> Result<PostResponse<Self::Headers, Self::ResponseBody, Self::PostBody>, gix::Error> {
        self.receive.wait(None).map_err(gix::Error::from_error)?;
        let PostResponse { post_body, headers, body } = self.client.post(url, base_url, headers, kind)?;
        Ok(PostResponse { post_body, headers, body: self.body(body) })
    }

    fn configure(&mut self, config: &dyn Any) -> Result<(), gix::Error> {
        self.client.configure(config)
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.client.redirected_base_url()
    }
}

pub(super) struct BoundedBody<B> {
    body: B,
    receive: Arc<Receive>,
    paid: Option<Instant>,
}

impl<B: BufRead> BufRead for BoundedBody<B> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.receive.wait(self.paid.take())?;
        self.body.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.body.consume(bytes);
        self.paid = self.receive.charge(bytes);
    }
}

impl<B: BufRead> Read for BoundedBody<B> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}
