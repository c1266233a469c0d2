//! Field rules of ConfigMaps and Secrets.

use super::field_ref::{Field, FieldRef, walk_as};
use super::field_rules::TextRules as _;
use crate::tree::same_at;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_fields::core::v1::{ConfigMap, Secret};
use coracle_fields::{Base64, Bool, Map, Schema as _, View};
use coracle_proto::decode;
use coracle_proto::names::config_map_key;
use coracle_proto::status::FieldError;
use serde_json::Value;

/// One mebibyte, for all values together.
const MAX: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

/// A ConfigMap.
pub fn config_map(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ConfigMap>(object, errors, |map| {
        let (data, binary) = (map.data(), map.binary_data());
        let mut size = 0;
        for (key, value) in data.entries() {
            keys(&value, key);
            if binary.view().has_key(key) {
                value.invalid_as(key, "duplicate of key present in binaryData");
            }
            size += value.text().len();
        }
        for (key, value) in binary.entries() {
            keys(&value, key);
            size += decoded_length(value.text());
        }
        if size > MAX {
            map.too_long(MAX);
        }
    });
}

fn keys(field: &FieldRef<'_>, key: &str) {
    for message in config_map_key(key) {
        field.invalid_as(key, message);
    }
}

/// How many bytes a base64 text stands for.
fn decoded_length(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// A change of a ConfigMap.
pub fn config_map_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = ConfigMap::of(old);
    walk_as::<ConfigMap>(new, errors, |new| {
        if old.immutable().flag() {
            still_immutable(&new.immutable());
            unchanged(&new.data(), old.data());
            unchanged(&new.binary_data(), old.binary_data());
        }
    });
}

fn still_immutable(immutable: &Field<'_, Bool>) {
    if !immutable.flag() {
        immutable.forbidden(FROZEN);
    }
}

fn unchanged<T>(new: &Field<'_, T>, old: View<'_, T>) {
    if !same_at(new.view(), old) {
        new.forbidden(FROZEN);
    }
}

/// A Secret.
pub fn secret(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Secret>(object, errors, |secret| {
        let data = secret.data();
        let mut size = 0;
        for (key, value) in data.entries() {
            keys(&value, key);
            size += decoded_length(value.text());
        }
        if size > MAX {
            data.too_long(MAX);
        }
        by_type(&secret, &data);
    });
}

fn by_type(secret: &Field<'_, Secret>, data: &Field<'_, Map<Base64>>) {
    let has = |key: &str| data.value.get(key).is_some();
    let require = |key: &str| {
        if !has(key) {
            data.key(key).required("");
        }
    };
    match secret.view().type_().text() {
        "kubernetes.io/service-account-token" => {
            let account = secret.metadata().annotations().key("kubernetes.io/service-account.name");
            account.has_text("");
        }
        "kubernetes.io/dockercfg" => json_object(data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => json_object(data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" => {
            data.key("ssh-privatekey").has_text("");
        }
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        _ => {}
    }
}

fn json_object(data: &Field<'_, Map<Base64>>, key: &str) {
    let value = data.key(key);
    if !value.is_set() {
        return value.required("");
    }
    let bytes = STANDARD.decode(value.text()).unwrap_or_default();
    let why = match decode::from_json(&bytes).map(decode::plain) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => {
            let found = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
        }
        Err(error) => error.to_string(),
    };
    value.invalid_as("<secret contents redacted>", why);
}

/// A change of a Secret.
pub fn secret_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = Secret::of(old);
    walk_as::<Secret>(new, errors, |new| {
        new.type_().immutable(old.type_());
        if old.immutable().flag() {
            still_immutable(&new.immutable());
            unchanged(&new.data(), old.data());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;
    use serde_json::json;

    #[test]
    fn config_maps() {
        assert_eq!(
            errors(config_map, &json!({"data": {"a.txt": "x"}, "binaryData": {"b": "eA=="}})),
            [""; 0]
        );
        let wrong = errors(config_map, &json!({"data": {"a b": "x"}}));
        assert!(
            wrong[0].starts_with("data[a b]: Invalid value: \"a b\": a valid config key must consist of")
        );
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert_eq!(
            changes(config_map_update, &json!({"data": {"a": "2"}}), &old),
            [format!("immutable: Forbidden: {FROZEN}"), format!("data: Forbidden: {FROZEN}")]
        );
        let huge = json!({"data": {"a": "x".repeat(MAX + 1)}});
        assert_eq!(errors(config_map, &huge), ["Too long: may not be more than 1048576 bytes"]);
    }

    #[test]
    fn secrets() {
        assert_eq!(errors(secret, &json!({"type": "Opaque", "data": {"a": "eA=="}})), [""; 0]);
        assert_eq!(
            errors(secret, &json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}})),
            ["data[tls.key]: Required value"]
        );
        assert_eq!(
            errors(secret, &json!({"type": "kubernetes.io/service-account-token"})),
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"]
        );
        for (text, why) in [
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("", "unexpected end of JSON input"),
            ("[1]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ] {
            let object =
                json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": STANDARD.encode(text)}});
            let want = format!("data[.dockercfg]: Invalid value: \"<secret contents redacted>\": {why}");
            assert_eq!(errors(secret, &object), [want]);
        }
        assert_eq!(
            changes(secret_update, &json!({"type": "a"}), &json!({"type": "b"})),
            ["type: Invalid value: \"a\": field is immutable"]
        );
    }
}
