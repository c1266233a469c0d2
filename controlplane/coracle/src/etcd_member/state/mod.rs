//! What is known of this server's member, in `etcd-member.json` beside its data: the name that it keeps, and where the other
//! members are, so that it finds its cluster when its data is gone.

#[cfg(test)]
mod tests;

use super::certificates::Certificates;
use super::{MemberConfig, MemberError};
use coracle_cli::private_files;
use coracle_store::EtcdOptions;
use coracle_store::etcd::{ClusterMember, Membership};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The file in the data directory of a server that runs a member.
pub const STATE_FILE: &str = "etcd-member.json";
/// More than any cluster has members.
const MAX_SIZE: u64 = 64 << 10;

/// Whether etcd makes a cluster or joins one, if it has no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Origin {
    New,
    Existing,
}

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct State {
    /// The same for as long as the server is a member.
    pub name: String,
    /// The identifier in the cluster, once it is known.
    pub id: Option<u64>,
    /// Where other members reach it.
    pub peer_url: String,
    /// Where clients reach it.
    pub client_url: String,
    /// Tells clusters apart whose members have the same addresses.
    pub token: String,
    pub origin: Origin,
    /// `name=peer URL` of all members at the start.
    pub initial_cluster: Vec<String>,
    /// Client URLs of the other members.
    pub others: Vec<String>,
}

/// How a member starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It has data.
    Again,
    /// It makes a cluster.
    New,
    /// It joins the cluster behind these client URLs.
    Join(Vec<String>),
}

impl Plan {
    pub(super) fn existing(&self) -> Option<&[String]> {
        match self {
            Self::Join(urls) => Some(urls),
            _ => None,
        }
    }

    pub(super) fn has_data(&self) -> bool {
        *self == Self::Again
    }
}

impl State {
    fn new(config: &MemberConfig) -> Self {
        let peer_url = config.peer_url();
        let name = member_name(&peer_url);
        Self {
            initial_cluster: vec![format!("{name}={peer_url}")],
            name,
            id: None,
            client_url: config.client_url(),
            peer_url,
            token: format!("coracle-{}", uuid::Uuid::new_v4()),
            origin: Origin::New,
            others: Vec::new(),
        }
    }

