//! The kubeconfig that the user who ran `coracle up` through sudo can read.

use super::Entry;
use super::entry::data_dir_of;
use crate::cluster_args::context_of;
use crate::sudo;
use anyhow::Context as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Writes a kubeconfig of the cluster's administrator that the user who ran sudo can read, and returns its path. Gives up root for good
/// if there is such a user.
pub(crate) fn keep(data_dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let Some(user) = sudo::invoker() else { return Ok(None) };
    let context = context_of(data_dir);
    let text = Entry::of_admin(data_dir, &context)?.text();
    user.assume()?;
    let path = file_in(&user.home, &context);
    coracle_cli::private_files::write(&path, text.as_bytes()).with_context(|| path.display().to_string())?;
    Ok(Some(path))
}

/// Removes what [`keep`] wrote. Gives up root likewise.
pub(crate) fn remove(context: &str) -> anyhow::Result<()> {
    let Some(user) = sudo::invoker() else { return Ok(()) };
    user.assume()?;
    let path = file_in(&user.home, context);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context(path.display().to_string()),
        _ => Ok(()),
    }
}

/// What [`keep`] wrote into a home directory for the cluster of a data directory. Those of several directories have one name, and the
/// last one is kept.
pub(crate) fn find(home: &Path, data_dir: &Path) -> Option<PathBuf> {
    let path = file_in(home, &context_of(data_dir));
    let kept = data_dir_of(&std::fs::read_to_string(&path).ok()?)?;
    (kept == data_dir).then_some(path)
}

fn file_in(home: &Path, context: &str) -> PathBuf {
    home.join(".kube").join(format!("{context}.kubeconfig"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_copy_is_that_of_one_data_directory() {
        let home = tempfile::tempdir().unwrap();
        let path = file_in(home.path(), "coracle");
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        std::fs::write(&path, Entry::example("coracle", "https://127.0.0.1:6443").text()).unwrap();
        assert_eq!(find(home.path(), Path::new("/var/lib/coracle")), Some(path));
        assert_eq!(find(home.path(), Path::new("/mnt/other")), None);
        assert_eq!(find(home.path(), Path::new("/var/lib/coracle-clusters/a")), None);
    }
}
