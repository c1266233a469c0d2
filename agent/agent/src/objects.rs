//! ConfigMaps and Secrets that pods of this node refer to: each fetched on first use and watched by name from then
//! on, until the last pod that uses it is gone; ConfigMaps a little longer, for the next pod of a namespace needs the
//! same. Nothing else of the cluster is kept.

use coracle_cli::supervise::{Subject, Supervisor};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::watcher;
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

use crate::api_watch;

/// How long a pod waits for the first response about an object before it reports an error and retries.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// How long an unused ConfigMap stays cached.
const UNUSED_TTL: Duration = Duration::from_secs(60);

/// Called with the uid of each pod that uses an object that changed.
pub type Wake = Arc<dyn Fn(&str) + Send + Sync>;

/// Why an object is not known; retry.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The API server has not answered.
    #[error("failed to sync {kind} cache: timed out waiting for the condition{}", .last.as_ref().map(|last| format!(": {last}")).unwrap_or_default())]
    TimedOut {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Why the last attempt failed, if any did.
        #[source]
        last: Option<Arc<watcher::Error>>,
    },
}

/// The ConfigMaps and Secrets in use.
pub struct Objects {
    maps: Kept<ConfigMap>,
    secrets: Kept<Secret>,
}

impl Objects {
    /// An empty cache; watches run under the supervisor.
    pub fn new(client: kube::Client, wake: Wake, supervisor: &Supervisor) -> Self {
        Objects {
            maps: Kept::new("configmap", UNUSED_TTL, client.clone(), wake.clone(), supervisor.clone()),
            secrets: Kept::new("secret", Duration::ZERO, client, wake, supervisor.clone()),
        }
    }

    /// The ConfigMap, `None` when there is none; the pod is woken when that changes.
    pub async fn config_map(
        &self,
        uid: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<ConfigMap>>, ObjectError> {
        self.maps.get(uid, namespace, name).await
    }

    /// The Secret, `None` when there is none; the pod is woken when that changes.
    pub async fn secret(
        &self,
        uid: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Secret>>, ObjectError> {
        self.secrets.get(uid, namespace, name).await
    }

    /// Releases all objects of a pod.
    pub fn release(&self, uid: &str) {
        self.maps.release(uid);
        self.secrets.release(uid);
    }
}

/// `None` until the first response; then the object, or `None` if it does not exist.
type Latest<K> = Option<Option<Arc<K>>>;

/// By namespace and name.
type Entries<K> = HashMap<(String, String), Entry<K>>;

struct Kept<K> {
    kind: &'static str,
    linger: Duration,
    client: kube::Client,
    wake: Wake,
    supervisor: Supervisor,
    entries: Arc<Mutex<Entries<K>>>,
}

struct Entry<K> {
    latest: watch::Receiver<Latest<K>>,
    shared: Arc<Shared>,
    task: tokio::task::AbortHandle,
}

#[derive(Default)]
struct Shared {
    users: Mutex<HashSet<String>>,
    error: Mutex<Option<Arc<watcher::Error>>>,
}

impl<K> Drop for Entry<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K> Kept<K>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default,
{
    fn new(
        kind: &'static str,
        linger: Duration,
        client: kube::Client,
        wake: Wake,
        supervisor: Supervisor,
    ) -> Self {
        Kept { kind, linger, client, wake, supervisor, entries: Arc::default() }
    }

    async fn get(&self, uid: &str, namespace: &str, name: &str) -> Result<Option<Arc<K>>, ObjectError> {
        let (mut latest, shared) = self.subscribe(uid, namespace, name);
        let answered = tokio::time::timeout(FIRST_ANSWER, latest.wait_for(Option::is_some)).await;
        if let Ok(Ok(value)) = answered
            && let Some(value) = value.as_ref()
        {
            return Ok(value.clone());
        }
        Err(ObjectError::TimedOut { kind: self.kind, last: shared.error.lock().clone() })
    }

    fn subscribe(&self, uid: &str, namespace: &str, name: &str) -> (watch::Receiver<Latest<K>>, Arc<Shared>) {
        let mut entries = self.entries.lock();
        let entry = entries
            .entry((namespace.to_owned(), name.to_owned()))
            .or_insert_with(|| self.follow(namespace.to_owned(), name.to_owned()));
        entry.shared.users.lock().insert(uid.to_owned());
        (entry.latest.clone(), entry.shared.clone())
    }

    fn follow(&self, namespace: String, name: String) -> Entry<K> {
        let (sender, latest) = watch::channel(None);
        let shared = Arc::new(Shared::default());
        let resource = format!("{}s", self.kind);
        // One name for all objects of a kind: panics are counted by it.
        let task = format!("watch {resource} of pods");
        let watched = Arc::new(Watched {
            task: task.clone(),
            subject: Subject::new(&resource, &namespace, &name),
            client: self.client.clone(),
            wake: self.wake.clone(),
            supervisor: self.supervisor.clone(),
            shared: shared.clone(),
            sender,
        });
        let task = self.supervisor.spawn(task, move || watched.clone().run());
        Entry { latest, shared, task: task.abort_handle() }
    }

    fn release(&self, uid: &str) {
        let mut idle = false;
        for entry in self.entries.lock().values() {
            let mut users = entry.shared.users.lock();
            idle |= users.remove(uid) && users.is_empty();
        }
        if !idle {
            return;
        }
        let (entries, linger) = (self.entries.clone(), self.linger);
        let forget = move || entries.lock().retain(|_, entry| !entry.shared.users.lock().is_empty());
        if linger.is_zero() {
            return forget();
        }
        tokio::spawn(async move {
            tokio::time::sleep(linger).await;
            forget();
        });
    }
}

/// The watch of one object.
struct Watched<K> {
    task: String,
    subject: Subject,
    client: kube::Client,
    wake: Wake,
    supervisor: Supervisor,
    shared: Arc<Shared>,
    sender: watch::Sender<Latest<K>>,
}

impl<K> Watched<K>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default,
{
    /// Watches the object until the task is aborted.
    async fn run(self: Arc<Self>) {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.subject.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.subject.name));
        let mut stream = api_watch::watch(api, config);
        let mut listed = None;
        while let Some(event) = stream.next().await {
            let value = match event {
                Ok(watcher::Event::Init) => {
                    listed = None;
                    continue;
                }
                Ok(watcher::Event::InitApply(object)) => {
                    listed = Some(Arc::new(object));
                    continue;
                }
                Ok(watcher::Event::InitDone) => listed.take(),
                Ok(watcher::Event::Apply(object)) => Some(Arc::new(object)),
                Ok(watcher::Event::Delete(_)) => None,
                Err(error) => {
                    *self.shared.error.lock() = Some(Arc::new(error));
                    // Unused: the object would be stale when it is used again.
                    if self.shared.users.lock().is_empty() {
                        self.sender.send_replace(None);
                    }
                    continue;
                }
            };
            // An object that causes a panic is quarantined; later changes are still followed.
            let _ = self.supervisor.isolate_sync(&self.task, || self.subject.clone(), || self.changed(value));
        }
    }

