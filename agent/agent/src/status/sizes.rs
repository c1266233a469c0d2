//! CPU and memory of a pod and of its containers as the API shows them: what they were given, and what they have. Pure.

use coracle_proto::cri::LinuxContainerResources;
use coracle_proto::quantity::{self, Format};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::cpu_quotas::CpuQuotas;
use crate::pod::pod_limits::PodLimits;
use crate::pod::{resources, spec};

type Quantities = BTreeMap<String, Quantity>;

/// What a container has: what it was given, but for numbers of which its runtime reports others.
pub fn of_container(
    container: &Container,
    reported: Option<&LinuxContainerResources>,
) -> Option<ResourceRequirements> {
    let mut has = container.resources.clone()?;
    let Some(reported) = reported else { return Some(has) };
    let amount = |list: &Quantities, name: &str| list.get(name).map(|quantity| spec::amount(name, quantity));
    if let Some(limits) = &mut has.limits {
        let (quota, period) = (reported.cpu_quota, reported.cpu_period);
        let quotas = CpuQuotas::new(micros(period), true);
        let given = amount(limits, "cpu").map(|milli| quotas.quota(milli));
        if given.is_some_and(|given| given != quota) && quota > 0 && period > 0 {
            limits.insert("cpu".to_owned(), milli(quota.saturating_mul(1000) / period));
        }
        let memory = reported.memory_limit_in_bytes;
        if amount(limits, "memory").is_some_and(|given| given != memory) && memory > 0 {
            limits.insert("memory".to_owned(), bytes(memory));
        }
    }
    if let Some(requests) = &mut has.requests {
        let shares = reported.cpu_shares;
        let given = amount(requests, "cpu").map(resources::shares);
        if given.is_some_and(|given| given != shares) && shares > 0 {
            requests.insert("cpu".to_owned(), milli(shares.saturating_mul(1000).saturating_add(1023) / 1024));
        }
    }
    Some(has)
}

/// Requests that the pod was given: of its containers together, or of the pod as a whole where it has its own.
pub fn given(own: &PodSpec) -> Option<Quantities> {
    Some(totals(own, false)).filter(|list| !list.is_empty())
}

/// What the pod has. Of what `limits` tells, as the cgroup has it.
pub fn of_pod(own: &PodSpec, limits: &PodLimits, quotas: CpuQuotas) -> Option<ResourceRequirements> {
    let target = resources::pod(own, quotas);
    let sized = |list: Quantities, whole: Option<&Quantities>| -> Quantities {
        let shown = |name: &str| {
            matches!(name, "cpu" | "memory") || whole.is_some_and(|whole| whole.contains_key(name))
        };
        list.into_iter().filter(|(name, _)| shown(name)).collect()
    };
    let whole = own.resources.as_ref();
    let requests = sized(totals(own, false), whole.and_then(|whole| whole.requests.as_ref()));
    let mut all = sized(totals(own, true), whole.and_then(|whole| whole.limits.as_ref()));
    // Where a container has no limit, the pod has none.
    if resources::cpu_limit(own) == 0 {
        all.remove("cpu");
    }
    if target.memory_limit_in_bytes == 0 {
        all.remove("memory");
    }
    if let (Some(quota), Some(period)) = (limits.quota, limits.period)
        && !limits.has_quota_of(&target)
    {
        all.remove("cpu");
        if quota > 0 && period > 0 {
            all.insert("cpu".to_owned(), milli(quota.saturating_mul(1000) / period));
        }
    }
    if let Some(memory) = limits.memory.filter(|_| !limits.has_memory_of(&target)) {
        all.remove("memory");
        if memory > 0 {
            all.insert("memory".to_owned(), bytes(memory));
        }
    }
    let some = |list: Quantities| Some(list).filter(|list| !list.is_empty());
    let (requests, limits) = (some(requests), some(all));
    (requests.is_some() || limits.is_some()).then_some(ResourceRequirements {
        requests,
        limits,
        ..ResourceRequirements::default()
    })
}

