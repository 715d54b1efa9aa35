//! Values, parsed and valid by construction. Nothing here knows of HTTP, SQL or an async runtime.

pub mod key;
