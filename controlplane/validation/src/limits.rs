//! Field rules of ResourceQuotas and LimitRanges.

use super::field_ref::{Field, reported_at, walk_as};
use super::quantities::{amount, any_name, container_name, is_huge, is_known, is_native, quantity};
use coracle_fields::core::v1::{LimitRange, LimitRangeItem, ResourceQuota, ResourceQuotaSpec};
use coracle_fields::{Amount, Map, Schema as _, View};
use coracle_proto::names::qualified_name;
use coracle_proto::quantity::{Format, Quantity};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// Scopes that are there or not, without values.
const EXISTING: [&str; 5] =
    ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];

/// The greatest number of which thousandths fit into 64 bits.
const MAX_MILLI: i64 = i64::MAX / 1000;

/// A ResourceQuota.
pub fn quota(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ResourceQuota>(object, errors, |quota| {
        quantities(&quota.spec().hard());
        scopes(&quota.spec());
        quantities(&quota.status().hard());
        quantities(&quota.status().used());
    });
}

fn quantities(list: &Field<'_, Map<Amount>>) {
    for (name, field) in list.entries() {
        any_name(&field, name);
        if !name.contains('/') && !is_standard(name) {
            field.invalid_as(name, "must be a standard resource for quota");
        }
        amount(&field, name);
    }
}

