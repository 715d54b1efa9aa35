//! Labels: who sees what of an agent.

mod admin;
mod commands;
mod credentials;
mod records;
mod refusals;
mod streams;
mod visibility;
