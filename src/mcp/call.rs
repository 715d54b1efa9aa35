//! What both eras let a client read, one row of a table a method.

use std::borrow::Cow;

use super::error::shortened;
use super::wire::Params;
use crate::model::fault::Fault;
use crate::model::uri::ResourceUri;

/// A request that both eras have, its parameters read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call<'a> {
    /// `resources/list`.
    ListResources {
        /// As the client sent it: not yet known to be one of ours.
        cursor: Option<Cow<'a, str>>,
    },
    /// `resources/read`.
    ReadResource {
        /// Which.
        uri: ResourceUri,
    },
    /// `tools/list`, which is always empty.
    ListTools,
}

type Decode = for<'a> fn(&Params<'a>) -> Result<Call<'a>, Fault>;

const CALLS: [(&str, Decode); 4] = [
    ("resources/list", |params| Ok(Call::ListResources { cursor: params.string("cursor")? })),
    ("resources/read", read_resource),
    ("tools/list", list_tools),
    ("tools/call", call_tool),
];

/// Reads the parameters of `method`. What they do not need is not looked at.
///
/// # Errors
/// [`Fault::MethodNotFound`], then [`Fault::InvalidParams`].
pub fn decode<'a>(method: &str, params: &Params<'a>) -> Result<Call<'a>, Fault> {
    let Some((_, decode)) = CALLS.iter().find(|(name, _)| *name == method) else {
        return Err(Fault::MethodNotFound(shortened(method)));
    };
    params.check_shape()?;
    decode(params)
}

fn read_resource<'a>(params: &Params<'a>) -> Result<Call<'a>, Fault> {
    let uri = ResourceUri::parse(&params.required_string("uri")?)
        .map_err(|error| Fault::invalid_params(format!("params.uri {error}")))?;
    Ok(Call::ReadResource { uri })
}

/// An empty list has one page, so that no cursor was ever handed out for it.
fn list_tools<'a>(params: &Params<'a>) -> Result<Call<'a>, Fault> {
    match params.string("cursor")? {
        None => Ok(Call::ListTools),
        Some(_) => Err(Fault::invalid_params("params.cursor is not a cursor of this list")),
    }
}

fn call_tool<'a>(params: &Params<'a>) -> Result<Call<'a>, Fault> {
    let name = params.required_string("name")?;
    Err(Fault::invalid_params(format!("unknown tool: {}", shortened(&name))))
}
