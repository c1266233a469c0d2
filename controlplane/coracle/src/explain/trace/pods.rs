//! Pods of a trace: which ones count, and when they were ready.

use super::answer::{Object, Trace};
use super::nodes::Builder;
use std::collections::BTreeMap;

/// Pods by index: when they were created and when they were ready first.
pub(super) struct Pods {
    pub(super) created: BTreeMap<usize, u64>,
    pub(super) ready: BTreeMap<usize, u64>,
}

impl Pods {
    pub(super) fn of(builder: &Builder<'_>) -> Self {
        let mut pods = Self { created: BTreeMap::new(), ready: BTreeMap::new() };
        let objects = &builder.trace.objects;
        let counts = |index: usize| objects.get(index).is_some_and(|object| is_counted(builder, object));
        for span in &builder.trace.spans {
            let Some(index) = span.object.filter(|index| counts(*index)) else { continue };
            match span.stage.as_str() {
                // What was refused is no pod.
                "write" if span.name == "create" && !span.has("failed") => {
                    pods.created.entry(index).or_insert(span.start)
                }
                "ready" => pods.ready.entry(index).or_insert(span.start),
                _ => continue,
            };
        }
        pods
    }

    /// How long each pod took that is ready, the fastest first.
    pub(super) fn times(&self) -> Vec<(u64, usize)> {
        let times = self.created.iter().filter_map(|(index, created)| {
            let ready = self.ready.get(index)?;
            Some((ready.saturating_sub(*created), *index))
        });
        let mut times: Vec<(u64, usize)> = times.collect();
        times.sort_unstable();
        times
    }
}

/// Whether a pod counts: a pod answers for itself, and what makes no pods for none.
fn is_counted(builder: &Builder<'_>, pod: &Object) -> bool {
    let resource = builder.trace.object.as_ref().map_or("", |subject| subject.resource.as_str());
    pod.resource == "pods"
        && match resource {
            "pods" => is_subject(builder.trace, pod),
            "persistentvolumeclaims"
            | "persistentvolumes"
            | "services"
            | "configmaps"
            | "secrets"
            | "poddisruptionbudgets.policy"
            | "endpointslices.discovery.k8s.io" => false,
            _ => true,
        }
}

/// Whether an object is the one that was asked for.
pub(super) fn is_subject(trace: &Trace, object: &Object) -> bool {
    let subject = trace.object.as_ref();
    subject.is_some_and(|subject| object.resource == subject.resource && object.name == subject.name)
}
