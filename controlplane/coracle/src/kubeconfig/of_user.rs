//! The kubeconfig that the user who ran `coracle up` through sudo can read.

use super::Entry;
use crate::cluster_args::context_of;
use crate::sudo::{self, Invoker};
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
    let path = file_of(&user, &context);
    coracle_cli::private_files::write(&path, text.as_bytes()).with_context(|| path.display().to_string())?;
    Ok(Some(path))
}

/// Removes what [`keep`] wrote. Gives up root likewise.
pub(crate) fn remove(context: &str) -> anyhow::Result<()> {
    let Some(user) = sudo::invoker() else { return Ok(()) };
    user.assume()?;
    let path = file_of(&user, context);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context(path.display().to_string()),
        _ => Ok(()),
    }
}

fn file_of(user: &Invoker, context: &str) -> PathBuf {
    user.home.join(".kube").join(format!("{context}.kubeconfig"))
}