fn scopes(spec: &Field<'_, ResourceQuotaSpec>) {
    let list = spec.scopes();
    let hard: Vec<&str> = spec.view().hard().entries().map(|(name, _)| name).collect();
    let conflicting = |names: &HashSet<&str>| {
        [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")]
            .iter()
            .any(|(a, b)| names.contains(a) && names.contains(b))
    };
    let unfit = |scope: &str| {
        hard.iter().any(|name| match scope {
            "BestEffort" => !matches!(*name, "pods") && is_standard(name),
            "Terminating"
            | "NotTerminating"
            | "NotBestEffort"
            | "PriorityClass"
            | "CrossNamespacePodAffinity" => is_standard(name) && !is_of_pods(name),
            _ => false,
        })
    };
    let mut names = HashSet::new();
    for scope in list.view().texts() {
        if !SCOPES.contains(&scope) {
            list.invalid("unsupported scope");
        }
        if unfit(scope) {
            list.invalid("unsupported scope applied to resource");
        }
        names.insert(scope);
    }
    if conflicting(&names) {
        list.invalid("conflicting scopes");
    }
    let selector = spec.scope_selector().match_expressions();
    let mut names = HashSet::new();
    for expression in selector.items() {
        // Upstream reports expressions at the list, not at the item.
        let expression = reported_at(&expression, &selector);
        let (scope, operator, values) = (expression.scope_name(), expression.operator(), expression.values());
        let name = scope.text();
        if !SCOPES.contains(&name) {
            scope.invalid_as(name, "unsupported scope");
        }
        if unfit(name) {
            reported_at(&spec.scope_selector(), &selector).invalid("unsupported scope applied to resource");
        }
        if EXISTING.contains(&name) && operator.text() != "Exists" {
            operator.invalid_as(operator.text(), "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => values
                .required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            "Exists" | "DoesNotExist" if !values.is_empty() => values
                .invalid("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => operator.invalid_as(other, "not a valid selector operator"),
        }
        names.insert(name);
    }
    if conflicting(&names) {
        reported_at(&list, &selector).invalid("conflicting scopes");
    }
}

/// Whether quotas know the resource without counting objects of its name.
fn is_standard(name: &str) -> bool {
    name != "storage" && is_known(name)
}

/// Resources that a scope of pods makes sense for.
fn is_of_pods(name: &str) -> bool {
    let base = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    matches!(base, "cpu" | "memory" | "pods" | "ephemeral-storage") || base.starts_with("hugepages-")
}

/// Scopes of a quota never change.
pub fn quota_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    fn set(quota: View<'_, ResourceQuota>) -> BTreeSet<&str> {
        quota.spec().scopes().texts().collect()
    }
    let old = ResourceQuota::of(old);
    walk_as::<ResourceQuota>(new, errors, |new| {
        if set(new.view()) != set(old) {
            new.spec().scopes().invalid("field is immutable");
        }
    });
}

/// A change of a quota's status.
pub fn quota_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ResourceQuota>(new, errors, |quota| {
        quantities(&quota.status().hard());
        quantities(&quota.status().used());
    });
}

/// A LimitRange.
pub fn limit_range(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<LimitRange>(object, errors, |range| {
        let mut kinds = HashSet::new();
        for limit in range.spec().limits().items() {
            let kind = limit.type_();
            let wrong = qualified_name(kind.text());
            if !wrong.is_empty() {
                wrong.into_iter().for_each(|message| kind.invalid_as(kind.text(), message));
            } else if !kind.text().contains('/')
                && !matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim")
            {
                kind.invalid("must be a standard limit type or fully qualified");
            }
            if !kinds.insert(kind.text()) {
                kind.duplicate();
            }
            names(&limit, kind.text());
            relations(&limit);
        }
    });
}

fn names(limit: &Field<'_, LimitRangeItem>, kind: &str) {
    for list in [limit.max(), limit.min()] {
        resources(&list, kind);
    }
    for list in [limit.default_(), limit.default_request()] {
        if kind != "Pod" {
            resources(&list, kind);
        } else if !list.is_empty() {
            list.forbidden("may not be specified when `type` is 'Pod'");
        }
    }
    let sized = |list: View<'_, Map<Amount>>| list.key("storage").is_set();
    if kind == "PersistentVolumeClaim" && !sized(limit.view().min()) && !sized(limit.view().max()) {
        limit
            .below("limits")
            .required("either minimum or maximum storage value is required, but neither was provided");
    }
    resources(&limit.max_limit_request_ratio(), kind);
}

fn resources(list: &Field<'_, Map<Amount>>, kind: &str) {
    for (name, field) in list.entries() {
        if matches!(kind, "Pod" | "Container") {
            container_name(&field, name);
        } else {
            any_name(&field, name);
        }
        quantity(&field);
    }
}

/// min ≤ defaultRequest ≤ default ≤ max, for each resource. Pods have no defaults.
fn relations(limit: &Field<'_, LimitRangeItem>) {
    let is_pod = limit.view().type_() == "Pod";
    let (min, max) = (limit.min(), limit.max());
    let (request, default) = (limit.default_request(), limit.default_());
    let ratio = limit.max_limit_request_ratio();
    let names: BTreeSet<&str> = [&max, &min, &default, &request, &ratio]
        .into_iter()
        .flat_map(|list| list.view().entries().map(|(name, _)| name))
        .collect();
    for name in names {
        let get = |list: &Field<'_, Map<Amount>>| {
            list.view().key(name).get().and_then(|text| text.parse::<Quantity>().ok())
        };
        // The smaller amount, the greater one, where an error is reported, and the amount it shows.
        let pairs = [
            ((&min, "min"), (&max, "max"), &min, &min),
            ((&min, "min"), (&request, "default request"), &request, &request),
            ((&request, "default request"), (&max, "max"), &request, &request),
            ((&request, "default request"), (&default, "default limit"), &request, &request),
            ((&min, "min"), (&default, "default"), &default, &min),
            ((&default, "default"), (&max, "max"), &default, &max),
        ];
        let count = if is_pod { 1 } else { pairs.len() };
        for ((low, low_word), (high, high_word), at, shown) in pairs.into_iter().take(count) {
            if let (Some(low), Some(high)) = (get(low), get(high))
                && low > high
            {
                let value = get(shown).map(|quantity| quantity.to_string()).unwrap_or_default();
                at.key(name).invalid_as(
                    value,
                    format!("{low_word} value {low} is greater than {high_word} value {high}"),
                );
            }
        }
        if let Some(number) = get(&ratio)
            && number < Quantity::new(1, Format::DecimalSi)
        {
            ratio.key(name).invalid(format!("ratio {number} is less than 1"));
        }
        if let (Some(number), Some(low), Some(high)) = (get(&ratio), get(&min), get(&max)) {
            let (share, most) = ratios(&number, &low, &high);
            if share > most {
                ratio.key(name).invalid(format!("ratio {number} is greater than max/min = {most:.6}"));
            }
        }
        let may_exceed = is_native(name) && !is_huge(name);
        if let (Some(limited), Some(asked)) = (get(&default), get(&request))
            && !is_pod
            && !may_exceed
            && limited != asked
        {
            request.key(name).invalid(format!(
                "default value {limited} must equal to defaultRequest value {asked} in {name}"
            ));
        }
    }
}

