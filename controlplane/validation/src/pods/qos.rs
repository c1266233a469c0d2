//! The quality of service that a pod's requests and limits amount to.

use coracle_fields::core::v1::Pod;
use coracle_fields::{Amount, Map, Schema as _, View};
use coracle_proto::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

type Amounts = BTreeMap<String, Quantity>;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub fn class(pod: &Value) -> &'static str {
    let spec = Pod::of(pod).spec();
    let pod_level = spec.resources();
    if pod_level.requests().is_set() || pod_level.limits().is_set() {
        let (requests, limits) = (amounts(pod_level.requests()), amounts(pod_level.limits()));
        return of(&requests, &limits, limits.len() == 2);
    }
    let (mut requests, mut limits, mut all_limited) = (Amounts::new(), Amounts::new(), true);
    for container in spec.containers().items().chain(spec.init_containers()) {
        let limited = amounts(container.resources().limits());
        all_limited &= limited.len() == 2;
        sum(&mut requests, amounts(container.resources().requests()));
        sum(&mut limits, limited);
    }
    of(&requests, &limits, all_limited)
}

fn of(requests: &Amounts, limits: &Amounts, all_limited: bool) -> &'static str {
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if all_limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// CPU and memory that are asked for and more than nothing.
fn amounts(list: View<'_, Map<Amount>>) -> Amounts {
    list.entries()
        .filter(|(name, _)| matches!(*name, "cpu" | "memory"))
        .filter_map(|(name, amount)| Some((name.to_owned(), amount.get()?.parse::<Quantity>().ok()?)))
        .filter(|(_, quantity)| quantity.signum() > 0)
        .collect()
}

fn sum(total: &mut Amounts, more: Amounts) {
    for (name, quantity) in more {
        total.entry(name).and_modify(|sum| sum.add(&quantity)).or_insert(quantity);
    }
}

#[cfg(test)]
mod tests {
    use super::class;
    use serde_json::json;

    #[test]
    fn by_requests_and_limits() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        let same = json!({"cpu": "1000m", "memory": "1024Mi"});
        let cases = [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (json!({"requests": {"example.com/gpu": "1"}}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"requests": full, "limits": same}), "Guaranteed"),
            (json!({"requests": full, "limits": {"cpu": "2", "memory": "1Gi"}}), "Burstable"),
            (json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable"),
        ];
        for (resources, expected) in cases {
            let pod = json!({"spec": {"containers": [{"name": "a", "resources": resources}]}});
            assert_eq!(class(&pod), expected, "{resources}");
        }
        let both = json!({"requests": full, "limits": full});
        let pod = json!({"spec": {"containers": [{"resources": both}, {"resources": {}}]}});
        assert_eq!(class(&pod), "Burstable");
        let pod = json!({"spec": {"resources": both, "containers": [{"resources": {}}]}});
        assert_eq!(class(&pod), "Guaranteed");
    }
}
