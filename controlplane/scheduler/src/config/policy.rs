//! The Policy of older schedulers (`--policy-config-file`): predicates and priorities by name, translated to a profile.

use super::reader::{At, FieldError, Object, Problem};
use super::{Configuration, ContentError, args, extenders, of_type, plugins};
use crate::profile::{DEFAULT_NAME, DefaultConstraint, Profile, Profiles};
use crate::queue::Backoff;
use crate::scores::Weights;
use crate::scores::allocation::{Curve, Fit, Resource};
use crate::wire::{NodeRequirement, NodeSelector, NodeTerm};
use serde_json::Value;
use std::collections::BTreeSet;

/// The largest weight of a priority.
const MOST: i64 = 1_000_000_000;

/// Filters that stand for a predicate.
fn predicate(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "PodFitsHostPorts" | "PodFitsPorts" => &["NodePorts"],
        "PodFitsResources" => &["NodeResourcesFit"],
        "HostName" => &["NodeName"],
        "MatchNodeSelector" => &["NodeAffinity"],
        "GeneralPredicates" => &["NodePorts", "NodeResourcesFit", "NodeName", "NodeAffinity"],
        "NoVolumeZoneConflict" => &["VolumeZone"],
        "NoDiskConflict" => &["VolumeRestrictions"],
        "MaxCSIVolumeCountPred"
        | "MaxEBSVolumeCount"
        | "MaxGCEPDVolumeCount"
        | "MaxAzureDiskVolumeCount"
        | "MaxCinderVolumeCount" => &["NodeVolumeLimits"],
        "CheckVolumeBinding" => &["VolumeBinding"],
        "MatchInterPodAffinity" => &["InterPodAffinity"],
        "EvenPodsSpread" => &["PodTopologySpread"],
        // Conditions of nodes are taints.
        "CheckNodeCondition"
        | "CheckNodeMemoryPressure"
        | "CheckNodeDiskPressure"
        | "CheckNodePIDPressure"
        | "PodToleratesNodeTaints"
        | "PodToleratesNodeNoExecuteTaints"
        | "CheckNodeUnschedulable" => &MANDATORY,
        _ => return None,
    })
}

/// Filters that a Policy always has.
const MANDATORY: [&str; 2] = ["TaintToleration", "NodeUnschedulable"];

/// Reads a Policy.
pub(super) fn parse(text: &str) -> Result<Configuration, ContentError> {
    let file: Value = coracle_cli::yaml::from_str(text)?;
    of_type(&file, "v1", "Policy")?;
    let file = At::root(&file).object()?;
    file.only(&[
        "apiVersion",
        "kind",
        "predicates",
        "priorities",
        "extenders",
        "hardPodAffinitySymmetricWeight",
        "alwaysCheckAllPredicates",
    ])?;
    file.bool("alwaysCheckAllPredicates")?;
    let extenders = extenders::read(&file)?;
    let mut profile = Profile::default();
    profile.rules_mut().ignored.names.extend(extenders.iter().flat_map(|e| e.ignored_resources()).cloned());
    if file.get("predicates").is_some() {
        predicates(&file, &mut profile)?;
    }
    if file.get("priorities").is_some() {
        priorities(&file, &mut profile)?;
    }
    if let Some(at) = file.get("hardPodAffinitySymmetricWeight") {
        profile.rules_mut().hard_affinity = at.int_in(0, 100)?;
    }
    let profiles = Profiles::new([(DEFAULT_NAME.to_owned(), profile)]);
    Ok(Configuration { profiles, extenders, backoff: Backoff::default() })
}

fn predicates(file: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    // Devices cannot be allocated here: no predicate allows what would not run.
    let mut filters: BTreeSet<&str> = MANDATORY.iter().copied().chain(["DynamicResources"]).collect();
    let mut expressions = Vec::new();
    for at in file.list("predicates")? {
        let object = at.object()?;
        object.only(&["name", "argument"])?;
        let name = object.required("name")?;
        match (object.get("argument"), predicate(name)) {
            (Some(argument), _) => expressions.extend(labels_presence(&argument)?),
            (None, Some(found)) => filters.extend(found),
            (None, None) => return Err(object.at("name").invalid("unknown predicate")),
        }
    }
    if !expressions.is_empty() {
        filters.insert("NodeAffinity");
        let term = NodeTerm { match_expressions: expressions, match_fields: Vec::new() };
        profile.rules_mut().enforced = Some(NodeSelector { node_selector_terms: vec![term] });
    }
    for name in plugins::filters().filter(|name| !filters.contains(name)) {
        if let Some(plugin) = plugins::filter(name) {
            profile.rules_mut().skipped.insert(plugin);
        }
    }
    Ok(())
}

