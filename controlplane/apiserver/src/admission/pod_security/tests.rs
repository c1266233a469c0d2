//! Every check with a pod that it accepts and one that it refuses.
#![allow(clippy::unwrap_used)]

use super::policy::{Policy, Version};
use super::*;
use serde_json::json;

fn standard(level: Level, minor: Option<u32>) -> Standard {
    Standard { level, version: minor.map_or(Version::Latest, Version::Minor) }
}

/// A pod that the restricted level accepts.
fn hardened() -> Value {
    json!({"metadata": {}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext":
            {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(change))
            if change.iter().all(Value::is_object) && !into.is_empty() =>
        {
            into.iter_mut().zip(change).for_each(|(into, change)| merge(into, change));
        }
        (into, change) => *into = change.clone(),
    }
}

fn verdict(standard: Standard, change: &Value) -> String {
    let mut pod = hardened();
    merge(&mut pod, change);
    details(&evaluate(standard, &pod_of(v1::Pod::of(&pod))))
}

fn container(change: Value) -> Value {
    json!({"spec": {"containers": [change]}})
}

fn secured(change: Value) -> Value {
    container(json!({"securityContext": change}))
}

#[test]
fn baseline() {
    let cases = [
        (json!({}), ""),
        (json!({"spec": {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}}), ""),
        (
            json!({"spec": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}}),
            "forbidden AppArmor profile (pod must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}}}),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")",
        ),
        (secured(json!({"capabilities": {"add": ["CHOWN"]}})), ""),
        (
            secured(json!({"capabilities": {"add": ["NET_ADMIN"]}})),
            "non-default capabilities (container \"c\" must not include \"NET_ADMIN\" in securityContext.capabilities.add)",
        ),
        (
            json!({"spec": {"hostPID": true, "hostNetwork": true}}),
            "host namespaces (hostNetwork=true, hostPID=true)",
        ),
        (json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}), ""),
        (
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
            "hostPath volumes (volume \"v\")",
        ),
        (container(json!({"ports": [{"containerPort": 80}]})), ""),
        (
            container(json!({"ports": [{"hostPort": 81}, {"hostPort": 80}]})),
            "hostPort (container \"c\" uses hostPorts 80, 81)",
        ),
        (container(json!({"livenessProbe": {"httpGet": {"port": 80}}})), ""),
        (
            container(json!({"livenessProbe": {"httpGet": {"port": 80, "host": "8.8.8.8"}}})),
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"8.8.8.8\")",
        ),
        (secured(json!({"privileged": false})), ""),
        (
            secured(json!({"privileged": true})),
            "privileged (container \"c\" must not set securityContext.privileged=true)",
        ),
        (secured(json!({"procMount": "Default"})), ""),
        (
            secured(json!({"procMount": "Unmasked"})),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (secured(json!({"seLinuxOptions": {"type": "container_t"}})), ""),
        (
            secured(json!({"seLinuxOptions": {"type": "spc_t", "role": "r"}})),
            "seLinuxOptions (container \"c\" set forbidden securityContext.seLinuxOptions: type \"spc_t\"; role may not be set)",
        ),
        (
            json!({"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (json!({"spec": {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}}}), ""),
        (
            json!({"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            secured(json!({"windowsOptions": {"hostProcess": true}})),
            "hostProcess (container \"c\" must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(verdict(standard(Level::Baseline, None), &change), expected, "{change}");
        assert_eq!(verdict(standard(Level::Privileged, None), &change), "", "{change}");
    }
}

#[test]
fn restricted() {
    let cases = [
        (json!({}), ""),
        (
            secured(json!({"allowPrivilegeEscalation": null})),
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
        ),
        (
            secured(json!({"capabilities": {"drop": ["NET_RAW"], "add": ["CHOWN"]}})),
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (secured(json!({"capabilities": {"add": ["NET_BIND_SERVICE"]}})), ""),
        (
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "nfs": {}}]}}),
            "restricted volume types (volumes \"v\", \"w\" use restricted volume types \"hostPath\", \"nfs\")",
        ),
        (json!({"spec": {"volumes": [{"name": "v", "secret": {}}]}}), ""),
        (
            json!({"spec": {"securityContext": {"runAsNonRoot": null}}}),
            "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)",
        ),
        (
            secured(json!({"runAsNonRoot": false})),
            "runAsNonRoot != true (container \"c\" must not set securityContext.runAsNonRoot=false)",
        ),
        (json!({"spec": {"securityContext": {"runAsNonRoot": null}, "hostUsers": false}}), ""),
        (secured(json!({"runAsUser": 0})), "runAsUser=0 (container \"c\" must not set runAsUser=0)"),
        (
            json!({"spec": {"securityContext": {"seccompProfile": null}}}),
            "seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
        (
            secured(json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            json!({"spec": {"hostUsers": false, "containers": [{"securityContext": {"procMount": "Unmasked"}}]}}),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            json!({"spec": {"hostIPC": true, "containers": [{"securityContext": {"allowPrivilegeEscalation": true}}]}}),
            "host namespaces (hostIPC=true), allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(verdict(standard(Level::Restricted, None), &change), expected, "{change}");
    }
}

#[test]
fn older_versions_know_less() {
    let probe = container(json!({"livenessProbe": {"httpGet": {"host": "h"}}}));
    assert_eq!(verdict(standard(Level::Baseline, Some(33)), &probe), "");
    assert_ne!(verdict(standard(Level::Baseline, Some(34)), &probe), "");
    let sysctl = json!({"spec": {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}}});
    assert_ne!(verdict(standard(Level::Baseline, Some(31)), &sysctl), "");
    let windows = json!({"spec": {"os": {"name": "windows"}, "containers": [{"securityContext": {"allowPrivilegeEscalation": null}}]}});
    assert_eq!(verdict(standard(Level::Restricted, Some(25)), &windows), "");
    assert_ne!(verdict(standard(Level::Restricted, Some(24)), &windows), "");
    assert_eq!(
        verdict(standard(Level::Restricted, Some(99)), &json!({})),
        "",
        "a version to come is the newest"
    );
}

#[test]
fn stricter_namespaces_name_their_pods() {
    let plugin = PodSecurity::new(&Configuration::default()).unwrap();
    let pod = |name: &str, owner: &str, privileged: bool| {
        json!({"metadata": {"name": name, "ownerReferences": [{"uid": owner, "controller": true}]},
            "spec": {"containers": [{"name": "c", "securityContext": {"privileged": privileged}}]}})
    };
    let pods = [pod("b", "1", true), pod("a", "1", true), pod("c", "2", false)];
    let pods = pods.iter().map(v1::Pod::of).collect();
    assert_eq!(
        plugin.evaluate_existing("ns", pods, standard(Level::Baseline, None)),
        [
            "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 1 other pod): privileged"
        ]
    );
}

#[test]
fn settings_are_defaults_and_exemptions() {
    let settings = json!({"defaults": {"enforce": "baseline", "enforce-version": "v1.30"}, "exemptions": {"namespaces": ["kube-system"]}});
    let plugin = PodSecurity::new(&Configuration::with("PodSecurity", settings)).unwrap();
    assert_eq!(plugin.defaults.enforce, standard(Level::Baseline, Some(30)));
    assert_eq!(plugin.defaults.warn, Policy::default().warn);
    let level = "Invalid value: \"strictest\": must be one of privileged, baseline, restricted";
    for (settings, expected) in [
        (json!({"defaults": {"enforce": "strictest"}}), format!("defaults.enforce: {level}")),
        (
            json!({"defaults": {"enforce": "baseline", "warn": "strictest"}}),
            format!("defaults.warn: {level}"),
        ),
        (json!({"defaults": {"audit-version": "1.3"}}), "defaults.audit-version: Invalid value".into()),
        (json!({"defaults": {"enforc": "restricted"}}), "defaults.enforc: unknown field `enforc`".into()),
        (json!({"default": {}}), "default: unknown field `default`".into()),
        (json!({"exemptions": {"users": []}}), "exemptions.users: unknown field `users`".into()),
    ] {
        let said = PodSecurity::new(&Configuration::with("PodSecurity", settings)).err().unwrap().to_string();
        assert!(said.contains(&format!("\"PodSecurity\": test.yaml: {expected}")), "{said}");
    }
    let all = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline", "enforce-version": "latest", "audit": "restricted",
            "audit-version": "v1.30", "warn": "", "warn-version": ""},
        "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": null}});
    assert!(PodSecurity::new(&Configuration::with("PodSecurity", all)).is_ok());
}

