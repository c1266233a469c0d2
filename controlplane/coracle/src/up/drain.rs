//! Removes the pods of a node: cordons it and evicts them, as far as disruption budgets allow.

use crate::admin::{ask, refusal};
use anyhow::bail;
use coracle_apiserver::https_client::{HttpsClient, HttpsClientError};
use coracle_fields::core::v1::{Node, Pod, PodList};
use coracle_fields::policy::v1::Eviction;
use coracle_fields::{Made, Schema as _, View, make};
use http::Method;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between looks at the pods.
const PAUSE: Duration = Duration::from_millis(300);
/// How often a Node is written that others write, too.
const MOST_CONFLICTS: usize = 10;
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Why a node still has pods.
#[derive(Debug, thiserror::Error)]
pub(super) enum DrainError {
    /// The API server does not answer.
    #[error("the API server does not answer")]
    Ask(#[from] HttpsClientError),
    /// It refuses.
    #[error("{0}")]
    Refused(String),
    /// Pods that nothing would create again.
    #[error("nothing would create these pods again: {0}; --force deletes them")]
    Unmanaged(String),
    /// Pods that could not be evicted, or did not end.
    #[error("not drained in time: {0}")]
    Timeout(String),
}

/// A pod that has to go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PodName {
    namespace: String,
    name: String,
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is to be done about a pod of a node that goes.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing: it belongs to the node, or has ended.
    Stays,
    /// It is evicted.
    Goes,
    /// It is evicted if that was asked for: nothing creates it again.
    Unmanaged,
}

fn verdict(pod: View<'_, Pod>) -> Verdict {
    let meta = pod.metadata();
    if meta.annotations().key(MIRROR).get().is_some() {
        return Verdict::Stays;
    }
    let controller = meta.owner_references().items().find(|owner| owner.controller().flag());
    let ended = matches!(pod.status().phase().text(), "Succeeded" | "Failed");
    match controller {
        Some(owner) if owner.kind().text() == "DaemonSet" => Verdict::Stays,
        Some(_) => Verdict::Goes,
        None if ended => Verdict::Goes,
        None => Verdict::Unmanaged,
    }
}

/// Options of a drain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    /// Evict pods that nothing creates again, too.
    pub(super) force: bool,
    /// How long it may take.
    pub(super) timeout: Duration,
    /// Whether pods can end: the agent of the node runs.
    pub(super) await_end: bool,
}

/// Sets whether pods may be scheduled to a node. Returns whether that was different, or `None` if there is no such Node.
pub(super) async fn set_unschedulable(
    remote: &HttpsClient,
    node: &str,
    unschedulable: bool,
) -> Result<Option<bool>, DrainError> {
    let path = format!("/api/v1/nodes/{node}");
    for _ in 0..MOST_CONFLICTS {
        let (code, answer) = remote.send(Method::GET, &path, None).await?;
        match code {
            404 => return Ok(None),
            200 => {}
            _ => return Err(DrainError::Refused(refusal(&answer, "the Node could not be read").to_owned())),
        }
        let mut changed = Made::<Node>::new(answer);
        if changed.view().spec().unschedulable().flag() == unschedulable {
            return Ok(Some(false));
        }
        changed.edit().spec().unschedulable().set(unschedulable);
        let (code, answer) = remote.send(Method::PUT, &path, Some(&changed.into_value())).await?;
        match code {
            200 => return Ok(Some(true)),
            404 => return Ok(None),
            409 => {}
            _ => {
                return Err(DrainError::Refused(
                    refusal(&answer, "the Node could not be changed").to_owned(),
                ));
            }
        }
    }
    Err(DrainError::Refused("the Node is changed by others all the time".to_owned()))
}

