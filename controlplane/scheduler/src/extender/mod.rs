//! Extenders: processes of the operator that have a say in where pods run. They are asked by HTTP (`POST`, JSON) in the form of
//! `k8s.io/kube-scheduler/extender/v1`: which nodes a pod can use, which it should use, whom a preemption may remove, and they may
//! bind the pod themselves.
//!
//! Answers are bounded in size and time. The scheduling loop does not wait for them: what they say is checked again when it comes.

// Why an extender has no answer.
mod error;
// HTTP with limits.
mod http;
// Requests and answers.
mod messages;
#[cfg(test)]
mod tests;

pub use error::ExtenderError;
pub use http::{ExtenderSetupError, Tls};

use crate::pod::PodInfo;
use crate::rejection::{Plugin, Rejection};
use crate::scores::FULL;
use coracle_cli::causes;
use coracle_kinds::object::Object;
use futures::future::join_all;
use http::Http;
use messages::Refused;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The best score that an extender gives.
const BEST: i64 = 10;
/// How many different reasons of extenders are repeated.
const REASONS: usize = 16;
/// The longest reason that is repeated, in characters.
const REASON: usize = 256;

/// What an extender is asked for: the last parts of its URLs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Verbs {
    pub filter: Option<String>,
    pub prioritize: Option<String>,
    pub preempt: Option<String>,
    pub bind: Option<String>,
}

/// Settings of an extender.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is.
    pub url: String,
    /// What it is asked for.
    pub verbs: Verbs,
    /// How much its scores count.
    pub weight: i64,
    /// Keys and certificates.
    pub tls: Tls,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether it knows the nodes: it gets their names only.
    pub node_cache_capable: bool,
    /// It is asked only about pods that request one of these resources; empty: about all.
    pub managed: Vec<String>,
    /// Resources of these that the scheduler does not check.
    pub ignored: Vec<String>,
    /// Whether pods are scheduled without it when it does not answer.
    pub ignorable: bool,
}

/// A node that extenders are asked about.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// The Node.
    pub object: Arc<Object>,
}

/// What extenders say about the nodes of a pod.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Nodes that are left, with the sum of their weighted scores.
    pub nodes: Vec<(String, i64)>,
    /// Nodes that were refused.
    pub refused: Vec<(String, Rejection)>,
}

/// Victims by node: UIDs, and how many of them violate a PodDisruptionBudget.
pub type Victims = BTreeMap<String, (Vec<Victim>, usize)>;

/// A pod that may be removed for another.
#[derive(Debug, Clone)]
pub struct Victim {
    /// Its UID.
    pub uid: String,
    /// The Pod, if it still exists.
    pub object: Option<Arc<Object>>,
}

/// An extender.
#[derive(Debug)]
pub struct Extender {
    settings: Settings,
    http: Http,
}

impl Extender {
    /// An extender with its client; an error if keys or certificates cannot be used.
    pub fn new(settings: Settings) -> Result<Self, ExtenderSetupError> {
        let http = Http::new(&settings.url, &settings.tls, settings.timeout)?;
        Ok(Self { settings, http })
    }

    /// Whether it is asked about a pod.
    fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.settings.managed;
        managed.is_empty()
            || pod.requests.extended.iter().any(|(name, _)| managed.iter().any(|known| **known == **name))
    }

    /// Whether it binds pods.
    pub fn binds(&self) -> bool {
        self.settings.verbs.bind.is_some()
    }

    /// Resources that the scheduler does not check.
    pub fn ignored_resources(&self) -> &[String] {
        &self.settings.ignored
    }

    async fn filter(
        &self,
        pod: &Object,
        nodes: &[Candidate],
    ) -> Result<(Vec<String>, Refused), ExtenderError> {
        let Some(verb) = &self.settings.verbs.filter else {
            return Ok((nodes.iter().map(|node| node.name.clone()).collect(), Refused::default()));
        };
        let body = messages::args(pod, nodes, self.settings.node_cache_capable);
        let answer = self.http.post(verb, body).await?;
        let by_name = self.settings.node_cache_capable;
        let (left, refused) = messages::filtered(&answer, by_name, self.http.url())?;
        let known: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        match left.iter().find(|name| !known.contains(name.as_str())) {
            Some(node) => Err(ExtenderError::UnknownNode { url: self.http.url().into(), node: node.clone() }),
            None => Ok((left, refused)),
        }
    }

    /// Weighted scores of nodes; an extender that fails gives none, as upstream.
    async fn prioritize(&self, pod: &Object, nodes: &[Candidate]) -> Vec<(String, i64)> {
        let Some(verb) = &self.settings.verbs.prioritize else { return Vec::new() };
        let body = messages::args(pod, nodes, self.settings.node_cache_capable);
        let answer = self.http.post(verb, body).await;
        let scores = answer.and_then(|answer| messages::scores(&answer, self.http.url()));
        match scores {
            Ok(scores) => {
                let score = |score: i64| score.clamp(0, BEST) * self.settings.weight * (FULL / BEST);
                scores.into_iter().map(|(node, value)| (node, score(value))).collect()
            }
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "extender gives no scores");
                Vec::new()
            }
        }
    }

    /// Has a pod bound to a node.
    pub async fn bind(&self, pod: &PodInfo, node: &str) -> Result<(), ExtenderError> {
        let verb = self.settings.verbs.bind.as_deref().unwrap_or_default();
        let answer = self.http.post(verb, messages::binding(pod, node)).await?;
        messages::failure(&answer, self.http.url())
    }

    async fn preempt(&self, pod: &Object, victims: &Victims) -> Result<Victims, ExtenderError> {
        let verb = self.settings.verbs.preempt.as_deref().unwrap_or_default();
        let body = messages::preemption(pod, victims, self.settings.node_cache_capable);
        let answer = self.http.post(verb, body).await?;
        messages::victims(&answer, victims, self.http.url())
    }
}

