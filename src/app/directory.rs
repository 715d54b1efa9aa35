//! Whether a directory can be used, without creating it.

use std::path::Path;

use nix::unistd::{AccessFlags, access};

/// Whether a directory can be written to, or created if it is missing.
pub(super) fn check_directory(directory: &Path) -> Result<(), String> {
    let name = directory.display();
    let mut ancestors =
        directory.ancestors().map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
    let existing = ancestors.find(|path| path.exists()).unwrap_or(Path::new("/"));
    if !existing.is_dir() {
        return Err(format!("{} is not a directory", existing.display()));
    }
    access(existing, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| {
        if existing == directory {
            format!("{name} cannot be written to: {}", error.desc())
        } else {
            format!("{name} does not exist and cannot be made in {}: {}", existing.display(), error.desc())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::check_directory;

    #[test]
    fn missing_directories_are_accepted_if_they_can_be_created() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(check_directory(folder.path()), Ok(()));
        assert_eq!(check_directory(&folder.path().join("a/b")), Ok(()));
        assert!(!folder.path().join("a").exists());
        let expected = Err(format!("{} is not a directory", file.display()));
        assert_eq!(check_directory(&file), expected);
        assert_eq!(check_directory(&file.join("below")), expected);
    }
}