/// `labelsPresence`: nodes that have, or do not have, some labels.
fn labels_presence(argument: &At<'_>) -> Result<Vec<NodeRequirement>, FieldError> {
    let object = argument.object()?;
    object.only(&["labelsPresence", "serviceAffinity"])?;
    if let Some(at) = object.get("serviceAffinity") {
        return Err(at.fails(Problem::Forbidden("not supported: use podAffinity in the pods")));
    }
    let Some(presence) = object.get("labelsPresence") else {
        return Err(object.at("labelsPresence").required());
    };
    let presence = presence.object()?;
    presence.only(&["labels", "presence"])?;
    let operator = if presence.bool("presence")? { "Exists" } else { "DoesNotExist" };
    let requirement = |at: &At<'_>| -> Result<NodeRequirement, FieldError> {
        let (key, operator) = (at.qualified()?.to_owned(), operator.to_owned());
        Ok(NodeRequirement { key, operator, values: Vec::new() })
    };
    presence.list("labels")?.iter().map(requirement).collect()
}

fn priorities(file: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    profile.weights = Weights::NONE;
    let mut curve: Option<&str> = None;
    for at in file.list("priorities")? {
        let object = at.object()?;
        object.only(&["name", "weight", "argument"])?;
        let name = object.required("name")?;
        let weight = object.get("weight").map_or(Ok(0), |at| at.int_in(0, MOST))?;
        if weight == 0 {
            return Err(object.at("weight").invalid("should have a positive weight applied to it"));
        }
        let mut use_curve = |profile: &mut Profile, fit: Fit| {
            if curve.is_some_and(|before| before != name) {
                return Err(object
                    .at("name")
                    .invalid("only one priority for requested resources can be used"));
            }
            curve = Some(name);
            (profile.fit, profile.weights.fit) = (fit, weight);
            Ok(())
        };
        if let Some(argument) = object.get("argument") {
            if let Some(fit) = custom(&argument, weight, profile)? {
                use_curve(profile, fit)?;
            }
            continue;
        }
        let usual = || vec![(Resource::Cpu, 1), (Resource::Memory, 1)];
        let plugin = match name {
            "LeastRequestedPriority" => {
                use_curve(profile, Fit::new(Curve::LeastAllocated, usual()))?;
                continue;
            }
            "MostRequestedPriority" => {
                use_curve(profile, Fit::new(Curve::MostAllocated, usual()))?;
                continue;
            }
            // All nodes have the same score, and an annotation of nodes that is no longer known.
            "EqualPriority" | "NodePreferAvoidPodsPriority" => continue,
            "BalancedResourceAllocation" => "NodeResourcesBalancedAllocation",
            "SelectorSpreadPriority" | "ServiceSpreadingPriority" | "EvenPodsSpreadPriority" => {
                "PodTopologySpread"
            }
            "InterPodAffinityPriority" => "InterPodAffinity",
            "NodeAffinityPriority" => "NodeAffinity",
            "TaintTolerationPriority" => "TaintToleration",
            "ImageLocalityPriority" => "ImageLocality",
            _ => return Err(object.at("name").invalid("unknown priority")),
        };
        if let Some(entry) = plugins::weight(&mut profile.weights, plugin) {
            *entry += weight;
        }
    }
    Ok(())
}

/// A priority with an argument; a curve, or what was added to the profile.
fn custom(argument: &At<'_>, weight: i64, profile: &mut Profile) -> Result<Option<Fit>, FieldError> {
    const RATIO: &str = "requestedToCapacityRatioArguments";
    let object = argument.object()?;
    object.only(&["labelPreference", "serviceAntiAffinity", RATIO])?;
    if let Some(at) = object.get("labelPreference") {
        let preference = at.object()?;
        preference.only(&["label", "presence"])?;
        let operator = if preference.bool("presence")? { "Exists" } else { "DoesNotExist" };
        let key = preference.at("label").qualified()?.to_owned();
        let requirement = NodeRequirement { key, operator: operator.to_owned(), values: Vec::new() };
        let term = NodeTerm { match_expressions: vec![requirement], match_fields: Vec::new() };
        profile.preferred.push((weight, term));
        profile.weights.node_affinity = profile.weights.node_affinity.max(weight);
        return Ok(None);
    }
    if let Some(at) = object.get("serviceAntiAffinity") {
        let spread = at.object()?;
        spread.only(&["label"])?;
        let topology = spread.at("label").qualified()?.to_owned();
        profile.spread.get_or_insert_default().push(DefaultConstraint {
            topology,
            max_skew: 1,
            min_domains: 1,
            hard: false,
            honor_affinity: true,
            honor_taints: false,
        });
        profile.weights.spread += weight;
        return Ok(None);
    }
    let Some(ratio) = object.get(RATIO) else { return Err(argument.required()) };
    let ratio = ratio.object()?;
    ratio.only(&["shape", "resources"])?;
    let shape = args::shape(&ratio.at("shape"), ratio.list("shape")?)?;
    let resources = args::resources(ratio.list("resources")?, 100)?;
    Ok(Some(Fit::new(Curve::RequestedToCapacityRatio(shape), resources)))
}
