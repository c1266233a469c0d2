//! Custom resources: defined, served, held to their schema, shown, scaled and gone, through kubectl.

use crate::on_both_stores;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, newest, oldest_and_newest};
use serde_json::Value;
use std::time::Duration;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.harbour.example.com}
spec:
  group: harbour.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.oars, statusReplicasPath: .status.oars}
    additionalPrinterColumns:
    - {name: Colour, type: string, jsonPath: .spec.colour}
    - {name: Oars, type: integer, jsonPath: .spec.oars}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            description: What the boat is like.
            required: [colour]
            x-kubernetes-validations:
            - {rule: "self.oars <= 8 || self.colour == 'gold'", message: "only a golden boat has more than 8 oars"}
            properties:
              colour: {type: string, enum: [red, blue, gold]}
              oars: {type: integer, minimum: 0, default: 2}
              cargo: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties: {oars: {type: integer}, afloat: {type: boolean}}
  - name: v1beta1
    served: true
    storage: false
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;

fn boat(name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion": "harbour.example.com/v1", "kind": "Boat", "metadata": {{"name": "{name}"}}, "spec": {spec}}}"#
    )
}

fn refused(kubectl: &Kubectl, name: &str, spec: &str, said: &str) {
    let output = kubectl.try_with("create -f -", &boat(name, spec));
    assert!(!output.ok && output.err.contains(said), "{spec}: {output:?}");
}

