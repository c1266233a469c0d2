//! ConfigMaps and Secrets that pods of this node refer to: each fetched on first use and watched by name from then
//! on, until the last pod that uses it is gone; ConfigMaps a little longer, for the next pod of a namespace needs the
//! same. Nothing else of the cluster is kept.

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

use crate::watching;

/// How long a pod waits for an object's first answer before it says so and tries again.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// How long a ConfigMap is kept that no pod uses.
const LINGER: Duration = Duration::from_secs(60);

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
        /// What the server said last.
        last: Option<String>,
    },
}

/// The ConfigMaps and Secrets in use.
pub struct Objects {
    maps: Kept<ConfigMap>,
    secrets: Kept<Secret>,
}

impl Objects {
    /// None in use yet.
    pub fn new(client: kube::Client, wake: Wake) -> Self {
        Objects {
            maps: Kept::new("configmap", LINGER, client.clone(), wake.clone()),
            secrets: Kept::new("secret", Duration::ZERO, client, wake),
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

    /// The pod uses nothing any more.
    pub fn release(&self, uid: &str) {
        self.maps.release(uid);
        self.secrets.release(uid);
    }
}

/// `None` until the first answer; then the object, or that there is none.
type Latest<K> = Option<Option<Arc<K>>>;

/// By namespace and name.
type Entries<K> = HashMap<(String, String), Entry<K>>;

struct Kept<K> {
    kind: &'static str,
    linger: Duration,
    client: kube::Client,
    wake: Wake,
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
    error: Mutex<Option<String>>,
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
    fn new(kind: &'static str, linger: Duration, client: kube::Client, wake: Wake) -> Self {
        Kept { kind, linger, client, wake, entries: Arc::default() }
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
        let (client, wake, state) = (self.client.clone(), self.wake.clone(), shared.clone());
        let task = tokio::spawn(async move {
            let api: Api<K> = Api::namespaced(client, &namespace);
            let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
            let mut stream = watching::watch(api, config);
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
                        *state.error.lock() = Some(error.to_string());
                        // Nobody uses it: what is known may be old by the time somebody does.
                        if state.users.lock().is_empty() {
                            sender.send_replace(None);
                        }
                        continue;
                    }
                };
                let version =
                    |value: &Option<Arc<K>>| value.as_ref().and_then(|o| o.meta().resource_version.clone());
                let first = sender.borrow().is_none();
                let same = sender.borrow().as_ref().is_some_and(|old| version(old) == version(&value));
                if same && !first {
                    continue;
                }
                sender.send_replace(Some(value));
                if !first {
                    let users: Vec<String> = state.users.lock().iter().cloned().collect();
                    users.iter().for_each(|uid| wake(uid));
                }
            }
        });
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
