//! Requests in the waterfall: one row with the write that they made.

use super::answer::Span;
use super::names::{self, is_inner};
use super::nodes::Builder;
use super::row::Node;

impl Builder<'_> {
    /// A request. Those of nodes, somewhere below, are left out in favour of what they caused.
    pub(super) fn request(&mut self, index: usize, root: bool) -> Vec<Node> {
        let span = self.span(index);
        let (writes, others): (Vec<usize>, Vec<usize>) =
            self.below(index).into_iter().partition(|&child| self.span(child).stage == "write");
        if !root && !self.all {
            return writes.into_iter().flat_map(|write| self.write(write, false).children).collect();
        }
        let mut node = self.node(span);
        node.failed |= is_refused(span);
        self.inner(index, &mut node, root);
        let (method, path) = span.name.split_once(' ').unwrap_or((span.name.as_str(), ""));
        let resource = resource_of(path);
        let program = names::program(span);
        if let [write] = writes[..] {
            let written = self.write(write, root);
            node.label = format!("{program} {}", self.span(write).name).trim_start().to_owned();
            node.detail = format!("{method} {resource}");
            if is_refused(span) {
                node.detail.push_str(&format!(": {}", span.code));
            }
            node.critical |= written.critical;
            node.failed |= written.failed;
            // The parts of the write come before the response.
            let respond =
                node.parts.iter().position(|part| part.name == "respond").unwrap_or(node.parts.len());
            node.parts.splice(respond..respond, written.parts);
            node.children.extend(written.children);
        } else {
            let what = if resource.is_empty() { path } else { resource.as_str() };
            node.label = format!("{program} {method} {what}").trim_start().to_owned();
            if is_refused(span) {
                node.detail = span.code.to_string();
            }
            for write in writes {
                let rows = self.build(write, false);
                node.children.extend(rows);
            }
        }
        for child in others {
            if !is_inner(&self.span(child).stage) {
                let rows = self.build(child, false);
                node.children.extend(rows);
            }
        }
        vec![node]
    }
}

/// Whether a request was answered with an error.
pub(super) fn is_refused(span: &Span) -> bool {
    span.stage == "request" && span.code >= 400
}

/// The resource of a path, with its subresource: `deployments`, `pods/eviction`.
pub(super) fn resource_of(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let rest = match segments[..] {
        ["api", _, ref rest @ ..] | ["apis", _, _, ref rest @ ..] => rest,
        _ => &segments[..],
    };
    let rest = match *rest {
        ["namespaces", _, ref rest @ ..] if !rest.is_empty() => rest,
        _ => rest,
    };
    let names = rest.iter().take(1).chain(rest.iter().skip(2)).copied();
    names.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_paths() {
        for (path, want) in [
            ("/apis/apps/v1/namespaces/default/deployments", "deployments"),
            ("/api/v1/namespaces/default/pods/web/eviction", "pods/eviction"),
            ("/api/v1/namespaces/default", "namespaces"),
            ("/api/v1/nodes/n1?dryRun=All", "nodes"),
            ("/version", "version"),
            ("", ""),
        ] {
            assert_eq!(resource_of(path), want, "{path}");
        }
    }
}
