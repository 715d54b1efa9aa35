//! Content that lies elsewhere: in HTTP APIs, folders, object stores, git repositories and databases.
//!
//! A [`Source`] is a connection to one of them. It [fetches](Source::fetch) the content of a [`Location`], or revalidates
//! what was fetched before; [scans](Source::scan) a tree; and [watches](Source::watch) where its kind can notify.
//!
//! A source limits what it reads to the [`Bounds`] of the call, no faster than their [`Pace`], and reaches no address and no
//! file that its settings do not allow. It holds no cache, and applies no rate of calls and no deadline: its caller does. A
//! future that is dropped ends the work.
//!
//! A [`FetchError`] never contains an address, a path, a statement or a body of the source.

mod blocking;
mod egress;
mod error;
mod file;
mod git;
mod http;
mod kind;
mod location;
mod pace;
mod paths;
mod place;
mod s3;
mod settings;
mod source;
mod sql;
mod tls;

pub use self::egress::{Egress, Resolve, SystemResolver};
pub use self::error::{FetchError, SettingsError};
pub use self::kind::{Kind, SourceContext, check_settings, connect};
pub use self::location::{Format, Location, Path, Segment};
pub use self::pace::Pace;
pub use self::place::{Place, PlaceText, Variable};
pub use self::source::{Bounds, ChangeHint, Content, Entry, Fetched, Source, Tree, Validator};
