//! Follows the files of the operator's certificate authorities (`--client-ca-file`, `--requestheader-client-ca-file`) with
//! inotify. A file that cannot be used changes nothing.

use super::publish::{Delegation, publish_authentication};
use coracle_apiserver::authn::ca_files::OperatorCas;
use coracle_apiserver::tls::Tls;
use coracle_cli::causes;
use coracle_client::Client;
use coracle_pki::Pki;
use futures::StreamExt as _;
use inotify::{Inotify, WatchMask};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long no file must change before they are read: an editor or `cp` writes more than once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long that is waited for.
const LONGEST: Duration = Duration::from_secs(2);
/// When to try again after a failure that no change of a file ends.
const RETRY: Duration = Duration::from_secs(10);

/// The files, and what uses them.
#[derive(Clone)]
pub(super) struct OperatorCaFiles {
    pub(super) clients: Option<PathBuf>,
    pub(super) proxies: Option<PathBuf>,
    pub(super) pki: Arc<Pki>,
    pub(super) tls: Tls,
    pub(super) client: Client,
    pub(super) delegation: Delegation,
}

impl OperatorCaFiles {
    /// Does not return.
    pub(super) async fn follow(self) {
        let mut unpublished = false;
        loop {
            // Watched before they are read: no change in between is missed.
            let changes = watch(&directories([&self.clients, &self.proxies].into_iter().flatten()));
            if let Err(error) = self.reload(&mut unpublished).await {
                tracing::error!(
                    error = %causes::chain(&*error),
                    unpublished,
                    "cannot use the changed certificate authorities of the operator"
                );
            }
            match changes {
                Ok(changes) => wait(changes, unpublished).await,
                Err(error) => {
                    tracing::warn!(
                        error = %causes::chain(&error),
                        "cannot watch the files of certificate authorities, will retry"
                    );
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Uses what the files say; `unpublished` stays set until aggregated API servers can see it, too.
    async fn reload(&self, unpublished: &mut bool) -> anyhow::Result<()> {
        let cas = OperatorCas::read(self.clients.as_deref(), self.proxies.as_deref())?;
        if self.tls.replace_operator_cas(&self.pki, cas)? {
            tracing::info!("the certificate authorities of the operator were replaced");
            *unpublished = true;
        }
        if *unpublished {
            publish_authentication(&self.client, &self.delegation, &self.tls, &self.pki).await?;
            *unpublished = false;
        }
        Ok(())
    }
}

/// Waits for a change and for the end of those that come together; with something to `retry`, not for ever.
async fn wait(mut changes: impl futures::Stream + Unpin, retry: bool) {
    let first = changes.next();
    if retry {
        _ = tokio::time::timeout(RETRY, first).await;
    } else {
        first.await;
    }
    let rest = async {
        while tokio::time::timeout(DEBOUNCE, changes.next()).await.is_ok_and(|event| event.is_some()) {}
    };
    // Other files of the directory may change all the time.
    _ = tokio::time::timeout(LONGEST, rest).await;
}

/// The directories whose changes can change the files: that of the path and, if it is a link, that of the file itself.
fn directories<'p>(files: impl Iterator<Item = &'p PathBuf>) -> BTreeSet<PathBuf> {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut all = BTreeSet::new();
    for file in files {
        all.insert(parent(file));
        all.extend(file.canonicalize().ok().map(|file| parent(&file)));
    }
    all
}

fn watch(directories: &BTreeSet<PathBuf>) -> std::io::Result<impl futures::Stream + Unpin + use<>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::CREATE;
    for directory in directories {
        inotify.watches().add(directory, mask)?;
    }
    inotify.into_event_stream([0; 4096])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn seen(changes: impl futures::Stream + Unpin) -> bool {
        tokio::time::timeout(Duration::from_secs(10), wait(changes, false)).await.is_ok()
    }

    #[tokio::test]
    async fn every_way_to_replace_a_file_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir_all(&real).unwrap();
        std::fs::create_dir_all(&link).unwrap();
        let (target, path) = (real.join("ca.pem"), link.join("ca.pem"));
        std::fs::write(&target, "one").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let watched = || {
            let all = directories([&path].into_iter());
            assert_eq!(all.len(), 2, "{all:?}");
            watch(&all).unwrap()
        };
        let changes = watched();
        std::fs::write(&target, "two").unwrap();
        assert!(seen(changes).await, "the file is written");
        let changes = watched();
        std::fs::write(real.join("new"), "three").unwrap();
        std::fs::rename(real.join("new"), &target).unwrap();
        assert!(seen(changes).await, "another file takes its place");
        let changes = watched();
        std::os::unix::fs::symlink(real.join("other"), link.join("next")).unwrap();
        std::fs::rename(link.join("next"), &path).unwrap();
        assert!(seen(changes).await, "the link points elsewhere");
    }
}
