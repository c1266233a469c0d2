//! Which expressions are refused when they are written.

use crate::both::{Place, on_both};
use serde_json::{Value, json};

/// Expressions of validations, in a policy without parameters whose variables are those of `policy`.
const VALIDATIONS: [&str; 73] = [
    "true",
    "object.spec.replicas > 1",
    "object.nothing.at.all == 'a' || oldObject == null",
    "object.spec.paused",
    "!object.spec.paused",
    "object.a ? true : object.b",
    "object.a + object.b == object.c",
    "object.a.all(x, x.b == 1) && object.a.exists(i, x, x > i)",
    "object.?a.?b.orValue(true)",
    "object.?a.?b.orValue(1) == 1",
    "object.?a.optMap(x, x + 1).orValue(0) == 1",
    "object.a.sortBy(x, x.b).size() == 1",
    "request.userInfo.username == 'a' && request.options.dryRun == 'b'",
    "namespaceObject.metadata.labels['a'] == 'b'",
    "authorizer.requestResource.check('get').allowed()",
    "quantity(object.a).isLessThan(quantity('1Gi')) && isSemver('1.0.0')",
    "type(object.a) == int && string(object.a) == '1' && dyn('1') == 1",
    "variables.number == 1 && variables.texts.all(t, t.startsWith('a')) && variables.any.thing == 1",
    "variables.maybe == 1",
    "variables.space.metadata.nothing == 1",
    "1 < 2.5 && object.a < 2.5",
    "'string'",
    "1 + 1",
    "[true][0]",
    "undefinedvar == 1",
    "nosuchfunc(1)",
    "object.nosuchfunc()",
    "1 == 'a'",
    "1 == 1.0",
    "null == 'a'",
    "[1, 'a'] == []",
    "params.x == 1",
    "request.foo == 1",
    "request.userInfo.name == 'a'",
    "namespaceObject.metadata.ownerReferences == []",
    "variables.number == 'a'",
    "variables.other == 1",
    "variables.texts.all(t, t > 1)",
    "authorizer.requestResource.check(1).allowed()",
    "jsonpatch.escapeKey('a') == 'a' || Object{} == object",
    "[object.a, 1] == []",
    "[object.a, object.b] == [] && [[1], []] != []",
    "{'a': 1, 'b': object.a} == {}",
    "type(object.a) in [int, string]",
    "math.abs(1) == 1",
    "math.greatest(1, 2) == 2",
    "base64.encode(b'a') == 'YQ=='",
    "'a'.reverse() == 'a'",
    "quantity('1').sign() == 1",
    "sign(quantity('1')) == 1",
    "[1].sum() == 1 && ['a'].max() == 'a'",
    "['a'].sum() == 'a'",
    "optional.unwrap([optional.of(1)]) == [optional.of(1)].unwrapOpt()",
    "string(ip('::1')) == '::1' && type(ip('::1')) == net.IP && int(duration('1s')) == 1",
    "duration('1h 30m') > duration('0')",
    "duration('1µs') == duration('1μs') && duration('-.5h') < duration('0')",
    "duration(1) == duration('1ns')",
    "timestamp('2024-01-01T00:00:60Z') > timestamp(0)",
    "timestamp('2024-01-01T1:00:00,5+24:00') > timestamp(0)",
    "timestamp('2024-01-01t00:00:00z') > timestamp(0)",
    "'a'.matches('a**')",
    "'a'.matches('(?x)a')",
    "'a'.matches('a{1001}') || 'a'.matches('(a{100}){11}')",
    "'a'.matches('\\\\C')",
    "'a'.matches('\\\\pN(?i-s:a.)(?P<x>b)[[:word:]](?i)?')",
    "matches('[', 'a')",
    "'%d %s'.format([1, 'a']) == '1 a'",
    "'%d'.format(['a']) == 'a'",
    "'%s'.format([1, 2]) == '1'",
    "'%z'.format([1]) == '1'",
    "google.protobuf.Timestamp{seconds: 1} > timestamp(0) && google.protobuf.Int32Value{value: 1} == 1",
    "google.protobuf.Int32Value{number: 1} == 1",
    "request.namespace == request.__namespace__ && object.metadata.namespace == 'a'",
];

