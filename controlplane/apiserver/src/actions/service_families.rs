//! Computes the IP families of a Service from its spec, its previous spec and the families of the cluster. Pure.

use coracle_fields::core::v1::Service;
use coracle_fields::{List, Schema as _, Text, View};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};

const POLICY: &str = "spec.ipFamilyPolicy";
const SINGLE: &str = "SingleStack";
const REQUIRE: &str = "RequireDualStack";

fn texts(list: View<'_, List<Text>>) -> Vec<String> {
    list.items().filter_map(|item| item.get().map(str::to_owned)).collect()
}

fn family(address: &str) -> &'static str {
    if address.contains(':') { "IPv6" } else { "IPv4" }
}

fn other(family: &str) -> &'static str {
    if family == "IPv4" { "IPv6" } else { "IPv4" }
}

/// Fills in policy and families; an update to one family gives the second address up.
///
/// `configured` are the cluster's families, its own first.
pub fn default_families(
    service: &mut Value,
    old: Option<&Value>,
    configured: &[&str],
) -> Result<(), Vec<FieldError>> {
    let spec = Service::of(service).spec();
    if spec.type_() == "ExternalName" {
        return Ok(());
    }
    let headless = spec.cluster_ip() == "None";
    let free = headless && spec.selector().entries().next().is_none();
    let old = old.map(|old| Service::of(old).spec());
    let before = old.and_then(|old| old.ip_family_policy().get());
    let policy = spec.ip_family_policy().get().or(before);
    let policy = policy.unwrap_or(if free { REQUIRE } else { SINGLE }).to_owned();
    let (mut ips, mut families) = (texts(spec.cluster_ips()), texts(spec.ip_families()));
    let has_ips = spec.cluster_ips().is_set();
    let shown = json!(policy);
    let mut refused = Vec::new();
    let mut refuse = |why: &str| refused.push(FieldError::invalid(POLICY, &shown, why));
    if let Some(old) = old {
        let (old_ips, old_families) = (texts(old.cluster_ips()), texts(old.ip_families()));
        if policy == SINGLE {
            if ips == old_ips {
                ips.truncate(1);
            }
            if families == old_families {
                families.truncate(1);
            }
        } else {
            if reduced(&ips, &old_ips) {
                refuse("must be 'SingleStack' to release the secondary cluster IP");
            }
            if reduced(&families, &old_families) {
                refuse("must be 'SingleStack' to release the secondary IP family");
            }
        }
    }
    if policy == SINGLE {
        let both = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
        if ips.len() == 2 {
            refuse(&format!("{both} cluster IPs are specified"));
        }
        if families.len() == 2 {
            refuse(&format!("{both} IP families are specified"));
        }
    }
    for (at, ip) in ips.iter().enumerate().filter(|(_, ip)| *ip != "None").skip(families.len()) {
        if configured.contains(&family(ip)) {
            families.push(family(ip).to_owned());
        } else {
            let why = format!("{} is not configured on this cluster", family(ip));
            refused.push(FieldError::invalid(format!("spec.clusterIPs[{at}]"), &json!(ips), &why));
        }
    }
    if !free {
        if policy == REQUIRE && configured.len() < 2 {
            let why = "this cluster is not configured for dual-stack services";
            refused.push(FieldError::invalid(POLICY, &shown, why));
        }
        for (at, family) in
            families.iter().enumerate().filter(|(_, family)| !configured.contains(&family.as_str()))
        {
            let why = "not configured on this cluster";
            refused.push(FieldError::invalid(format!("spec.ipFamilies[{at}]"), &json!(family), why));
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    if families.is_empty() {
        families.extend(configured.first().map(|family| (*family).to_owned()));
    }
    // A Service that prefers both is left as it was until somebody changes it.
    let kept = old.is_some_and(|old| {
        policy == "PreferDualStack" && before == Some(policy.as_str()) && texts(old.ip_families()) == families
    });
    if policy != SINGLE && families.len() == 1 && (free || configured.len() == 2) && !kept {
        families.push(other(&families[0]).to_owned());
    }
    let mut service = Service::edit(service);
    let mut spec = service.spec();
    spec.ip_family_policy().set(policy);
    spec.ip_families().set(families);
    if has_ips {
        spec.cluster_ips().set(ips);
    }
    Ok(())
}

fn reduced(now: &[String], before: &[String]) -> bool {
    // Nothing given means that what was there stays.
    now.len() == 1 && before.len() == 2
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BOTH: &[&str] = &["IPv4", "IPv6"];

    fn families_of(spec: Value, old: Option<Value>, configured: &[&str]) -> String {
        let mut service = json!({"spec": spec});
        let old = old.map(|spec| json!({"spec": spec}));
        match default_families(&mut service, old.as_ref(), configured) {
            Ok(()) => {
                let spec = Service::of(&service).spec();
                format!("{} {}", spec.ip_family_policy().text(), texts(spec.ip_families()).join(" "))
            }
            Err(refused) => refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        }
    }

    #[test]
    fn new_services() {
        let selector = json!({"a": "b"});
        for (spec, configured, want) in [
            (json!({}), BOTH, "SingleStack IPv4"),
            (json!({}), &["IPv6"][..], "SingleStack IPv6"),
            (json!({"ipFamilies": ["IPv6"]}), BOTH, "SingleStack IPv6"),
            (json!({"ipFamilyPolicy": "PreferDualStack"}), BOTH, "PreferDualStack IPv4 IPv6"),
            (json!({"ipFamilyPolicy": "PreferDualStack"}), &["IPv4"][..], "PreferDualStack IPv4"),
            (
                json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}),
                BOTH,
                "RequireDualStack IPv6 IPv4",
            ),
            (
                json!({"ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["fd00::1"]}),
                BOTH,
                "RequireDualStack IPv6 IPv4",
            ),
            (
                json!({"ipFamilyPolicy": "RequireDualStack"}),
                &["IPv4"][..],
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
            ),
            (
                json!({"ipFamilies": ["IPv6"]}),
                &["IPv4"][..],
                "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
            ),
            (
                json!({"clusterIPs": ["fd00::1"]}),
                &["IPv4"][..],
                "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster",
            ),
            (
                json!({"ipFamilies": ["IPv4", "IPv6"]}),
                BOTH,
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
            ),
            (
                json!({"clusterIP": "None", "clusterIPs": ["None"]}),
                &["IPv4"][..],
                "RequireDualStack IPv4 IPv6",
            ),
            (json!({"clusterIP": "None", "selector": selector}), &["IPv4"][..], "SingleStack IPv4"),
            (
                json!({"clusterIP": "None", "selector": selector, "ipFamilyPolicy": "PreferDualStack"}),
                BOTH,
                "PreferDualStack IPv4 IPv6",
            ),
        ] {
            assert_eq!(families_of(spec.clone(), None, configured), want, "{spec}");
        }
    }

    #[test]
    fn changed_services() {
        let one = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]});
        let two = json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"], "clusterIP": "10.96.0.9",
            "clusterIPs": ["10.96.0.9", "fd00::9"]});
        let with = |spec: &Value, field: &str, value: Value| {
            let mut spec = spec.clone();
            spec[field] = value;
            spec
        };
        for (spec, old, want) in [
            (with(&one, "ipFamilyPolicy", json!("RequireDualStack")), &one, "RequireDualStack IPv4 IPv6"),
            (with(&one, "ipFamilyPolicy", Value::Null), &one, "SingleStack IPv4"),
            (with(&two, "ipFamilyPolicy", json!("SingleStack")), &two, "SingleStack IPv4"),
            (
                with(&two, "clusterIPs", json!(["10.96.0.9"])),
                &two,
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary cluster IP",
            ),
        ] {
            assert_eq!(families_of(spec.clone(), Some(old.clone()), BOTH), want, "{spec}");
        }
    }
}
