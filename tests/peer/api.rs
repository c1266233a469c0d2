//! Type errors of policies, approval of definitions, quotas of attributes classes, pages of lists.

use crate::both::{PATIENCE, on_both};
use coracle_tests::eventually;
use serde_json::{Value, json};

#[test]
fn type_errors_of_a_policy_are_in_its_status() {
    let seen = on_both("policytypes", |place| {
        let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources});
        let policy = |name: &str, rules: Value, validations: Value| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": format!("{}-{name}", place.name)}, "spec": {"matchConstraints": {"resourceRules": rules},
                    "variables": [{"name": "count", "expression": "size(object.metadata.name)"}], "validations": validations}})
        };
        let expressions = [
            "object.spec.replicas > 1",
            "object.spec.replica > 1",
            "object.spec.replicas == '1'",
            "object.spec.replicas && true",
            "object.metadata.labels['a'] == 1",
            "object.spec.template.spec.containers.all(c, c.nam == 'x')",
            "object.spec.template.spec.containers.exists(c, c.image.contains(object.spec.replicas))",
            "object.spec.template.spec.containers.all(c, has(c.resources.limits))",
            "object.spec.template.spec.containers.map(c, c.name).exists(n, n == 1)",
            "object.spec.strategy.rollingUpdate.maxSurge == 1",
            "object.metadata.creationTimestamp == 'x'",
            "object.spec.a == object.spec.b",
            "object.spec.replicas.all(x, x > 1)",
            "object.?spec.?replicas.orValue('x') == 1",
            "object.status.conditions.exists(c, c.type == 'Available' && c.status == true)",
            "type(object.spec.replicas) == int && string(object.spec.replicas) == '1'",
        ];
        let validations: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
        place.create_cluster(
            "validatingadmissionpolicy",
            &policy("deployments", json!([rule("apps", &["deployments"])]), json!(validations)),
        );
        let two = json!([{"expression": "object.spec.replicas > 1", "messageExpression": "'at ' + object.spec.replicas"}]);
        place.create_cluster(
            "validatingadmissionpolicy",
            &policy("two", json!([rule("apps", &["deployments", "daemonsets"])]), two.clone()),
        );
        place.create_cluster(
            "validatingadmissionpolicy",
            &policy("core", json!([rule("", &["pods", "nothings"])]), two.clone()),
        );
        place.create_cluster("validatingadmissionpolicy", &policy("any", json!([rule("*", &["*"])]), two));
        for name in ["deployments", "two", "core", "any"] {
            let object = format!("validatingadmissionpolicy/{}-{name}", place.name);
            place.until(&object, "{.status.observedGeneration}", |generation| generation == "1");
            let status = place.get(&object)["status"]["typeChecking"].clone();
            for warning in status["expressionWarnings"].as_array().into_iter().flatten() {
                let at = warning["fieldRef"].as_str().unwrap_or_default();
                let index: Option<usize> = at.split(['[', ']']).nth(1).and_then(|index| index.parse().ok());
                let text = index.filter(|_| name == "deployments").and_then(|index| expressions.get(index));
                place.saw(text.unwrap_or(&at), warning["warning"].to_string());
            }
            place.saw(name, status.as_object().map_or(0, |status| status.len()));
        }
    });
    assert!(seen.iter().any(|line| line.contains("undefined field 'replica'")), "{seen:?}");
}

