//! Field rules about the versions of a custom resource: who converts between them, and what of them can be selected.

use super::field_ref::{Field, reported_at};
use super::field_rules::TextRules as _;
use super::webhook_client::client_config;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_fields::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, JSONSchemaProps,
    WebhookClientConfig,
};
use coracle_fields::{List, Schema, Text, View};
use coracle_proto::names::dns1035_label;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use std::collections::HashSet;

/// The versions of reviews that are understood.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
/// How many fields of a version can be selected.
const SELECTABLE: usize = 8;

/// `spec.conversion`. Errors name the fields as they were called before v1, as upstream.
pub fn strategy(spec: &Field<'_, CustomResourceDefinitionSpec>) {
    let conversion = spec.conversion();
    conversion.strategy().required_one_of(&["None", "Webhook"]);
    if conversion.strategy().text() != "None" && spec.view().preserve_unknown_fields().flag() {
        conversion.strategy().invalid("must be None if spec.preserveUnknownFields is true");
    }
    let hook = conversion.webhook();
    let config = reported_at(&hook.client_config(), &conversion.below("webhookClientConfig"));
    let versions =
        reported_at(&hook.conversion_review_versions(), &conversion.below("conversionReviewVersions"));
    if conversion.view().strategy().text() != "Webhook" {
        for field in
            [&*config, &*versions].into_iter().filter(|field| field.value.is_object() || !field.is_empty())
        {
            field.forbidden("should not be set when strategy is not set to Webhook");
        }
        return;
    }
    if config.value.is_object() {
        client_config(&config.as_type());
    } else {
        config.required("required when strategy is set to Webhook");
    }
    reviews(&versions);
}

fn reviews(versions: &Field<'_, List<Text>>) {
    if versions.is_empty() {
        return versions.required("");
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if seen.insert(version.text()) {
            version.follows(dns1035_label);
        } else {
            version.invalid("duplicate version");
        }
    }
    if !REVIEWS.iter().any(|known| seen.contains(known)) {
        versions.invalid(format!("must include at least one of {}", REVIEWS.join(", ")));
    }
}

/// A definition that is in force does not lose its authority to one that is none.
pub fn authority(spec: &Field<'_, CustomResourceDefinitionSpec>, old: View<'_, CustomResourceDefinition>) {
    let config = spec.view().conversion().webhook().client_config();
    if !is_established(old) || broken(old.spec().conversion().webhook().client_config()) || !broken(config) {
        return;
    }
    spec.below("conversion.webhookClientConfig.caBundle")
        .with(&config.ca_bundle().as_value())
        .invalid("unable to load root certificates: unable to parse bytes as PEM block");
}

/// Whether a definition serves objects.
pub(super) fn is_established(definition: View<'_, CustomResourceDefinition>) -> bool {
    let mut conditions = definition.status().conditions().items();
    conditions.any(|condition| condition.type_() == "Established" && condition.status() == "True")
}

/// `selectableFields` of a version.
pub fn selectable(version: &Field<'_, CustomResourceDefinitionVersion>) {
    let schema = version.schema().open_apiv3_schema().view();
    let list = version.selectable_fields();
    let mut seen = HashSet::new();
    for field in list.items() {
        let path = field.json_path();
        if !path.has_text("") {
            continue;
        }
        let found = match field_at(schema, path.text()) {
            Ok(found) => found,
            Err(why) => {
                path.invalid(format!("is an invalid path: {why}"));
                continue;
            }
        };
        let names = path.text().trim_start_matches('.');
        if names.split('.').next() == Some("metadata") {
            path.invalid("must not point to fields in metadata");
        }
        if !matches!(found.type_().text(), "string" | "boolean" | "integer") {
            path.invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            );
        }
        if !seen.insert(names) {
            path.duplicate();
        }
    }
    if seen.len() > SELECTABLE {
        list.too_many(SELECTABLE);
    }
}

/// Why a path names no field of a schema.
#[derive(Debug, thiserror::Error)]
enum PathError {
    #[error("array notation is not allowed")]
    Array,
    #[error("expected [ or . but got: something else")]
    Start,
    #[error("does not refer to a valid field")]
    NoField,
}

/// What a schema has at a simple path such as `.spec.colour`.
fn field_at<'v>(
    schema: View<'v, JSONSchemaProps>,
    path: &str,
) -> Result<View<'v, JSONSchemaProps>, PathError> {
    if path.contains('[') {
        return Err(PathError::Array);
    }
    let Some(names) = path.strip_prefix('.') else { return Err(PathError::Start) };
    names.split('.').try_fold(schema, |at, name| at.properties().find(name).ok_or(PathError::NoField))
}

/// Whether a `clientConfig` has a `caBundle` in which no certificate is.
pub fn broken_bundle(config: &Value) -> bool {
    broken(WebhookClientConfig::of(config))
}

