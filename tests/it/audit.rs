//! The audit log: what is in it, that nothing is lost, and that it shows when somebody has changed it.

mod access;
mod calls;
mod forms;
mod messages;
mod outages;
mod partitions;
mod tampering;
