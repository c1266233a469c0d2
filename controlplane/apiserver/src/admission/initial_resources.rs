//! InitialResources: fills in missing requests of containers from what containers of the same image used in the past.

use super::config::{Configuration, ConfigurationError, PluginError};
use super::request_bounds::RequestBounds;
use super::{Attributes, Operation, Phase, Plugin};
use crate::usage_history::{Estimate, Resource, UsageHistory};
use async_trait::async_trait;
use coracle_fields::core::v1::{Container, Pod};
use coracle_fields::{Edit, Schema as _};
use coracle_proto::status::{ApiError, FieldError};
use coracle_proto::time::{format_duration, parse_duration};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Name of the plugin.
pub const NAME: &str = "InitialResources";
/// Pods with more containers are left alone: no more of a pod are sampled, and admission runs before the size of a pod is checked.
const MOST_CONTAINERS: usize = 256;
/// Says what was set, and from where.
const NOTE: &str = "kubernetes.io/initial-resources";

/// Settings of the plugin and of the history that it uses.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Which of a hundred samples is the request.
    percentile: u8,
    /// Samples that are older do not count.
    #[serde(deserialize_with = "duration")]
    window: Duration,
    /// Fewer samples are no history.
    minimum_samples: u64,
    /// Whether samples of other namespaces do not count.
    namespace_only: bool,
    /// How often usage is sampled.
    #[serde(deserialize_with = "duration")]
    sample_interval: Duration,
    /// How many containers the history has, by image, name and namespace.
    max_entries: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            percentile: 90,
            window: Duration::from_secs(7 * 24 * 3600),
            minimum_samples: 30,
            namespace_only: false,
            sample_interval: Duration::from_secs(60),
            max_entries: 1000,
        }
    }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let nanos = parse_duration(&text).map_err(D::Error::custom)?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| D::Error::custom("must not be negative"))
}

impl Settings {
    /// Those in the configuration, or the defaults.
    pub fn read(configuration: &Configuration) -> Result<Self, ConfigurationError> {
        configuration.of(NAME)
    }

    /// How often usage is sampled.
    pub fn sample_interval(&self) -> Duration {
        self.sample_interval
    }

    /// An empty history for these settings.
    pub fn history(&self) -> UsageHistory {
        UsageHistory::new(self.window, self.max_entries)
    }

    fn errors(&self) -> Vec<FieldError> {
        fn within<T: PartialOrd + std::fmt::Display>(
            (field, value): (&str, T),
            range: RangeInclusive<T>,
            unit: &str,
        ) -> Option<FieldError> {
            let why = format!("must be between {} and {}{unit}", range.start(), range.end());
            let shown = Value::from(value.to_string());
            (!range.contains(&value)).then(|| FieldError::invalid(field, &shown, &why))
        }
        let checks = [
            within(("percentile", self.percentile), 1..=100, ""),
            within(("window", self.window.as_secs()), 60..=90 * 24 * 3600, " seconds"),
            within(("minimumSamples", self.minimum_samples), 1..=1_000_000, ""),
            within(("sampleInterval", self.sample_interval.as_secs()), 1..=3600, " seconds"),
            within(("maxEntries", self.max_entries), 1..=10_000, ""),
        ];
        checks.into_iter().flatten().collect()
    }
}

/// The plugin.
pub struct InitialResources {
    settings: Settings,
    /// None when the plugin is off.
    history: Option<Arc<UsageHistory>>,
}

impl InitialResources {
    /// The plugin, with the history that the server keeps for it.
    pub fn new(
        configuration: &Configuration,
        history: Option<Arc<UsageHistory>>,
    ) -> Result<Self, ConfigurationError> {
        Ok(Self { settings: Settings::read(configuration)?, history })
    }
}

#[async_trait]
impl Plugin for InitialResources {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ready(&self) -> Result<(), PluginError> {
        let errors = self.settings.errors();
        if errors.is_empty() { Ok(()) } else { Err(PluginError::Invalid(errors)) }
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate && at.operation == Operation::Create && at.is("", "pods")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        if let Some(history) = &self.history {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let past = Past {
                settings: &self.settings,
                history,
                namespace: at.namespace,
                now: now.unwrap_or_default().as_secs(),
            };
            // LimitRanger sets limits afterwards, and requests must not exceed them.
            let ranges = at.cached("", "limitranges", Some(at.namespace));
            let ranges: Vec<_> = ranges.iter().map(|range| range.doc()).collect();
            past.fill(object, &RequestBounds::of(ranges.iter().map(|range| range.view())));
        }
        Ok(())
    }
}

