//! Follows the file of `--authentication-config`. A file that cannot be used changes nothing.

use super::file_changes::FileChanges;
use coracle_apiserver::authn::configuration::Reloader;
use coracle_cli::causes;
use std::sync::Arc;
use std::time::Duration;

/// When to try again after the file could not be watched.
const RETRY: Duration = Duration::from_secs(10);
/// The file is read again after this even when no change was seen: a directory above it may be another one by now.
const AGAIN: Duration = Duration::from_secs(60);

/// Does not return.
pub(super) async fn follow(reloader: Arc<Reloader>) {
    let path = reloader.path().to_owned();
    loop {
        // Watched before it is read: no change in between is missed.
        let changes = FileChanges::watch([&path].into_iter());
        let reading = reloader.clone();
        // Compiling many expressions takes a while.
        match tokio::task::spawn_blocking(move || reading.reload()).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => {
                tracing::info!(path = %path.display(), "the authentication configuration was reloaded")
            }
            Ok(Err(error)) => {
                let error = causes::chain(&error);
                tracing::error!(error, "the authentication configuration is not reloaded");
            }
            Err(error) => tracing::error!(%error, "reading the authentication configuration failed"),
        }
        match changes {
            Ok(changes) => changes.wait(Some(AGAIN)).await,
            Err(error) => {
                let error = causes::chain(&error);
                tracing::warn!(error, "cannot watch the authentication configuration, will retry");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
