//! Pods that come to hollow nodes: one watch for all of them, and a few requests at a time.

use super::client::{ClientError, broken};
use super::nodes::{Hollow, IN_FLIGHT, PAUSE};
use super::objects::{Todo, pod_status, todo};
use bytes::{Bytes, BytesMut};
use coracle_cli::causes;
use coracle_fields::core::v1::{Pod, PodList};
use coracle_fields::meta::{DeleteOptions, WatchEvent};
use coracle_fields::{Made, Schema as _, View, make};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What the requests under way share.
struct Work {
    hollow: Arc<Hollow>,
    /// Pods with a request under way, by uid.
    busy: Mutex<HashSet<String>>,
    turns: Semaphore,
    serial: AtomicU64,
}

/// Watches all pods, forever; a broken watch starts again with a list.
pub async fn follow(hollow: Arc<Hollow>) {
    let work = Arc::new(Work {
        hollow,
        busy: Mutex::default(),
        turns: Semaphore::new(IN_FLIGHT),
        serial: AtomicU64::new(1),
    });
    loop {
        if let Err(error) = work.follow_once().await {
            tracing::debug!(error = %causes::chain(&error), "watch failed, relisting pods");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Work {
    async fn follow_once(self: &Arc<Self>) -> Result<(), ClientError> {
        let client = &self.hollow.client;
        let list = client.send("GET", "/api/v1/pods", None).await?;
        let list = PodList::of(&list);
        list.items().items().for_each(|pod| self.seen(pod));
        let version = list.metadata().resource_version().or("0");
        let path = format!("/api/v1/pods?watch=true&resourceVersion={version}");
        let response = client.open("GET", &path, "application/json", Bytes::new()).await?;
        let (mut body, mut rest) = (response.into_body(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(broken)?;
            let Some(data) = frame.data_ref() else { continue };
            rest.extend_from_slice(data);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest.split_to(end + 1);
                let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
                let event = WatchEvent::of(&event);
                match event.type_().text() {
                    "ADDED" | "MODIFIED" => self.seen(event.object().as_type()),
                    "ERROR" => return Ok(()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn seen(self: &Arc<Self>, pod: View<'_, Pod>) {
        let node = pod.spec().node_name().text();
        let args = &self.hollow.args;
        if !self.hollow.shape.owns(node, args.nodes) {
            return;
        }
        let todo = todo(pod, args.complete_after.is_some());
        let uid = pod.metadata().uid().text().to_owned();
        if todo == Todo::Nothing || !self.busy.lock().insert(uid.clone()) {
            return;
        }
        let (work, pod) = (self.clone(), Made::new(pod.to_value()));
        tokio::spawn(async move {
            work.act(pod, todo, &uid).await;
            work.busy.lock().remove(&uid);
        });
    }

    /// Does what is to be done about a pod, and then what its new state asks for; gives up when the server does.
    async fn act(&self, mut pod: Made<Pod>, mut next: Todo, uid: &str) {
        let completes = self.hollow.args.complete_after;
        for _ in 0..8 {
            if next == Todo::Nothing {
                return;
            }
            if next == Todo::Start && self.hollow.args.start_delay > 0 {
                tokio::time::sleep(Duration::from_millis(self.hollow.args.start_delay)).await;
            }
            if next == Todo::Complete {
                tokio::time::sleep(Duration::from_millis(completes.unwrap_or_default())).await;
            }
            match self.write(pod.view(), &next, uid).await {
                Ok(new) => {
                    if next == Todo::Remove {
                        return;
                    }
                    pod = Made::new(new);
                    next = todo(pod.view(), completes.is_some());
                }
                Err(error) if error.is(404) || error.is(409) || error.is(422) => return,
                Err(error) => {
                    tracing::debug!(error = %causes::chain(&error), uid, "cannot write pod status, will retry");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn write(&self, pod: View<'_, Pod>, todo: &Todo, uid: &str) -> Result<Value, ClientError> {
        let meta = pod.metadata();
        let path = format!("/api/v1/namespaces/{}/pods/{}", meta.namespace().text(), meta.name().text());
        let client = &self.hollow.client;
        let _turn = self.turns.acquire().await;
        if *todo == Todo::Remove {
            let options = make!(part DeleteOptions {
                api_version: "v1",
                kind: "DeleteOptions",
                grace_period_seconds: 0,
                preconditions: { uid },
            });
            return client.send("DELETE", &path, Some(&options.into_value())).await;
        }
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let mut body = pod_status(pod, serial, *todo == Todo::Complete);
        // Another pod of the same name is none of our business.
        body.edit().metadata().uid().set(uid);
        client.patch(&format!("{path}/status"), &body.into_value()).await
    }
}
