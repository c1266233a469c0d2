//! Resources that the node has given to a pod: until a resize is accepted they are not those of its spec. Pure.

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::spec::{self, Qos};

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
/// The status is the record of what was given, for a restart of the agent. It has the limits that are there, which may not be
/// those that were given: as no resize changes the quality of service, a record of another one is none.
pub fn recorded(pod: &Pod, status: &PodStatus) -> Option<Arc<Pod>> {
    let own = spec::spec(pod);
    let class = spec::qos(&own);
    let as_a_whole = !same(own.resources.as_ref(), None);
    let all = || status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let of = |name: &str| {
        let status = all().find(|status| status.name == name)?;
        let has = status.resources.as_ref()?;
        let (_, container) = spec::container(&own, name)?;
        let requests = status.allocated_resources.as_ref().or(has.requests.as_ref());
        let limits = given_limits(class == Qos::Guaranteed && !as_a_whole, requests, has.limits.as_ref());
        Some(Some(ResourceRequirements {
            requests: recorded_list(
                container.resources.as_ref().and_then(|asked| asked.requests.as_ref()),
                requests,
            ),
            limits: recorded_list(
                container.resources.as_ref().and_then(|asked| asked.limits.as_ref()),
                limits,
            ),
            claims: container.resources.as_ref().and_then(|asked| asked.claims.clone()),
        }))
    };
    let whole = own.resources.as_ref().zip(status.resources.as_ref()).map(|(asked, has)| {
        let requests = without(own.overhead.as_ref(), status.allocated_resources.as_ref());
        let limits = without(own.overhead.as_ref(), has.limits.as_ref());
        let limits = given_limits(class == Qos::Guaranteed, requests.as_ref(), limits.as_ref());
        Some(ResourceRequirements {
            requests: recorded_list(asked.requests.as_ref(), requests.as_ref()),
            limits: recorded_list(asked.limits.as_ref(), limits),
            claims: asked.claims.clone(),
        })
    });
    with_resources(pod, whole, of).filter(|given| spec::qos(&spec::spec(given)) == class)
}

/// The limits that were given: what is guaranteed is its limit too.
fn given_limits<'a>(
    is_guaranteed: bool,
    requests: Option<&'a Quantities>,
    limits: Option<&'a Quantities>,
) -> Option<&'a Quantities> {
    requests.filter(|_| is_guaranteed).or(limits)
}

/// What the status says of the pod as a whole has the overhead in it, which is none of what the pod asks for.
fn without(overhead: Option<&Quantities>, list: Option<&Quantities>) -> Option<Quantities> {
    let mut list = list?.clone();
    for (name, more) in overhead.into_iter().flatten() {
        if let Some(quantity) = list.get_mut(name) {
            let left = spec::amount(name, quantity).saturating_sub(spec::amount(name, more));
            *quantity = Quantity(if name == "cpu" { format!("{left}m") } else { left.to_string() });
        }
    }
    Some(list)
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

    #[test]
    fn what_was_given_has_the_class_of_the_pod() {
        let sizes = |cpu: &str, memory: &str| {
            let list = json!({"cpu": cpu, "memory": memory});
            json!({"requests": list, "limits": list})
        };
        // Less memory was given, and its limit is not written because more is used.
        let has =
            json!({"requests": {"cpu": "1", "memory": "24Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}});
        let given = json!({"cpu": "1", "memory": "24Mi"});
        let status: PodStatus = serde_json::from_value(json!({"resources": has, "allocatedResources": given,
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": has, "allocatedResources": given}]}))
        .unwrap();
        let asked = |memory: &str| pod(Value::Null, sizes("1", memory), sizes("1", "24Mi"));
        assert_eq!(recorded(&asked("24Mi"), &status), None);
        assert_eq!(recorded(&asked("64Mi"), &status).as_deref(), Some(&asked("24Mi")));
        let whole = |memory: &str| pod(sizes("1", memory), sizes("1", "24Mi"), sizes("1", "24Mi"));
        let kept = recorded(&whole("64Mi"), &status).unwrap();
        assert_eq!(kept.spec.as_ref().unwrap().resources, whole("24Mi").spec.unwrap().resources);
    }

    #[test]
    fn overhead_was_not_asked_for() {
        let list = Some([("cpu".to_owned(), Quantity("250m".to_owned()))].into());
        let mut asked = pod(cpu("2", "4"), Value::Null, Value::Null);
        asked.spec.as_mut().unwrap().overhead = list;
        let status: PodStatus = serde_json::from_value(
            json!({"resources": cpu("2250m", "4250m"), "allocatedResources": {"cpu": "2250m"}}),
        )
        .unwrap();
        assert_eq!(recorded(&asked, &status), None);
    }
}
