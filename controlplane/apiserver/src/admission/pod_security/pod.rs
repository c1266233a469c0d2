//! The pod as the checks read it, and the violations they report.

use crate::admission::containers as lists;
use coracle_fields::View;
use coracle_fields::core::v1::{Container, PodSecurityContext, PodSpec};
use coracle_fields::meta::ObjectMeta;
use std::collections::BTreeSet;

/// Metadata and spec of a pod or of a template.
pub struct Pod<'a> {
    /// Metadata.
    pub meta: View<'a, ObjectMeta>,
    /// Spec.
    pub spec: View<'a, PodSpec>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// In short.
    pub reason: String,
    /// Who and what.
    pub detail: String,
}

impl Finding {
    /// A finding.
    pub fn new(reason: impl Into<String>, detail: impl Into<String>) -> Option<Self> {
        Some(Self { reason: reason.into(), detail: detail.into() })
    }
}

impl<'a> Pod<'a> {
    /// All containers: init, main, ephemeral.
    pub fn containers(&self) -> impl Iterator<Item = View<'a, Container>> + use<'a> {
        lists::all(self.spec)
    }

    /// The names of containers of which something is true.
    pub fn named(&self, bad: impl Fn(View<'a, Container>) -> bool) -> Vec<String> {
        let named = self.containers().filter(|container| bad(*container));
        named.map(|container| container.name().text().to_owned()).collect()
    }

    /// Whether the pod has users of its own.
    pub fn own_users(&self) -> bool {
        self.spec.host_users().get() == Some(false)
    }

    /// The pod's own security context.
    pub fn security(&self) -> View<'a, PodSecurityContext> {
        self.spec.security_context()
    }

    /// Annotations.
    pub fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.meta.annotations().entries().map(|(key, value)| (key, value.text()))
    }
}

/// `"a", "b"`.
pub fn joined<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

/// The word for one or for several.
pub fn plural(one: &'static str, several: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { several }
}

/// `container "a"` or `containers "a", "b"`.
pub fn containers(names: &[String]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), joined(names))
}

/// `pod and containers "a"`: who does something.
pub fn setters(pod: bool, names: &[String]) -> Option<String> {
    let mut who = Vec::new();
    if pod {
        who.push("pod".to_owned());
    }
    if !names.is_empty() {
        who.push(containers(names));
    }
    (!who.is_empty()).then(|| who.join(" and "))
}

/// A set of texts.
pub type Texts = BTreeSet<String>;
