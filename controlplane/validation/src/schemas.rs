//! Schemas of custom resources: structural, with patterns and rules that can be evaluated.

use super::field_ref::{Field, reported_at, walk_as};
use super::schema_rules::{self, Costs, Place};
use super::structural;
use coracle_expressions::{estimate, patterns};
use coracle_fields::Text;
use coracle_fields::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

/// The memory that all patterns of one definition may take: they fit the cache of compiled patterns together.
const PATTERNS: usize = 64 << 20;

/// The schemas of a new definition.
pub fn new(definition: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CustomResourceDefinition>(definition, errors, |root| {
        let versions: Vec<Field<'_, CustomResourceDefinitionVersion>> =
            root.spec().versions().items().collect();
        let schemas: Vec<Field<'_, JSONSchemaProps>> =
            versions.iter().map(|version| version.schema().open_apiv3_schema()).collect();
        // One schema for all versions is reported where it stood before versions had their own.
        let shared = schemas.windows(2).all(|pair| pair[0].value == pair[1].value);
        let has_status: Vec<bool> =
            versions.iter().map(|version| version.subresources().status().is_set()).collect();
        let any_status = has_status.contains(&true);
        let mut patterns = Patterns::default();
        let count = if shared { 1 } else { schemas.len() };
        for (own, has_status) in schemas.into_iter().zip(&has_status).take(count) {
            let has_status = *has_status || (shared && any_status);
            let at = match shared {
                true => reported_at(&own, &root.below("spec.validation.openAPIV3Schema")),
                false => own,
            };
            if at.value.is_object() {
                let before = at.errors();
                structural::check(&at, has_status);
                patterns.check(&at);
                // Rules about a schema that is none would only repeat its mistakes.
                if at.errors() == before {
                    let mut costs = Costs::default();
                    ruled(&at, Place { loose: None, root: true, values: Some(1) }, &mut costs);
                    costs.report(&at);
                }
            }
        }
    });
}

/// The schemas of a changed definition; what was wrong before may stay.
pub fn changed(new_one: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    super::ratchet::changed(new, new_one, old, errors);
}

/// The rules of a schema and of all below it.
fn ruled<'a>(schema: &Field<'a, JSONSchemaProps>, place: Place<'_>, costs: &mut Costs<'a>) {
    schema_rules::expressed(schema, place, costs);
    let below = Place { root: false, ..place };
    for (_, field) in schema.properties().entries() {
        ruled(&field, below, costs);
    }
    let values =
        place.values.zip(estimate::bound(schema.view())).map(|(around, own)| around.saturating_mul(own));
    let items = schema.items();
    if items.value.is_object() {
        let followed = schema.view().x_kubernetes_list_type() == "map";
        let path = schema.path();
        let loose = place.loose.or((!followed).then_some(path.as_str()));
        ruled(&items.as_type(), Place { loose, values, ..below }, costs);
    }
    let entries = schema.additional_properties();
    if entries.value.is_object() {
        ruled(&entries.as_type(), Place { values, ..below }, costs);
    }
}

/// The regular expressions of a definition, each of them once.
#[derive(Default)]
struct Patterns<'a> {
    seen: HashSet<&'a str>,
    size: usize,
}

impl<'a> Patterns<'a> {
    /// Checks the patterns of a schema and of all below it.
    fn check(&mut self, schema: &Field<'a, JSONSchemaProps>) {
        self.own(&schema.pattern());
        for (_, field) in schema.properties().entries() {
            self.check(&field);
        }
        for below in [schema.items(), schema.additional_properties(), schema.not().erased()] {
            if below.value.is_object() {
                self.check(&below.as_type());
            }
        }
        for alternatives in [schema.all_of(), schema.any_of(), schema.one_of()] {
            for alternative in alternatives.items() {
                self.check(&alternative);
            }
        }
    }

