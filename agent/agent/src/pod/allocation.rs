//! Resources that the node has given to a pod: until a resize is accepted they are not those of its spec. Pure.

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::spec;

/// The resources that a resize may change.
const RESIZED: [&str; 2] = ["cpu", "memory"];

type Quantities = BTreeMap<String, Quantity>;

/// A newer object of a pod with the resources that the older one was given; `None` if it asks for the same.
pub fn keep(new: &Pod, given: &Pod) -> Option<Arc<Pod>> {
    let given = spec::spec(given);
    let of = |name: &str| {
        let mut all = given.containers.iter().chain(given.init_containers.iter().flatten());
        all.find(|container| container.name == name).map(|container| container.resources.clone())
    };
    with_resources(new, Some(given.resources.clone()), of)
}

/// The pod with the resources that its node has given it, as the node has reported them; `None` if they are those of its spec.
/// The status is the record of what was given, for a restart of the agent.
pub fn recorded(pod: &Pod, status: &PodStatus) -> Option<Arc<Pod>> {
    let own = spec::spec(pod);
    let all = || status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let of = |name: &str| {
        let status = all().find(|status| status.name == name)?;
        let has = status.resources.as_ref()?;
        let (_, container) = spec::container(&own, name)?;
        Some(Some(ResourceRequirements {
            requests: recorded_list(
                container.resources.as_ref().and_then(|asked| asked.requests.as_ref()),
                status.allocated_resources.as_ref().or(has.requests.as_ref()),
            ),
            limits: recorded_list(
                container.resources.as_ref().and_then(|asked| asked.limits.as_ref()),
                has.limits.as_ref(),
            ),
            claims: container.resources.as_ref().and_then(|asked| asked.claims.clone()),
        }))
    };
    let whole = own.resources.as_ref().zip(status.resources.as_ref()).map(|(asked, has)| {
        Some(ResourceRequirements {
            requests: recorded_list(asked.requests.as_ref(), status.allocated_resources.as_ref()),
            limits: recorded_list(asked.limits.as_ref(), has.limits.as_ref()),
            claims: asked.claims.clone(),
        })
    });
    with_resources(pod, whole, of)
}

/// CPU and memory of the record, for what is asked for; the rest cannot have changed.
fn recorded_list(asked: Option<&Quantities>, record: Option<&Quantities>) -> Option<Quantities> {
    let asked = asked?;
    let kept = asked.iter().filter_map(|(name, quantity)| {
        let resized = RESIZED.contains(&name.as_str());
        let quantity = if resized { record.and_then(|record| record.get(name))? } else { quantity };
        Some((name.clone(), quantity.clone()))
    });
    Some(kept.collect())
}

fn with_resources(
    new: &Pod,
    whole: Option<Option<ResourceRequirements>>,
    of: impl Fn(&str) -> Option<Option<ResourceRequirements>>,
) -> Option<Arc<Pod>> {
    let mut pod = new.clone();
    let own = pod.spec.as_mut()?;
    let mut differs = false;
    if let Some(given) = whole
        && !same(own.resources.as_ref(), given.as_ref())
    {
        own.resources = given;
        differs = true;
    }
    let mut change = |container: &mut Container| {
        if let Some(given) = of(&container.name)
            && !same(container.resources.as_ref(), given.as_ref())
        {
            container.resources = given;
            differs = true;
        }
    };
    own.containers.iter_mut().for_each(&mut change);
    own.init_containers.iter_mut().flatten().for_each(&mut change);
    differs.then(|| Arc::new(pod))
}

/// Whether CPU and memory are the same amounts.
pub fn same(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    RESIZED.iter().all(|resource| same_resource(a, b, resource))
}

/// Whether the amounts of one resource are the same.
pub fn same_resource(
    a: Option<&ResourceRequirements>,
    b: Option<&ResourceRequirements>,
    resource: &str,
) -> bool {
    let amounts = |of: Option<&ResourceRequirements>| {
        let list = |list: Option<&Quantities>| {
            list.and_then(|list| list.get(resource)).map(|quantity| spec::amount(resource, quantity))
        };
        of.map_or((None, None), |of| (list(of.requests.as_ref()), list(of.limits.as_ref())))
    };
    amounts(a) == amounts(b)
}

/// Whether two versions of a pod differ in the CPUs of a container or of the pod as a whole.
pub fn changes_cpu(a: &Pod, b: &Pod) -> bool {
    let (a, b) = (spec::spec(a), spec::spec(b));
    let differ =
        |a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>| !same_resource(a, b, "cpu");
    let of = |a: &[Container], b: &[Container]| {
        a.iter().zip(b).any(|(a, b)| differ(a.resources.as_ref(), b.resources.as_ref()))
    };
    differ(a.resources.as_ref(), b.resources.as_ref())
        || of(&a.containers, &b.containers)
        || of(
            a.init_containers.as_deref().unwrap_or_default(),
            b.init_containers.as_deref().unwrap_or_default(),
        )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(whole: Value, container: Value, init: Value) -> Pod {
        let spec = json!({"resources": whole, "containers": [{"name": "c", "resources": container}],
            "initContainers": [{"name": "i", "resources": init}]});
        serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap()
    }

    fn cpu(requests: &str, limits: &str) -> Value {
        json!({"requests": {"cpu": requests}, "limits": {"cpu": limits}})
    }

    #[test]
    fn a_resize_waits_until_it_is_accepted() {
        let given = pod(cpu("1", "2"), cpu("500m", "1"), cpu("1", "1"));
        for same in [&given, &pod(cpu("1000m", "2"), cpu("0.5", "1"), cpu("1", "1"))] {
            assert_eq!(keep(same, &given), None);
        }
        for new in [
            pod(cpu("2", "2"), cpu("500m", "1"), cpu("1", "1")),
            pod(Value::Null, cpu("500m", "1"), cpu("1", "1")),
            pod(cpu("1", "2"), cpu("500m", "2"), cpu("1", "1")),
            pod(cpu("1", "2"), cpu("500m", "1"), cpu("2", "2")),
        ] {
            assert_eq!(keep(&new, &given).as_deref(), Some(&given));
            assert!(changes_cpu(&new, &given));
        }
        let mut labelled = pod(cpu("2", "2"), cpu("500m", "1"), cpu("1", "1"));
        labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let kept = keep(&labelled, &given).unwrap();
        assert_eq!((&kept.metadata.labels, &kept.spec), (&labelled.metadata.labels, &given.spec));
    }

    #[test]
    fn the_status_records_what_was_given() {
        let asked = pod(cpu("2", "4"), cpu("1", "2"), cpu("1", "2"));
        let given = |name: &str, requests: &str, limits: &str| {
            json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": cpu(requests, limits), "allocatedResources": {"cpu": requests}})
        };
        let status = |value: Value| -> PodStatus { serde_json::from_value(value).unwrap() };
        let all = status(json!({"resources": cpu("2", "4"), "allocatedResources": {"cpu": "2"},
            "containerStatuses": [given("c", "1", "2")], "initContainerStatuses": [given("i", "1", "2")]}));
        assert_eq!(recorded(&asked, &all), None);
        assert_eq!(recorded(&asked, &PodStatus::default()), None, "nothing was given yet");
        let older = status(json!({"resources": cpu("9", "3"), "allocatedResources": {"cpu": "1"},
            "containerStatuses": [given("c", "500m", "1")]}));
        let want = pod(cpu("1", "3"), cpu("500m", "1"), cpu("1", "2"));
        assert_eq!(recorded(&asked, &older).as_deref(), Some(&want));
    }
}
