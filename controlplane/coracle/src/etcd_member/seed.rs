//! The first member of a new cluster, whose data is there before a server runs it: a backup is restored into it.
//!
//! Until everything is written, the data directory has no [`STATE_FILE`]: a server does not start on a part of a cluster.

use super::certificates::Certificates;
use super::lock::{LOCK, Lock};
use super::private::Private;
use super::state::{State, has_data};
use super::{MemberConfig, MemberError, STATE_FILE};
use coracle_cli::private_files;
use coracle_store::EtcdOptions;
use std::path::PathBuf;

/// A member of a new cluster, which runs and which nobody else reaches. If it is dropped, its data is removed.
pub struct Seed {
    member: Private,
    state: State,
    made: Made,
    _lock: Lock,
}

/// The data of a member that has stopped, not yet known to servers.
pub struct Seeded {
    state: State,
    made: Made,
    _lock: Lock,
}

/// Data that is removed unless it is kept.
struct Made {
    data_dir: PathBuf,
    kept: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(self.data_dir.join("etcd"));
            let _ = std::fs::remove_file(self.data_dir.join(LOCK));
        }
    }
}

impl Seed {
    /// Makes a cluster of one member in a data directory that has none. The member gets its address from the server that runs it
    /// later. Certificates are made in the directory of keys.
    pub async fn start(config: &MemberConfig) -> Result<Self, MemberError> {
        let data_dir = &config.data_dir;
        for path in [data_dir.join(STATE_FILE), data_dir.join("etcd/member")] {
            if path.exists() || has_data(data_dir) {
                return Err(MemberError::NotNew(path));
            }
        }
        let lock = Lock::take(data_dir)?;
        let made = Made { data_dir: data_dir.clone(), kept: false };
        let dir = data_dir.join("etcd");
        private_files::directory(&dir).map_err(MemberError::file(&dir))?;
        let certificates = Certificates::ensure(config)?;
        let mut state = State::load_or_new(config)?;
        let member = Private::start(&dir, &state, &certificates, &[]).await?;
        state.id = Some(member.id);
        Ok(Self { member, state, made, _lock: lock })
    }

    /// How it is reached.
    pub fn options(&self) -> &EtcdOptions {
        &self.member.options
    }

    /// Stops it when its data is complete.
    pub async fn stop(self) -> Seeded {
        let Self { member, state, made, _lock } = self;
        member.stop().await;
        Seeded { state, made, _lock }
    }

    /// Stops it and removes its data.
    pub async fn abandon(self) {
        drop(self.stop().await);
    }
}

impl Seeded {
    /// Lets servers run the member. The keys that its certificates are of must be at their place by now.
    pub fn keep(mut self) -> Result<PathBuf, MemberError> {
        // From here on the data is complete, whatever happens.
        self.made.kept = true;
        self.state.save(&self.made.data_dir)?;
        Ok(self.made.data_dir.join("etcd"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_store::{Datastore, Durability, Write};
    use std::path::Path;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_goes_on_with_what_was_seeded_and_failures_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        let config = MemberConfig::new(&data_dir, "127.0.0.1");
        Seed::start(&config).await.unwrap().abandon().await;
        let left = std::fs::read_dir(&data_dir).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["pki"], "keys are of the caller");

        let seed = Seed::start(&config).await.unwrap();
        assert!(matches!(Seed::start(&config).await, Err(MemberError::NotNew(_) | MemberError::Locked(_))));
        let datastore = Datastore::Etcd(seed.options().clone());
        let store = coracle_store::open(&datastore, Path::new("/nonexistent")).await.unwrap();
        let (key, value) = ("/registry/a".to_owned(), Some("1".into()));
        let write = Write { key, expect: 0, value, durability: Durability::Sync, fence: None };
        store.write(write).await.unwrap();
        drop(store);
        let seeded = seed.stop().await;
        assert!(!data_dir.join(STATE_FILE).exists(), "no server starts on it before it is kept");
        assert!(matches!(State::load_or_new(&config), Err(MemberError::StateGone { .. })));
        seeded.keep().unwrap();
        assert!(matches!(Seed::start(&config).await, Err(MemberError::NotNew(_))));

        let member = super::super::start(MemberConfig {
            client_port: super::super::tests::free_port(),
            peer_port: super::super::tests::free_port(),
            ..MemberConfig::new(&data_dir, "127.0.0.2")
        });
        let member = member.await.unwrap();
        let datastore = Datastore::Etcd(member.options.clone());
        let store = coracle_store::open(&datastore, Path::new("/nonexistent")).await.unwrap();
        assert_eq!(store.get("/registry/a").await.unwrap().unwrap().value, "1");
        let members = coracle_store::etcd::Membership::new(&member.options).unwrap().list().await.unwrap();
        assert_eq!(members.len(), 1);
        assert!(members[0].peer_urls[0].contains("127.0.0.2"), "it is where the server says: {members:?}");
        member.stop().await;
    }
}