    fn own(&mut self, pattern: &Field<'a, Text>) {
        let text = pattern.text();
        // What is refused anyway need not take more time.
        if text.is_empty() || self.size > PATTERNS || !self.seen.insert(text) {
            return;
        }
        match patterns::bounded(text) {
            Ok(compiled) => {
                self.size += compiled.size;
                if self.size > PATTERNS {
                    pattern
                        .invalid(format!("all patterns together must not take more than {PATTERNS} bytes"));
                }
            }
            Err(why) => {
                // It takes as long to find out as the largest pattern takes to compile.
                self.size += patterns::LARGEST;
                pattern.invalid(format!("must be a valid regular expression, but isn't: {why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;
    use serde_json::json;

    fn definition(properties: Value) -> Value {
        json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "object", "properties": properties}}}}}]}})
    }

    #[test]
    fn every_type_is_known() {
        let good = definition(json!({
            "a": {"type": "array", "items": {"type": "string"}}, "b": {"x-kubernetes-int-or-string": true},
            "c": {"x-kubernetes-preserve-unknown-fields": true},
            "d": {"type": "object", "additionalProperties": {"type": "integer"}},
        }));
        assert_eq!(errors(new, &good), [""; 0]);
        let at = "spec.validation.openAPIV3Schema.properties[spec].properties[a]";
        for (field, want) in [
            (
                json!({"type": "foo"}),
                ".type: Unsupported value: \"foo\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (json!({"type": "array"}), ".items: Required value: must be specified"),
            (json!({}), ".type: Required value: must not be empty for specified object fields"),
            (
                json!({"type": "array", "items": {}}),
                ".items.type: Required value: must not be empty for specified array items",
            ),
        ] {
            let bad = definition(json!({"a": field}));
            assert_eq!(errors(new, &bad), [format!("{at}{want}")]);
            assert_eq!(changes(changed, &bad, &good).len(), 1);
            assert_eq!(changes(changed, &bad, &bad), [""; 0], "what is there already may stay");
        }
    }

    #[test]
    fn patterns_compile_within_bounds() {
        let with = |pattern: &str| definition(json!({"a": {"type": "string", "pattern": pattern}}));
        assert_eq!(errors(new, &with("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")), [""; 0]);
        let at = "spec.validation.openAPIV3Schema.properties[spec].properties[a]";
        for (pattern, why) in [
            ("(", "a group has no closing parenthesis"),
            ("a**", "* repeats a repetition"),
            ("((a{100}){100}){100}", "is not from 0 to 1000 repetitions"),
            ("[a-z]{1000}\\p{L}{1000}", "takes more than 4194304 bytes"),
        ] {
            let said = errors(new, &with(pattern));
            let start = format!(
                "{at}.pattern: Invalid value: {}: must be a valid regular expression",
                json!(pattern)
            );
            assert!(said.len() == 1 && said[0].starts_with(&start) && said[0].contains(why), "{said:?}");
        }
        let below = definition(json!({"a": {"type": "string", "anyOf": [{"not": {"pattern": "["}}]}}));
        assert!(errors(new, &below)[0].starts_with(&format!("{at}.anyOf[0].not.pattern: Invalid value")));
        // Each of them alone is small enough.
        let many: Value = (0..200)
            .map(|n| (format!("f{n}"), json!({"type": "string", "pattern": format!("x{n}\\p{{L}}{{20}}")})))
            .collect();
        let said = errors(new, &definition(many));
        assert!(said.len() == 1 && said[0].contains("all patterns together"), "{said:?}");
    }

    #[test]
    fn rules_compile_and_speak_of_the_schema() {
        let with = |rule: Value| {
            definition(json!({"a": {"type": "object", "x-kubernetes-validations": [rule], "properties": {
                "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "integer"}},
                "text": {"type": "string", "maxLength": 10}, "namespace": {"type": "string", "maxLength": 10},
                "either": {"x-kubernetes-int-or-string": true}, "any": {"x-kubernetes-preserve-unknown-fields": true},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true}}}}))
        };
        for rule in [
            json!({"rule": "self.n > 0", "messageExpression": "string(self.n)", "fieldPath": ".n"}),
            json!({"rule": "self.n >= oldSelf.n", "reason": "FieldValueForbidden"}),
            json!({"rule": "oldSelf.?n.orValue(0) <= self.n", "optionalOldSelf": true}),
            json!({"rule": "self.list.all(x, x > 0) && self.list.isSorted()"}),
            json!({"rule": "self.either == 1 && has(self.open) && self.pod.metadata.name == self.namespace"}),
        ] {
            assert_eq!(errors(new, &with(rule.clone())), [""; 0], "{rule}");
        }
        let at = "spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-validations[0]";
        for (rule, field, want) in [
            (json!({"rule": " "}), "rule", "Required value: rule is not specified"),
            (
                json!({"rule": "self.n > 0", "message": "a\nb"}),
                "message",
                "Invalid value: \"a\\nb\": must not contain line breaks",
            ),
            (
                json!({"rule": "self.n > 0", "reason": "Because"}),
                "reason",
                "Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            ),
            (
                json!({"rule": "self.n > 0", "fieldPath": ".m"}),
                "fieldPath",
                "Invalid value: \".m\": must be a valid path",
            ),
            (
                json!({"rule": "self.n > 0", "optionalOldSelf": true}),
                "optionalOldSelf",
                "Invalid value: true: may not be set if oldSelf is not used in rule",
            ),
            (
                json!({"rule": "self.m > 0"}),
                "rule",
                "Invalid value: {\"Rule\":\"self.m > 0\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'm'\n | self.m > 0\n | ....^",
            ),
        ] {
            assert_eq!(errors(new, &with(rule.clone())), [format!("{at}.{field}: {want}")], "{rule}");
        }
        for (rule, why) in [
            (json!({"rule": "self.n >"}), "compilation failed: ERROR: <input>:1:"),
            (json!({"rule": "self.n"}), "cel expression must evaluate to a bool"),
            (
                json!({"rule": "self.n > 0", "messageExpression": "self.n"}),
                "messageExpression must evaluate to a string",
            ),
            (json!({"rule": "self.n == 'x'"}), "no matching overload for '_==_' applied to '(int, string)'"),
            (json!({"rule": "size(self.n) > 1"}), "no matching overload for 'size' applied to '(int)'"),
            (json!({"rule": "self.list.all(x, x.startsWith('a'))"}), "no matching overload for 'startsWith'"),
            (json!({"rule": "self.list.map(x, x)"}), "cel expression must evaluate to a bool"),
            (json!({"rule": "self.either"}), "cel expression must evaluate to a bool"),
            (json!({"rule": "dyn(self.n > 0)"}), "cel expression must evaluate to a bool"),
            (json!({"rule": "self.open.n == 1"}), "undefined field 'n'"),
            (json!({"rule": "self.any == 1"}), "undefined field 'any'"),
            (
                json!({"rule": "authorizer.path('/').check('get').allowed()"}),
                "undeclared reference to 'authorizer'",
            ),
            (
                json!({"rule": "self.n > 0", "messageExpression": "self.m"}),
                "messageExpression compilation failed: ",
            ),
            (json!({"rule": "self.text.matches('a**')"}), "invalid matches argument"),
            (
                json!({"rule": "oldSelf.orValue({'n': 0}).n <= self.n", "optionalOldSelf": true}),
                "no matching overload for 'orValue'",
            ),
        ] {
            let said = errors(new, &with(rule.clone()));
            assert!(said.len() == 1 && said[0].contains(why), "{rule}: {said:?}");
        }
        let untyped = definition(json!({"a": {"x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-validations": [{"rule": "true"}]}}));
        assert!(errors(new, &untyped)[0].contains("Forbidden: the schema has no type"));
        let loose = definition(json!({"a": {"type": "array", "items": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self > oldSelf"}]}}}));
        assert!(errors(new, &loose)[0].ends_with(
            "oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[spec].properties[a]"
        ));
    }
}
