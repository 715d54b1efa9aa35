//! The PostgreSQL programs of one installation, and their version.

use std::path::PathBuf;

/// A PostgreSQL release; ordered by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The part that a cluster is bound to.
    pub major: u32,
    /// The bug-fix release; 0 for a pre-release.
    pub minor: u32,
}

impl Version {
    /// Parses the output of `postgres --version`.
    pub(super) fn parse(output: &str) -> Option<Self> {
        let (_, number) = output.split_once("(PostgreSQL) ")?;
        let leading = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().ok()
        };
        let mut parts = number.split('.');
        Some(Self { major: leading(parts.next()?)?, minor: parts.next().and_then(leading).unwrap_or(0) })
    }
}

/// The programs of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The directory of `postgres` and `initdb`.
    pub folder: PathBuf,
    /// The version that `postgres` reports.
    pub version: Version,
}

impl Installation {
    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn the_version_output_of_each_release_is_parsed() {
        let parse = |output: &str| Version::parse(output).map(|version| (version.major, version.minor));
        assert_eq!(parse("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some((15, 18)));
        assert_eq!(parse("postgres (PostgreSQL) 18beta1\n"), Some((18, 0)));
        assert_eq!(parse("postgres (PostgreSQL) 9.6.24\n"), Some((9, 6)));
        assert_eq!(parse("postgres (EnterpriseDB) 15.1\n"), None);
    }
}