#[test]
fn boats() {
    on_both_stores(|server| {
        let kubectl = newest(&server.kubeconfig());
        kubectl.run_with("create -f -", DEFINITION);
        kubectl.run("wait --for=condition=Established --timeout=60s crd/boats.harbour.example.com");
        for version in ["v1", "v1beta1"] {
            registered(&kubectl, version, true);
        }
        kubectl.run_with("create -f -", &boat("one", r#"{"colour": "red", "cargo": {"any": "thing"}}"#));
        let one: Value = serde_json::from_str(&kubectl.run("get boat one -o json")).unwrap();
        assert_eq!(
            (&one["spec"]["oars"], &one["spec"]["cargo"]["any"]),
            (&Value::from(2), &Value::from("thing"))
        );
        assert_eq!(one["metadata"]["generation"], 1);
        refused(
            &kubectl,
            "two",
            r#"{"colour": "green"}"#,
            "spec.colour: Unsupported value: \"green\": supported values: \"red\", \"blue\", \"gold\"",
        );
        refused(&kubectl, "two", r#"{"oars": 1}"#, "spec.colour: Required value");
        refused(
            &kubectl,
            "two",
            r#"{"colour": "red", "oars": -1}"#,
            "spec.oars in body should be greater than or equal to 0",
        );
        refused(
            &kubectl,
            "two",
            r#"{"colour": "red", "oars": 9}"#,
            "only a golden boat has more than 8 oars",
        );
        refused(&kubectl, "two", r#"{"colour": "red", "sails": 1}"#, "unknown field \"spec.sails\"");
        let lax = kubectl
            .try_with("create --validate=false -f -", &boat("two", r#"{"colour": "blue", "sails": 1}"#));
        assert!(lax.ok, "{lax:?}");
        assert_eq!(
            kubectl.run("get bt two -o jsonpath={.spec.sails}"),
            "",
            "what the schema does not know is dropped"
        );

        let table = kubectl.run("get boats");
        assert!(table.lines().next().unwrap().split_whitespace().eq(["NAME", "COLOUR", "OARS"]), "{table}");
        assert!(table.lines().any(|line| line.split_whitespace().eq(["two", "blue", "2"])), "{table}");
        kubectl.run("patch boat one --type=merge -p {\"spec\":{\"oars\":4},\"status\":{\"afloat\":true}}");
        let one: Value = serde_json::from_str(&kubectl.run("get boat one -o json")).unwrap();
        assert_eq!(
            (&one["spec"]["oars"], &one["status"]["afloat"], &one["metadata"]["generation"]),
            (&Value::from(4), &Value::Null, &Value::from(2))
        );
        kubectl.run("patch boat one --subresource=status --type=merge -p {\"status\":{\"afloat\":true}}");
        assert_eq!(kubectl.run("get boat one -o jsonpath={.status.afloat}"), "true");
        kubectl.run("scale boat one --replicas=6");
        assert_eq!(kubectl.run("get boat one -o jsonpath={.spec.oars}"), "6");
        let scale = kubectl.run("get boat one --subresource=scale");
        assert!(scale.lines().any(|line| line.split_whitespace().take(3).eq(["one", "6", "0"])), "{scale}");
        rules(&kubectl);
        assert_eq!(
            kubectl.run("get boats.v1beta1.harbour.example.com one -o jsonpath={.apiVersion}"),
            "harbour.example.com/v1beta1"
        );
        let applied = boat("three", r#"{"colour": "gold", "oars": 20}"#);
        for client in oldest_and_newest(&server.kubeconfig()) {
            client.run_with("apply -f -", &applied);
            let more = applied.replace("20", "21");
            let said = client.try_with("apply -f -", &more);
            assert!(said.ok && said.out.contains("configured") && said.err.is_empty(), "{said:?}");
            client.run("delete boat three");
        }
        kubectl.run_with("apply -f -", &applied);
        kubectl.run_with("apply --server-side --force-conflicts -f -", &applied);
        assert!(kubectl.run("explain boat.spec").contains("What the boat is like."));
        assert!(kubectl.run("api-resources --api-group=harbour.example.com").contains("Boat"));

        // Its objects go before the definition does.
        kubectl.run("delete crd boats.harbour.example.com --timeout=60s");
        eventually("the resource is gone", Duration::from_secs(30), || {
            !kubectl.try_with("get --raw /apis/harbour.example.com/v1/boats", "").ok
        });
        registered(&kubectl, "v1beta1", false);
        kubectl.run_with("create -f -", DEFINITION);
        kubectl.run("wait --for=condition=Established --timeout=60s crd/boats.harbour.example.com");
        assert_eq!(kubectl.run("get boats -o name"), "");
    });
}

/// The version of the group has an APIService, or not.
fn registered(kubectl: &Kubectl, version: &str, there: bool) {
    let name = format!("{version}.harbour.example.com");
    eventually(&format!("{name}: {there}"), Duration::from_secs(30), || {
        let row = kubectl.run(&format!("get apiservice {name} --ignore-not-found --no-headers"));
        row.split_whitespace().take(3).eq([&*name, "Local", "True"]) == there && row.is_empty() != there
    });
}

/// What rules hold changes to, and what is no rule.
fn rules(kubectl: &Kubectl) {
    let said = kubectl.fails("patch boat one --type=merge -p {\"spec\":{\"colour\":\"blue\",\"oars\":9}}");
    assert!(said.contains("spec: Invalid value: only a golden boat has more than 8 oars"), "{said}");
    for (rule, why) in [
        ("self.oars <", "compilation failed: ERROR: <input>:1:"),
        ("self.sails > 1", "undefined field 'sails'"),
        ("self.oars", "cel expression must evaluate to a bool"),
    ] {
        let broken = DEFINITION
            .replace("boats", "rafts")
            .replace("boat", "raft")
            .replace("Boat", "Raft")
            .replace("bt", "rf")
            .replace("self.oars <= 8 || self.colour == 'gold'", rule);
        let refused = kubectl.try_with("create -f -", &broken);
        assert!(!refused.ok && refused.err.contains(why), "{rule}: {refused:?}");
        assert!(refused.err.contains(".x-kubernetes-validations[0].rule: Invalid value"), "{refused:?}");
    }
    for path in ["boats/one", "boats/one/status"] {
        let whole = boat("one", r#"{"colour": "red"}"#);
        let at = format!("replace --raw /apis/harbour.example.com/v1/namespaces/default/{path} -f -");
        let refused = kubectl.try_with(&at, &whole);
        let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        assert!(!refused.ok && refused.err.contains(why), "{path}: {refused:?}");
    }
}

#[test]
fn rules_know_formats_versions_and_places_in_lists() {
    let server = coracle_tests::server::Server::start();
    let kubectl = newest(&server.kubeconfig());
    let rules = [
        ("isSemver(self.version) && semver(self.version).isLessThan(semver('2.0.0'))", "no version 1"),
        ("!format.dns1123Label().validate(self.host).hasValue()", "no label"),
        ("self.steps.all(i, step, step == i + 1)", "steps count up"),
        ("self.ports.transformMap(name, port, port % 2 == 1, name).size() == self.ports.size()", "odd ports"),
    ];
    let rules: Vec<Value> =
        rules.iter().map(|(rule, message)| serde_json::json!({"rule": rule, "message": message})).collect();
    let text = serde_json::json!({"type": "string", "maxLength": 64});
    let number = serde_json::json!({"type": "integer"});
    let definition = serde_json::json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "tools.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "tools", "singular": "tool", "kind": "Tool"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
            "type": "object", "x-kubernetes-validations": rules, "required": ["version", "host", "steps", "ports"],
            "properties": {"version": text, "host": text, "steps": {"type": "array", "maxItems": 10, "items": number},
                "ports": {"type": "object", "maxProperties": 10, "additionalProperties": number}}}}}}}]}});
    kubectl.run_with("create -f -", &definition.to_string());
    kubectl.run("wait --for=condition=Established crd/tools.example.com --timeout=60s");
    let tool = |name: &str, version: &str, host: &str, steps: Value, ports: Value| {
        serde_json::json!({"apiVersion": "example.com/v1", "kind": "Tool", "metadata": {"name": name},
            "spec": {"version": version, "host": host, "steps": steps, "ports": ports}})
        .to_string()
    };
    let (steps, ports) = (serde_json::json!([1, 2, 3]), serde_json::json!({"a": 1, "b": 3}));
    kubectl.run_with("create -f -", &tool("good", "1.2.3-rc.1", "web-1", steps.clone(), ports.clone()));
    for (bad, why) in [
        (tool("bad", "2.0.0", "web", steps.clone(), ports.clone()), "no version 1"),
        (tool("bad", "v1", "web", steps.clone(), ports.clone()), "no version 1"),
        (tool("bad", "1.0.0", "Web", steps.clone(), ports.clone()), "no label"),
        (tool("bad", "1.0.0", "web", serde_json::json!([1, 3]), ports.clone()), "steps count up"),
        (tool("bad", "1.0.0", "web", steps.clone(), serde_json::json!({"a": 1, "b": 2})), "odd ports"),
    ] {
        let refused = kubectl.try_with("create -f -", &bad);
        assert!(!refused.ok && refused.err.contains(why), "{bad}: {refused:?}");
    }
}