#[test]
fn only_new_images_containers_and_profiles_matter() {
    let pod = |image: &str, debug: Option<&str>| {
        json!({"spec": {"containers": [{"name": "c", "image": image}],
            "ephemeralContainers": debug.map(|i| vec![json!({"name": "d", "image": i})]).unwrap_or_default()}})
    };
    assert!(!is_significant(&pod("a", None), &pod("a", None)));
    assert!(is_significant(&pod("b", None), &pod("a", None)));
    assert!(is_significant(&pod("a", Some("d")), &pod("a", None)));
    assert!(!is_significant(&pod("a", Some("d")), &pod("a", Some("d"))));
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    for key in [
        "container.apparmor.security.beta.kubernetes.io/c",
        "container.seccomp.security.alpha.kubernetes.io/c",
        "seccomp.security.alpha.kubernetes.io/pod",
    ] {
        let old = annotated(key, "runtime/default");
        assert!(!is_significant(&old, &old), "{key}");
        assert!(is_significant(&annotated(key, "unconfined"), &old), "{key} changed");
        assert!(is_significant(&old, &json!({})), "{key} added");
        assert!(is_significant(&json!({}), &old), "{key} removed");
    }
    assert!(!is_significant(&annotated("note", "b"), &annotated("note", "a")));
}
