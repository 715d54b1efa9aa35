//! No tenant ever reads, changes or learns of what is another's.

mod attacks;
mod model;
mod probes;
mod world;
