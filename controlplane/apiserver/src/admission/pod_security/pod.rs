//! The pod as the checks read it, and the violations they report.

use serde_json::Value;
use std::collections::BTreeSet;

/// Metadata and spec of a pod or of a template.
pub struct Pod<'a> {
    /// Metadata.
    pub meta: &'a Value,
    /// Spec.
    pub spec: &'a Value,
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
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| spec[list].as_array().into_iter().flatten())
    }

    /// The names of containers of which something is true.
    pub fn named(&self, bad: impl Fn(&Value) -> bool) -> Vec<String> {
        self.containers().filter(|c| bad(c)).map(name).collect()
    }

    /// Whether the pod has users of its own.
    pub fn own_users(&self) -> bool {
        self.spec["hostUsers"] == false
    }

    /// The pod's own security context.
    pub fn security(&self) -> &'a Value {
        &self.spec["securityContext"]
    }

    /// Annotations.
    pub fn annotations(&self) -> impl Iterator<Item = (&'a String, &'a str)> + use<'a> {
        let all = self.meta["annotations"].as_object().into_iter().flatten();
        all.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
    }
}

/// A container's or volume's name.
pub fn name(of: &Value) -> String {
    of["name"].as_str().unwrap_or_default().to_owned()
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