fn broken(config: View<'_, WebhookClientConfig>) -> bool {
    let bundle = config.ca_bundle().text();
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    let usable = |certificate: CertificateDer<'_>| rustls::RootCertStore::empty().add(certificate).is_ok();
    !bundle.is_empty() && !CertificateDer::pem_slice_iter(&pem).flatten().any(usable)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::broken_bundle;
    use crate::defaults::extensions::definition as defaults;
    use crate::definitions::{definition, definition_update};
    use crate::testing::errors;
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde_json::{Value, json};

    fn boats(conversion: Value) -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
            "host": {"type": "string"}, "deep": {"type": "object", "properties": {"n": {"type": "integer"}}}}}});
        let mut object = json!({"metadata": {"name": "boats.demo.io"}, "spec": {"group": "demo.io", "scope": "Namespaced",
            "names": {"plural": "boats", "kind": "Boat"}, "conversion": conversion,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
        defaults(&mut object);
        object
    }

    #[test]
    fn strategies() {
        let good = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "conversionReviewVersions": ["v1"]}});
        assert_eq!(errors(definition, &boats(good.clone())), [""; 0]);
        assert_eq!(
            boats(good.clone())["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"],
            443
        );
        let at = "spec.conversion";
        let with = |path: &str, value: Value| {
            let mut conversion = good.clone();
            *conversion.pointer_mut(path).unwrap() = value;
            conversion
        };
        let cases = [
            (
                json!({"strategy": "Other"}),
                format!(
                    "{at}.strategy: Unsupported value: \"Other\": supported values: \"None\", \"Webhook\""
                ),
            ),
            (
                with("/webhook/clientConfig", Value::Null),
                format!("{at}.webhookClientConfig: Required value: required when strategy is set to Webhook"),
            ),
            (
                with("/webhook/clientConfig", json!({})),
                format!(
                    "{at}.webhookClientConfig: Required value: exactly one of url or service is required"
                ),
            ),
            (
                with(
                    "/webhook/clientConfig",
                    json!({"url": "https://h", "service": {"name": "s", "namespace": "n"}}),
                ),
                format!(
                    "{at}.webhookClientConfig: Required value: exactly one of url or service is required"
                ),
            ),
            (
                with("/webhook/conversionReviewVersions", json!([])),
                format!("{at}.conversionReviewVersions: Required value"),
            ),
            (
                with("/webhook/conversionReviewVersions", json!(["v2"])),
                format!(
                    "{at}.conversionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1"
                ),
            ),
            (
                with("/webhook/conversionReviewVersions", json!(["v1", "v1"])),
                format!("{at}.conversionReviewVersions[1]: Invalid value: \"v1\": duplicate version"),
            ),
        ];
        for (conversion, why) in cases {
            assert_eq!(errors(definition, &boats(conversion)), [why]);
        }
        let unused = errors(definition, &boats(with("/strategy", json!("None"))));
        let why = "Forbidden: should not be set when strategy is not set to Webhook";
        assert_eq!(
            unused,
            [format!("{at}.webhookClientConfig: {why}"), format!("{at}.conversionReviewVersions: {why}")]
        );
    }

    #[test]
    fn an_authority_is_not_lost() {
        let hook = |bundle: &str| {
            json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://h", "caBundle": bundle},
                "conversionReviewVersions": ["v1"]}})
        };
        let mut old = boats(json!({"strategy": "None"}));
        let new = boats(hook("YmFk"));
        let said = |old: &Value| {
            let mut errors = Vec::new();
            definition_update(&new, old, &mut errors);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(errors(definition, &new), [""; 0]);
        assert_eq!(said(&old), [""; 0], "a definition that is not in force yet may have any");
        old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        assert_eq!(
            said(&old),
            [
                "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"YmFk\": unable to load root certificates: unable to parse bytes as PEM block"
            ]
        );
        old["spec"]["conversion"] = hook("YmFk");
        assert_eq!(said(&old), [""; 0], "what was broken may stay so");
    }

    #[test]
    fn selectable_fields() {
        let at = |i: usize| format!("spec.versions[0].selectableFields[{i}].jsonPath");
        let of = |paths: &[&str]| {
            let mut object = boats(Value::Null);
            object["spec"]["versions"][0]["selectableFields"] =
                paths.iter().map(|path| json!({"jsonPath": path})).collect();
            errors(definition, &object)
        };
        assert_eq!(of(&[".host", ".deep.n"]), [""; 0]);
        assert_eq!(
            of(&["", ".none", ".host[0]", ".deep", ".host", ".host"]),
            [
                format!("{}: Required value", at(0)),
                format!(
                    "{}: Invalid value: \".none\": is an invalid path: does not refer to a valid field",
                    at(1)
                ),
                format!(
                    "{}: Invalid value: \".host[0]\": is an invalid path: array notation is not allowed",
                    at(2)
                ),
                format!(
                    "{}: Invalid value: \".deep\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
                    at(3)
                ),
                format!("{}: Duplicate value: \".host\"", at(5)),
            ]
        );
    }

    #[test]
    fn a_bundle_needs_a_certificate() {
        let bundle = |text: &str| json!({"caBundle": STANDARD.encode(text)});
        assert!(!broken_bundle(&json!({})) && broken_bundle(&bundle("no certificate")));
        let dir = tempfile::tempdir().unwrap();
        let authority = coracle_pki::authority::Authority::ensure(dir.path(), "ca", "ca").unwrap();
        assert!(!broken_bundle(&bundle(&authority.certificate)));
    }
}
