//! Reads every fixture of `k8s.io/api` (`testdata/HEAD`), JSON, YAML and protobuf, and expects the same object three
//! times. The fixtures are upstream's and not part of this repository: `K8S_API_TESTDATA` says where they are.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use coracle_proto::decode::{from_json, from_yaml, read};
use coracle_proto::{protobuf, schema};
use serde_json::Value;

#[test]
#[ignore = "needs K8S_API_TESTDATA"]
fn fixtures_read_the_same_in_every_encoding() {
    let dir = std::env::var("K8S_API_TESTDATA").expect("K8S_API_TESTDATA is set");
    let mut checked = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "json") {
            match check(&path) {
                Some(Ok(())) => checked += 1,
                Some(Err(why)) => wrong.push(why),
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), wrong.len() + checked, wrong.join("\n"));
    assert!(checked > 0, "{checked}");
    println!("{checked} fixtures");
}

fn check(path: &Path) -> Option<Result<(), String>> {
    let text = std::fs::read(path).unwrap();
    let expected: Value = serde_json::from_slice(&text).unwrap();
    let _ = expected["apiVersion"].as_str()?;
    let (group, version) = match expected["apiVersion"].as_str().unwrap().split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", expected["apiVersion"].as_str().unwrap()),
    };
    let kind = schema::kind_type(group, version, expected["kind"].as_str().unwrap())?;
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let json = match read(kind, from_json(&text).unwrap()) {
        Ok(json) => json,
        Err(e) => return Some(Err(format!("{name}: {e}"))),
    };
    if !json.strict.is_empty() {
        return Some(Err(format!("{name}: {:?}", json.strict)));
    }
    if json.value != expected {
        return Some(Err(format!("{name}: json differs: {}", difference(&expected, &json.value, ""))));
    }
    let yaml = from_yaml(&std::fs::read(path.with_extension("yaml")).unwrap()).unwrap();
    let yaml = read(kind, yaml.tree).unwrap().value;
    if yaml != expected {
        return Some(Err(format!("{name}: yaml differs: {}", difference(&expected, &yaml, ""))));
    }
    let bytes = std::fs::read(path.with_extension("pb")).unwrap();
    let envelope = protobuf::open(&bytes).unwrap();
    let mut value = match protobuf::read(kind, envelope.raw) {
        Ok(value) => value,
        Err(e) => return Some(Err(format!("{name}: protobuf: {e}"))),
    };
    value["kind"] = Value::from(envelope.meta.kind);
    value["apiVersion"] = Value::from(envelope.meta.api_version);
    Some(if value == expected {
        Ok(())
    } else {
        Err(format!("{name}: protobuf differs: {}", difference(&expected, &value, "")))
    })
}

/// The first place where two values differ.
fn difference(a: &Value, b: &Value, path: &str) -> String {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            for key in x.keys().chain(y.keys()) {
                let (l, r) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                if l != r || x.contains_key(key) != y.contains_key(key) {
                    return difference(l, r, &format!("{path}.{key}"));
                }
            }
            path.to_owned()
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            let at = x.iter().zip(y).position(|(l, r)| l != r).unwrap_or(0);
            difference(&x[at], &y[at], &format!("{path}[{at}]"))
        }
        _ => format!("{path}: {a} against {b}"),
    }
}
