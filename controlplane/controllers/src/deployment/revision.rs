//! Revisions: the annotations by which `kubectl rollout history` and `undo` find their way.

use super::view::{DESIRED, Deployment, HASH, MAX, REVISION, REVISION_HISTORY, Set};
use crate::adoption;
use coracle_fields::apps::v1::ReplicaSet;
use coracle_fields::core::v1::PodTemplateSpec;
use coracle_fields::meta::LabelSelector;
use coracle_fields::{Made, make};
use coracle_informer::selector::Labels;
use coracle_informer::template;

/// The longest list of former revisions, in characters.
const HISTORY_LENGTH: usize = 2000;
/// The longest object name.
const NAME_LENGTH: usize = 253;

const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// The annotations of the set that holds the Deployment's template: the Deployment's own, and a revision above all
/// others'. A revision that the set had before goes to its history.
pub fn annotations(deployment: &Deployment, current: &Labels, newest_old: i64) -> Labels {
    let mut annotations = current.clone();
    for (key, value) in &deployment.annotations {
        if !NOT_COPIED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let had = current.get(REVISION);
    let old: i64 = match had.map(|r| r.parse()) {
        None => 0,
        Some(Ok(revision)) => revision,
        Some(Err(_)) => return annotations,
    };
    let new = newest_old.saturating_add(1);
    if old < new {
        annotations.insert(REVISION.into(), new.to_string());
        if let Some(had) = had {
            let history = current.get(REVISION_HISTORY).map(String::as_str).unwrap_or_default();
            annotations.insert(REVISION_HISTORY.into(), lengthened(history, had));
        }
    }
    annotations
}

fn lengthened(history: &str, revision: &str) -> String {
    let mut all: Vec<&str> = history.split(',').filter(|r| !r.is_empty()).collect();
    all.push(revision);
    while all.iter().map(|r| r.len() + 1).sum::<usize>() > HISTORY_LENGTH + 1 && all.len() > 1 {
        all.remove(0);
    }
    all.join(",")
}

/// Notes the Deployment's size on a set that is scaled for it.
pub fn note_size(deployment: &Deployment, annotations: &mut Labels) {
    annotations.insert(DESIRED.into(), deployment.spec.replicas.to_string());
    annotations.insert(MAX.into(), deployment.ceiling().to_string());
}

/// The name of the set for the Deployment's template, and its hash.
pub fn set_name(deployment: &Deployment) -> (String, String) {
    let hash = template::hash(&deployment.spec.template, deployment.status.collision_count);
    let name = &deployment.object.meta.name;
    let room = NAME_LENGTH.saturating_sub(hash.len() + 1);
    let name: String = name.chars().take(room).collect();
    (format!("{name}-{hash}"), hash)
}

/// The ReplicaSet for the Deployment's template.
pub fn new_set(deployment: &Deployment, replicas: i32, newest_old: i64) -> Made<ReplicaSet> {
    let (name, hash) = set_name(deployment);
    let mut annotations = annotations(deployment, &Labels::new(), newest_old);
    note_size(deployment, &mut annotations);
    let mut template = Made::<PodTemplateSpec>::new(deployment.spec.template.clone());
    template.edit().metadata().labels().insert(HASH, &hash);
    let mut selector = Made::<LabelSelector>::new(deployment.spec.selector.clone());
    selector.edit().match_labels().insert(HASH, hash);
    let meta = &deployment.object.meta;
    make!(ReplicaSet {
        metadata: {
            name,
            namespace: &meta.namespace,
            labels: template.view().metadata().labels(),
            annotations,
            owner_references: [adoption::reference("apps/v1", "Deployment", meta)],
        },
        spec: {
            replicas,
            min_ready_seconds: deployment.spec.min_ready_seconds,
            selector,
            template,
        },
    })
}

/// Which old sets go, beyond the history limit: the oldest revisions, if they are empty and settled.
pub fn beyond_history(deployment: &Deployment, old: &[&Set]) -> Vec<String> {
    let Some(limit) = deployment.spec.revision_history_limit.filter(|l| *l != i32::MAX) else {
        return Vec::new();
    };
    let mut kept: Vec<&Set> =
        old.iter().filter(|s| s.object.meta.deletion_timestamp.is_none()).copied().collect();
    let excess = kept.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    kept.sort_by(|a, b| (a.revision(), a.created, a.name()).cmp(&(b.revision(), b.created, b.name())));
    let settled = |set: &&&Set| {
        set.spec.replicas == 0
            && set.status.replicas == 0
            && set.object.meta.generation <= set.status.observed_generation
    };
    kept.iter().take(excess).filter(settled).map(|s| s.name().to_owned()).collect()
}
