//! Options that name a store, shared by the server and by commands that open one.

use crate::etcd_member::{CLIENT_PORT, PEER_PORT};
use clap::Args;
use coracle_store::{Datastore, DatastoreError, EtcdOptions};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;
use std::path::PathBuf;

/// Which store, and how etcd is reached.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DatastoreArgs {
    /// `embedded` (the default), `etcd` for a member of etcd that the server runs, or an existing etcd:
    /// `etcd://host:port[,host:port]`, with TLS `https://host:port[,host:port]`.
    #[arg(long)]
    pub(crate) datastore: Option<String>,
    /// Certificate of the CA of etcd; the CAs of the system by default.
    #[arg(long)]
    pub(crate) etcd_ca_file: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long)]
    pub(crate) etcd_cert_file: Option<PathBuf>,
    /// Key of the client certificate for etcd.
    #[arg(long)]
    pub(crate) etcd_key_file: Option<PathBuf>,
    /// User of etcd.
    #[arg(long)]
    pub(crate) etcd_user: Option<String>,
    /// File with the password of the user of etcd.
    #[arg(long)]
    pub(crate) etcd_password_file: Option<PathBuf>,
    /// Prefix of all keys in etcd, for an etcd that others use too.
    #[arg(long)]
    pub(crate) etcd_prefix: Option<String>,
    /// Port for clients of the etcd member that the server runs; 2379 by default.
    #[arg(long)]
    pub(crate) etcd_client_port: Option<NonZeroU16>,
    /// Port for the other members of etcd; 2380 by default.
    #[arg(long)]
    pub(crate) etcd_peer_port: Option<NonZeroU16>,
}

/// Ports of the etcd member that the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtcdPorts {
    /// For clients.
    pub client: u16,
    /// For other members.
    pub peer: u16,
}

impl DatastoreArgs {
    /// Whether an option of the file is one of these.
    pub fn has(key: &str) -> bool {
        key == "datastore"
            || matches!(
                key,
                "etcdCaFile"
                    | "etcdCertFile"
                    | "etcdKeyFile"
                    | "etcdUser"
                    | "etcdPasswordFile"
                    | "etcdPrefix"
                    | "etcdClientPort"
                    | "etcdPeerPort"
            )
    }

    /// These options, with those of `file` for options that are not set.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        Self {
            datastore: self.datastore.or(file.datastore),
            etcd_ca_file: self.etcd_ca_file.or(file.etcd_ca_file),
            etcd_cert_file: self.etcd_cert_file.or(file.etcd_cert_file),
            etcd_key_file: self.etcd_key_file.or(file.etcd_key_file),
            etcd_user: self.etcd_user.or(file.etcd_user),
            etcd_password_file: self.etcd_password_file.or(file.etcd_password_file),
            etcd_prefix: self.etcd_prefix.or(file.etcd_prefix),
            etcd_client_port: self.etcd_client_port.or(file.etcd_client_port),
            etcd_peer_port: self.etcd_peer_port.or(file.etcd_peer_port),
        }
    }

    /// The ports of a managed etcd.
    pub fn ports(&self) -> EtcdPorts {
        EtcdPorts {
            client: self.etcd_client_port.map_or(CLIENT_PORT, NonZeroU16::get),
            peer: self.etcd_peer_port.map_or(PEER_PORT, NonZeroU16::get),
        }
    }

    /// The store that the options name. Options of etcd without an etcd are refused.
    pub fn resolve(self) -> Result<Datastore, DatastoreError> {
        let datastore: Datastore = self.datastore.as_deref().unwrap_or("embedded").parse()?;
        if let Some(option) = self.option_of_managed()
            && datastore != Datastore::ManagedEtcd
        {
            return Err(DatastoreError::NotManaged(option));
        }
        let Datastore::Etcd(etcd) = datastore else {
            return match self.option_of_etcd() {
                Some(option) => Err(DatastoreError::NotEtcd(option)),
                None => Ok(datastore),
            };
        };
        let etcd = EtcdOptions {
            prefix: self.etcd_prefix.unwrap_or_default(),
            ca: self.etcd_ca_file,
            cert: self.etcd_cert_file,
            key: self.etcd_key_file,
            user: self.etcd_user,
            password_file: self.etcd_password_file,
            ..etcd
        };
        Ok(Datastore::Etcd(etcd.checked()?))
    }

    /// One of the options that only a managed etcd has.
    fn option_of_managed(&self) -> Option<&'static str> {
        let given = [
            ("etcd-client-port", self.etcd_client_port.is_some()),
            ("etcd-peer-port", self.etcd_peer_port.is_some()),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }

    /// One of the options that only an existing etcd has.
    fn option_of_etcd(&self) -> Option<&'static str> {
        let given = [
            ("etcd-ca-file", self.etcd_ca_file.is_some()),
            ("etcd-cert-file", self.etcd_cert_file.is_some()),
            ("etcd-key-file", self.etcd_key_file.is_some()),
            ("etcd-user", self.etcd_user.is_some()),
            ("etcd-password-file", self.etcd_password_file.is_some()),
            ("etcd-prefix", self.etcd_prefix.is_some()),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_etcd_need_an_etcd() {
        for store in [None, Some("embedded"), Some("etcd")] {
            let args = DatastoreArgs {
                datastore: store.map(str::to_owned),
                etcd_user: Some("root".to_owned()),
                ..DatastoreArgs::default()
            };
            assert!(matches!(args.resolve(), Err(DatastoreError::NotEtcd("etcd-user"))), "{store:?}");
        }
        assert!(matches!(DatastoreArgs::default().resolve(), Ok(Datastore::Embedded)));
    }

    #[test]
    fn ports_are_for_a_member_of_ones_own() {
        let args = |store: &str| DatastoreArgs {
            datastore: Some(store.to_owned()),
            etcd_peer_port: NonZeroU16::new(1),
            ..DatastoreArgs::default()
        };
        for store in ["embedded", "etcd://a:1"] {
            let refused = args(store).resolve();
            assert!(matches!(refused, Err(DatastoreError::NotManaged("etcd-peer-port"))), "{store}");
        }
        assert_eq!(args("etcd").ports(), EtcdPorts { client: 2379, peer: 1 });
        assert!(matches!(args("etcd").resolve(), Ok(Datastore::ManagedEtcd)));
    }
}
