//! `[sources]`: content from outside.

use std::path::PathBuf;

use super::embedded::PATH;
use super::number::MIB;
use super::section::section;
use super::text::List;

section! {
    /// Content from outside: connections to files, HTTP APIs, object stores, git repositories and databases.
    #[derive(Clone, Debug)]
    pub struct Sources["sources"] {
        /// The directories below which connections may name files, git repositories and SQLite databases. Default: none.
        file_roots: value(Vec<PathBuf>, List { item: PATH, never_empty: None }) = Vec::new(),
        /// The file with the keys that secrets of connections are encrypted under: one base64 key of 32 bytes a line, of
        /// which the first encrypts and all decrypt. Default: with the embedded database sources.key in the data
        /// directory, generated at the first start; else required as soon as there is a secret.
        key_file: optional(PathBuf, PATH, "./waggle-data/sources.key"),
        /// How old content may be that says nothing else; 0: it is revalidated at each read.
        ttl: milliseconds(0..=86_400_000) = 5_000,
        /// The directory of cloned git repositories. Default: sources in the data directory.
        cache_dir: optional(PathBuf, PATH, "./waggle-data/sources"),
        /// The maximum size of all cloned repositories together.
        cache_bytes: size(u64, MIB..=1_048_576 * MIB) = 1_024 * MIB,
        /// The maximum size of what is stored of the content that was found changed, for each connection, so that all
        /// replicas answer it until its ttlMs is over; each fetches the rest. 0: all.
        watched_bytes: size(u64, 0..=1_048_576 * MIB) = 64 * MIB,
        /// The maximum rate at which bytes of a connection are received for a tenant on each replica, with those that
        /// decompression yields. Above it they are read later, which counts towards the time limits of fetches. 0: any rate.
        bytes_per_second: size(u64, 0..=1_048_576 * MIB) = 64 * MIB,
    }
}
