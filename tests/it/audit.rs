//! The audit log: its rows, their durability, and the detection of tampering.

mod access;
mod adopted_spill;
mod aggregated;
mod calls;
mod checkpoints;
mod commands;
mod filters;
mod formats;
mod full;
mod indexes;
mod messages;
mod outages;
mod partitions;
mod quarantine;
mod reading;
mod rollback;
mod signing;
mod tampering;
mod truncation;
