//! Streams of both eras: subscribers receive each committed change.

mod changes;
mod connections;
mod ends;
mod fleet;
mod interleavings;
mod legacy;
mod lifecycle;
mod modern;
mod sdk;
