//! Rejects pods with fields that this node does not support (confinement, volumes), instead of running them without.

use coracle_proto::cri::security_profile::ProfileType;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::admit::Rejection;
use super::node_facts::Confinement;
use super::{security, spec};
use coracle_engine::spec::labels::UNCONFINED_TYPE;

fn refuse(reason: &str, message: String) -> Result<(), Rejection> {
    Err(Rejection { reason: reason.into(), message })
}

/// Rejects a pod with unsupported fields.
pub fn check(pod: &Pod, host: Confinement) -> Result<(), Rejection> {
    let spec = spec::spec(pod);
    apparmor(pod, &spec, host)?;
    label_by_mount(&spec, host)?;
    for (_, container) in spec::containers(&spec) {
        selinux(&spec, &container, host)?;
        fields(&spec, &container)?;
    }
    for volume in spec.volumes.iter().flatten() {
        let medium =
            volume.empty_dir.as_ref().and_then(|source| source.medium.as_deref()).unwrap_or_default();
        if !matches!(medium, "" | "Memory") && !medium.starts_with("HugePages") {
            let text = format!(
                "Cannot make volume {:?}: this node has no emptyDir of medium {medium:?}",
                volume.name
            );
            return refuse("EmptyDirMedium", text);
        }
    }
    Ok(())
}

/// As kubelets: one profile that cannot be enforced refuses the whole pod.
fn apparmor(pod: &Pod, spec: &PodSpec, host: Confinement) -> Result<(), Rejection> {
    let of_pod = spec.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    let mut wanted = of_pod.is_some_and(|profile| profile.type_ != "Unconfined");
    for (_, container) in spec::containers(spec) {
        match security::apparmor(pod, &container) {
            Ok(profile) => wanted |= profile.is_some_and(|p| p.profile_type() != ProfileType::Unconfined),
            Err(error) => return refuse("AppArmor", format!("Cannot enforce AppArmor: {error}")),
        }
    }
    if wanted && !host.apparmor {
        return refuse("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host".into());
    }
    Ok(())
}

/// Volumes are labelled file by file, never by a mount option. Where that makes no difference, the policy says nothing: without
/// SELinux, and for volumes that no driver mounts.
fn label_by_mount(spec: &PodSpec, host: Confinement) -> Result<(), Rejection> {
    let context = spec.security_context.as_ref();
    let policy = context.and_then(|context| context.se_linux_change_policy.as_deref());
    if !host.selinux || policy != Some("MountOption") {
        return Ok(());
    }
    let mut volumes = spec.volumes.iter().flatten();
    let of_driver = volumes.find(|volume| {
        volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || volume.csi.is_some()
    });
    let Some(volume) = of_driver else { return Ok(()) };
    let text = format!(
        "Cannot mount volume {:?} with an SELinux label: this node has no securityContext.seLinuxChangePolicy MountOption",
        volume.name
    );
    refuse("SELinuxChangePolicy", text)
}

fn selinux(spec: &PodSpec, container: &Container, host: Confinement) -> Result<(), Rejection> {
    let own = container.security_context.as_ref();
    let of_pod = spec.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
    let options = own.and_then(|context| context.se_linux_options.as_ref()).or(of_pod);
    let Some(options) = options.filter(|options| **options != Default::default()) else { return Ok(()) };
    let privileged = own.is_some_and(|context| context.privileged == Some(true));
    if host.selinux || privileged || options.type_.as_deref() == Some(UNCONFINED_TYPE) {
        return Ok(());
    }
    let text = format!(
        "Cannot enforce SELinux: SELinux is not enabled on the host (securityContext.seLinuxOptions of container {:?})",
        container.name
    );
    refuse("SELinux", text)
}

