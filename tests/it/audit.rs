//! The audit log: what is in it, that nothing is lost, and that it shows when somebody has changed it.

mod access;
mod aggregated;
mod calls;
mod checkpoints;
mod commands;
mod cut;
mod forms;
mod full;
mod left_behind;
mod messages;
mod named;
mod outages;
mod partitions;
mod reading;
mod set_aside;
mod set_back;
mod signing;
mod tampering;
