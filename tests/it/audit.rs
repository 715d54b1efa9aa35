//! The audit log: what is in it, that nothing is lost, and that it shows when somebody has changed it.

mod calls;
