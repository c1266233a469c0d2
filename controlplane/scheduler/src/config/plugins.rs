//! Which plugins there are, at which extension points they act, and which of them a profile has.

use super::reader::{At, FieldError, Object, Problem};
use crate::profile::Profile;
use crate::rejection::Plugin;
use crate::scores::Weights;
use std::collections::BTreeMap;

/// Extension points of a profile.
const POINTS: [&str; 15] = [
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "multiPoint",
    "placementGenerate",
    "placementScore",
];

/// Plugins with the points at which they act, by upstream's names. The points before `filter` and `score`, and those after,
/// prepare and complete them: they cannot be off alone.
static PLUGINS: [(&str, &[&str]); 20] = [
    ("SchedulingGates", &["preEnqueue"]),
    ("PrioritySort", &["queueSort"]),
    ("NodeUnschedulable", &["filter"]),
    ("NodeName", &["filter"]),
    ("TaintToleration", &["filter", "preScore", "score"]),
    ("NodeAffinity", &["preFilter", "filter", "preScore", "score"]),
    ("NodePorts", &["preFilter", "filter"]),
    ("NodeResourcesFit", &["preFilter", "filter", "preScore", "score"]),
    ("VolumeRestrictions", &["preFilter", "filter"]),
    ("NodeVolumeLimits", &["preFilter", "filter"]),
    ("VolumeBinding", &["preFilter", "filter", "reserve", "preBind"]),
    ("VolumeZone", &["preFilter", "filter"]),
    ("PodTopologySpread", &["preFilter", "filter", "preScore", "score"]),
    ("InterPodAffinity", &["preFilter", "filter", "preScore", "score"]),
    ("DynamicResources", &["preEnqueue", "preFilter", "filter", "postFilter", "reserve", "preBind"]),
    ("DefaultPreemption", &["postFilter"]),
    ("NodeResourcesBalancedAllocation", &["preScore", "score"]),
    ("ImageLocality", &["score"]),
    ("DefaultBinder", &["bind"]),
    ("NodeDeclaredFeatures", &["preFilter", "filter"]),
];

/// Plugins of upstream for features that this scheduler does not have: they can only be disabled.
const ABSENT: [&str; 3] = ["GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount"];

/// The largest weight: sums of scores stay far from the end of the number's range.
const MOST: i64 = 1_000_000_000;

/// The rule of a plugin that filters.
pub(super) fn filter(name: &str) -> Option<Plugin> {
    Some(match name {
        "SchedulingGates" => Plugin::SchedulingGates,
        "NodeUnschedulable" => Plugin::NodeUnschedulable,
        "NodeName" => Plugin::NodeName,
        "TaintToleration" => Plugin::TaintToleration,
        "NodeAffinity" => Plugin::NodeAffinity,
        "NodePorts" => Plugin::NodePorts,
        "NodeResourcesFit" => Plugin::NodeResourcesFit,
        "VolumeRestrictions" => Plugin::VolumeRestrictions,
        "NodeVolumeLimits" => Plugin::NodeVolumeLimits,
        "VolumeBinding" => Plugin::VolumeBinding,
        "VolumeZone" => Plugin::VolumeZone,
        "PodTopologySpread" => Plugin::PodTopologySpread,
        "InterPodAffinity" => Plugin::InterPodAffinity,
        "DynamicResources" => Plugin::DynamicResources,
        "NodeDeclaredFeatures" => Plugin::NodeDeclaredFeatures,
        _ => return None,
    })
}

/// The weight of a plugin that scores.
pub(super) fn weight<'w>(weights: &'w mut Weights, name: &str) -> Option<&'w mut i64> {
    Some(match name {
        "TaintToleration" => &mut weights.taints,
        "NodeAffinity" => &mut weights.node_affinity,
        "PodTopologySpread" => &mut weights.spread,
        "InterPodAffinity" => &mut weights.pod_affinity,
        "NodeResourcesFit" => &mut weights.fit,
        "NodeResourcesBalancedAllocation" => &mut weights.balance,
        "ImageLocality" => &mut weights.images,
        _ => return None,
    })
}

/// Names of all plugins that filter.
pub(super) fn filters() -> impl Iterator<Item = &'static str> {
    PLUGINS.iter().filter(|(_, points)| points.contains(&"filter")).map(|(name, _)| *name)
}

