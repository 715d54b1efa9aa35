//! The audit log: what is in it, that nothing is lost, and that it shows when somebody has changed it.

mod access;
mod calls;
mod commands;
mod forms;
mod full;
mod gate;
mod left_behind;
mod messages;
mod outages;
mod partitions;
mod post;
mod set_back;
mod tampering;