    fn changed(&self, value: Option<Arc<K>>) {
        let version = |value: &Option<Arc<K>>| value.as_ref().and_then(|o| o.meta().resource_version.clone());
        let first = self.sender.borrow().is_none();
        let same = self.sender.borrow().as_ref().is_some_and(|old| version(old) == version(&value));
        if same && !first {
            return;
        }
        self.sender.send_replace(Some(value));
        if !first {
            let users: Vec<String> = self.shared.users.lock().iter().cloned().collect();
            users.iter().for_each(|uid| (self.wake)(uid));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Lists version 1 of a ConfigMap, then tells of versions 2 and 3.
    async fn answer(request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
        let map = |version: u32| {
            let metadata =
                serde_json::json!({"name": "m", "namespace": "a", "resourceVersion": version.to_string()});
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        };
        let changed = |version| serde_json::json!({"type": "MODIFIED", "object": map(version)});
        let query = request.uri().query().unwrap_or_default();
        let text = if !query.contains("watch=true") {
            serde_json::json!({"metadata": {"resourceVersion": "1"}, "items": [map(1)]}).to_string()
        } else if query.split('&').any(|part| part == "resourceVersion=1") {
            format!("{}\n{}\n", changed(2), changed(3))
        } else {
            std::future::pending().await
        };
        Ok(Response::new(Full::from(text)))
    }

    #[tokio::test]
    async fn a_change_that_makes_a_watch_panic_does_not_end_it() {
        let calls = AtomicUsize::new(0);
        let (handled, mut wait) = tokio::sync::mpsc::unbounded_channel();
        let wake: Wake = Arc::new(move |_| {
            assert_ne!(calls.fetch_add(1, Ordering::SeqCst), 0, "the first change cannot be handled");
            let _ = handled.send(());
        });
        let (client, supervisor) =
            (kube::Client::new(tower::service_fn(answer), "default"), Supervisor::default());
        let objects = Objects::new(client, wake, &supervisor);
        objects.config_map("uid", "a", "m").await.unwrap().unwrap();
        wait.recv().await.unwrap();
        let map = objects.config_map("uid", "a", "m").await.unwrap().unwrap();
        assert_eq!(map.metadata.resource_version.as_deref(), Some("3"));
        assert_eq!(supervisor.panics(), [("watch configmaps of pods".to_owned(), 1)]);
        assert!(supervisor.quarantined().is_empty(), "the next change was handled");
    }
}
