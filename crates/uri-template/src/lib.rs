//! URI templates of [RFC 6570] up to level 3 that are matched as well as expanded.
//!
//! RFC 6570 defines how a template expands to a URI, and leaves open which values a URI was expanded from. This crate
//! accepts only templates for which that question has one answer: [`UriTemplate::parse`] refuses a template that two
//! assignments of values could expand to one URI. For every accepted template
//!
//! - [`expand`](UriTemplate::expand) and [`matches`](UriTemplate::matches) are inverse: what expands matches back to the
//!   same values;
//! - matching takes time linear in the URI and the template, without backtracking;
//! - two templates can be compared: which one is [more specific](UriTemplate::specificity), and whether some URI matches
//!   both ([`conflicts_with`](UriTemplate::conflicts_with), or [`ConflictChecker`] for many templates).
//!
//! ```
//! use uri_template::UriTemplate;
//!
//! let template = UriTemplate::parse("repo://{owner}/{name}/blob/{+path}{?ref}")?;
//! let values = template.matches("repo://rust-lang/book/blob/src/ch01.md?ref=main").unwrap();
//! assert_eq!(values[2], ("path", "src/ch01.md".to_owned()));
//!
//! let uri = template.expand(|name| values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str()))?;
//! assert_eq!(uri, "repo://rust-lang/book/blob/src/ch01.md?ref=main");
//!
//! // `1-2-3` could be read as `1` and `2-3` or as `1-2` and `3`: a value contains its separator percent-encoded only.
//! let range = UriTemplate::parse("log:{from}-{to}")?;
//! assert!(range.matches("log:1-2-3").is_none());
//! assert_eq!(range.matches("log:1-2%2D3").unwrap()[1], ("to", "2-3".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! A template's text is parsed into parts (`syntax`), the parts are arranged (`builder`) into a [layout](self#layout)
//! (`layout`), and for each separator the character is chosen at which a value ends (`separator`). `matching`, `expand`
//! and `overlap` work on the layout; `scan` has the only functions that search a URI, so that tests count the bytes read.
//!
//! # Layout
//!
//! `head slot separator slot … tail fragment`: a slot is a value, parameters (`{;a}`, `{?a}`, `{&a}`), or a value and
//! the parameters after it. The slots before the *pivot* (the slot of `{+a}`, otherwise the last one) are read
//! forwards, those after it backwards, and the pivot matches the rest.
//!
//! # Features
//!
//! - `serde`: [`UriTemplate`] implements `Serialize` as its text.
//!
//! [RFC 6570]: https://www.rfc-editor.org/rfc/rfc6570

mod builder;
mod class;
mod conflict;
mod error;
mod expand;
pub mod iri;
mod layout;
mod limits;
mod matching;
mod overlap;
mod scan;
mod separator;
mod syntax;
mod template;
#[cfg(test)]
mod tests;
mod value;

pub use self::conflict::{Conflict, ConflictChecker};
pub use self::error::{ExpandError, UriTemplateError, ValueError};
pub use self::limits::MAX_TEMPLATE_BYTES;
pub use self::overlap::Specificity;
pub use self::template::UriTemplate;
