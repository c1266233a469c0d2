//! Why a server has no member of etcd.

use coracle_pki::PkiError;
use coracle_store::DatastoreError;
use coracle_store::etcd::EtcdError;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// Why a server has no member of etcd.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// There is no program.
    #[error("etcd is not installed: it is neither in PATH nor /usr/bin/etcd (apt-get install etcd-server)")]
    NoProgram,
    /// The program does not say its version.
    #[error("{} --version does not print a version of etcd", .0.display())]
    NoVersion(PathBuf),
    /// The program is too old.
    #[error("{} is etcd {found}: {least} or later is needed", path.display())]
    Old {
        /// The program.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The oldest that will do.
        least: &'static str,
    },
    /// A file or directory cannot be used.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The file about the member is not what it should be.
    #[error("{} is damaged", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The file about the member is too large.
    #[error("{} is larger than what a server writes there", .0.display())]
    StateSize(PathBuf),
    /// Another process has the data directory.
    #[error("a server runs on {}: stop it first", .0.display())]
    Locked(PathBuf),
    /// Keys and certificates cannot be made.
    #[error("certificates of etcd")]
    Pki(#[from] PkiError),
    /// The process cannot be started.
    #[error("start {}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The thread that starts the process is gone.
    #[error("the thread that starts etcd has ended")]
    Spawner,
    /// Somebody else listens there, or the address is not of this machine.
    #[error("etcd cannot listen on {address}{}", occupied(.source))]
    Socket {
        /// Where.
        address: SocketAddr,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The process has ended.
    #[error("etcd has ended ({status}){}", after_colon(.said))]
    Ended {
        /// How.
        status: ExitStatus,
        /// Its last errors.
        said: String,
    },
    /// The disk is full.
    #[error(
        "the file system of {} has {free} MiB left, and etcd needs {needed} MiB to go on: make room, it is started then",
        dir.display()
    )]
    Full {
        /// Where its data is.
        dir: PathBuf,
        /// MiB that are left.
        free: u64,
        /// MiB that are needed.
        needed: u64,
    },
    /// The data of a member that was in a cluster of one is gone.
    #[error(
        "the data of etcd member {name} in {} is gone, and no other member is known: restore a backup, or delete {} to \
         begin an empty cluster",
        dir.display(), state.display()
    )]
    DataGone {
        /// The member.
        name: String,
        /// Where the data was.
        dir: PathBuf,
        /// The file about the member.
        state: PathBuf,
    },
    /// There is data, but nothing is known about the member.
    #[error(
        "{} has data of etcd, but {} is missing: put it back, or move the data away",
        dir.display(), state.display()
    )]
    StateGone {
        /// Where the data is.
        dir: PathBuf,
        /// The file about the member.
        state: PathBuf,
    },
    /// There is a member already.
    #[error("{} exists: a new cluster is made in a data directory without an etcd member", .0.display())]
    NotNew(PathBuf),
    /// There is nothing to reset.
    #[error("{} has no data of an etcd member", .0.display())]
    NoData(PathBuf),
    /// The member is not in the cluster any more.
    #[error(
        "etcd member {name} of this server was removed from its cluster. To join again as a new member, delete {} and start \
         the server; it needs nothing from there",
        dir.display()
    )]
    Removed {
        /// The member.
        name: String,
        /// Its data.
        dir: PathBuf,
    },
    /// Nobody is there to be asked.
    #[error("the cluster that this server is to join names no client URL of its etcd members")]
    NoMembers,
    /// Others cannot reach a loopback address.
    #[error(
        "this server would join as {own}, which other machines do not reach: start it with --advertise ADDRESS"
    )]
    Loopback {
        /// Where this server would be.
        own: String,
    },
    /// The address is not of this machine.
    #[error("--advertise {0} is not an address of this machine, where its etcd would listen")]
    Foreign(std::net::IpAddr),
    /// A member with this address runs.
    #[error(
        "member {name} already runs at {peer_url}: this server needs another --advertise address, or other ports"
    )]
    Taken {
        /// The member.
        name: String,
        /// Where it is.
        peer_url: String,
    },
    /// The cluster did not take the member in time.
    #[error(
        "the cluster did not take member {name} within {limit:?} (if most members are lost: docs/managed-etcd.md)"
    )]
    NotAdded {
        /// The member.
        name: String,
        /// How long it was tried.
        limit: Duration,
        /// The last answer.
        #[source]
        source: EtcdError,
    },
    /// The member does not catch up.
    #[error(
        "member {name} did not catch up with the leader within {limit:?}; it goes on when the server starts again"
    )]
    NotPromoted {
        /// The member.
        name: String,
        /// How long it was tried.
        limit: Duration,
        /// The last answer.
        #[source]
        source: EtcdError,
    },
    /// After a reset there are other members.
    #[error("after the reset the cluster has {0} members, not one")]
    NotReset(usize),
    /// etcd refused.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Options do not go together.
    #[error(transparent)]
    Options(#[from] DatastoreError),
}

impl MemberError {
    /// The error of a file.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// The member of this data directory was removed.
    pub(super) fn removed(name: &str, data_dir: &Path) -> Self {
        Self::Removed { name: name.to_owned(), dir: data_dir.join("etcd") }
    }
}

/// What to do about a socket that somebody else has.
fn occupied(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (is another etcd running? `systemctl disable --now etcd`)",
        _ => "",
    }
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
