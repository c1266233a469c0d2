//! Finds programs in the directories of PATH.

use std::path::{Path, PathBuf};

/// A program in PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    find(&[name], &dirs())
}

/// The directories of PATH.
pub fn dirs() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

/// The first of these programs that is in one of the directories and may be executed.
pub fn find(names: &[&str], dirs: &[PathBuf]) -> Option<PathBuf> {
    let executable = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name))).find(|path| executable(path))
}