/// Conditions of policies and of webhooks, without parameters.
const CONDITIONS: [&str; 13] = [
    "object == null || !has(object.data.a)",
    "request.name == 'a' && namespaceObject.metadata.name != 'b'",
    "authorizer.path('/').check('get').allowed()",
    "object.a",
    "nosuch(1)",
    "nosuchfunc(1)",
    "'x'",
    "undefinedvar == 1",
    "request.foo == 1",
    "variables.number == 1",
    "params.a == 1",
    "1 == 'a'",
    "object.a == 1 && 'b'",
];

const SELECTORS: [&str; 20] = [
    "true",
    "device.driver == 'a'",
    "device.attributes['a.example'].model == 'b'",
    "device.attributes['a.example'].healthy",
    "device.attributes['a.example'].cores > 1 && !device.allowMultipleAllocations",
    "device.capacity['a.example'].memory.compareTo(quantity('1Gi')) >= 0",
    "device.attributes['a.example'].version.isGreaterThan(semver('1.0.0'))",
    "has(device.attributes['a.example'].a) && 'b' in device.attributes['b.example']",
    "cel.bind(a, device.attributes['a.example'], a.b && a.c == 1)",
    "nosuch(1)",
    "device.drivr == 'x'",
    "device.driver",
    "device.driver == 1",
    "device.capacity['a.example'].memory == 1",
    "device.capacity['a.example'].memory",
    "object.a == 1",
    "device.attributes.a.b.c.d == 1",
    "device.attributes['a.example'].list.exists(x, x == 1)",
    "dyn(device.driver)",
    "device.attributes['a.example'].a + 1 == 2",
];

const RULES: [&str; 33] = [
    "self.a == 1",
    "self.a < 1.5",
    "self.text.startsWith('a') && self.list.all(x, x > 0) && self.list.isSorted()",
    "self.map.all(k, k == 'a') && self.map['a'] == 1",
    "self.either == 'a' || self.either == 1",
    "self.at < timestamp('2020-01-01T00:00:00Z')",
    "self.parts.all(p, p.name == '') && self.parts.map(p, p.name).join() == ''",
    "self.a >= oldSelf.a && self == oldSelf",
    "dyn(self.a) == 'x'",
    "has(self.?a.orValue(1)) || true",
    "self.?a.orValue(1) == 1",
    "self.a == 'x'",
    "size(self.a) > 1",
    "self.text > 1",
    "self.list.all(x, x.startsWith('a'))",
    "self.map['a'] == 'b'",
    "self.at == 'x'",
    "self.parts == self.list",
    "self.text == null",
    "self.a",
    "self.b == 1",
    "nosuch(self.a)",
    "self.either",
    "dyn(self.a == 1)",
    "self.open.thing == 1",
    "has(self.open)",
    "self.any == 1",
    "self.pod.metadata.name == 'a' && self.pod.kind == 'Pod'",
    "self.pod.metadata.labels == {}",
    "self.namespace == self.__namespace__",
    "authorizer.path('/').check('get').allowed()",
    "self.text.matches('a**')",
    "[self.either, 1] == []",
];

/// Tries to create an object, and writes down which of its expressions are refused. `place_of` gives the path of one.
fn tried(
    place: &Place,
    what: &str,
    object: &Value,
    expressions: &[&str],
    place_of: impl Fn(usize) -> String,
) {
    let output = place.try_run("create --dry-run=server -f -", &object.to_string());
    let fields = refused(&output.err);
    for (at, text) in expressions.iter().enumerate() {
        let is_refused = fields.contains(&place_of(at));
        place.saw(&format!("{what} {text}"), if is_refused { "refused" } else { "accepted" });
    }
    place.saw(what, format!("{} refused", fields.len()));
}

