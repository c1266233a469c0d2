//! Refreshes volumes of a running pod after changes of its objects and before its tokens expire.

use coracle_trace::within;
use std::sync::Arc;
use std::time::Duration;

use super::clock::now;
use super::stage::{Refresh, Stage, Volumes};
use super::task::Worker;
use crate::events::Kind;
use crate::lifecycle::table::Message;
use crate::volume::prepare::Prepared;
use crate::volume::purpose::Purpose;

impl Worker {
    /// A ConfigMap or Secret changed: retries failed containers and refreshes volumes.
    pub(super) fn refresh_volumes(&mut self) {
        self.retries.not_before.clear();
        let Stage::Running(volumes) = &mut self.stage else { return };
        let Volumes::Ready { refresh, .. } = volumes else {
            // The job may have read the object before it changed.
            self.tasks.refresh_after_job = self.tasks.job.is_some();
            return;
        };
        // Concurrent refreshes would delete each other's files.
        if *refresh != Refresh::Idle {
            *refresh = Refresh::RunningAgain;
            return;
        }
        *refresh = Refresh::Running;
        let (parts, pod, mailbox) = (self.parts.clone(), self.pod().clone(), self.tasks.mailbox.clone());
        let refresh = async move {
            let made = parts.catch_panic(&pod, parts.executor.volumes.prepare(&pod, Purpose::Renewal)).await;
            let prepared = match made {
                Ok(Ok(prepared)) => Some(Arc::new(prepared)),
                Ok(Err(error)) => {
                    parts.executor.events.pod(&pod, Kind::Warning, "FailedMount", error.to_string());
                    None
                }
                Err(_) => None,
            };
            let _ = mailbox.send(Message::Prepared(prepared));
        };
        self.tasks.tracker.spawn(within(self.trace.scope(), refresh));
    }

    /// A refresh has ended; `None` if it failed.
    pub(super) fn refreshed(&mut self, made: Option<Arc<Prepared>>) {
        let Stage::Running(Volumes::Ready { prepared, refresh }) = &mut self.stage else { return };
        let again = std::mem::replace(refresh, Refresh::Idle) == Refresh::RunningAgain;
        match made {
            Some(made) => *prepared = made,
            // Delays the next renewal after a failure.
            None => {
                let later = now() / 1_000_000_000 + 60;
                let prepared = Arc::make_mut(prepared);
                prepared.renew_at = prepared.renew_at.map(|at| at.max(later));
            }
        }
        if again {
            self.refresh_volumes();
        }
    }

    /// Wakes when a token of the pod is to be renewed, and renews it then.
    pub(super) fn renew_tokens(&mut self) {
        let Stage::Running(Volumes::Ready { prepared, refresh }) = &self.stage else { return };
        let (Some(at), is_idle) = (prepared.renew_at, *refresh == Refresh::Idle) else { return };
        let left = at.saturating_sub(now() / 1_000_000_000);
        if left <= 0 && is_idle {
            self.refresh_volumes();
        }
        // A renewal that fails is tried again after a minute.
        self.wake_in(Duration::from_secs(u64::try_from(left).unwrap_or(0).max(60)));
    }
}
