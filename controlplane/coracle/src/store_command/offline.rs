//! A copy of a store that no server uses: the lock of an embedded one is taken, an etcd must be at rest.

use super::{Copied, CopyArgs, place};
use anyhow::{Context as _, bail};
use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use coracle_controllers::servers::lease::HOLDS;
use coracle_store::{Datastore, Opening, Store, StoreError, WatchItem, copy, copy::Compared};
use coracle_trace::Recorder;
use futures::StreamExt;
use std::time::Duration;

/// How long an etcd is watched for writes: servers renew their Leases more often.
const AT_REST: Duration = HOLDS;

/// Copies, and compares both stores afterwards.
pub(super) async fn copy(args: &CopyArgs) -> anyhow::Result<Copied> {
    let (from, to) = (place::read(&args.from, &args.etcd)?, place::read(&args.to, &args.etcd)?);
    if place::is_same(&from, &to) {
        bail!("{} and {} are the same store", args.from, args.to);
    }
    let ((old, old_dir), (new, new_dir)) = (from.resolve()?, to.resolve()?);
    if matches!(old, Datastore::Embedded) && !old_dir.join("store").exists() {
        bail!("{} holds no store", old_dir.display());
    }
    let supervisor = Supervisor::default();
    let opening = |datastore, data_dir| Opening {
        datastore,
        data_dir,
        supervisor: &supervisor,
        recorder: Recorder::OFF,
    };
    let source = opening(&old, old_dir.as_path()).open().await;
    let source =
        source.with_context(|| format!("{} cannot be opened; a server may be using it", args.from))?;
    if let Datastore::Etcd(_) = old
        && is_written(&*source).await?
    {
        bail!(
            "a server writes to {}: stop all servers, or leave out --from to copy the store of a running one",
            args.from
        );
    }
    let opening = opening(&new, new_dir.as_path());
    let begun = copy::load(&*source, &opening, false).await.context("the new store")?;
    let compared = match compare(&*source, &opening).await {
        Ok(compared) if compared.corrected == 0 => compared,
        failed => {
            if let Err(error) = copy::remove(&opening).await {
                eprintln!(
                    "{} has an outdated copy, which cannot be removed: {}",
                    args.to,
                    causes::chain(&error)
                );
            }
            let changed = failed?.corrected;
            bail!(
                "{changed} keys of {} changed during the copy: stop all servers, and copy again",
                args.from
            );
        }
    };
    Ok(Copied {
        from: args.from.clone(),
        to: args.to.clone(),
        keys: compared.keys,
        corrected: 0,
        revision: begun.revision,
        paused_milliseconds: 0,
        options: place::options(&to),
    })
}

/// Compares both, and makes them the same.
async fn compare(source: &dyn Store, target: &Opening<'_>) -> anyhow::Result<Compared> {
    let target = target.open().await.context("the new store")?;
    let compared = copy::correct(source, &*target).await?;
    target.flush().await?;
    Ok(compared)
}

/// Whether something changes in a store within the time in which servers renew their Leases.
async fn is_written(store: &dyn Store) -> Result<bool, StoreError> {
    let mut watch = store.watch("/", store.revision().await?).await?;
    let change = async {
        while let Some(item) = watch.next().await {
            if let WatchItem::Change(_) = item? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    tokio::time::timeout(AT_REST, change).await.unwrap_or(Ok(false))
}
