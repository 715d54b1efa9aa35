//! The log as people ask for it: newest first, by whom and what it is about.

