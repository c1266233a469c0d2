//! How many replicas a metric asks for. No clock, no tasks.

use super::metrics::PodUsage;
use coracle_fields::core::v1::{Pod, ResourceRequirements};
use coracle_fields::{Schema as _, View};
use coracle_informer::time;
use coracle_kinds::registry::usage::quantity;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How long after its start a pod's CPU is not taken at its word, in seconds.
const CPU_INITIALIZATION: i64 = 300;
/// Within how many seconds of its start a pod becomes ready for the first time.
const INITIAL_READINESS: i64 = 30;

/// What is aimed at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// Percent of what is requested.
    Utilization(i64),
    /// Thousandths per pod.
    Average(i64),
}

/// How far off is near enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Below.
    pub down: f64,
    /// Above.
    pub up: f64,
}

impl Tolerance {
    /// Whether a ratio is near enough to 1.
    pub fn within(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// What is measured of which pods.
pub struct ReplicaCalculation<'a> {
    /// Such as `cpu`.
    pub resource: &'a str,
    /// Only this container.
    pub container: Option<&'a str>,
    /// What is aimed at.
    pub target: Target,
    /// How far off is near enough.
    pub tolerance: Tolerance,
    /// Replicas as they are.
    pub current: i64,
    /// The pods.
    pub pods: &'a [Value],
    /// What they used.
    pub usage: &'a BTreeMap<String, PodUsage>,
    /// The time.
    pub now: Timestamp,
}

/// The answer.
#[derive(Debug, PartialEq)]
pub struct Recommendation {
    /// How many there should be.
    pub replicas: i64,
    /// Percent of what is requested, for utilization.
    pub utilization: Option<i64>,
    /// Thousandths per pod.
    pub average: i64,
}

/// Why a metric says nothing about replicas.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicasError {
    /// The target has no pods.
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    /// None of the pods that count is measured.
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    NoMetrics,
    /// What is measured has no requests to compare with.
    #[error("no metrics returned matched known pods")]
    NoRequests,
    /// A container does not say what it asks for.
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    MissingRequest {
        /// The resource that is measured.
        resource: String,
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
    },
}

#[derive(Default)]
struct Groups {
    ready: i64,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

fn name(pod: &Value) -> String {
    Pod::of(pod).metadata().name().text().to_owned()
}

impl ReplicaCalculation<'_> {
    /// How many replicas there should be.
    pub fn calculate(&self) -> Result<Recommendation, ReplicasError> {
        if self.pods.is_empty() {
            return Err(ReplicasError::NoPods);
        }
        let groups = self.group();
        let mut values: BTreeMap<String, i64> = BTreeMap::new();
        for (pod, usage) in self.usage {
            let ours = self.pods.iter().any(|p| Pod::of(p).metadata().name() == pod.as_str());
            if let Some(value) = usage.of(self.resource, self.container).filter(|_| ours)
                && !groups.ignored.contains(pod)
                && !groups.unready.contains(pod)
            {
                values.insert(pod.clone(), value);
            }
        }
        if values.is_empty() {
            return Err(ReplicasError::NoMetrics);
        }
        let requests = match self.target {
            Target::Utilization(_) => self.requests()?,
            Target::Average(_) => BTreeMap::new(),
        };
        let (ratio, utilization, average) = self.ratio(&values, &requests)?;
        let done = |replicas: i64| Ok(Recommendation { replicas, utilization, average });
        let starting = !groups.unready.is_empty() && ratio > 1.0;
        if !starting && groups.missing.is_empty() {
            let wanted = (ratio * groups.ready as f64).ceil() as i64;
            return done(if self.tolerance.within(ratio) { self.current } else { wanted });
        }
        for pod in &groups.missing {
            // Who is not measured is taken for whatever changes least.
            let guess = if ratio < 1.0 {
                match self.target {
                    Target::Utilization(percent) => {
                        requests.get(pod).copied().unwrap_or(0).saturating_mul(percent.max(100)) / 100
                    }
                    Target::Average(target) => target,
                }
            } else if ratio > 1.0 {
                0
            } else {
                continue;
            };
            values.insert(pod.clone(), guess);
        }
        if starting {
            values.extend(groups.unready.iter().map(|pod| (pod.clone(), 0)));
        }
        let (again, ..) = self.ratio(&values, &requests)?;
        if self.tolerance.within(again) || (ratio < 1.0 && again > 1.0) || (ratio > 1.0 && again < 1.0) {
            return done(self.current);
        }
        let wanted = (again * values.len() as f64).ceil() as i64;
        if (again < 1.0 && wanted > self.current) || (again > 1.0 && wanted < self.current) {
            return done(self.current);
        }
        done(wanted)
    }

