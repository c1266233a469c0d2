//! Field rules of ConfigMaps and Secrets.

use super::field_ref::{FieldRef, walk};
use crate::tree::{Tree, same};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_proto::decode;
use coracle_proto::names::config_map_key;
use coracle_proto::status::FieldError;
use serde_json::Value;

/// One mebibyte, for all values together.
const MAX: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

/// A ConfigMap.
pub fn config_map(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let (data, binary) = (root.at("data"), root.at("binaryData"));
        let mut size = 0;
        for (key, value) in data.entries() {
            keys(&value, key);
            if binary.value.get(key).is_some() {
                value.invalid_as(key, "duplicate of key present in binaryData");
            }
            size += value.text().len();
        }
        for (key, value) in binary.entries() {
            keys(&value, key);
            size += decoded_length(value.text());
        }
        if size > MAX {
            root.too_long(MAX);
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
    frozen(new, old, &["data", "binaryData"], errors);
}

fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    if !old.flag("immutable") {
        return;
    }
    walk(new, errors, |root| {
        if !root.value.flag("immutable") {
            root.at("immutable").forbidden(FROZEN);
        }
        for field in fields {
            if !same(root.value.at(field), old.at(field)) {
                root.at(field).forbidden(FROZEN);
            }
        }
    });
}

/// A Secret.
pub fn secret(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let data = root.at("data");
        let mut size = 0;
        for (key, value) in data.entries() {
            keys(&value, key);
            size += decoded_length(value.text());
        }
        if size > MAX {
            data.too_long(MAX);
        }
        by_type(&root, &data);
    });
}

fn by_type(root: &FieldRef<'_>, data: &FieldRef<'_>) {
    let require = |key: &str| {
        if data.value.get(key).is_none() {
            data.key(key).required("");
        }
    };
    match root.value.text("type") {
        "kubernetes.io/service-account-token" => {
            let account = root.at("metadata.annotations").key("kubernetes.io/service-account.name");
            account.has_text("");
        }
        "kubernetes.io/dockercfg" => json_object(data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => json_object(data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth"
            if data.value.get("username").is_none() && data.value.get("password").is_none() =>
        {
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

fn json_object(data: &FieldRef<'_>, key: &str) {
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
    walk(new, errors, |root| {
        root.at("type").immutable(old.at("type"));
    });
    frozen(new, old, &["data"], errors);
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