fn fields(spec: &PodSpec, container: &Container) -> Result<(), Rejection> {
    let context = container.security_context.as_ref();
    // The API refuses it, manifests on the node's disk are not asked.
    let unmasked = context.is_some_and(|context| context.proc_mount.as_deref() == Some("Unmasked"));
    if unmasked && spec.host_users != Some(false) {
        let text = format!(
            "procMount of container {:?}: `hostUsers` must be false to use `Unmasked`",
            container.name
        );
        return refuse("ProcMount", text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn refusal(annotations: Value, spec: Value, host: Confinement) -> Option<(String, String)> {
        let pod =
            json!({"metadata": {"name": "p", "namespace": "ns", "annotations": annotations}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        check(&pod, host).err().map(|refusal| (refusal.reason, refusal.message))
    }

    fn container(rest: Value) -> Value {
        let mut container = json!({"name": "c"});
        container.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        json!({"containers": [container]})
    }

    fn context(rest: Value) -> Value {
        container(json!({"securityContext": rest}))
    }

    #[test]
    fn confinement_is_given_or_the_pod_is_refused() {
        let (none, both) = (Confinement::default(), Confinement { apparmor: true, selinux: true });
        let apparmor = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        let profile = |kind: &str| json!({"appArmorProfile": {"type": kind, "localhostProfile": "x"}});
        let with_pod = |rest: Value| {
            let mut spec = container(json!({}));
            spec["securityContext"] = rest;
            spec
        };
        let selinux = json!({"seLinuxOptions": {"level": "s0:c1"}});
        for (spec, want) in [
            (context(profile("Unconfined")), None),
            (context(profile("RuntimeDefault")), Some(("AppArmor", apparmor))),
            (context(profile("Localhost")), Some(("AppArmor", apparmor))),
            (with_pod(profile("RuntimeDefault")), Some(("AppArmor", apparmor))),
            (
                json!({"initContainers": context(profile("Localhost"))["containers"], "containers": []}),
                Some(("AppArmor", apparmor)),
            ),
            (
                context(selinux.clone()),
                Some((
                    "SELinux",
                    "Cannot enforce SELinux: SELinux is not enabled on the host (securityContext.seLinuxOptions of container \"c\")",
                )),
            ),
            (
                with_pod(selinux),
                Some((
                    "SELinux",
                    "Cannot enforce SELinux: SELinux is not enabled on the host (securityContext.seLinuxOptions of container \"c\")",
                )),
            ),
            (context(json!({"seLinuxOptions": {}})), None),
            (context(json!({"seLinuxOptions": {"type": "spc_t", "level": "s0"}})), None),
        ] {
            let got = refusal(json!({}), spec.clone(), none);
            assert_eq!(got.as_ref().map(|(a, b)| (a.as_str(), b.as_str())), want, "{spec}");
            assert_eq!(refusal(json!({}), spec.clone(), both), None, "{spec}");
        }
        let key = "container.apparmor.security.beta.kubernetes.io/c";
        for (value, want) in [
            ("unconfined", None),
            ("runtime/default", Some(apparmor)),
            ("localhost/x", Some(apparmor)),
            (
                "docker-default",
                Some("Cannot enforce AppArmor: invalid AppArmor profile name: \"docker-default\""),
            ),
        ] {
            let got = refusal(json!({key: value}), container(json!({})), none);
            assert_eq!(got.as_ref().map(|(_, message)| message.as_str()), want, "{value}");
        }
    }

    #[test]
    fn volumes_that_are_to_be_labelled_by_mount_are_refused_where_labels_count() {
        let (none, selinux) =
            (Confinement::default(), Confinement { selinux: true, ..Confinement::default() });
        let claim = || json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        for (policy, volume, is_refused) in [
            ("MountOption", claim(), true),
            ("MountOption", json!({"name": "v", "csi": {"driver": "d"}}), true),
            ("MountOption", json!({"name": "v", "ephemeral": {}}), true),
            ("MountOption", json!({"name": "v", "emptyDir": {}}), false),
            ("Recursive", claim(), false),
        ] {
            let spec = json!({"containers": [{"name": "c"}], "volumes": [volume],
                "securityContext": {"seLinuxChangePolicy": policy}});
            let refused = refusal(json!({}), spec.clone(), selinux);
            assert_eq!(refused.is_some(), is_refused, "{spec}");
            if let Some((reason, message)) = refused {
                assert_eq!(reason, "SELinuxChangePolicy");
                assert!(
                    message.contains("volume \"v\"") && message.contains("seLinuxChangePolicy"),
                    "{message}"
                );
            }
            assert_eq!(refusal(json!({}), spec, none), None);
        }
        let silent = json!({"containers": [{"name": "c"}], "volumes": [claim()]});
        assert_eq!(refusal(json!({}), silent, selinux), None);
    }

    #[test]
    fn what_cannot_be_given_is_refused_by_name() {
        for (spec, reason, part) in [
            (context(json!({"procMount": "Unmasked"})), "ProcMount", "container \"c\""),
            (
                json!({"containers": [{"name": "c"}], "volumes": [{"name": "h", "emptyDir": {"medium": "Disc"}}]}),
                "EmptyDirMedium",
                "volume \"h\"",
            ),
        ] {
            let (got, message) = refusal(json!({}), spec.clone(), Confinement::default()).unwrap();
            assert_eq!(got, reason, "{spec}");
            assert!(message.contains(part), "{message}");
        }
        let huge = json!({"containers": [{"name": "c"}], "volumes": [{"name": "h", "emptyDir": {"medium": "HugePages-2Mi"}}]});
        assert_eq!(refusal(json!({}), huge, Confinement::default()), None);
        let mapped = json!({"hostUsers": false, "containers": [{"name": "c", "securityContext": {"procMount": "Unmasked"}}]});
        assert_eq!(refusal(json!({}), mapped, Confinement::default()), None);
    }
}
