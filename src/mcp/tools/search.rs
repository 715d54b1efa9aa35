//! The tool `search`, with results in the shape that `ChatGPT` expects of it.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::catalog::search::{Found, SearchRequest, SearchedKind};
use crate::mcp::call_handler::{CallContext, CallHandler};
use crate::model::fault::Fault;
use crate::model::tool::id_of_uri;

#[derive(Serialize)]
struct SearchResults<'a> {
    results: Vec<SearchResult<'a>>,
}

#[derive(Serialize)]
struct SearchResult<'a> {
    id: Cow<'a, str>,
    title: &'a str,
    url: &'a str,
    text: &'a str,
}

impl CallHandler {
    /// What the caller sees of the agent and a query finds.
    pub(super) async fn search(&self, context: &CallContext<'_>, query: &str) -> Result<Bytes, Fault> {
        let request = SearchRequest::parse("arguments.query", query)?;
        let caller = context.caller;
        let agent = caller.agent_ref();
        let search = self.catalog.search(caller.payer(), agent, caller.labels(), request);
        let found = Box::pin(search).await?;
        context.encode_object(&object(&found, self.tool_result_bytes)?)
    }
}

/// The results as JSON of at most `most` bytes: the worst are left out where they take more.
fn object(found: &[Found], most: usize) -> Result<Box<RawValue>, Fault> {
    let mut kept = found;
    loop {
        let results = kept.iter().map(|Found { kind, id: url, title, text, .. }| {
            let id = if *kind == SearchedKind::Prompt { Cow::Borrowed(url.as_str()) } else { id_of_uri(url) };
            SearchResult { id, title, url, text }
        });
        let object =
            to_raw_value(&SearchResults { results: results.collect() }).map_err(Fault::cannot_encode)?;
        match kept.split_last() {
            Some((_, fewer)) if object.get().len() > most => kept = fewer,
            _ => return Ok(object),
        }
    }
}
