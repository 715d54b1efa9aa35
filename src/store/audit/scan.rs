//! The whole log as it stands, row by row in the order of its chains, for whoever verifies it.

