//! Why a pod is unschedulable: the rejection of every node, and the summary for Events and conditions.

use super::rejection::{Plugin, Rejection};
use std::collections::{BTreeMap, BTreeSet};

/// Result of an attempt that found no node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// How many nodes there are.
    pub nodes: usize,
    /// A reason that holds for all nodes, such as a missing claim.
    pub general: Option<(Plugin, String)>,
    /// The rejection of each node, sorted by name.
    pub rejections: Vec<(String, Rejection)>,
    /// The reason for nodes that were not checked.
    pub others: Option<String>,
}

impl Diagnosis {
    /// A reason for all nodes; none was checked.
    pub fn of_all(nodes: usize, plugin: Plugin, why: String) -> Self {
        Self { nodes, general: Some((plugin, why)), ..Self::default() }
    }

    /// The plugins that rejected nodes.
    pub fn plugins(&self) -> BTreeSet<Plugin> {
        let general = self.general.iter().map(|(plugin, _)| *plugin);
        let unseen = self.others.iter().map(|_| Plugin::NodeAffinity);
        general.chain(unseen).chain(self.rejections.iter().map(|(_, r)| r.plugin)).collect()
    }

    /// The rejection of one node.
    pub fn of_node(&self, name: &str) -> Option<&Rejection> {
        let at = self.rejections.binary_search_by(|(n, _)| n.as_str().cmp(name)).ok()?;
        Some(&self.rejections[at].1)
    }

    /// A table with a line per node: the plugin that rejected it, whether preemption may help, and the reasons.
    pub fn table(&self) -> String {
        let mut rows = vec![["NODE", "RULE", "PREEMPTION", "REASONS"].map(str::to_owned)];
        for (node, rejection) in &self.rejections {
            let helps = if rejection.hopeless { "cannot help" } else { "may help" };
            let rule = format!("{:?}", rejection.plugin);
            rows.push([node.clone(), rule, helps.into(), rejection.reasons.join(", ")]);
        }
        let all = self.general.iter().map(|(plugin, why)| ("(all)", *plugin, why));
        let others = self.others.iter().map(|why| ("(others)", Plugin::NodeAffinity, why));
        for (nodes, plugin, why) in all.chain(others) {
            rows.push([nodes.into(), format!("{plugin:?}"), "cannot help".into(), why.clone()]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (first, second, third) = (width(0), width(1), width(2));
        let line = |[node, rule, helps, reasons]: &[String; 4]| {
            format!("{node:first$}   {rule:second$}   {helps:third$}   {reasons}\n")
        };
        rows.iter().map(line).collect()
    }

    /// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: …`, where `tried` is what was
    /// tried to make room, and why it did not help.
    pub fn message(&self, tried: &str) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".into();
        }
        let mut text = format!("0/{} nodes are available:", self.nodes);
        if let Some((_, why)) = &self.general {
            text.push_str(&format!(" {why}."));
        } else {
            let reasons = self.rejections.iter().flat_map(|(_, r)| r.reasons.iter().map(AsRef::as_ref));
            let unseen = self.nodes - self.rejections.len();
            let others = self.others.iter().map(|why| (why.as_str(), unseen));
            text.push_str(&format!(" {}.", histogram(reasons.map(|r| (r, 1)).chain(others))));
        }
        if !tried.is_empty() {
            text.push_str(&format!(" {tried}"));
        }
        text
    }
}

/// `1 that, 2 this`, sorted as text.
pub fn histogram<'a>(reasons: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, n) in reasons.filter(|(_, n)| *n > 0) {
        *counts.entry(reason).or_default() += n;
    }
    let mut list: Vec<String> = counts.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    list.sort();
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_is_upstreams() {
        let taint = Rejection::hopeless(Plugin::TaintToleration, "node(s) had untolerated taint(s)");
        let fit = Rejection {
            plugin: Plugin::NodeResourcesFit,
            reasons: vec!["Insufficient cpu".into(), "Insufficient memory".into()],
            hopeless: false,
        };
        let why = Diagnosis {
            nodes: 3,
            rejections: vec![("a".into(), taint), ("b".into(), fit.clone()), ("c".into(), fit)],
            ..Diagnosis::default()
        };
        assert_eq!(
            why.message("preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu, 2 Insufficient memory. \
             preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
        );
        assert_eq!(
            why.table().lines().collect::<Vec<_>>(),
            [
                "NODE   RULE               PREEMPTION    REASONS",
                "a      TaintToleration    cannot help   node(s) had untolerated taint(s)",
                "b      NodeResourcesFit   may help      Insufficient cpu, Insufficient memory",
                "c      NodeResourcesFit   may help      Insufficient cpu, Insufficient memory",
            ]
        );
        let general = Diagnosis::of_all(
            2,
            Plugin::VolumeBinding,
            "pod has unbound immediate PersistentVolumeClaims".into(),
        );
        assert_eq!(
            general.message(""),
            "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        );
        assert!(general.table().ends_with(
            "\n(all)   VolumeBinding   cannot help   pod has unbound immediate PersistentVolumeClaims\n"
        ));
        assert_eq!(Diagnosis::default().message(""), "no nodes available to schedule pods");
    }
}
