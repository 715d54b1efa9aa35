//! The body of an answer: decompressed, and counted as it comes.

use std::error::Error;
use std::io;
use std::pin::pin;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

use crate::error::FetchError;

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

/// Reads a body of at most `limit` decoded bytes.
pub(super) async fn read(answer: Response, limit: u64) -> Result<Bytes, FetchError> {
    let encoding = encoding(answer.headers())?;
    let stated = answer.content_length();
    match encoding {
        Encoding::Identity if stated.is_some_and(|length| length > limit) => Err(FetchError::TooLarge),
        Encoding::Identity => collect(reader(answer), limit, stated.unwrap_or(0)).await,
        Encoding::Gzip => {
            let mut decoder = GzipDecoder::new(reader(answer));
            decoder.multiple_members(true);
            collect(decoder, limit, 0).await
        }
        Encoding::Brotli => collect(BrotliDecoder::new(reader(answer)), limit, 0).await,
        Encoding::Deflate => collect(ZlibDecoder::new(reader(answer)), limit, 0).await,
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

/// The body as it comes over the network.
fn reader(answer: Response) -> impl AsyncBufRead + Send {
    let chunks = stream::unfold(answer, |mut answer| async move {
        match answer.chunk().await {
            Ok(chunk) => chunk.map(|chunk| (Ok(chunk), answer)),
            Err(error) => Some((Err(io::Error::other(failure(&error))), answer)),
        }
    });
    StreamReader::new(Box::pin(chunks))
}

/// Reads to the end. A decoder yields no more than is asked for: a small input that expands is not expanded further than
/// the limit.
async fn collect(reader: impl AsyncRead + Send, limit: u64, expected: u64) -> Result<Bytes, FetchError> {
    let capacity = usize::try_from(expected.min(limit).min(INITIAL_BYTES)).unwrap_or_default();
    let mut bytes = BytesMut::with_capacity(capacity);
    // One more byte than allowed shows that there are more.
    let mut reader = pin!(reader.take(limit.saturating_add(1)));
    let mut left = SLICE;
    loop {
        let read =
            reader.read_buf(&mut (&mut bytes).limit(left)).await.map_err(|error| interrupted(&error))?;
        if read == 0 {
            break;
        }
        // A chunk from the network may be a thousand times as long when decoded: other tasks run in between.
        left -= read.min(left);
        if left == 0 {
            left = SLICE;
            tokio::task::yield_now().await;
        }
    }
    if bytes.len() as u64 > limit { Err(FetchError::TooLarge) } else { Ok(bytes.freeze()) }
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
    use tokio::io::AsyncReadExt;
    use tokio::task::yield_now;

    use super::{SLICE, collect};

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
        let body = collect(GzipDecoder::new(&sent[..]), u64::MAX, 0).await.unwrap();
        other.abort();
        assert_eq!(body.len(), slices * SLICE);
        assert!(turns.load(Ordering::Relaxed) >= slices - 1, "{turns:?}");
    }
}
