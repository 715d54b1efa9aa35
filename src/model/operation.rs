//! What a client asks for and what it is told, in no revision's words.

use std::sync::Arc;

use bytes::Bytes;

use super::resource::{Part, Resource};
use super::uri::ResourceUri;

/// A request that reads the registry, whichever revision of the protocol it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The definitions after a position, in byte order of their URIs.
    ListResources {
        /// The last URI of the page before; `None` for the first page.
        after: Option<String>,
    },
    /// The contents of one resource.
    ReadResource {
        /// Which.
        uri: ResourceUri,
    },
}

/// What an [`Operation`] comes to.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A page of definitions.
    Resources {
        /// In byte order of their URIs.
        page: Vec<Arc<Resource>>,
        /// Whether there are more after the last.
        more: bool,
    },
    /// A resource with its contents.
    Contents {
        /// Its definition.
        resource: Arc<Resource>,
        /// The bytes of each of its parts.
        bytes: Vec<(Part, Bytes)>,
    },
}