/// A ratio and the greatest one, from thousandths if they fit.
fn ratios(ratio: &Quantity, min: &Quantity, max: &Quantity) -> (f64, f64) {
    if [ratio, min, max].iter().all(|quantity| quantity.value() < MAX_MILLI) {
        (ratio.milli_value() as f64 / 1000.0, max.milli_value() as f64 / min.milli_value() as f64)
    } else {
        (ratio.value() as f64, max.value() as f64 / min.value() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    #[test]
    fn quotas_and_ranges() {
        assert_eq!(
            errors(
                quota,
                &json!({"spec": {"hard": {"pods": "5", "requests.cpu": "1", "count/jobs.batch": "3"}}})
            ),
            [""; 0]
        );
        assert_eq!(
            errors(quota, &json!({"spec": {"hard": {"pods": "1.5"}}})),
            ["spec.hard[pods]: Invalid value: \"1.5\": must be an integer"]
        );
        assert_eq!(
            errors(
                quota,
                &json!({"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}})
            ),
            ["spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"]
        );
        assert_eq!(
            errors(
                limit_range,
                &json!({"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}})
            ),
            ["spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"]
        );
    }

    #[test]
    fn items_of_ranges() {
        let at = "spec.limits[0]";
        for (limit, wrong) in [
            (
                json!({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}),
                vec![],
            ),
            (
                json!({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "1500m"}, "maxLimitRequestRatio": {"cpu": "2"}}),
                vec![format!(
                    "{at}.maxLimitRequestRatio[cpu]: Invalid value: \"2\": ratio 2 is greater than max/min = 1.500000"
                )],
            ),
            (
                json!({"type": "Pod", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "3"}}),
                vec![
                    format!("{at}.default: Forbidden: may not be specified when `type` is 'Pod'"),
                    format!("{at}.defaultRequest: Forbidden: may not be specified when `type` is 'Pod'"),
                ],
            ),
            (
                json!({"type": "Container", "default": {"hugepages-2Mi": "4Mi"}, "defaultRequest": {"hugepages-2Mi": "2Mi"}}),
                vec![format!(
                    "{at}.defaultRequest[hugepages-2Mi]: Invalid value: \"2Mi\": default value 4Mi must equal to defaultRequest value 2Mi in hugepages-2Mi"
                )],
            ),
        ] {
            assert_eq!(errors(limit_range, &json!({"spec": {"limits": [limit]}})), wrong, "{limit}");
        }
    }

    #[test]
    fn resources_of_quotas() {
        let of = |name: &str| errors(quota, &json!({"spec": {"hard": {name: "1"}}}));
        assert_eq!(of("requests.storage"), [""; 0]);
        assert_eq!(
            of("storage"),
            ["spec.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota"]
        );
        assert_eq!(
            of("gold"),
            [
                "spec.hard[gold]: Invalid value: \"gold\": must be a standard resource type or fully qualified",
                "spec.hard[gold]: Invalid value: \"gold\": must be a standard resource for quota",
            ]
        );
    }
}