/// All extenders, in order.
#[derive(Debug, Clone, Default)]
pub struct Extenders(Arc<[Arc<Extender>]>);

impl Extenders {
    /// In order.
    pub fn new(list: Vec<Arc<Extender>>) -> Self {
        Self(list.into())
    }

    fn interested(&self, pod: &PodInfo, has: impl Fn(&Verbs) -> bool) -> Vec<Arc<Extender>> {
        self.0.iter().filter(|e| has(&e.settings.verbs) && e.is_interested(pod)).cloned().collect()
    }

    /// Those that have a say in the choice of a node for the pod.
    pub fn choosers(&self, pod: &PodInfo) -> Vec<Arc<Extender>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        self.interested(pod, |verbs| verbs.filter.is_some() || verbs.prioritize.is_some())
    }

    /// Those that have a say in preemptions for the pod.
    pub fn preemptors(&self, pod: &PodInfo) -> Vec<Arc<Extender>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        self.interested(pod, |verbs| verbs.preempt.is_some())
    }

    /// The one that binds the pod.
    pub fn binder(&self, pod: &PodInfo) -> Option<Arc<Extender>> {
        self.0.iter().find(|e| e.binds() && e.is_interested(pod)).cloned()
    }
}

/// Asks extenders about the nodes of a pod: one after the other which nodes are possible, then all at once for scores. One that does
/// not answer is left out if it is ignorable; otherwise nothing can be said about the pod.
pub async fn consult(
    extenders: &[Arc<Extender>],
    pod: &Object,
    mut nodes: Vec<Candidate>,
) -> Result<Verdict, ExtenderError> {
    let mut verdict = Verdict::default();
    let mut reasons: BTreeSet<String> = BTreeSet::new();
    for extender in extenders {
        if nodes.is_empty() {
            break;
        }
        let (left, refused) = match extender.filter(pod, &nodes).await {
            Ok(answer) => answer,
            Err(error) if extender.settings.ignorable => {
                tracing::warn!(error = %causes::chain(&error), "extender skipped: it is ignorable");
                continue;
            }
            Err(error) => return Err(error),
        };
        let left: BTreeSet<String> = left.into_iter().collect();
        let (kept, gone): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| left.contains(&node.name));
        nodes = kept;
        for node in gone {
            let rejection = rejection(&refused, &node.name, &mut reasons);
            verdict.refused.push((node.name, rejection));
        }
    }
    let mut scores: HashMap<String, i64> = HashMap::new();
    // With one node left there is nothing to choose.
    if nodes.len() > 1 {
        let calls: Vec<_> = extenders.iter().map(|extender| extender.prioritize(pod, &nodes)).collect();
        for (node, score) in join_all(calls).await.into_iter().flatten() {
            *scores.entry(node).or_default() += score;
        }
    }
    let scored = nodes.into_iter().map(|node| (scores.get(&node.name).copied().unwrap_or(0), node.name));
    verdict.nodes = scored.map(|(score, name)| (name, score)).collect();
    Ok(verdict)
}

/// Why an extender refused a node. It may give as many reasons as there are nodes: only some are repeated.
fn rejection(refused: &Refused, node: &str, reasons: &mut BTreeSet<String>) -> Rejection {
    let usual = || "node(s) didn't pass an extender".to_owned();
    let unresolvable = refused.unresolvable.get(node);
    let given = unresolvable.or_else(|| refused.failed.get(node)).filter(|reason| !reason.is_empty());
    let mut reason: String = given.map_or_else(usual, |reason| reason.chars().take(REASON).collect());
    if !reasons.contains(&reason) && reasons.len() >= REASONS {
        reason = usual();
    }
    reasons.insert(reason.clone());
    match unresolvable {
        Some(_) => Rejection::hopeless(Plugin::Extender, reason),
        None => Rejection::new(Plugin::Extender, reason),
    }
}

/// Asks extenders, one after the other, which of some preemptions they allow. One that does not answer is left out if it is ignorable.
pub async fn consult_preemption(
    extenders: &[Arc<Extender>],
    pod: &Object,
    mut victims: Victims,
) -> Result<Victims, ExtenderError> {
    for extender in extenders {
        if victims.is_empty() {
            break;
        }
        match extender.preempt(pod, &victims).await {
            Ok(left) => victims = left,
            Err(error) if extender.settings.ignorable => {
                tracing::warn!(error = %causes::chain(&error), "extender skipped: it is ignorable");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(victims)
}
