//! The checks of the restricted level.

use super::baseline::{confines, seccomp_type};
use super::pod::{Finding, Pod, Texts, containers, joined, name, plural, setters};
use serde_json::Value;

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
    let named = pod.named(|c| c["securityContext"]["allowPrivilegeEscalation"] != false);
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
    fn list<'a>(c: &'a Value, what: &str) -> impl Iterator<Item = &'a str> {
        let all = c["securityContext"]["capabilities"][what].as_array().into_iter().flatten();
        all.filter_map(Value::as_str)
    }
    let added = |c: &Value| -> Texts {
        list(c, "add").filter(|c| *c != "NET_BIND_SERVICE").map(str::to_owned).collect()
    };
    let kept = pod.named(|c| !list(c, "drop").any(|c| c == "ALL"));
    let adding = pod.named(|c| !added(c).is_empty());
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
    for volume in pod.spec["volumes"].as_array().into_iter().flatten() {
        let sources = volume.as_object().into_iter().flatten().filter(|(k, v)| *k != "name" && !v.is_null());
        let sources: Vec<&str> = sources.map(|(key, _)| key.as_str()).collect();
        if sources.iter().any(|source| VOLUMES.contains(source)) {
            continue;
        }
        named.push(name(volume));
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
    let said = |context: &Value| context["runAsNonRoot"].as_bool();
    let own = said(pod.security());
    let explicit = pod.named(|c| said(&c["securityContext"]) == Some(false));
    if let Some(who) = setters(own == Some(false), &explicit) {
        return Finding::new(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let implicit = pod.named(|c| said(&c["securityContext"]).is_none() && own != Some(true));
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
    let zero = |context: &Value| context["runAsUser"].as_i64() == Some(0);
    let named = pod.named(|c| zero(&c["securityContext"]));
    let who = setters(zero(pod.security()), &named)?;
    Finding::new("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

/// Seccomp, and that it is on.
pub fn seccomp(pod: &Pod<'_>) -> Option<Finding> {
    if let Some(finding) = super::baseline::seccomp(pod) {
        return Some(finding);
    }
    let covered = seccomp_type(pod.security()).is_some_and(|kind| confines(&kind));
    let implicit = pod.named(|c| seccomp_type(&c["securityContext"]).is_none() && !covered);
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