    fn ratio(
        &self,
        values: &BTreeMap<String, i64>,
        requests: &BTreeMap<String, i64>,
    ) -> Result<(f64, Option<i64>, i64), ReplicasError> {
        match self.target {
            Target::Average(target) => {
                let average =
                    values.values().copied().fold(0, i64::saturating_add) / values.len().max(1) as i64;
                Ok((average as f64 / target.max(1) as f64, None, average))
            }
            Target::Utilization(target) => {
                let known: Vec<(i64, i64)> =
                    values.iter().filter_map(|(pod, v)| Some((*v, *requests.get(pod)?))).collect();
                let (used, asked) = known.iter().fold((0i64, 0i64), |sum, one| {
                    (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
                });
                if asked == 0 {
                    return Err(ReplicasError::NoRequests);
                }
                let percent = used.saturating_mul(100) / asked;
                Ok((percent as f64 / target.max(1) as f64, Some(percent), used / known.len() as i64))
            }
        }
    }

    fn group(&self) -> Groups {
        let mut groups = Groups::default();
        for pod in self.pods {
            let view = Pod::of(pod);
            let phase = view.status().phase().or("Pending");
            let measured = self.usage.get(&name(pod));
            let measured = measured.filter(|usage| usage.of(self.resource, self.container).is_some());
            if view.metadata().deletion_timestamp().is_set() || phase == "Failed" {
                groups.ignored.insert(name(pod));
            } else if phase == "Pending" {
                groups.unready.insert(name(pod));
            } else if let Some(usage) = measured {
                if self.resource == "cpu" && self.unready(view, usage) {
                    groups.unready.insert(name(pod));
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name(pod));
            }
        }
        groups
    }

    /// Whether a pod's CPU says nothing yet: it is starting, or was never ready.
    fn unready(&self, pod: View<'_, Pod>, usage: &PodUsage) -> bool {
        let ready = pod.status().conditions().items().find(|c| c.type_() == "Ready");
        let start = time::parse(pod.status().start_time().get());
        let (Some(ready), Some(start)) = (ready, start) else { return true };
        let is_false = ready.status() == "False";
        let turned = time::parse(ready.last_transition_time().get()).unwrap_or(start);
        if time::after(start, CPU_INITIALIZATION) > self.now {
            return is_false || usage.at < time::after(turned, usage.window);
        }
        is_false && time::after(start, INITIAL_READINESS) > turned
    }

    /// What each pod asks for, in thousandths.
    fn requests(&self) -> Result<BTreeMap<String, i64>, ReplicasError> {
        let request = |resources: View<'_, ResourceRequirements>| {
            quantity(&resources.requests().key(self.resource).to_value())
        };
        let mut all = BTreeMap::new();
        for pod in self.pods {
            let spec = Pod::of(pod).spec();
            let whole = request(spec.resources());
            if let Some(whole) = whole.filter(|_| self.container.is_none()) {
                all.insert(name(pod), whole.milli_value());
                continue;
            }
            let sidecars = spec.init_containers().items().filter(|c| c.restart_policy() == "Always");
            let all_containers = spec.containers().items().chain(sidecars);
            let mut sum = 0;
            for container in all_containers.filter(|c| self.container.is_none_or(|name| c.name() == name)) {
                let missing = || ReplicasError::MissingRequest {
                    resource: self.resource.to_owned(),
                    container: container.name().text().to_owned(),
                    pod: name(pod),
                };
                sum += request(container.resources()).ok_or_else(missing)?.milli_value();
            }
            all.insert(name(pod), sum);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        time::after(Timestamp::UNIX_EPOCH, seconds)
    }

    fn pod(name: &str, phase: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Ki"}}}]},
            "status": {"phase": phase, "startTime": "1970-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"}]}})
    }

    fn used(cpu: i64) -> PodUsage {
        let usage = BTreeMap::from([("cpu".to_owned(), cpu), ("memory".to_owned(), cpu)]);
        PodUsage { at: at(990), window: 30, containers: BTreeMap::from([("c".into(), usage)]) }
    }

    fn ask(target: Target, pods: &[Value], usage: &[(&str, i64)]) -> Result<i64, ReplicasError> {
        let usage = usage.iter().map(|(pod, cpu)| ((*pod).to_owned(), used(*cpu))).collect();
        let question = ReplicaCalculation {
            resource: "cpu",
            container: None,
            target,
            tolerance: Tolerance { down: 0.1, up: 0.1 },
            current: pods.len() as i64,
            pods,
            usage: &usage,
            now: at(1000),
        };
        question.calculate().map(|answer| answer.replicas)
    }

    #[test]
    fn replicas_follow_the_ratio() {
        let pods = [pod("a", "Running"), pod("b", "Running")];
        let half = Target::Utilization(50);
        assert_eq!(ask(half, &pods, &[("a", 1000), ("b", 1000)]), Ok(4));
        assert_eq!(ask(half, &pods, &[("a", 520), ("b", 500)]), Ok(2), "near enough");
        assert_eq!(ask(half, &pods, &[("a", 100), ("b", 100)]), Ok(1));
        assert_eq!(ask(Target::Average(250), &pods, &[("a", 500), ("b", 500)]), Ok(4));
    }

    #[test]
    fn who_is_not_measured_changes_little() {
        let pods = [pod("a", "Running"), pod("b", "Running")];
        let half = Target::Utilization(50);
        assert_eq!(ask(half, &pods, &[("a", 100)]), Ok(2), "the other may use everything");
        assert_eq!(ask(half, &pods, &[("a", 2000)]), Ok(4), "the other may use nothing");
        let starting = [pod("a", "Running"), pod("b", "Pending")];
        assert_eq!(ask(half, &starting, &[("a", 1000)]), Ok(2));
        assert_eq!(ask(half, &pods, &[]), Err(ReplicasError::NoMetrics));
        assert_eq!(ask(half, &[], &[]), Err(ReplicasError::NoPods));
        let mut silent = pod("a", "Running");
        silent["spec"]["containers"][0]["resources"] = json!({});
        assert_eq!(
            ask(half, &[silent], &[("a", 1)]).unwrap_err().to_string(),
            "missing request for cpu in container c of Pod a"
        );
    }

    #[test]
    fn pods_that_start_are_not_taken_at_their_word() {
        let mut fresh = pod("a", "Running");
        fresh["status"]["startTime"] = json!("1970-01-01T00:16:00Z");
        fresh["status"]["conditions"][0]["lastTransitionTime"] = json!("1970-01-01T00:16:30Z");
        let refused = ask(Target::Utilization(50), &[fresh], &[("a", 9000)]).unwrap_err();
        assert!(refused.to_string().starts_with("did not receive metrics"), "{refused}");
    }
}