    /// Reads the file; `None` if there is none.
    pub(super) fn load(data_dir: &Path) -> Result<Option<Self>, MemberError> {
        let path = data_dir.join(STATE_FILE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(MemberError::file(&path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(MemberError::file(&path))?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(MemberError::StateSize(path));
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|source| MemberError::State { path, source })
    }

    /// What is known, with the addresses of the options, which may have changed.
    pub(super) fn load_or_new(config: &MemberConfig) -> Result<Self, MemberError> {
        match Self::load(&config.data_dir)? {
            Some(known) => Ok(Self { peer_url: config.peer_url(), client_url: config.client_url(), ..known }),
            None if has_data(&config.data_dir) => Err(MemberError::StateGone {
                dir: config.data_dir.join("etcd"),
                state: config.data_dir.join(STATE_FILE),
            }),
            None => Ok(Self::new(config)),
        }
    }

    pub(super) fn save(&self, data_dir: &Path) -> Result<(), MemberError> {
        let path = data_dir.join(STATE_FILE);
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|source| MemberError::State { path: path.clone(), source })?;
        private_files::write(&path, &bytes).map_err(MemberError::file(&path))
    }

    /// How this member starts. Data wins; a member without data never makes a second cluster beside its own.
    pub(super) fn plan(&self, config: &MemberConfig) -> Result<Plan, MemberError> {
        if has_data(&config.data_dir) {
            return Ok(Plan::Again);
        }
        if config.existing.as_ref().is_some_and(Vec::is_empty) {
            return Err(MemberError::NoMembers);
        }
        let known = Some(self.others.clone()).filter(|others| !others.is_empty());
        match config.existing.clone().or(known) {
            Some(urls) => Ok(Plan::Join(urls)),
            None if self.id.is_none() => Ok(Plan::New),
            None => Err(MemberError::DataGone {
                name: self.name.clone(),
                dir: config.data_dir.join("etcd"),
                state: config.data_dir.join(STATE_FILE),
            }),
        }
    }

    /// The member as it was added, with all members of that moment.
    pub(super) fn added(&mut self, own: u64, all: &[ClusterMember]) {
        let named = |member: &ClusterMember| match &member.name {
            _ if member.id == own => self.name.clone(),
            name if name.is_empty() => format!("{:x}", member.id),
            name => name.clone(),
        };
        let urls = |member: &ClusterMember| {
            let name = named(member);
            member.peer_urls.iter().map(|url| format!("{name}={url}")).collect::<Vec<_>>()
        };
        self.initial_cluster = all.iter().flat_map(urls).collect();
        (self.id, self.origin) = (Some(own), Origin::Existing);
        self.learn(all);
    }

    /// Takes over where the other members are. Returns whether that has changed.
    pub(super) fn learn(&mut self, all: &[ClusterMember]) -> bool {
        let others = all.iter().filter(|member| Some(member.id) != self.id);
        let urls = others.filter_map(|member| member.client_urls.first().cloned());
        let mut urls: Vec<String> = urls.filter(|url| *url != self.client_url).collect();
        urls.sort();
        let changed = urls != self.others;
        self.others = urls;
        changed
    }

    /// How the cluster is reached: this member first.
    pub(super) fn options(&self, certificates: &Certificates) -> EtcdOptions {
        let urls: Vec<String> = std::iter::once(&self.client_url).chain(&self.others).cloned().collect();
        self.options_of(certificates, &urls)
    }

    /// How members are reached.
    pub(super) fn options_of(&self, certificates: &Certificates, urls: &[String]) -> EtcdOptions {
        EtcdOptions {
            endpoints: urls.to_vec(),
            ca: Some(certificates.authority()),
            cert: Some(certificates.certificate("client")),
            key: Some(certificates.key("client")),
            ..EtcdOptions::default()
        }
    }

    /// The other members, if some are known.
    pub(super) fn others(&self, certificates: &Certificates) -> Result<Option<Membership>, MemberError> {
        if self.others.is_empty() {
            return Ok(None);
        }
        Ok(Some(Membership::new(&self.options_of(certificates, &self.others))?))
    }
}

/// The name of the host for people, and something that differs for members on one host.
fn member_name(peer_url: &str) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    let host: String = host.chars().filter(|c| plain(*c)).take(40).collect();
    let digest: String = Sha256::digest(peer_url)[..3].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{digest}", if host.is_empty() { "server" } else { &host })
}

/// Whether etcd has written a log of the cluster.
pub(super) fn has_data(data_dir: &Path) -> bool {
    let files = std::fs::read_dir(data_dir.join("etcd/member/wal")).into_iter().flatten().flatten();
    files.into_iter().any(|entry| entry.path().extension().is_some_and(|end| end == "wal"))
}

/// Removes what a start that did not get as far as a log has left: etcd would take it for its database.
pub(super) fn remove_unfinished(dir: &Path) -> Result<(), MemberError> {
    let path = dir.join("member");
    match std::fs::remove_dir_all(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(MemberError::file(&path)(error)),
        _ => Ok(()),
    }
}

/// Files of a client of the cluster.
#[derive(Debug, Clone)]
pub struct ClientFiles {
    /// The directory of keys and certificates.
    pub pki_dir: PathBuf,
}

/// How the cluster of a data directory is reached; `None` if its server has no member of its own.
pub fn saved_options(data_dir: &Path, files: &ClientFiles) -> Result<Option<EtcdOptions>, MemberError> {
    let state = State::load(data_dir)?;
    Ok(state.map(|state| state.options(&Certificates::of(&files.pki_dir))))
}

/// Notes the cluster that a server is going to join, for a server that fails before it has joined: when it starts again it joins
/// this cluster and does not make one of its own. Changes nothing for a server that is a member.
pub fn remember_cluster(config: &MemberConfig, client_urls: &[String]) -> Result<(), MemberError> {
    let mut state = State::load_or_new(config)?;
    if has_data(&config.data_dir) || !state.others.is_empty() {
        return Ok(());
    }
    state.others = client_urls.to_vec();
    state.save(&config.data_dir)
}
