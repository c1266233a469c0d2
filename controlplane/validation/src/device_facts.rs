//! Field rules of what slices say of devices: names and values of attributes, names of capacities, and counters.

use super::field_errors::unique;
use super::field_ref::{Field, FieldRef, reported_at};
use super::field_rules::TextRules as _;
use super::names::driver_name;
use coracle_fields::resource::v1::{Counter, CounterSet, Device, DeviceAttribute, DeviceCounterConsumption};
use coracle_fields::{List, Map, Text};
use coracle_proto::names::{c_identifier, dns1123_label};
use serde_json::json;

const NAME: usize = 32;
const VALUE: usize = 64;
const COUNTERS: usize = 32;
const CONSUMED: usize = 2;
const SETS: usize = 8;
const ONE_VALUE: &str = "exactly one value must be specified";

/// Attributes of a device, and the names of its capacities.
pub(super) fn facts(device: &Field<'_, Device>) {
    let (attributes, capacity) = (device.attributes(), device.capacity());
    for (name, value) in attributes.entries() {
        qualified(&attributes, name);
        attribute(&value);
    }
    for (name, _) in capacity.entries() {
        qualified(&capacity, name);
    }
}

/// An identifier, alone or after the domain of a driver and a slash.
fn qualified(place: &FieldRef<'_>, name: &str) {
    let mut parts = name.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(alone), None, _) => identifier(place, alone),
        (Some(domain), Some(name), None) => {
            if domain.is_empty() {
                place.invalid_as("", "the domain must not be empty");
            } else {
                let value = json!(domain);
                driver_name(&place.with(&value).as_type());
            }
            if name.is_empty() {
                place.invalid_as("", "the name must not be empty");
            } else {
                identifier(place, name);
            }
        }
        // Upstream does not look at names with more slashes.
        _ => {}
    }
}

fn identifier(place: &FieldRef<'_>, name: &str) {
    if name.len() > NAME {
        place.too_long(NAME);
    }
    for message in c_identifier(name) {
        place.invalid_as(name, message);
    }
}

fn attribute(attribute: &Field<'_, DeviceAttribute>) {
    let (string, version) = (attribute.string(), attribute.version());
    short(&string);
    if version.is_set() {
        semantic(&version);
    }
    let lists = [
        attribute.bools().erased(),
        attribute.ints().erased(),
        attribute.strings().erased(),
        attribute.versions().erased(),
    ];
    for list in lists.iter().filter(|list| list.is_set() && list.is_empty()) {
        list.invalid("must not be empty if specified");
    }
    attribute.strings().items().for_each(|one| short(&one));
    attribute.versions().items().for_each(|one| semantic(&one));
    let single = [attribute.int().erased(), attribute.bool().erased(), string.erased(), version.erased()];
    match single.iter().chain(&lists).filter(|value| value.is_set()).count() {
        0 => attribute.invalid_as("", ONE_VALUE),
        1 => {}
        _ => attribute.invalid(ONE_VALUE),
    }
}

fn short(text: &Field<'_, Text>) {
    if text.text().len() > VALUE {
        text.too_long(VALUE);
    }
}

fn semantic(version: &Field<'_, Text>) {
    if !is_semantic(version.text()) {
        version.invalid("must be a string compatible with semver.org spec 2.0.0");
    }
    short(version);
}

