//! Where a store is copied from and to, as the command line names it.

use crate::datastore_args::DatastoreArgs;
use crate::operations::copy::{Target, TargetError};
use clap::Args;
use coracle_store::Datastore;
use std::path::{Path, PathBuf};

/// How etcd is reached, whichever of the stores it is.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct EtcdArgs {
    /// Certificate of the CA of etcd; the CAs of the system by default.
    #[arg(long)]
    etcd_ca_file: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long)]
    etcd_cert_file: Option<PathBuf>,
    /// Key of the client certificate for etcd.
    #[arg(long)]
    etcd_key_file: Option<PathBuf>,
    /// User of etcd.
    #[arg(long)]
    etcd_user: Option<String>,
    /// File with the password of the user of etcd.
    #[arg(long)]
    etcd_password_file: Option<PathBuf>,
    /// Prefix of all keys in etcd, for an etcd that others use too.
    #[arg(long)]
    etcd_prefix: Option<String>,
}

/// Why a text names no store.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error("{0:?}: {1}")]
    Unusable(String, TargetError),
    #[error("{0}")]
    Path(PathBuf, #[source] std::io::Error),
}

/// The store that a text names. Paths become absolute: the server may run in another directory.
pub(super) fn read(text: &str, etcd: &EtcdArgs) -> Result<Target, PlaceError> {
    let absolute =
        |path: &Path| std::path::absolute(path).map_err(|source| PlaceError::Path(path.to_owned(), source));
    let file = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    let target = match text.strip_prefix("embedded:") {
        Some(dir) => Target {
            data_dir: if dir.is_empty() { None } else { Some(absolute(Path::new(dir))?) },
            store: DatastoreArgs { datastore: Some("embedded".to_owned()), ..DatastoreArgs::default() },
        },
        None => Target {
            data_dir: None,
            store: DatastoreArgs {
                datastore: Some(text.to_owned()),
                etcd_ca_file: file(&etcd.etcd_ca_file)?,
                etcd_cert_file: file(&etcd.etcd_cert_file)?,
                etcd_key_file: file(&etcd.etcd_key_file)?,
                etcd_user: etcd.etcd_user.clone(),
                etcd_password_file: file(&etcd.etcd_password_file)?,
                etcd_prefix: etcd.etcd_prefix.clone(),
                ..DatastoreArgs::default()
            },
        },
    };
    target.resolve().map_err(|why| PlaceError::Unusable(text.to_owned(), why))?;
    Ok(target)
}

/// The options of a server that uses the store.
pub(super) fn options(target: &Target) -> Vec<String> {
    let store = &target.store;
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let all = [
        ("--data-dir", path(&target.data_dir)),
        ("--datastore", store.datastore.clone()),
        ("--etcd-ca-file", path(&store.etcd_ca_file)),
        ("--etcd-cert-file", path(&store.etcd_cert_file)),
        ("--etcd-key-file", path(&store.etcd_key_file)),
        ("--etcd-user", store.etcd_user.clone()),
        ("--etcd-password-file", path(&store.etcd_password_file)),
        ("--etcd-prefix", store.etcd_prefix.clone()),
    ];
    let given = all.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
    given.flatten().collect()
}

/// The same store under two names. An embedded one is found by its directory.
pub(super) fn is_same(one: &Target, other: &Target) -> bool {
    match (one.resolve(), other.resolve()) {
        (Ok((Datastore::Embedded, one)), Ok((Datastore::Embedded, other))) => one == other,
        (Ok((Datastore::Etcd(one), _)), Ok((Datastore::Etcd(other), _))) => {
            one.prefix == other.prefix && one.endpoints.iter().any(|url| other.endpoints.contains(url))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn stores_are_named_as_servers_name_them() {
        let etcd = EtcdArgs { etcd_prefix: Some("/coracle".into()), ..EtcdArgs::default() };
        let target = read("https://a:2379,b:2379", &etcd).unwrap();
        let wanted = ["--datastore", "https://a:2379,b:2379", "--etcd-prefix", "/coracle"];
        assert_eq!(options(&target), wanted);
        let embedded = read("embedded:/var/lib/coracle", &etcd).unwrap();
        assert_eq!(options(&embedded), ["--data-dir", "/var/lib/coracle", "--datastore", "embedded"]);
        assert!(is_same(&embedded, &read("embedded:/var/lib/coracle", &etcd).unwrap()));
        assert!(is_same(&target, &read("https://b:2379", &etcd).unwrap()));
        assert!(!is_same(&target, &read("https://b:2379", &EtcdArgs::default()).unwrap()));
        assert!(!is_same(&target, &embedded));
        for (text, why) in [
            ("embedded:", "needs a directory"),
            ("embedded", "needs a directory"),
            ("etcd", "run by a server"),
            ("elsewhere", "unknown datastore"),
            ("https://a", "not host:port"),
        ] {
            let said = read(text, &EtcdArgs::default()).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