/// Whether a plugin exists here or upstream.
pub(super) fn is_known(name: &str) -> bool {
    PLUGINS.iter().any(|(known, _)| *known == name) || ABSENT.contains(&name)
}

/// What a file says about one extension point.
#[derive(Debug, Default)]
struct Set {
    /// With weights, 0 for none.
    enabled: BTreeMap<&'static str, i64>,
    disabled: Vec<String>,
    path: String,
}

impl Set {
    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|other| other == name || other == "*")
    }
}

/// The rules and weights of a profile.
pub(super) fn profile(object: &Object<'_>) -> Result<Profile, FieldError> {
    let Some(plugins) = object.get("plugins") else { return Ok(Profile::default()) };
    let fields = plugins.object()?;
    fields.only(&POINTS)?;
    let mut sets: BTreeMap<&str, Set> = BTreeMap::new();
    for point in POINTS {
        sets.insert(point, set(&fields.at(point), point)?);
    }
    let is_on = |name: &str, point: &str| {
        let (all, own) = (&sets["multiPoint"], &sets[point]);
        own.enabled.contains_key(name)
            || ((all.enabled.contains_key(name) || !all.disables(name)) && !own.disables(name))
    };
    let mut profile = Profile::default();
    for (name, points) in PLUGINS {
        let main = |point: &&&str| matches!(**point, "filter" | "score");
        for point in points.iter().filter(main).filter(|point| is_on(name, point)) {
            let needed = |other: &&&str| match *point {
                "filter" => matches!(**other, "preFilter" | "reserve" | "preBind"),
                _ => **other == "preScore",
            };
            if let Some(missing) = points.iter().filter(needed).find(|other| !is_on(name, other)) {
                let path = format!("{}.disabled", sets[*missing].path);
                let detail = format!("cannot be off while the plugin is on for {point}");
                return Err(FieldError { path, problem: Problem::Invalid { value: name.into(), detail } });
            }
        }
        let point = if points.contains(&"filter") { "filter" } else { points[0] };
        if let Some(plugin) = filter(name).filter(|_| !is_on(name, point)) {
            profile.rules_mut().skipped.insert(plugin);
        }
        if let Some(weight) = weight(&mut profile.weights, name) {
            let set = |point: &str| sets[point].enabled.get(name).copied();
            *weight = match set("score").or(set("multiPoint")) {
                _ if !is_on(name, "score") => 0,
                Some(given) => given.max(1),
                None => *weight,
            };
        }
    }
    profile.rules_mut().preempts = is_on("DefaultPreemption", "postFilter");
    for (name, point) in [("PrioritySort", "queueSort"), ("DefaultBinder", "bind")] {
        if !is_on(name, point) {
            let problem =
                Problem::Invalid { value: name.into(), detail: "needed, and there is no other".into() };
            return Err(FieldError { path: format!("{}.{point}", plugins.path()), problem });
        }
    }
    Ok(profile)
}

fn set(at: &At<'_>, point: &str) -> Result<Set, FieldError> {
    let mut made = Set { path: at.path().to_owned(), ..Set::default() };
    if at.value().is_null() {
        return Ok(made);
    }
    let object = at.object()?;
    object.only(&["enabled", "disabled"])?;
    for entry in object.list("enabled")? {
        let entry = entry.object()?;
        entry.only(&["name", "weight"])?;
        let (name, at) = (entry.required("name")?, entry.at("name"));
        let Some(&(name, points)) = PLUGINS.iter().find(|(known, _)| *known == name) else {
            let absent = ABSENT.contains(&name);
            return Err(at.invalid(if absent {
                "not supported by this scheduler"
            } else {
                "unknown plugin"
            }));
        };
        if point != "multiPoint" && !points.contains(&point) {
            return Err(at.invalid(format!("the plugin does not act at {point}")));
        }
        let weight = entry.get("weight").map_or(Ok(0), |weight| weight.int_in(0, MOST))?;
        if made.enabled.insert(name, weight).is_some() {
            return Err(at.fails(Problem::Duplicate(name.to_owned())));
        }
    }
    for entry in object.list("disabled")? {
        let entry = entry.object()?;
        entry.only(&["name", "weight"])?;
        let name = entry.text("name")?.unwrap_or_default();
        if name != "*" && !is_known(name) {
            tracing::warn!(
                field = entry.at("name").path(),
                plugin = name,
                "unknown plugin: nothing is disabled"
            );
        }
        made.disabled.push(name.to_owned());
    }
    Ok(made)
}
