//! The checks of the restricted level.

use super::baseline::{confines, seccomp_type};
use super::pod::{Finding, Pod, Texts, containers, joined, plural, setters};
use coracle_fields::View;
use coracle_fields::core::v1::Container;

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// More rights than the parent.
pub fn escalation(pod: &Pod<'_>) -> Option<Finding> {
    let allows = |container: View<'_, Container>| {
        container.security_context().allow_privilege_escalation().get() != Some(false)
    };
    let named = pod.named(allows);
    if named.is_empty() {
        return None;
    }
    Finding::new(
        "allowPrivilegeEscalation != false",
        format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&named)),
    )
}

/// Any capability but one.
pub fn capabilities(pod: &Pod<'_>) -> Option<Finding> {
    let added = |container: View<'_, Container>| -> Texts {
        let all = container.security_context().capabilities().add().items().filter_map(|one| one.get());
        all.filter(|one| *one != "NET_BIND_SERVICE").map(str::to_owned).collect()
    };
    let kept = pod.named(|container| !container.security_context().capabilities().drop().has("ALL"));
    let adding = pod.named(|container| !added(container).is_empty());
    let more: Texts = pod.containers().flat_map(added).collect();
    let mut what = Vec::new();
    if !kept.is_empty() {
        what.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&kept)));
    }
    if !adding.is_empty() {
        what.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            joined(&more)
        ));
    }
    if what.is_empty() { None } else { Finding::new("unrestricted capabilities", what.join("; ")) }
}

/// Volumes that are somebody else's storage.
pub fn volumes(pod: &Pod<'_>) -> Option<Finding> {
    let (mut named, mut kinds) = (Vec::new(), Texts::new());
    for volume in pod.spec.volumes().items() {
        let sources = volume.erased().entries().filter(|(key, value)| *key != "name" && value.is_set());
        let sources: Vec<&str> = sources.map(|(key, _)| key).collect();
        if sources.iter().any(|source| VOLUMES.contains(source)) {
            continue;
        }
        named.push(volume.name().text().to_owned());
        kinds.insert((*sources.first().unwrap_or(&"unknown")).to_owned());
    }
    if named.is_empty() {
        return None;
    }
    let word = plural("restricted volume type", "restricted volume types", kinds.len());
    Finding::new(
        "restricted volume types",
        format!(
            "{} {} {} {word} {}",
            plural("volume", "volumes", named.len()),
            joined(&named),
            plural("uses", "use", named.len()),
            joined(&kinds)
        ),
    )
}

/// Root, unless it is ruled out.
pub fn non_root(pod: &Pod<'_>) -> Option<Finding> {
    let reason = "runAsNonRoot != true";
    let said = |container: View<'_, Container>| container.security_context().run_as_non_root().get();
    let own = pod.security().run_as_non_root().get();
    let explicit = pod.named(|container| said(container) == Some(false));
    if let Some(who) = setters(own == Some(false), &explicit) {
        return Finding::new(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let implicit = pod.named(|container| said(container).is_none() && own != Some(true));
    if implicit.is_empty() {
        return None;
    }
    Finding::new(
        reason,
        format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&implicit)),
    )
}

/// Root by number.
pub fn not_user_zero(pod: &Pod<'_>) -> Option<Finding> {
    let named = pod.named(|container| container.security_context().run_as_user().int() == Some(0));
    let who = setters(pod.security().run_as_user().int() == Some(0), &named)?;
    Finding::new("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

/// Seccomp, and that it is on.
pub fn seccomp(pod: &Pod<'_>) -> Option<Finding> {
    if let Some(finding) = super::baseline::seccomp(pod) {
        return Some(finding);
    }
    let covered = seccomp_type(pod.security().seccomp_profile()).is_some_and(|kind| confines(&kind));
    let implicit = pod.named(|container| {
        seccomp_type(container.security_context().seccomp_profile()).is_none() && !covered
    });
    if implicit.is_empty() {
        return None;
    }
    Finding::new(
        "seccompProfile",
        format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            containers(&implicit)
        ),
    )
}
