//! The limit on open files, which thousands of connections need to raise.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of this process, inherited by the servers that it starts, as far as permitted; returns the new
/// limit.
pub(crate) fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_returned_limit_is_in_force() {
        let raised = raise();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, raised);
    }
}
