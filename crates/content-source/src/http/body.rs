//! The body of an answer: decompressed, and counted as it comes.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

use crate::error::FetchError;
use crate::pace::Pace;

/// The encodings that are asked for.
pub(super) const ACCEPTED: &str = "gzip, br, deflate";

/// What is allocated before the first byte, at most, for any length that the answer states.
const INITIAL_BYTES: u64 = 16 * 1024;

/// How many bytes are decoded before other tasks run: about 0.1 ms.
const SLICE: usize = 64 * 1024;

enum Encoding {
    Identity,
    Gzip,
    Brotli,
    Deflate,
}

/// How many members a body of gzip has at most: an empty one takes 20 bytes, and time.
const MAX_MEMBERS: usize = 1024;

/// Reads a body of at most `limit` decoded bytes. Both those that are received and those that are decoded take their time.
pub(super) async fn read(
    answer: Response,
    limit: u64,
    pace: Option<&Arc<Pace>>,
) -> Result<Bytes, FetchError> {
    let encoding = encoding(answer.headers())?;
    let stated = answer.content_length();
    // What cannot be compressed becomes a little longer; what adds nothing to the content is not received without end.
    let most = limit.saturating_add(limit / 8).saturating_add(SLICE as u64);
    let longest = if matches!(encoding, Encoding::Identity) { limit } else { most };
    if stated.is_some_and(|length| length > longest) {
        return Err(FetchError::TooLarge);
    }
    let expected = if matches!(encoding, Encoding::Identity) { stated.unwrap_or(0) } else { 0 };
    let capacity = usize::try_from(expected.min(limit).min(INITIAL_BYTES)).unwrap_or_default();
    let body = Body { bytes: BytesMut::with_capacity(capacity), limit, pace };
    let reader = reader(answer, pace.cloned(), most);
    match encoding {
        // What is received is what is decoded.
        Encoding::Identity => Body { pace: None, ..body }.whole(reader).await,
        Encoding::Gzip => body.members(reader).await,
        Encoding::Brotli => body.whole(BrotliDecoder::new(reader)).await,
        Encoding::Deflate => body.whole(ZlibDecoder::new(reader)).await,
    }
}

/// What a request that did not get an answer, or not all of it, failed with.
pub(super) fn failure(error: &reqwest::Error) -> FetchError {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<FetchError>() {
            return *found;
        }
        cause = error.source();
    }
    FetchError::Unreachable
}

/// The encoding of a body. One within another is not asked for, and refused.
fn encoding(headers: &HeaderMap) -> Result<Encoding, FetchError> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(Encoding::Identity),
        (Some(value), None) => value.to_str().map_err(|_| FetchError::BadContent)?,
        (Some(_), Some(_)) => return Err(FetchError::BadContent),
    };
    match value.trim().to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(Encoding::Identity),
        "gzip" | "x-gzip" => Ok(Encoding::Gzip),
        "br" => Ok(Encoding::Brotli),
        "deflate" => Ok(Encoding::Deflate),
        _ => Err(FetchError::BadContent),
    }
}

/// The body as it comes over the network, each part once those before it are paid: meanwhile nothing is read. It fails after
/// `most` bytes.
fn reader(answer: Response, pace: Option<Arc<Pace>>, most: u64) -> impl AsyncBufRead + Send + Unpin {
    let start = (answer, Bytes::new(), most);
    let chunks = stream::unfold(start, move |(mut answer, mut rest, mut left)| {
        let pace = pace.clone();
        async move {
            let next = async {
                if !rest.is_empty() {
                    // A part may take long to decode, and nothing come out.
                    tokio::task::yield_now().await;
                    return Ok::<_, FetchError>(true);
                }
                let Some(chunk) = answer.chunk().await.map_err(|error| failure(&error))? else {
                    return Ok(false);
                };
                left = left.checked_sub(chunk.len() as u64).ok_or(FetchError::TooLarge)?;
                if let Some(pace) = &pace {
                    pace.take(chunk.len()).await;
                }
                rest = chunk;
                Ok(true)
            };
            let part = match next.await {
                Ok(true) => Ok(rest.split_to(rest.len().min(SLICE))),
                Ok(false) => return None,
                Err(error) => Err(io::Error::other(error)),
            };
            Some((part, (answer, rest, left)))
        }
    });
    StreamReader::new(Box::pin(chunks))
}

/// What was decoded of a body.
struct Body<'p> {
    bytes: BytesMut,
    limit: u64,
    pace: Option<&'p Arc<Pace>>,
}

impl Body<'_> {
    /// All that a reader yields.
    async fn whole(mut self, reader: impl AsyncRead + Send) -> Result<Bytes, FetchError> {
        self.read(reader).await?;
        Ok(self.bytes.freeze())
    }

    /// All that members of gzip yield, which follow each other.
    async fn members(mut self, mut reader: impl AsyncBufRead + Send + Unpin) -> Result<Bytes, FetchError> {
        for _ in 0..MAX_MEMBERS {
            self.read(GzipDecoder::new(&mut reader)).await?;
            if reader.fill_buf().await.map_err(|error| interrupted(&error))?.is_empty() {
                return Ok(self.bytes.freeze());
            }
            tokio::task::yield_now().await;
        }
        Err(FetchError::BadContent)
    }

    /// Reads to the end. A decoder yields no more than is asked for: a small input that expands is not expanded further than
    /// the limit.
    async fn read(&mut self, reader: impl AsyncRead + Send) -> Result<(), FetchError> {
        let length = self.bytes.len() as u64;
        // One more byte than allowed shows that there are more.
        let mut reader = pin!(reader.take((self.limit - length).saturating_add(1)));
        let mut left = SLICE;
        loop {
            let read = reader.read_buf(&mut (&mut self.bytes).limit(left)).await;
            let read = read.map_err(|error| interrupted(&error))?;
            if read == 0 {
                break;
            }
            // A chunk from the network may be a thousand times as long when decoded: other tasks run in between.
            left -= read.min(left);
            if left == 0 {
                left = SLICE;
                tokio::task::yield_now().await;
            }
            if let Some(pace) = self.pace {
                pace.take(read).await;
            }
        }
        if self.bytes.len() as u64 > self.limit { Err(FetchError::TooLarge) } else { Ok(()) }
    }
}

/// Why a body ends early: the network's failure, or the decoder's.
fn interrupted(error: &io::Error) -> FetchError {
    let found = error.get_ref().and_then(|error| error.downcast_ref::<FetchError>());
    found.copied().unwrap_or(FetchError::BadContent)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_compression::tokio::bufread::{GzipDecoder, GzipEncoder};
    use bytes::BytesMut;
    use tokio::io::AsyncReadExt;
    use tokio::task::yield_now;

    use super::{Body, SLICE};

    #[tokio::test]
    async fn other_tasks_run_while_a_body_is_decoded() {
        let (mut sent, slices) = (Vec::new(), 32);
        GzipEncoder::new(&*vec![0; slices * SLICE]).read_to_end(&mut sent).await.unwrap();
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        let body = Body { bytes: BytesMut::new(), limit: u64::MAX, pace: None };
        let body = body.whole(GzipDecoder::new(&sent[..])).await.unwrap();
        other.abort();
        assert_eq!(body.len(), slices * SLICE);
        assert!(turns.load(Ordering::Relaxed) >= slices - 1, "{turns:?}");
    }
}