impl Drain {
    /// Evicts the pods of a node, and waits until they have ended. Returns how many were evicted.
    pub(super) async fn run(self, remote: &HttpsClient, node: &str) -> Result<usize, DrainError> {
        let until = Instant::now() + self.timeout;
        let (goes, unmanaged) = pods(remote, node).await?;
        if !self.force && !unmanaged.is_empty() {
            return Err(DrainError::Unmanaged(listed(unmanaged.iter())));
        }
        let count = goes.len() + unmanaged.len();
        let mut refused: BTreeMap<PodName, String> = BTreeMap::new();
        let mut evicted = Vec::new();
        loop {
            let (goes, unmanaged) = pods(remote, node).await?;
            let left: Vec<PodName> = goes.into_iter().chain(unmanaged).collect();
            let left: Vec<PodName> =
                left.into_iter().filter(|pod| self.await_end || !evicted.contains(pod)).collect();
            if left.is_empty() {
                return Ok(count);
            }
            for pod in &left {
                if evicted.contains(pod) {
                    continue;
                }
                match evict(remote, pod).await? {
                    None => {
                        refused.remove(pod);
                        evicted.push(pod.clone());
                    }
                    Some(why) => {
                        refused.insert(pod.clone(), why);
                    }
                }
            }
            if Instant::now() >= until {
                let why = |pod: &PodName| match refused.get(pod) {
                    Some(why) => format!("{pod} ({why})"),
                    None => format!("{pod} (it has not ended)"),
                };
                let left: Vec<String> = left.iter().map(why).collect();
                return Err(DrainError::Timeout(listed(left.iter())));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The pods of a node that have to go: those that something creates again, and the others.
async fn pods(remote: &HttpsClient, node: &str) -> Result<(Vec<PodName>, Vec<PodName>), DrainError> {
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    let (code, answer) = remote.send(Method::GET, &path, None).await?;
    if code != 200 {
        return Err(DrainError::Refused(refusal(&answer, "the pods could not be read").to_owned()));
    }
    let (mut goes, mut unmanaged) = (Vec::new(), Vec::new());
    for pod in PodList::of(&answer).items().items() {
        let meta = pod.metadata();
        let name = PodName { namespace: meta.namespace().text().into(), name: meta.name().text().into() };
        match verdict(pod) {
            Verdict::Stays => {}
            Verdict::Goes => goes.push(name),
            Verdict::Unmanaged => unmanaged.push(name),
        }
    }
    Ok((goes, unmanaged))
}

/// Evicts a pod; the reason if that is not possible now.
async fn evict(remote: &HttpsClient, pod: &PodName) -> Result<Option<String>, DrainError> {
    let eviction = make!(Eviction { metadata: { name: &pod.name, namespace: &pod.namespace } });
    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", pod.namespace, pod.name);
    let (code, answer) = remote.send(Method::POST, &path, Some(&eviction.into_value())).await?;
    match code {
        200..300 | 404 => Ok(None),
        // A budget does not allow it now, or it has just changed.
        429 | 409 => Ok(Some(refusal(&answer, "a disruption budget does not allow it").to_owned())),
        _ => Err(DrainError::Refused(format!("evict {pod}: {}", refusal(&answer, "the server refused")))),
    }
}

/// Some of many, for a sentence.
fn listed<T: ToString>(all: impl ExactSizeIterator<Item = T>) -> String {
    const SHOWN: usize = 5;
    let count = all.len();
    let mut shown: Vec<String> = all.take(SHOWN).map(|each| each.to_string()).collect();
    if count > SHOWN {
        shown.push(format!("{} more", count - SHOWN));
    }
    shown.join(", ")
}

/// Deletes a Node; succeeds if there is none.
pub(super) async fn delete_node(remote: &HttpsClient, node: &str) -> anyhow::Result<()> {
    crate::admin::remove(remote, &format!("/api/v1/nodes/{node}")).await
}

/// Fails unless the API server answers.
pub(super) async fn check(remote: &HttpsClient) -> anyhow::Result<()> {
    match ask(remote, Method::GET, "/version", None).await {
        Ok(_) => Ok(()),
        Err(error) => bail!("the API server does not answer: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pods_of_the_node_itself_stay() {
        let owner =
            |kind: &str| json!({"ownerReferences": [{"kind": kind, "name": "x", "controller": true}]});
        let mirror = json!({"annotations": {MIRROR: "1"}});
        let of = |meta: Value, phase: &str| {
            let pod = json!({"metadata": meta, "status": {"phase": phase}});
            verdict(Pod::of(&pod))
        };
        assert_eq!(of(owner("ReplicaSet"), "Running"), Verdict::Goes);
        assert_eq!(of(owner("DaemonSet"), "Running"), Verdict::Stays);
        assert_eq!(of(mirror, "Running"), Verdict::Stays);
        assert_eq!(of(json!({}), "Running"), Verdict::Unmanaged);
        assert_eq!(of(json!({}), "Succeeded"), Verdict::Goes);
    }

    #[test]
    fn a_sentence_names_a_few() {
        assert_eq!(listed([1, 2].iter()), "1, 2");
        assert_eq!(listed((0..7).collect::<Vec<i32>>().iter()), "0, 1, 2, 3, 4, 2 more");
    }
}