/// Paths of fields with values that are invalid.
fn refused(said: &str) -> Vec<String> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let invalid = words.windows(3).filter(|three| three[1..] == ["Invalid", "value:"]);
    invalid.filter_map(|three| Some(three[0].strip_suffix(':')?.to_owned())).collect()
}

fn admission(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["configmaps"]}]}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

fn conditions() -> Value {
    let named = CONDITIONS.iter().enumerate();
    named.map(|(at, text)| json!({"name": format!("c{at}"), "expression": text})).collect()
}

fn each(field: &str, expressions: &[&str]) -> Value {
    expressions.iter().map(|text| json!({field: text})).collect()
}

#[test]
fn policies_are_compiled_when_they_are_written() {
    on_both("policyexpressions", |place| {
        let name = place.name.as_str();
        let kind = "ValidatingAdmissionPolicy";
        let variables = json!([{"name": "number", "expression": "1"},
            {"name": "texts", "expression": "['a'].map(t, t + 'b')"}, {"name": "any", "expression": "object.any"},
            {"name": "maybe", "expression": "object.?any"}, {"name": "space", "expression": "namespaceObject"}]);
        let spec = json!({"variables": variables, "validations": each("expression", &VALIDATIONS)});
        tried(place, "validation", &admission(kind, name, spec), &VALIDATIONS, |at| {
            format!("spec.validations[{at}].expression")
        });
        let spec = json!({"validations": each("expression", &["true"]), "matchConditions": conditions()});
        tried(place, "condition", &admission(kind, name, spec), &CONDITIONS, |at| {
            format!("spec.matchConditions[{at}].expression")
        });

        let messages = [
            "'a'",
            "'a' + object.a",
            "variables.number",
            "object.a",
            "5",
            "string(variables.number)",
            "request.userInfo.username",
            "string(authorizer.path('/').check('get').allowed())",
            "params.a + 'b'",
        ];
        let validations: Value =
            messages.iter().map(|text| json!({"expression": "true", "messageExpression": text})).collect();
        let spec = json!({"variables": variables, "validations": validations});
        tried(place, "message", &admission(kind, name, spec), &messages, |at| {
            format!("spec.validations[{at}].messageExpression")
        });
        let spec = json!({"variables": variables, "validations": validations,
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
        tried(place, "message with parameters", &admission(kind, name, spec), &messages, |at| {
            format!("spec.validations[{at}].messageExpression")
        });

        let notes =
            ["'a'", "null", "object.a", "1", "object.a == 1 ? 'a' : 'b'", "nosuch(1)", "'a' + object.b"];
        let annotations: Value = notes
            .iter()
            .enumerate()
            .map(|(at, text)| json!({"key": format!("k{at}"), "valueExpression": text}))
            .collect();
        tried(
            place,
            "annotation",
            &admission(kind, name, json!({"auditAnnotations": annotations})),
            &notes,
            |at| format!("spec.auditAnnotations[{at}].valueExpression"),
        );

        let texts = [
            "nosuch(2)",
            "variables.v3 == 1",
            "1",
            "variables.v2 == 1",
            "variables.v0.a.b",
            "variables.v2 == 'a'",
            "params.a",
        ];
        let variables: Value = texts
            .iter()
            .enumerate()
            .map(|(at, text)| json!({"name": format!("v{at}"), "expression": text}))
            .collect();
        let spec = json!({"variables": variables, "validations": each("expression", &["true"])});
        tried(place, "variable", &admission(kind, name, spec), &texts, |at| {
            format!("spec.variables[{at}].expression")
        });

        // A change is held to what it leaves: the expression is the same, and its parameters have gone.
        let spec = |more: Value| {
            let mut spec = json!({"validations": each("expression", &["params.x == 1", "object.a == 1"])});
            spec["paramKind"] = more;
            admission(kind, name, spec)
        };
        place.create_cluster(
            "validatingadmissionpolicy",
            &spec(json!({"apiVersion": "v1", "kind": "ConfigMap"})),
        );
        let output = place.try_run("replace -f -", &spec(Value::Null).to_string());
        place.saw("without parameters", refused(&output.err).join(" "));
        let change = json!({"spec": {"validations": each("expression", &["params.x == 1", "nosuch(1)"])}});
        let output = place.patch(&format!("validatingadmissionpolicy/{name}"), &change);
        place.saw("changed", refused(&output.err).join(" "));
    });
}

#[test]
fn conditions_selectors_and_mutations_are_compiled_when_they_are_written() {
    on_both("otherexpressions", |place| {
        let name = place.name.as_str();
        for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
            let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
                "webhooks": [{"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                    "clientConfig": {"url": "https://127.0.0.1:1/"}, "matchConditions": conditions()}]});
            tried(place, kind, &object, &CONDITIONS, |at| {
                format!("webhooks[0].matchConditions[{at}].expression")
            });
        }

        let selectors: Value = SELECTORS.iter().map(|text| json!({"cel": {"expression": text}})).collect();
        let object = |kind: &str, spec: Value| {
            json!({"apiVersion": "resource.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "spec": spec})
        };
        let claim = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "selectors": selectors}}]}});
        for (kind, spec, before) in [
            ("DeviceClass", json!({"selectors": selectors}), "spec.selectors"),
            ("ResourceClaim", claim.clone(), "spec.devices.requests[0].exactly.selectors"),
            (
                "ResourceClaimTemplate",
                json!({"spec": claim}),
                "spec.spec.devices.requests[0].exactly.selectors",
            ),
        ] {
            tried(place, kind, &object(kind, spec), &SELECTORS, |at| {
                format!("{before}[{at}].cel.expression")
            });
        }

        let text = json!({"type": "string", "maxLength": 10});
        let number = json!({"type": "integer"});
        let part = json!({"type": "object", "properties": {"name": text}});
        let rules = each("rule", &RULES);
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": rules,
            "properties": {"a": number, "text": text, "either": {"x-kubernetes-int-or-string": true},
                "at": {"type": "string", "format": "date-time"}, "list": {"type": "array", "maxItems": 3, "items": number},
                "map": {"type": "object", "maxProperties": 3, "additionalProperties": number},
                "parts": {"type": "array", "maxItems": 3, "items": part}, "namespace": text,
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "any": {"x-kubernetes-preserve-unknown-fields": true}, "pod": {"type": "object",
                "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "rules.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "rules", "singular": "rule", "kind": "Rule"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
        tried(place, "rule", &definition, &RULES, |at| {
            format!("spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[{at}].rule")
        });

        let patches = [
            (
                "ApplyConfiguration",
                "applyConfiguration",
                vec![
                    "Object{a: object.b}",
                    "object.a ? Object{} : Object{a: Object.a{b: 1}}",
                    "Object{a: variables.number}",
                    "object",
                    "Object{a: 1 == 'a'}",
                    "Object{a: variables.other}",
                    "Object{a: params.b}",
                    "Object{a: request.foo}",
                    "{'a': 1}",
                ],
            ),
            (
                "JSONPatch",
                "jsonPatch",
                vec![
                    "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a'), value: 1}]",
                    "has(object.a) ? [] : [JSONPatch{op: 'remove', path: '/a'}]",
                    "object.a.map(k, JSONPatch{op: 'remove', path: k})",
                    "[]",
                    "[JSONPatch{op: 1}]",
                    "[Object{}]",
                    "[JSONPatch{op: nosuch(1)}]",
                ],
            ),
        ];
        for (form, field, expressions) in patches {
            let mutations: Value = expressions
                .iter()
                .map(|text| json!({"patchType": form, field: {"expression": text}}))
                .collect();
            let spec = json!({"reinvocationPolicy": "Never", "mutations": mutations,
                "variables": [{"name": "number", "expression": "1"}]});
            let object = admission("MutatingAdmissionPolicy", name, spec);
            tried(place, form, &object, &expressions, |at| {
                format!("spec.mutations[{at}].{field}.expression")
            });
        }
    });
}
