//! Revisions of keys of others never appear in the watch on ours. When a reader waits for one, a bookmark is written: its own
//! revision is greater.

use super::{
    attempt::QUICK,
    error::EtcdError,
    shared::{Shared, kv},
};
use coracle_cli::causes;
use std::{sync::Arc, time::Duration};

/// The key of the bookmark.
const BOOKMARK: &str = "/coracle/store/bookmark";
/// How long the watch may show nothing while a reader waits.
const IDLE: Duration = Duration::from_millis(50);
/// A watch that does not show a bookmark which was written this long ago moves to another endpoint.
const STUCK: Duration = Duration::from_secs(1);
/// For how long its endpoint is the last to be used.
const AVOID: Duration = Duration::from_secs(5);

/// Writes a bookmark when the watch shows nothing although readers wait, and moves the watch when that does not help.
pub(super) async fn keep_up(etcd: Arc<Shared>) {
    let progress = &etcd.progress;
    loop {
        progress.behind.notified().await;
        while let Some(endpoint) = progress.endpoint()
            && progress.is_behind()
        {
            if !progress.is_idle(IDLE).await {
                continue;
            }
            if let Err(error) = etcd.bookmark().await {
                tracing::debug!(error = %causes::chain(&error), "cannot write a bookmark");
                continue;
            }
            let mut idle = IDLE;
            while idle < STUCK && progress.is_idle(IDLE).await {
                idle += IDLE;
            }
            if idle >= STUCK {
                etcd.endpoints.avoid(&endpoint, AVOID, "its watch shows nothing".to_owned());
                break;
            }
        }
    }
}

impl Shared {
    async fn bookmark(&self) -> Result<(), EtcdError> {
        let key = self.keys.key(BOOKMARK);
        let put = |client| async move { kv(&client).put(key, "", None).await };
        self.endpoints.attempt(QUICK, put).await.map(drop)
    }
}
