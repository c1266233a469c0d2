//! How many volumes of a driver fit on this node: asked anew as often as its CSIDriver says.

use coracle_cli::causes;
use futures::StreamExt;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::Api;
use kube::runtime::watcher::{Config, Event};
use std::time::Duration;
use tokio::time::Instant;

use crate::api_watch;

/// The API server accepts no shorter period.
const MIN_PERIOD: Duration = Duration::from_secs(10);

/// The period of a CSIDriver; `None` if the number never changes.
fn period(driver: &CSIDriver) -> Option<Duration> {
    let seconds = u64::try_from(driver.spec.node_allocatable_update_period_seconds?).ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds).max(MIN_PERIOD))
}

/// Calls `ask` after every period of the CSIDriver of this name, for ever. A changed period begins at once.
pub(super) async fn follow(client: kube::Client, name: &str, ask: impl AsyncFn()) {
    let config = Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = api_watch::watch(Api::<CSIDriver>::all(client), config);
    let (mut every, mut listed, mut next) = (None, None, None);
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = at(next) => {
                ask().await;
                next = every.and_then(|every| Instant::now().checked_add(every));
                continue;
            }
        };
        let wanted = match change {
            None => return,
            Some(Err(error)) => {
                tracing::warn!(driver = name, error = %causes::chain(&error), "CSIDriver watch failed, will retry");
                continue;
            }
            Some(Ok(Event::Init)) => {
                listed = None;
                continue;
            }
            Some(Ok(Event::InitApply(driver))) => {
                listed = period(&driver);
                continue;
            }
            Some(Ok(Event::InitDone)) => listed,
            Some(Ok(Event::Apply(driver))) => period(&driver),
            Some(Ok(Event::Delete(_))) => None,
        };
        if wanted != every {
            every = wanted;
            next = every.and_then(|every| Instant::now().checked_add(every));
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_driver_may_say_how_often_it_is_asked() {
        let of = |spec: serde_json::Value| {
            let driver = json!({"metadata": {"name": "d"}, "spec": spec});
            period(&serde_json::from_value(driver).unwrap())
        };
        assert_eq!(of(json!({})), None);
        for (seconds, want) in [(0, None), (-1, None), (1, Some(10)), (10, Some(10)), (90, Some(90))] {
            let got = of(json!({"nodeAllocatableUpdatePeriodSeconds": seconds}));
            assert_eq!(got, want.map(Duration::from_secs), "{seconds}");
        }
    }
}
