//! The certificates of a server's directory, and what uses them.

use coracle_pki::inspect::{self, CertificateInfo, InspectError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A certificate of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileCertificate {
    /// The name of the file.
    pub file: String,
    /// What uses it.
    pub used_for: String,
    /// What it says.
    #[serde(flatten)]
    pub info: CertificateInfo,
}

/// The certificates of a directory.
#[derive(Debug, Default)]
pub struct Listed {
    /// Those that can be read, by file.
    pub certificates: Vec<FileCertificate>,
    /// Why others cannot.
    pub unreadable: Vec<InspectError>,
}

/// The directory cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}")]
pub struct ListError {
    /// Which one.
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// What a file of the directory is used for.
pub fn used_for(file: &str) -> &'static str {
    match file {
        "ca.crt" => "CA of the cluster: signs the certificates of servers, administrators and nodes",
        "ca-cross.crt" => "new CA of the cluster, signed by the old one: for clients that know only that one",
        "front-proxy-ca.crt" => "CA of proxies that name users in headers",
        "etcd-ca.crt" => "CA of the managed etcd",
        "apiserver.crt" => "API server: shown to clients and nodes",
        "apiserver-kubelet-client.crt" => "API server: shown to nodes",
        "admin.crt" => "administrator: admin.kubeconfig",
        "front-proxy-client.crt" => "API server: shown to aggregated API servers and to other servers",
        "etcd-server.crt" => "managed etcd: shown to its clients",
        "etcd-peer.crt" => "managed etcd: shown to other members",
        "etcd-client.crt" => "API server: shown to the managed etcd",
        _ => "not known",
    }
}

/// The certificates of a directory, in the order of file names.
pub fn list(pki: &Path) -> Result<Listed, ListError> {
    let failed = |source| ListError { path: pki.into(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(pki).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        files.extend(name.to_str().filter(|name| name.ends_with(".crt")).map(str::to_owned));
    }
    files.sort();
    let mut listed = Listed::default();
    for file in files {
        match inspect::read(&pki.join(&file)) {
            Ok(found) => listed.certificates.extend(found.into_iter().map(|info| FileCertificate {
                file: file.clone(),
                used_for: used_for(&file).to_owned(),
                info,
            })),
            Err(error) => listed.unreadable.push(error),
        }
    }
    Ok(listed)
}
