//! The limit on open files, as thousands of connections need it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises this process's limit, which the servers that it starts inherit, as far as it may; answers where it is then.
pub(crate) fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_where_it_is_said_to_be() {
        let raised = raise();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, raised);
    }
}
