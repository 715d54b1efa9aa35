//! Streams of both eras: a change reaches whoever asked for it, once the write is committed.

mod changes;
mod ends;
mod interleavings;
mod legacy;
mod lifecycle;
mod modern;
mod sdk;
