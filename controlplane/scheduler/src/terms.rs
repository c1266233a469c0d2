//! Which pods a rule is about: the selector, namespaces and topology of affinity terms and spread constraints.

use super::wire::{Labels, PodTerm};
use coracle_proto::selector::{LabelSelector, Operator, Requirement};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Labels of namespaces by name.
pub type Namespaces = HashMap<String, Labels>;

/// A rule about pods in a topology. Two terms with the same `id` are the same rule.
#[derive(Debug)]
pub struct Term {
    /// The rule as text.
    pub id: Arc<str>,
    /// The node label that makes a domain.
    pub topology: Arc<str>,
    who: Who,
    namespaces: BTreeSet<String>,
    namespace_selector: Option<LabelSelector>,
    /// Whether pods that are being deleted do not count.
    pub living_only: bool,
}

#[derive(Debug)]
enum Who {
    Selected(LabelSelector),
    /// Pods of one controller.
    OwnedBy(Arc<str>),
}

impl PartialEq for Term {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Term {}

impl std::hash::Hash for Term {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Term {
    /// An affinity term of a pod; a selector that cannot be read matches nothing.
    pub fn of_affinity(term: &PodTerm, namespace: &str, labels: &Labels) -> Arc<Self> {
        let mut selector = LabelSelector::from_object(&term.label_selector).unwrap_or(LabelSelector::Nothing);
        with_label_keys(&mut selector, &term.match_label_keys, Operator::In, labels);
        with_label_keys(&mut selector, &term.mismatch_label_keys, Operator::NotIn, labels);
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().cloned().collect();
        let namespace_selector = (!term.namespace_selector.is_null())
            .then(|| LabelSelector::from_object(&term.namespace_selector).ok())
            .flatten();
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        Self::new(&term.topology_key, Who::Selected(selector), namespaces, namespace_selector, false)
    }

    /// The pods a spread constraint counts.
    pub fn of_spread(topology: &str, selector: LabelSelector, namespace: &str) -> Arc<Self> {
        Self::new(topology, Who::Selected(selector), BTreeSet::from([namespace.to_owned()]), None, true)
    }

    /// The pods of one controller.
    pub fn of_owner(topology: &str, owner: &str, namespace: &str) -> Arc<Self> {
        Self::new(topology, Who::OwnedBy(owner.into()), BTreeSet::from([namespace.to_owned()]), None, true)
    }

    fn new(
        topology: &str,
        who: Who,
        namespaces: BTreeSet<String>,
        namespace_selector: Option<LabelSelector>,
        living_only: bool,
    ) -> Arc<Self> {
        let id = format!("{topology}|{who:?}|{namespaces:?}|{namespace_selector:?}|{living_only}");
        let (id, topology) = (id.into(), topology.into());
        Arc::new(Self { id, topology, who, namespaces, namespace_selector, living_only })
    }

    /// Whether the rule is about a pod of this namespace, with these labels and this controller.
    pub fn is_about(
        &self,
        namespace: &str,
        labels: &Labels,
        owner: Option<&Arc<str>>,
        namespaces: &Namespaces,
    ) -> bool {
        let in_namespace = self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| {
                namespaces.get(namespace).is_some_and(|labels| selects(selector, labels))
            });
        in_namespace
            && match &self.who {
                Who::Selected(selector) => selects(selector, labels),
                Who::OwnedBy(uid) => owner == Some(uid),
            }
    }

    /// Whether it asks for namespaces by label.
    pub fn selects_namespaces(&self) -> bool {
        self.namespace_selector.is_some()
    }

    /// Whether its selector mentions a label.
    pub fn mentions(&self, label: &str) -> bool {
        match &self.who {
            Who::Selected(LabelSelector::All(all)) => all.iter().any(|r| r.key == label),
            _ => false,
        }
    }
}

/// Whether labels are selected.
pub fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key).map(String::as_str))
}

/// Narrows a selector to the pod's own values of some labels.
pub fn with_label_keys(selector: &mut LabelSelector, keys: &[String], operator: Operator, labels: &Labels) {
    if let LabelSelector::All(all) = selector {
        for key in keys {
            if let Some(value) = labels.get(key) {
                let narrowed = Requirement { key: key.clone(), operator, values: vec![value.clone()] };
                if !all.contains(&narrowed) {
                    all.push(narrowed);
                }
            }
        }
    }
}
