//! How many volumes of a driver fit on this node: asked anew as often as its CSIDriver says, and when a volume did not fit.

use coracle_cli::causes;
use coracle_csi::CallError;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, VolumeAttachment};
use kube::Api;
use kube::runtime::watcher::{Config, Error, Event};
use std::time::Duration;
use tokio::time::Instant;

use super::drivers::Drivers;
use super::node_object::{NodeObject, NodeObjectError};
use crate::api_watch;

/// The API server accepts no shorter period.
const MIN_PERIOD: Duration = Duration::from_secs(10);

/// RESOURCE_EXHAUSTED of gRPC.
const EXHAUSTED: i32 = 8;

/// The period of a CSIDriver; `None` if the number never changes.
pub(super) fn period(driver: &CSIDriverSpec) -> Option<Duration> {
    let seconds = u64::try_from(driver.node_allocatable_update_period_seconds?).ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds).max(MIN_PERIOD))
}

/// What the driver said when a volume was not attached because it did not fit.
pub(super) fn exhaustion(attachment: &VolumeAttachment) -> Option<String> {
    let error = attachment.status.as_ref()?.attach_error.as_ref()?;
    (error.error_code == Some(EXHAUSTED)).then(|| error.message.clone().unwrap_or_default())
}

#[derive(Debug, thiserror::Error)]
enum UpdateError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Object(#[from] NodeObjectError),
}

/// Asks a driver how many volumes fit on the node now, and tells the cluster; a failure waits for the next time.
pub(super) async fn update(name: &str, drivers: &Drivers, object: &NodeObject) {
    let Some(registered) = drivers.get(name) else { return };
    let updated: Result<(), UpdateError> =
        async { Ok(object.add(name, &registered.driver.info().await?).await?) }.await;
    if let Err(error) = updated {
        tracing::warn!(driver = name, error = %causes::chain(&error), "limit of volumes not updated");
    }
}

/// Says when a driver is to be asked.
pub(super) struct Periods {
    driver: String,
    changes: BoxStream<'static, Result<Event<CSIDriver>, Error>>,
    every: Option<Duration>,
    /// From the list that is being read.
    listed: Option<Duration>,
    next: Option<Instant>,
}

impl Periods {
    /// Of the CSIDriver of this name.
    pub(super) fn new(client: kube::Client, driver: &str) -> Self {
        let config = Config::default().fields(&format!("metadata.name={driver}"));
        let changes = api_watch::watch(Api::<CSIDriver>::all(client), config);
        Self { driver: driver.to_owned(), changes, every: None, listed: None, next: None }
    }

    /// Waits for the end of the next period, for ever if there is none. A changed period begins at once.
    pub(super) async fn passed(&mut self) {
        loop {
            let next = self.next;
            tokio::select! {
                change = self.changes.next() => match change {
                    Some(change) => self.take(change),
                    None => return std::future::pending().await,
                },
                () = at(next) => {
                    self.begin();
                    return;
                }
            }
        }
    }

    fn take(&mut self, change: Result<Event<CSIDriver>, Error>) {
        let wanted = match change {
            Err(error) => {
                let error = causes::chain(&error);
                tracing::warn!(driver = self.driver, %error, "CSIDriver watch failed, will retry");
                return;
            }
            Ok(Event::Init) => {
                self.listed = None;
                return;
            }
            Ok(Event::InitApply(driver)) => {
                self.listed = period(&driver.spec);
                return;
            }
            Ok(Event::InitDone) => self.listed,
            Ok(Event::Apply(driver)) => period(&driver.spec),
            Ok(Event::Delete(_)) => None,
        };
        if wanted != self.every {
            self.every = wanted;
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.next = self.every.and_then(|every| Instant::now().checked_add(every));
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
        let of = |spec: serde_json::Value| period(&serde_json::from_value(spec).unwrap());
        assert_eq!(of(json!({})), None);
        for (seconds, want) in [(0, None), (-1, None), (1, Some(10)), (10, Some(10)), (90, Some(90))] {
            let got = of(json!({"nodeAllocatableUpdatePeriodSeconds": seconds}));
            assert_eq!(got, want.map(Duration::from_secs), "{seconds}");
        }
    }

    #[test]
    fn a_volume_that_does_not_fit_is_known_by_the_code_of_its_error() {
        for (status, want) in [
            (json!({"attached": false}), None),
            (json!({"attached": false, "attachError": {"message": "no disk"}}), None),
            (json!({"attached": false, "attachError": {"errorCode": 5, "message": "no disk"}}), None),
            (json!({"attached": false, "attachError": {"errorCode": 8, "message": "full"}}), Some("full")),
            (json!({"attached": false, "attachError": {"errorCode": 8}}), Some("")),
        ] {
            let source = json!({"persistentVolumeName": "pv"});
            let spec = json!({"attacher": "d", "nodeName": "n", "source": source});
            let attachment = json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
            let attachment: VolumeAttachment = serde_json::from_value(attachment).unwrap();
            assert_eq!(exhaustion(&attachment).as_deref(), want, "{status}");
        }
    }
}