/// Whether a text is a version as semver.org has it, with numbers of any size.
fn is_semantic(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, before) = rest.split_once('-').map_or((rest, None), |(core, before)| (core, Some(before)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    core.split('.').count() == 3
        && core.split('.').all(number)
        && before.is_none_or(|all| all.split('.').all(|part| word(part) && (number(part) || !digits(part))))
        && build.is_none_or(|all| all.split('.').all(word))
}

/// What a device takes of the counters that it shares with others.
pub(super) fn consumed(list: &Field<'_, List<DeviceCounterConsumption>>) {
    if list.len() > CONSUMED {
        return list.too_many(CONSUMED);
    }
    for one in list.items() {
        one.counter_set().named(dns1123_label);
        counters(&one.counters());
    }
    unique(list.items().map(|one| reported_at(&one.counter_set(), &one)));
}

/// Counters that devices share.
pub(super) fn sets(list: &Field<'_, List<CounterSet>>) {
    if list.len() > SETS {
        return list.too_many(SETS);
    }
    for set in list.items() {
        set.name().named(dns1123_label);
        counters(&set.counters());
    }
    unique(list.items().map(|set| reported_at(&set.name(), &set)));
}

fn counters(counters: &Field<'_, Map<Counter>>) {
    if counters.is_empty() {
        return counters.required("");
    }
    if counters.len() > COUNTERS {
        return counters.too_many(COUNTERS);
    }
    for (name, _) in counters.entries() {
        for message in dns1123_label(name) {
            counters.invalid_as(name, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_semantic;
    use crate::devices::slice;
    use crate::testing::errors;
    use serde_json::{Value, json};

    fn of(more: Value) -> Vec<String> {
        let mut spec = json!({"driver": "gpu.example.com", "nodeName": "n1",
            "pool": {"name": "n1", "resourceSliceCount": 1}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        errors(slice, &json!({"spec": spec}))
    }

    fn device(facts: Value) -> Vec<String> {
        let mut device = json!({"name": "d"});
        for (key, value) in facts.as_object().into_iter().flatten() {
            device[key] = value.clone();
        }
        of(json!({"devices": [device]}))
    }

    #[test]
    fn names_of_facts() {
        let (long, longest) = ("a".repeat(33), "a".repeat(32));
        for (name, good) in [
            ("a", true),
            ("_a1", true),
            (&*longest, true),
            ("a.example.com/b", true),
            ("a/b/c", true),
            ("", false),
            ("/", false),
            ("/a", false),
            ("a/", false),
            ("x y", false),
            ("1a", false),
            ("-", false),
            ("a_b/c", false),
            (&*long, false),
        ] {
            for facts in
                [json!({"attributes": {name: {"int": 1}}}), json!({"capacity": {name: {"value": "1"}}})]
            {
                assert_eq!(device(facts.clone()).is_empty(), good, "{facts}");
            }
        }
        assert_eq!(
            device(json!({"attributes": {"/": {"bool": true}}})),
            [
                "spec.devices[0].attributes: Invalid value: \"\": the domain must not be empty",
                "spec.devices[0].attributes: Invalid value: \"\": the name must not be empty",
            ]
        );
    }

    #[test]
    fn values_of_attributes() {
        let at = "spec.devices[0].attributes[a]";
        for (value, want) in [
            (json!({"int": 0}), String::new()),
            (json!({"bool": false}), String::new()),
            (json!({"string": ""}), String::new()),
            (json!({"strings": ["a", "b"]}), String::new()),
            (json!({}), format!("{at}: Invalid value: \"\": exactly one value must be specified")),
            (json!({"ints": []}), format!("{at}.ints: Invalid value: []: must not be empty if specified")),
            (
                json!({"version": "1.x"}),
                format!(
                    "{at}.version: Invalid value: \"1.x\": must be a string compatible with semver.org spec 2.0.0"
                ),
            ),
            (
                json!({"string": "a".repeat(65)}),
                format!("{at}.string: Too long: may not be more than 64 bytes"),
            ),
        ] {
            assert_eq!(device(json!({"attributes": {"a": value}})).join("|"), want, "{value}");
        }
        let two = device(json!({"attributes": {"a": {"int": 1, "string": "a"}}})).join("|");
        assert!(two.ends_with("exactly one value must be specified"), "{two}");
    }

    #[test]
    fn versions() {
        for good in
            ["0.0.0", "1.2.3", "1.2.3-alpha.0", "1.2.3--", "1.2.3-01a+01.b-c", "99999999999999999999.0.0"]
        {
            assert!(is_semantic(good), "{good}");
        }
        for bad in
            ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3+a+b", "v1.2.3"]
        {
            assert!(!is_semantic(bad), "{bad}");
        }
    }

    #[test]
    fn shared_counters() {
        let consumes = |list: Value| device(json!({"consumesCounters": list}));
        let counters = json!({"memory": {"value": "1Gi"}});
        assert_eq!(consumes(json!([{"counterSet": "s", "counters": counters}])), [""; 0]);
        let at = "spec.devices[0].consumesCounters";
        assert_eq!(
            consumes(json!([{"counterSet": "s", "counters": {}}])),
            [format!("{at}[0].counters: Required value")]
        );
        assert_eq!(
            consumes(
                json!([{"counterSet": "s", "counters": counters}, {"counterSet": "s", "counters": counters}])
            ),
            [format!("{at}[1]: Duplicate value: \"s\"")]
        );
        let set = |name: &str| json!({"name": name, "counters": counters});
        assert_eq!(of(json!({"sharedCounters": [set("a"), set("b")]})), [""; 0]);
        assert_eq!(
            of(json!({"sharedCounters": [set(""), {"name": "b"}]})),
            [
                "spec.sharedCounters[0].name: Required value",
                "spec.sharedCounters[1].counters: Required value"
            ]
        );
        assert_eq!(
            of(json!({"sharedCounters": [set("a")], "devices": [{"name": "d"}]})),
            ["spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed"]
        );
        let tainted = |count: usize| -> Vec<Value> {
            let taints = json!([{"key": "a", "effect": "NoExecute"}]);
            (0..count).map(|at| json!({"name": format!("d{at}"), "taints": taints})).collect()
        };
        assert_eq!(of(json!({"devices": tainted(64)})), [""; 0]);
        assert_eq!(
            of(json!({"devices": tainted(65)})),
            ["spec.devices: Too many: 65: must have at most 64 items"]
        );
    }
}