/// Estimates by image, name of the container and resource, with where they are from: containers that are alike are looked up once.
type Known = HashMap<(String, String, &'static str), Option<(Estimate, String)>>;

/// What is known about containers of a namespace.
struct Past<'a> {
    settings: &'a Settings,
    history: &'a UsageHistory,
    namespace: &'a str,
    now: u64,
}

impl Past<'_> {
    fn fill(&self, object: &mut Value, bounds: &RequestBounds) {
        let spec = Pod::of(object).spec();
        let containers = spec.containers().len() + spec.init_containers().len();
        // Requests of the whole pod leave nothing open.
        if spec.resources().is_set() || containers > MOST_CONTAINERS {
            return;
        }
        let mut pod = Pod::edit(object);
        let (mut notes, mut known) = (Vec::new(), Known::new());
        let mut spec = pod.spec();
        let mut fill = |what: &str, container: Edit<'_, Container>| {
            self.fill_container(what, container, (bounds, &mut known), &mut notes)
        };
        spec.init_containers().each(|container| fill("init container", container));
        spec.containers().each(|container| fill("container", container));
        if !notes.is_empty() {
            let note = format!("Initial Resources plugin set: {}", notes.join("; "));
            pod.metadata().annotations().insert(NOTE, note);
        }
    }

    /// Sets cpu and memory of a container that says neither request nor limit of them.
    fn fill_container(
        &self,
        what: &str,
        mut container: Edit<'_, Container>,
        (bounds, known): (&RequestBounds, &mut Known),
        notes: &mut Vec<String>,
    ) {
        let view = container.view();
        let (name, image) = (view.name().text().to_owned(), view.image().text().to_owned());
        for (key, resource, unit) in [("cpu", Resource::Cpu, "m"), ("memory", Resource::Memory, "Ki")] {
            let resources = container.view().resources();
            if resources.requests().has_key(key) || resources.limits().has_key(key) {
                continue;
            }
            let of = (image.clone(), name.clone(), key);
            let found = known.entry(of).or_insert_with(|| self.estimate((&image, &name), resource));
            let Some((found, scope)) = found else { continue };
            let estimate = format!("{}{unit}", found.amount);
            let Some(amount) = bounds.nearest(key, &estimate) else { continue };
            let bounded = (amount != estimate).then(|| format!("{amount} is what LimitRanges allow, "));
            let bounded = bounded.unwrap_or_default();
            notes.push(format!(
                "{key} request for {what} {name} ({bounded}{estimate} is the {}th percentile of {} samples of image {image} in {scope} within {})",
                self.settings.percentile,
                found.samples,
                format_duration(i64::try_from(self.settings.window.as_nanos()).unwrap_or(i64::MAX)),
            ));
            container.resources().requests().insert(key, amount);
        }
    }

    /// From the namespace, or from all of them when it has too few samples.
    fn estimate(&self, of: (&str, &str), resource: Resource) -> Option<(Estimate, String)> {
        let within = |namespace: Option<&str>| {
            let found = self.history.estimate(of, namespace, resource, self.settings.percentile, self.now);
            found.filter(|found| found.samples >= self.settings.minimum_samples)
        };
        if let Some(own) = within(Some(self.namespace)) {
            return Some((own, format!("namespace {}", self.namespace)));
        }
        if self.settings.namespace_only {
            return None;
        }
        Some((within(None)?, "all namespaces".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::usage_history::{Entry, Sample};
    use coracle_fields::core::v1::LimitRange;
    use serde_json::json;

    const NOW: u64 = 1_000_000_000;

    fn past<'a>(settings: &'a Settings, history: &'a UsageHistory, namespace: &'a str) -> Past<'a> {
        Past { settings, history, namespace, now: NOW }
    }

    fn sampled(settings: &Settings, namespace: &str, times: usize) -> UsageHistory {
        let history = settings.history();
        let of = Entry { image: "shop:1".into(), container: "c".into(), namespace: namespace.into() };
        let sample = Sample { of, milli_cpus: 200, kibibytes: 65_536 };
        history.record(vec![sample; times], NOW);
        history
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {}, "spec": {"containers": [{"name": "c", "image": "shop:1", "resources": resources}]}})
    }

    #[test]
    fn missing_requests_are_filled_in_with_a_note() {
        let settings = Settings::default();
        let history = sampled(&settings, "shop", 30);
        let mut new = pod(json!({}));
        past(&settings, &history, "shop").fill(&mut new, &RequestBounds::default());
        let requests = &new["spec"]["containers"][0]["resources"]["requests"];
        let number = |text: &Value, unit: &str| {
            text.as_str().unwrap().strip_suffix(unit).unwrap().parse::<u64>().unwrap()
        };
        assert!((200..=210).contains(&number(&requests["cpu"], "m")), "{requests}");
        assert!((65_536..=68_900).contains(&number(&requests["memory"], "Ki")), "{requests}");
        let note = new["metadata"]["annotations"][NOTE].as_str().unwrap();
        assert!(note.starts_with("Initial Resources plugin set: cpu request for container c ("), "{note}");
        assert!(
            note.contains("90th percentile of 30 samples of image shop:1 in namespace shop within 168h0m0s"),
            "{note}"
        );
    }

    #[test]
    fn pods_with_very_many_containers_are_left_alone() {
        let settings = Settings::default();
        let history = sampled(&settings, "shop", 30);
        for (count, filled) in [(MOST_CONTAINERS, true), (MOST_CONTAINERS + 1, false)] {
            let mut new = pod(json!({}));
            let one = new["spec"]["containers"][0].clone();
            new["spec"]["initContainers"] = vec![one; count - 1].into();
            past(&settings, &history, "shop").fill(&mut new, &RequestBounds::default());
            let init = new["spec"]["initContainers"].as_array().unwrap();
            let requests = |container: &Value| container["resources"]["requests"].clone();
            assert_eq!(requests(&new["spec"]["containers"][0]).is_object(), filled, "{count}");
            assert!(
                init.iter().all(|container| requests(container) == requests(&new["spec"]["containers"][0]))
            );
        }
    }

    #[test]
    fn requests_are_within_limit_ranges() {
        let settings = Settings::default();
        let history = sampled(&settings, "shop", 30);
        let item =
            json!({"type": "Container", "default": {"cpu": "100m"}, "maxLimitRequestRatio": {"memory": "2"}});
        let range = json!({"spec": {"limits": [item]}});
        let mut new = pod(json!({}));
        let bounds = RequestBounds::of([LimitRange::of(&range)].into_iter());
        past(&settings, &history, "shop").fill(&mut new, &bounds);
        assert_eq!(new["spec"]["containers"][0]["resources"], json!({"requests": {"cpu": "100m"}}));
        let note = new["metadata"]["annotations"][NOTE].as_str().unwrap();
        assert!(note.contains("(100m is what LimitRanges allow, 20"), "{note}");
    }

    #[test]
    fn what_is_said_or_unknown_stays() {
        let settings = Settings::default();
        let history = sampled(&settings, "shop", 30);
        let filled = |history: &UsageHistory, namespace: &str, resources: Value| {
            let mut new = pod(resources);
            past(&settings, history, namespace).fill(&mut new, &RequestBounds::default());
            let requests = new["spec"]["containers"][0]["resources"]["requests"].as_object();
            requests.map_or(0, |requests| requests.len())
        };
        assert_eq!(
            filled(&history, "shop", json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}})),
            1
        );
        assert_eq!(filled(&history, "shop", json!({"limits": {"memory": "1Gi"}})), 1, "only the CPU");
        assert_eq!(filled(&history, "other", json!({})), 2, "from all namespaces");
        assert_eq!(filled(&sampled(&settings, "shop", 29), "shop", json!({})), 0, "too few samples");
        let own = Settings { namespace_only: true, ..Settings::default() };
        let mut new = pod(json!({}));
        past(&own, &history, "other").fill(&mut new, &RequestBounds::default());
        assert_eq!(new, pod(json!({})));
        let mut whole = pod(json!({}));
        whole["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
        let before = whole.clone();
        past(&settings, &history, "shop").fill(&mut whole, &RequestBounds::default());
        assert_eq!(whole, before, "requests of the pod");
    }

    #[test]
    fn settings_are_read_and_checked() {
        let read = |value: Value| {
            let plugin = InitialResources::new(&Configuration::with(NAME, value), None);
            plugin.map_err(|error| error.to_string())?.ready().map_err(|error| error.to_string())
        };
        assert_eq!(read(json!({"percentile": 50, "window": "24h", "sampleInterval": "30s"})), Ok(()));
        for (wrong, word) in [
            (json!({"percentile": 0}), "percentile: Invalid value"),
            (json!({"window": "1s"}), "must be between 60 and 7776000 seconds"),
            (json!({"window": "-1h"}), "must not be negative"),
            (json!({"maxEntries": 0}), "maxEntries"),
            (json!({"maxEntries": 10_001}), "must be between 1 and 10000"),
            (json!({"percent": 50}), "unknown field"),
        ] {
            let said = read(wrong.clone()).unwrap_err();
            assert!(said.contains(word), "{wrong}: {said}");
        }
    }
}
