//! Values, parsed and valid by construction. Nothing here knows of HTTP, SQL or a runtime.

pub mod agent;
pub mod algorithm;
pub mod api_key;
pub mod audit;
pub mod caller;
pub mod client_address;
pub mod clock;
pub mod fault;
pub mod feed;
pub mod ids;
pub mod json;
pub mod key;
pub mod key_bounds;
pub mod limits;
pub mod message;
pub mod networks;
pub mod operation;
pub mod prompt;
pub mod resource;
pub mod scope;
pub mod session;
pub mod sources;
pub mod subject;
pub mod template;
pub mod uri;
pub mod usage;