#[test]
fn definitions_of_community_groups_need_an_approval() {
    on_both("approval", |place| {
        let definition = |group: &str, annotation: Option<&str>| {
            let mut made = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("fleets.{group}")}, "spec": {"group": group, "scope": "Namespaced",
                    "names": {"plural": "fleets", "kind": "Fleet"}, "versions": [{"name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
            if let Some(annotation) = annotation {
                made["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": annotation});
            }
            made
        };
        let group = format!("{}.k8s.io", place.name);
        place.see("create -f - --output=name", &definition(&group, None).to_string());
        place.see("create -f - --output=jsonpath={.kind}", &definition(&group, Some("soon")).to_string());
        place.create_cluster("crd", &definition(&group, Some("unapproved, experimental")));
        let condition = ".status.conditions[?(@.type==\"KubernetesAPIApprovalPolicyConformant\")]";
        let path = &format!("{{{condition}.status}} {{{condition}.reason}} {{{condition}.message}}");
        place.saw(
            "condition",
            place.until(&format!("crd/fleets.{group}"), path, |said| !said.trim().is_empty()),
        );
        place.run(&format!("annotate crd fleets.{group} --overwrite api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/1111"));
        place.saw(
            "approved",
            place.until(&format!("crd/fleets.{group}"), path, |said| said.starts_with("True")),
        );
    });
}

#[test]
fn a_quota_counts_claims_of_a_volume_attributes_class() {
    on_both("attributes", |place| {
        place.create(&json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gold"}, "spec": {
            "hard": {"persistentvolumeclaims": "1", "requests.storage": "5Gi"}, "scopeSelector": {"matchExpressions": [
                {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]}}}));
        place.until("quota/gold", "{.status.hard}", |said| !said.is_empty());
        let claim = |name: &str, class: Option<&str>| {
            let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}});
            if let Some(class) = class {
                claim["spec"]["volumeAttributesClassName"] = json!(class);
            }
            claim.to_string()
        };
        place.see("create -f - --output=name", &claim("plain", None));
        place.see("create -f - --output=jsonpath={.metadata.name}", &claim("silver", Some("silver")));
        place.see("create -f - --output=jsonpath={.kind}", &claim("gold", Some("gold")));
        let used = "{.status.used}";
        place.saw("used", place.until("quota/gold", used, |said| said.contains("\"1\"")));
        place.see("create -f - --validate=true", &claim("more", Some("gold")));
    });
}

#[test]
fn names_of_services_and_what_token_requests_say_are_checked() {
    on_both("names", |place| {
        for (number, name) in ["1st", "a.b", "-a", "9"].into_iter().enumerate() {
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
            place.see("create -f - -o name", &service.to_string());
            let backend = json!({"service": {"name": name, "port": {"number": 80}}});
            let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": format!("i{number}")},
                "spec": {"defaultBackend": backend}});
            let said = place.try_run("create -f - -o jsonpath={.kind}", &ingress.to_string());
            place.saw(name, format!("{} {}", said.out, said.err));
        }
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/default/token", place.name);
        let uid = place.value("serviceaccount/default", "{.metadata.uid}");
        let right = json!({"name": "default", "namespace": place.name, "uid": uid});
        for metadata in [
            right,
            json!({}),
            json!({"name": "other"}),
            json!({"namespace": "other"}),
            json!({"uid": "other"}),
        ] {
            let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata, "spec": {}});
            let output = place.try_run(&format!("create --raw {path} -f -"), &request.to_string());
            let made: Value = serde_json::from_str(&output.out).unwrap_or_default();
            let token = made["status"]["token"].is_string();
            let about = format!(
                "{} {} {}",
                made["metadata"]["name"],
                made["metadata"]["namespace"],
                made["metadata"]["uid"] == json!(uid)
            );
            place.saw("token", format!("{token} {about} {}", output.err.replace(&uid, "UID")));
        }
    });
}

#[test]
fn a_page_with_a_resource_version_and_no_match_is_exact() {
    on_both("pages", |place| {
        for name in ["a", "b"] {
            place.run(&format!("create configmap {name}"));
        }
        let list = |query: &str| -> Value {
            let path = format!("/api/v1/namespaces/{}/configmaps?{query}", place.name);
            serde_json::from_str(&place.run(&format!("get --raw {path}"))).unwrap()
        };
        let names = |list: &Value| -> String {
            let all = list["items"].as_array().unwrap().iter();
            let names: Vec<&str> = all.map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
            names.into_iter().filter(|name| name.len() == 1).collect::<Vec<_>>().join(",")
        };
        let version = list("")["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        place.run("delete configmap a b");
        let page = list(&format!("limit=500&resourceVersion={version}"));
        place.saw("with a limit", names(&page));
        place.saw("of that version", page["metadata"]["resourceVersion"] == json!(version));
        place.saw("without a limit", names(&list(&format!("resourceVersion={version}"))));
        for query in [
            "resourceVersion=0&limit=1",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersionMatch=Exact",
            "resourceVersion=abc",
            "limit=abc",
            "limit=-1",
            "continue=abc",
            "fieldSelector=a",
            "fieldSelector=spec.x=1",
            "labelSelector=a==b==c",
            "timeoutSeconds=abc",
        ] {
            let path = format!("/api/v1/namespaces/{}/configmaps?{query}", place.name);
            let output = place.try_run(&format!("get --raw {path}"), "");
            let said = if output.ok { "accepted".to_owned() } else { output.err.trim().to_owned() };
            place.saw(query, said);
        }
        eventually("nothing is left", PATIENCE, || names(&list("")).is_empty());
    });
}
