//! LimitRanger: default and limit the resources of pods, containers and claims in a namespace.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::{Container, LimitRange, LimitRangeItem, PersistentVolumeClaim, Pod};
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Amount, Edit, Map, Schema as _, View};
use coracle_kinds::registry::usage::{pod_amounts, quantity};
use coracle_proto::quantity::Quantity;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::collections::BTreeMap;

const NOTE: &str = "kubernetes.io/limit-ranger";
/// Beyond it thousandths no longer fit.
const MAX_MILLI: i64 = i64::MAX / 1000;

type Amounts = BTreeMap<String, Quantity>;

/// The plugin.
pub struct LimitRanger;

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        let claims = phase == Phase::Validate && at.kind.plural == "persistentvolumeclaims";
        at.writes() && at.kind.group.is_empty() && (at.kind.plural == "pods" || claims)
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        if concerns(at) && at.kind.plural == "pods" {
            for range in at.cached("", "limitranges", Some(at.namespace)) {
                set_defaults(Pod::edit(object), range.doc().view());
            }
        }
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        if !concerns(at) {
            return Ok(());
        }
        for range in at.cached("", "limitranges", Some(at.namespace)) {
            let errors = check(range.doc().view(), &at.kind.plural, object);
            match errors.as_slice() {
                [] => {}
                [one] => return Err(at.forbidden(one)),
                many => return Err(at.forbidden(format!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

/// Containers of a pod that somebody may have seen change by `/resize` only.
fn concerns(at: &Attributes<'_>) -> bool {
    let going =
        at.old.is_some_and(|old| PartialObjectMetadata::of(old).metadata().deletion_timestamp().is_set());
    if !at.kind.group.is_empty() || going {
        return false;
    }
    match (at.kind.plural.as_str(), at.subresource, at.operation) {
        ("pods", "", _) => at.is_new(),
        ("pods", "resize", Operation::Update) => true,
        ("persistentvolumeclaims", "", operation) => {
            matches!(operation, Operation::Create | Operation::Update)
        }
        _ => false,
    }
}

fn amounts(list: View<'_, Map<Amount>>) -> Amounts {
    let entries = list.entries();
    entries.filter_map(|(name, amount)| Some((name.to_owned(), quantity(&amount.as_value())?))).collect()
}

fn limits<'a>(range: View<'a, LimitRange>, kind: &'a str) -> impl Iterator<Item = View<'a, LimitRangeItem>> {
    range.spec().limits().items().filter(move |limit| limit.type_() == kind)
}

fn set_defaults(mut pod: Edit<'_, Pod>, range: View<'_, LimitRange>) {
    let (mut requests, mut caps) = (Defaults::new(), Defaults::new());
    for limit in limits(range, "Container") {
        requests.extend(limit.default_request().entries());
        caps.extend(limit.default_().entries());
    }
    let mut notes = Vec::new();
    let mut fill_container = |what: &str, mut container: Edit<'_, Container>| {
        let name = container.view().name().text().to_owned();
        let mut resources = container.resources();
        let requested = fill(resources.requests(), &requests);
        let limited = fill(resources.limits(), &caps);
        for (set, word) in [(requested, "request"), (limited, "limit")] {
            if !set.is_empty() {
                notes.push(format!("{} {word} for {what} {name}", set.join(", ")));
            }
        }
    };
    let mut spec = pod.spec();
    spec.containers().each(|container| fill_container("container", container));
    spec.init_containers().each(|container| fill_container("init container", container));
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod.metadata().annotations().insert(NOTE, note);
    }
}

/// Default amounts by resource name.
type Defaults<'a> = BTreeMap<&'a str, View<'a, Amount>>;

/// Sets what a container does not say; the names of what was set.
fn fill<'a>(mut section: Edit<'_, Map<Amount>>, defaults: &Defaults<'a>) -> Vec<&'a str> {
    let missing = defaults.iter().filter(|(name, _)| !section.view().has_key(name));
    let missing: Vec<_> = missing.map(|(name, amount)| (*name, *amount)).collect();
    for (name, amount) in &missing {
        section.insert(name, *amount);
    }
    missing.into_iter().map(|(name, _)| name).collect()
}

/// What an object of `plural` does against a range.
fn check(range: View<'_, LimitRange>, plural: &str, object: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    if plural == "persistentvolumeclaims" {
        let requests = amounts(PersistentVolumeClaim::of(object).spec().resources().requests());
        for limit in limits(range, "PersistentVolumeClaim") {
            bounds(limit, "PersistentVolumeClaim", &requests, None, &mut errors);
        }
        return errors;
    }
    let spec = Pod::of(object).spec();
    for container in spec.containers().items().chain(spec.init_containers().items()) {
        let requests = amounts(container.resources().requests());
        let caps = amounts(container.resources().limits());
        for limit in limits(range, "Container") {
            bounds(limit, "Container", &requests, Some(&caps), &mut errors);
        }
    }
    let whole = [pod_amounts(object, "requests"), pod_amounts(object, "limits")];
    for limit in limits(range, "Pod") {
        bounds(limit, "Pod", &whole[0], Some(&whole[1]), &mut errors);
    }
    errors
}

/// Checks amounts against minimum, maximum and ratio; without `caps` the maximum is one of the requests.
fn bounds(
    limit: View<'_, LimitRangeItem>,
    kind: &str,
    requests: &Amounts,
    caps: Option<&Amounts>,
    errors: &mut Vec<String>,
) {
    let none = Amounts::new();
    let limits = caps.unwrap_or(&none);
    for (name, bound) in amounts(limit.min()) {
        errors.extend(below(kind, &name, &bound, requests.get(&name), limits.get(&name)));
    }
    for (name, bound) in amounts(limit.max()) {
        let (first, second) = match caps {
            Some(_) => (limits.get(&name), requests.get(&name)),
            None => (requests.get(&name), None),
        };
        let word = if caps.is_some() { "limit" } else { "request" };
        errors.extend(above((kind, word), &name, &bound, first, second));
    }
    if caps.is_some() {
        for (name, bound) in amounts(limit.max_limit_request_ratio()) {
            errors.extend(ratio(kind, &name, &bound, requests.get(&name), limits.get(&name)));
        }
    }
}

fn below(
    kind: &str,
    name: &str,
    bound: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("minimum {name} usage per {kind} is {bound}");
    let Some(request) = request else { return Some(format!("{head}.  No request is specified")) };
    if request < bound {
        return Some(format!("{head}, but request is {request}"));
    }
    limit.filter(|limit| *limit < bound).map(|limit| format!("{head}, but limit is {limit}"))
}

fn above(
    (kind, word): (&str, &str),
    name: &str,
    bound: &Quantity,
    first: Option<&Quantity>,
    request: Option<&Quantity>,
) -> Option<String> {
    let head = format!("maximum {name} usage per {kind} is {bound}");
    let Some(first) = first else { return Some(format!("{head}.  No {word} is specified")) };
    if first > bound {
        return Some(format!("{head}, but {word} is {first}"));
    }
    request.filter(|request| *request > bound).map(|request| format!("{head}, but request is {request}"))
}

fn ratio(
    kind: &str,
    name: &str,
    bound: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("{name} max limit to request ratio per {kind} is {bound}");
    let Some(request) = request.filter(|q| !q.is_zero()) else {
        return Some(format!("{head}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|q| !q.is_zero()) else {
        return Some(format!("{head}, but no limit is specified or limit is 0"));
    };
    let whole = |q: &Quantity| {
        if q.value() <= MAX_MILLI { q.milli_value() as f64 / 1000.0 } else { q.value() as f64 }
    };
    let is = whole(limit) / whole(request);
    (is > whole(bound)).then(|| format!("{head}, but provided ratio is {is:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn range(limit: Value) -> Value {
        json!({"spec": {"limits": [limit]}})
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn defaults_fill_what_is_not_said() {
        let range = range(
            json!({"type": "Container", "default": {"cpu": "1", "memory": "64Mi"}, "defaultRequest": {"cpu": "100m"}}),
        );
        let mut pod = pod(json!({"limits": {"memory": "32Mi"}}));
        set_defaults(Pod::edit(&mut pod), LimitRange::of(&range));
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"limits": {"memory": "32Mi", "cpu": "1"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][NOTE],
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        );
    }

    #[test]
    fn bounds_are_upstreams() {
        let ask = |cpu: &str, limit: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": limit}});
        let nothing = json!({});
        // What is limited, its bound and the amount, what a container asks for, and what is said.
        let cases = [
            (
                "Container",
                "min",
                "100m",
                nothing.clone(),
                "minimum cpu usage per Container is 100m.  No request is specified",
            ),
            (
                "Container",
                "min",
                "100m",
                ask("50m", "1"),
                "minimum cpu usage per Container is 100m, but request is 50m",
            ),
            ("Container", "min", "100m", ask("100m", "1"), ""),
            (
                "Container",
                "max",
                "500m",
                nothing,
                "maximum cpu usage per Container is 500m.  No limit is specified",
            ),
            (
                "Container",
                "max",
                "500m",
                ask("1", "1"),
                "maximum cpu usage per Container is 500m, but limit is 1",
            ),
            ("Container", "max", "1", ask("100m", "1"), ""),
            ("Pod", "max", "500m", ask("1", "2"), "maximum cpu usage per Pod is 500m, but limit is 2"),
            (
                "Container",
                "maxLimitRequestRatio",
                "2",
                ask("100m", "400m"),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
            ),
            ("Container", "maxLimitRequestRatio", "4", ask("100m", "400m"), ""),
        ];
        for (of, bound, amount, resources, expected) in cases {
            let limit = json!({"type": of, bound: {"cpu": amount}});
            let range = range(limit.clone());
            let errors = check(LimitRange::of(&range), "pods", &pod(resources));
            assert_eq!(errors.join("|"), expected, "{limit}");
        }
        let claim = json!({"spec": {"resources": {"requests": {"storage": "20Gi"}}}});
        let limit =
            json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}});
        assert_eq!(
            check(LimitRange::of(&range(limit)), "persistentvolumeclaims", &claim),
            ["maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi"]
        );
    }
}
