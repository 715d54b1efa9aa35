//! Labels: who sees what of an agent.

mod admin;
mod credentials;
mod refusals;
