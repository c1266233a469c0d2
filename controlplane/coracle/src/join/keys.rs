//! Where the keys of a cluster are: in a directory of the server, and sealed in the store.

use std::path::{Path, PathBuf};

/// The key of the sealed keys in the store.
pub(crate) const KEYS: &str = "/coracle/cluster-keys";

/// The directory of the keys.
pub(crate) fn pki_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("pki")
}

/// Whether a pki directory has the keys of a cluster.
pub(crate) fn has_keys(pki: &Path) -> bool {
    pki.join("ca.crt").exists() && pki.join("ca.key").exists()
}