fn totals(own: &PodSpec, limits: bool) -> Quantities {
    let listed = |resources: Option<&ResourceRequirements>| {
        resources.and_then(|all| if limits { all.limits.clone() } else { all.requests.clone() })
    };
    let lists: Vec<Quantities> = listed(own.resources.as_ref())
        .into_iter()
        .chain(spec::containers(own).filter_map(|(_, container)| listed(container.resources.as_ref())))
        .collect();
    let shown = |(name, amount): (String, i64)| {
        let like = lists.iter().find_map(|list| list.get(&name));
        let quantity = like.filter(|like| spec::amount(&name, like) == amount).cloned();
        let format = like.and_then(|like| like.0.parse().ok()).map(|like: quantity::Quantity| like.format());
        let made = || match (name.as_str(), format) {
            ("cpu", _) => milli(amount),
            (_, Some(format)) => text(quantity::Quantity::new(amount, format)),
            (_, None) => bytes(amount),
        };
        (name.clone(), quantity.unwrap_or_else(made))
    };
    spec::totals(own, limits).into_iter().map(shown).collect()
}

fn micros(period: i64) -> Duration {
    Duration::from_micros(u64::try_from(period).unwrap_or(0))
}

fn milli(amount: i64) -> Quantity {
    text(quantity::Quantity::milli(amount, Format::DecimalSi))
}

fn bytes(amount: i64) -> Quantity {
    text(quantity::Quantity::new(amount, Format::BinarySi))
}

fn text(quantity: quantity::Quantity) -> Quantity {
    Quantity(quantity.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    const MI: i64 = 1 << 20;

    fn shown<T: serde::Serialize>(value: T) -> Value {
        serde_json::to_value(value).unwrap()
    }

    #[test]
    fn a_container_has_what_its_runtime_reports() {
        let container: Container = serde_json::from_value(json!({"name": "c", "resources": {
            "requests": {"cpu": "0.1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}}))
        .unwrap();
        let reported = |shares, quota, memory| LinuxContainerResources {
            cpu_period: 100_000,
            cpu_shares: shares,
            cpu_quota: quota,
            memory_limit_in_bytes: memory,
            ..LinuxContainerResources::default()
        };
        let of = |requests: &str, cpu: &str, memory: &str| json!({"requests": {"cpu": requests, "memory": "64Mi"}, "limits": {"cpu": cpu, "memory": memory}});
        for (reported, want) in [
            (None, of("0.1", "1", "64Mi")),
            (Some(LinuxContainerResources::default()), of("0.1", "1", "64Mi")),
            (Some(reported(102, 100_000, 64 * MI)), of("0.1", "1", "64Mi")),
            (Some(reported(204, 200_000, 96 * MI)), of("200m", "2", "96Mi")),
        ] {
            assert_eq!(shown(of_container(&container, reported.as_ref())), want, "{reported:?}");
        }
    }

    #[test]
    fn a_pod_has_what_its_cgroup_has() {
        let own = |whole: Value| -> PodSpec {
            let container = |memory: &str| json!({"name": "c", "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": memory}}});
            serde_json::from_value(
                json!({"resources": whole, "containers": [container("64Mi"), container("32Mi")]}),
            )
            .unwrap()
        };
        let whole = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "100M"}});
        let limits = |quota, memory| PodLimits {
            weight: None,
            quota: Some(quota),
            period: Some(100_000),
            memory: Some(memory),
        };
        for (whole, limits, want) in [
            (
                Value::Null,
                PodLimits::default(),
                json!({"requests": {"cpu": "1"}, "limits": {"memory": "96Mi"}}),
            ),
            (whole.clone(), PodLimits::default(), whole.clone()),
            (whole.clone(), limits(300_000, 99_999_744), whole.clone()),
            (
                whole.clone(),
                limits(150_000, 64 * MI),
                json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1500m", "memory": "64Mi"}}),
            ),
        ] {
            assert_eq!(shown(of_pod(&own(whole), &limits, CpuQuotas::default())), want);
        }
        // Without quotas the limit is what was given.
        let off = CpuQuotas::default().unless(true);
        assert_eq!(shown(of_pod(&own(whole.clone()), &limits(0, 99_999_744), off)), whole);
        assert_eq!(shown(given(&own(json!({"requests": {"cpu": "2000m"}})))), json!({"cpu": "2000m"}));
        let none: PodSpec = serde_json::from_value(json!({"containers": [{"name": "c"}]})).unwrap();
        assert_eq!((given(&none), of_pod(&none, &PodLimits::default(), CpuQuotas::default())), (None, None));
    }
}
