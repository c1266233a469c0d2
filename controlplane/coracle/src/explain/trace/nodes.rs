//! Spans become rows: stages that belong together are one row, stages that explain nothing are left out.

use super::answer::{Span, Trace};
use super::details::fold;
use super::names::{self, is_inner, is_scheduling, is_webhook};
use super::row::{Node, Part};
use super::turns::beside;
use std::collections::HashMap;

/// Shorter parts are not mentioned.
pub(super) const SHORTEST: u64 = 50_000;

/// When the rules of a Service were programmed on each node, in nanoseconds after the write.
pub(super) type Programmed = Vec<(String, u64)>;

/// Makes rows of a trace.
pub(super) struct Builder<'a> {
    pub(super) trace: &'a Trace,
    /// Whether everything is drawn.
    pub(super) all: bool,
    /// Length of the time axis.
    pub(super) extent: u64,
    /// Endpoints and when nodes knew them, for traces in which that is not the subject.
    pub(super) programmed: Vec<(String, Programmed)>,
    roots: Vec<usize>,
    children: Vec<Vec<usize>>,
    /// Spans of the critical path, and when it left them.
    critical: HashMap<&'a str, u64>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(trace: &'a Trace, all: bool) -> Self {
        let spans = &trace.spans;
        let known: HashMap<&str, usize> =
            spans.iter().enumerate().map(|(index, span)| (span.id.as_str(), index)).collect();
        let (mut roots, mut children) = (Vec::new(), vec![Vec::new(); spans.len()]);
        for (index, span) in spans.iter().enumerate() {
            match span.parent.as_deref().and_then(|parent| known.get(parent)) {
                Some(&parent) if parent != index => children[parent].push(index),
                _ => roots.push(index),
            }
        }
        let mut critical: HashMap<&str, u64> = HashMap::new();
        for piece in &trace.critical {
            if let Some(span) = piece.span.as_deref() {
                let until = critical.entry(span).or_default();
                *until = piece.end.max(*until);
            }
        }
        let last = spans.iter().filter_map(|span| span.end).max().unwrap_or_default();
        Self {
            trace,
            all,
            extent: trace.summary.total.max(last).max(1),
            programmed: Vec::new(),
            roots,
            children,
            critical,
        }
    }

    /// The rows without a parent, in order of time.
    pub(super) fn rows(&mut self) -> Vec<Node> {
        let roots = self.roots.clone();
        let mut rows: Vec<Node> = roots.into_iter().flat_map(|root| self.build(root, true)).collect();
        if !self.all {
            rows = beside(rows);
        }
        for row in &mut rows {
            self.finish(row);
        }
        if !self.all {
            fold(&mut rows);
        }
        rows
    }

    /// The first span without a parent.
    pub(super) fn root(&self) -> Option<&'a Span> {
        self.roots.first().map(|&root| self.span(root))
    }

    /// How long a span took, or has taken.
    pub(super) fn length(&self, span: &Span) -> u64 {
        self.end(span.end).saturating_sub(span.start)
    }

    pub(super) fn end(&self, end: Option<u64>) -> u64 {
        end.unwrap_or(self.extent)
    }

    /// Whether a time is long enough for a row.
    pub(super) fn is_large(&self, time: u64) -> bool {
        self.all || time.saturating_mul(100) >= self.extent
    }

    pub(super) fn span(&self, index: usize) -> &'a Span {
        &self.trace.spans[index]
    }

    pub(super) fn below(&self, index: usize) -> Vec<usize> {
        self.children[index].clone()
    }

    pub(super) fn is_critical(&self, span: &Span) -> bool {
        self.critical.contains_key(span.id.as_str())
    }

    pub(super) fn node(&self, span: &Span) -> Node {
        let (label, detail) = names::label(span, &self.trace.objects);
        Node {
            label,
            detail,
            start: span.start,
            end: span.end,
            uncertainty: span.uncertainty,
            usual: span.usual,
            critical: self.is_critical(span),
            critical_until: self.critical.get(span.id.as_str()).copied().unwrap_or_default(),
            failed: span.has("failed"),
            cut: span.has("unfinished") || span.has("cancelled"),
            inferred: span.has("inferred"),
            ..Node::default()
        }
    }

    /// The rows of a span: itself, or in its place those below it.
    pub(super) fn build(&mut self, index: usize, root: bool) -> Vec<Node> {
        let span = self.span(index);
        let (long, all) = (self.length(span), self.all);
        match span.stage.as_str() {
            "verdict" | "delivered" | "ready" | "bind" | "filter" | "score" | "service-seen"
            | "dns-visible" | "dns-answered" | "cache-update" | "lost" | "restarted" | "clock-step"
            | "usual"
                if !all =>
            {
                Vec::new()
            }
            "request" => self.request(index, root),
            "write" => {
                let node = self.write(index, root);
                let drawn = root || all || node.alike.is_some() || self.is_notable(&node);
                drawn.then_some(node).into_iter().collect()
            }
            "volumes" | "network" if !all && !self.children[index].is_empty() => {
                self.below(index).into_iter().flat_map(|child| self.build(child, false)).collect()
            }
            "queued" if !all && long.saturating_mul(20) < self.extent => Vec::new(),
            "seen" if !self.is_large(long) => Vec::new(),
            stage => {
                let mut node = self.node(span);
                for child in self.below(index) {
                    if !is_inner(&self.span(child).stage) {
                        let rows = self.build(child, false);
                        node.children.extend(rows);
                    }
                }
                if stage == "reconcile" {
                    node.turn = Some(format!("{} {}", span.name, span.text));
                }
                let drawn = stage != "reconcile" || root || self.is_notable(&node);
                drawn.then_some(node).into_iter().collect()
            }
        }
    }

    fn is_notable(&self, node: &Node) -> bool {
        !node.children.is_empty()
            || node.failed
            || node.cut
            || node.end.is_none()
            || self.is_large(self.end(node.end).saturating_sub(node.start))
    }

    /// A write with what it caused. What the scheduler and nodes then did stands beside each other.
    pub(super) fn write(&mut self, index: usize, root: bool) -> Node {
        let span = self.span(index);
        let mut node = self.node(span);
        self.inner(index, &mut node, root);
        if matches!(span.name.as_str(), "create" | "delete") {
            let object = span.object.and_then(|object| self.trace.objects.get(object));
            node.alike =
                Some((span.name.clone(), object.map(|object| object.resource.clone()).unwrap_or_default()));
        }
        let below = self.below(index);
        let scheduling: Vec<usize> =
            below.iter().copied().filter(|&child| is_scheduling(&self.span(child).stage)).collect();
        if !scheduling.is_empty() {
            let rows = self.scheduler(&scheduling);
            node.children.extend(rows);
        }
        let subject = self.trace.object.as_ref().map_or("", |object| object.resource.as_str());
        let is_service = subject.starts_with("services") || subject.starts_with("endpointslices");
        let mut programmed = Programmed::new();
        for child in below {
            let below = self.span(child);
            if is_inner(&below.stage) || is_scheduling(&below.stage) {
                continue;
            }
            if below.stage == "rules-programmed" && !is_service && !self.all {
                let after = self.end(below.end).saturating_sub(self.end(span.end));
                programmed.push((below.node.clone(), after));
                continue;
            }
            let rows = self.build(child, false);
            node.children.extend(rows);
        }
        if !programmed.is_empty() {
            programmed.sort();
            let object = span.object.and_then(|object| self.trace.objects.get(object));
            let name = object.map(names::object).unwrap_or_default();
            match self.programmed.iter_mut().find(|(known, _)| *known == name) {
                Some((_, last)) => *last = programmed,
                None => self.programmed.push((name, programmed)),
            }
        }
        node
    }

    /// The parts of a request or write; webhooks that took long are rows.
    pub(super) fn inner(&self, index: usize, node: &mut Node, root: bool) {
        for &child in &self.children[index] {
            let span = self.span(child);
            if !is_inner(&span.stage) {
                continue;
            }
            let inside: Vec<&Span> = self.children[child].iter().map(|&inside| self.span(inside)).collect();
            node.critical |= self.is_critical(span) || inside.iter().any(|inside| self.is_critical(inside));
            let mut row = self.node(span);
            if self.all {
                self.inner(child, &mut row, root);
                node.children.push(row);
                continue;
            }
            let is_row = |span: &Span| {
                is_webhook(&span.stage) && (self.is_large(self.length(span)) || span.has("failed"))
            };
            node.children
                .extend(inside.iter().filter(|inside| is_row(inside)).map(|inside| self.node(inside)));
            if is_row(span) {
                node.children.push(row);
            } else if root && self.length(span) >= SHORTEST {
                let within = inside.iter().filter(|inside| inside.stage.starts_with("store-"));
                let within = within.map(|inside| (names::label(inside, &[]).0, self.length(inside)));
                let within = within.filter(|(_, time)| *time >= SHORTEST);
                let within: Vec<String> =
                    within.map(|(name, time)| format!("{name} {}", names::time(time))).collect();
                node.parts.push(Part { name: row.label, time: self.length(span), within: within.join(" ") });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_that_is_its_own_parent_is_a_root() {
        let span = Span {
            id: "1".to_owned(),
            parent: Some("1".to_owned()),
            stage: "sync".to_owned(),
            ..Span::default()
        };
        let trace = Trace { spans: vec![span], ..Trace::default() };
        assert_eq!(Builder::new(&trace, false).rows().len(), 1);
    }
}
