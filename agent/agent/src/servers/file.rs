//! The list of servers in a file of the node's data directory.

use serde::{Deserialize, Serialize};
use std::io::{self, Read as _};
use std::path::Path;

use super::{Address, MAX_SERVERS, ServersError};

/// A file that is larger is no list of ours.
const MAX_BYTES: u64 = 64 * 1024;

/// Servers that are known besides the one in the kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerList {
    /// Given when the node joined.
    pub given: Vec<Address>,
    /// Learned from the cluster.
    pub learned: Vec<Address>,
}

impl ServerList {
    /// The list in a file; empty when there is no file.
    pub fn read(path: &Path) -> Result<Self, ServersError> {
        let failed = |source| ServersError::File { path: path.into(), source };
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            opened => opened.map_err(failed)?,
        };
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        let mut list: Self = serde_json::from_slice(&text)
            .map_err(|source| ServersError::Content { path: path.into(), source })?;
        list.given.truncate(MAX_SERVERS);
        list.learned.truncate(MAX_SERVERS);
        Ok(list)
    }

    /// Writes the list by rename: the file is whole or as it was. An empty list has no file.
    pub fn write(&self, path: &Path) -> Result<(), ServersError> {
        let failed = |source| ServersError::File { path: path.into(), source };
        if *self == Self::default() {
            return match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| ServersError::Content { path: path.into(), source })?;
        coracle_cli::private_files::write(path, &text).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn address(url: &str) -> Address {
        Address::try_from(url.to_owned()).unwrap()
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("servers");
        assert_eq!(ServerList::read(&path).unwrap(), ServerList::default());
        let list = ServerList {
            given: vec![address("https://api.example:6443")],
            learned: vec![address("https://192.0.2.1:6443"), address("https://[2001:db8::1]:6443")],
        };
        list.write(&path).unwrap();
        assert_eq!(ServerList::read(&path).unwrap(), list);
        for _ in 0..2 {
            ServerList::default().write(&path).unwrap();
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_is_no_list_is_refused_and_a_long_list_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("servers");
        for text in ["", "{", r#"{"learned": ["http://192.0.2.1"]}"#, r#"{"other": []}"#] {
            std::fs::write(&path, text).unwrap();
            let error = ServerList::read(&path).unwrap_err();
            assert!(matches!(error, ServersError::Content { .. }), "{text}: {error}");
            assert!(error.to_string().contains("servers is not a list of servers"), "{error}");
        }
        std::fs::write(&path, " ".repeat(1 << 20)).unwrap();
        assert!(matches!(ServerList::read(&path).unwrap_err(), ServersError::File { .. }));
        let many: Vec<String> = (0..100).map(|n| format!("https://192.0.2.{n}:6443")).collect();
        std::fs::write(&path, serde_json::json!({"learned": many}).to_string()).unwrap();
        assert_eq!(ServerList::read(&path).unwrap().learned.len(), MAX_SERVERS);
    }
}
