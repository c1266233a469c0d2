//! The scheduler in the waterfall: waiting, attempts and binding of a pod are one row.

use super::answer::Span;
use super::nodes::Builder;
use super::row::Node;

impl Builder<'_> {
    /// The row of the scheduler, and the rows of what its binding caused.
    pub(super) fn scheduler(&mut self, stages: &[usize]) -> Vec<Node> {
        let spans: Vec<&Span> = stages.iter().map(|&stage| self.span(stage)).collect();
        let is_open = spans.iter().any(|span| span.end.is_none());
        let mut end = spans.iter().map(|span| self.end(span.end)).max().unwrap_or_default();
        let mut node = Node {
            label: "scheduler".to_owned(),
            keep: true,
            start: spans.iter().map(|span| span.start).min().unwrap_or_default(),
            critical: spans.iter().any(|span| self.is_critical(span)),
            uncertainty: spans.iter().map(|span| span.uncertainty).max().unwrap_or_default(),
            ..Node::default()
        };
        let (mut tries, mut bound) = (0, Vec::new());
        for &stage in stages {
            let span = self.span(stage);
            if span.stage != "attempt" {
                if self.is_large(self.length(span)) {
                    node.children.push(self.node(span));
                }
                continue;
            }
            tries += 1;
            node.failed = span.has("failed");
            node.detail = if span.text.is_empty() { span.name.clone() } else { span.text.clone() };
            for child in self.below(stage) {
                let below = self.span(child);
                node.critical |= self.is_critical(below);
                match below.stage.as_str() {
                    // A node that was refused is not the one that was chosen.
                    "verdict" if below.has("failed") => {}
                    "verdict" => {
                        node.detail = below.name.split(" of ").next().unwrap_or_default().to_owned();
                    }
                    "bind" => end = end.max(self.end(below.end)),
                    "write" if below.name == "bind" => {
                        end = end.max(self.end(below.end));
                        let written = self.write(child, false);
                        node.critical |= written.critical;
                        bound.extend(written.children);
                    }
                    "filter" | "score" if self.all => node.children.push(self.node(below)),
                    "filter" | "score" => {}
                    _ => {
                        let rows = self.build(child, false);
                        node.children.extend(rows);
                    }
                }
            }
        }
        node.end = (!is_open).then_some(end);
        if tries > 1 {
            node.label = format!("scheduler ({tries} tries)");
        }
        std::iter::once(node).chain(bound).collect()
    }
}
