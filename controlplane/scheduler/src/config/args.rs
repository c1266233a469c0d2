//! Arguments of plugins: `pluginConfig` of a profile.

use super::plugins;
use super::reader::{At, FieldError, Object, Problem};
use crate::profile::{DefaultConstraint, Profile};
use crate::scores::allocation::{Balance, Curve, Fit, Resource};
use crate::wire::{NodeRequirement, NodeSelector, NodeTerm};
use std::collections::BTreeSet;
use std::time::Duration;

/// Applies the arguments to a profile.
pub(super) fn apply(object: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    let mut seen = BTreeSet::new();
    for at in object.list("pluginConfig")? {
        let entry = at.object()?;
        entry.only(&["name", "args"])?;
        let name = entry.required("name")?;
        if !seen.insert(name) {
            return Err(entry.at("name").fails(Problem::Duplicate(name.to_owned())));
        }
        // Who enables it is told that it is unknown.
        if !plugins::is_known(name) {
            let field = entry.at("name");
            tracing::warn!(
                field = field.path(),
                plugin = name,
                "unknown plugin: its arguments count for nothing"
            );
            continue;
        }
        let Some(args) = entry.get("args") else { continue };
        let args = args.object()?;
        check_type(&args, name)?;
        match name {
            "NodeResourcesFit" => fit(&args, profile)?,
            "NodeResourcesBalancedAllocation" => balance(&args, profile)?,
            "PodTopologySpread" => spread(&args, profile)?,
            "InterPodAffinity" => pod_affinity(&args, profile)?,
            "NodeAffinity" => node_affinity(&args, profile)?,
            "DefaultPreemption" => preemption(&args, profile)?,
            "VolumeBinding" => volume_binding(&args, profile)?,
            "DynamicResources" => dynamic_resources(&args, profile)?,
            _ => return Err(entry.at("args").fails(Problem::Forbidden("the plugin has no arguments"))),
        }
    }
    Ok(())
}

/// Arguments may say what they are.
fn check_type(args: &Object<'_>, plugin: &str) -> Result<(), FieldError> {
    if let Some(kind) = args.text("kind")?.filter(|kind| *kind != format!("{plugin}Args")) {
        return Err(args.at("kind").invalid(format!("{kind} is not the type of the arguments of {plugin}")));
    }
    let version = "kubescheduler.config.k8s.io/v1";
    if args.text("apiVersion")?.is_some_and(|given| given != version) {
        return Err(args.at("apiVersion").invalid(format!("must be {version}")));
    }
    Ok(())
}

fn only(args: &Object<'_>, known: &[&str]) -> Result<(), FieldError> {
    let fields: Vec<&str> = known.iter().copied().chain(["apiVersion", "kind"]).collect();
    args.only(&fields)
}

fn fit(args: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    const TYPES: &[&str] = &["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
    only(args, &["ignoredResources", "ignoredResourceGroups", "scoringStrategy"])?;
    for at in args.list("ignoredResources")? {
        profile.rules_mut().ignored.names.insert(at.qualified()?.to_owned());
    }
    for at in args.list("ignoredResourceGroups")? {
        let group = at.qualified()?;
        if group.contains('/') {
            return Err(at.invalid("resource group name can't contain '/'"));
        }
        profile.rules_mut().ignored.groups.insert(group.to_owned());
    }
    let Some(strategy) = args.get("scoringStrategy") else { return Ok(()) };
    let strategy = strategy.object()?;
    strategy.only(&["type", "resources", "requestedToCapacityRatio"])?;
    let kind = strategy.get("type").map_or(Ok(TYPES[0]), |at| at.one_of(TYPES))?;
    let ratio = strategy.get("requestedToCapacityRatio");
    let curve = match (kind, ratio) {
        ("RequestedToCapacityRatio", Some(ratio)) => {
            let ratio = ratio.object()?;
            ratio.only(&["shape"])?;
            Curve::RequestedToCapacityRatio(shape(&ratio.at("shape"), ratio.list("shape")?)?)
        }
        ("RequestedToCapacityRatio", None) => {
            return Err(strategy.at("requestedToCapacityRatio").required());
        }
        (_, Some(ratio)) => {
            let why = "must be nil when type is not RequestedToCapacityRatio";
            return Err(ratio.fails(Problem::Forbidden(why)));
        }
        ("MostAllocated", None) => Curve::MostAllocated,
        _ => Curve::LeastAllocated,
    };
    let resources = resources(strategy.list("resources")?, 100)?;
    profile.fit = Fit::new(curve, resources);
    Ok(())
}

/// Points of utilization and score, in increasing order of utilization.
pub(super) fn shape(at: &At<'_>, points: Vec<At<'_>>) -> Result<Vec<(i64, i64)>, FieldError> {
    let mut made: Vec<(i64, i64)> = Vec::new();
    for point in points {
        let point = point.object()?;
        point.only(&["utilization", "score"])?;
        let number = |name: &str, most| point.get(name).map_or(Ok(0), |at| at.int_in(0, most));
        let utilization = number("utilization", 100)?;
        if made.last().is_some_and(|(before, _)| *before >= utilization) {
            return Err(point.at("utilization").invalid("values must be sorted in increasing order"));
        }
        made.push((utilization, number("score", 10)?));
    }
    if made.is_empty() { Err(at.required()) } else { Ok(made) }
}

/// Resources with weights; CPU and memory if there are none.
pub(super) fn resources(list: Vec<At<'_>>, most: i64) -> Result<Vec<(Resource, i64)>, FieldError> {
    let (mut made, mut seen) = (Vec::new(), BTreeSet::new());
    for at in list {
        let object = at.object()?;
        object.only(&["name", "weight"])?;
        let name = object.at("name").qualified()?;
        if !seen.insert(name) {
            return Err(object.at("name").fails(Problem::Duplicate(name.to_owned())));
        }
        // As in upstream's defaults, 0 is 1.
        let weight = object.get("weight").map_or(Ok(1), |at| at.int_in(0, most))?.max(1);
        made.push((Resource::named(name), weight));
    }
    if made.is_empty() {
        made = vec![(Resource::Cpu, 1), (Resource::Memory, 1)];
    }
    Ok(made)
}

fn balance(args: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    only(args, &["resources"])?;
    let resources = resources(args.list("resources")?, 1)?;
    profile.balance = Balance::of(resources.into_iter().map(|(resource, _)| resource).collect());
    Ok(())
}

fn spread(args: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    const TYPES: &[&str] = &["System", "List"];
    only(args, &["defaultConstraints", "defaultingType"])?;
    let list = args.list("defaultConstraints")?;
    let kind = args.get("defaultingType").map_or(Ok("System"), |at| at.one_of(TYPES))?;
    if kind == "System" {
        if !list.is_empty() {
            return Err(args.at("defaultingType").invalid("when .defaultConstraints are not empty"));
        }
        return Ok(());
    }
    let mut made: Vec<DefaultConstraint> = Vec::new();
    for at in list {
        let constraint = constraint(&at)?;
        if made.iter().any(|c| c.topology == constraint.topology && c.hard == constraint.hard) {
            return Err(at.fails(Problem::Duplicate(constraint.topology)));
        }
        made.push(constraint);
    }
    profile.spread = Some(made);
    Ok(())
}

fn constraint(at: &At<'_>) -> Result<DefaultConstraint, FieldError> {
    const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
    const POLICIES: &[&str] = &["Honor", "Ignore"];
    let object = at.object()?;
    for name in ["labelSelector", "matchLabelKeys"] {
        if let Some(at) = object.get(name) {
            let why = "constraint must not define a selector, as they deduced for each pod";
            return Err(at.fails(Problem::Forbidden(why)));
        }
    }
    object.only(&[
        "maxSkew",
        "topologyKey",
        "whenUnsatisfiable",
        "minDomains",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "labelSelector",
        "matchLabelKeys",
    ])?;
    let positive = |name: &str| object.get(name).map(|at| at.int_in(1, i64::from(i32::MAX))).transpose();
    let policy = |name: &str| object.get(name).map(|at| at.one_of(POLICIES)).transpose();
    let hard = object.at("whenUnsatisfiable").one_of(ACTIONS)? == "DoNotSchedule";
    Ok(DefaultConstraint {
        topology: object.at("topologyKey").qualified()?.to_owned(),
        max_skew: positive("maxSkew")?.ok_or_else(|| object.at("maxSkew").required())?,
        min_domains: positive("minDomains")?.unwrap_or(1),
        hard,
        honor_affinity: policy("nodeAffinityPolicy")? != Some("Ignore"),
        honor_taints: policy("nodeTaintsPolicy")? == Some("Honor"),
    })
}

fn pod_affinity(args: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    only(args, &["hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"])?;
    if let Some(at) = args.get("hardPodAffinityWeight") {
        profile.rules_mut().hard_affinity = at.int_in(0, 100)?;
    }
    profile.rules_mut().ignores_preferences = args.bool("ignorePreferredTermsOfExistingPods")?;
    Ok(())
}

fn preemption(args: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    only(args, &["minCandidateNodesPercentage", "minCandidateNodesAbsolute"])?;
    let number = |name: &str, default: usize, most: i64| match args.get(name) {
        Some(at) => at.int_in(0, most).map(|n| usize::try_from(n).unwrap_or(default)),
        None => Ok(default),
    };
    let percent = number("minCandidateNodesPercentage", 10, 100)?;
    let least = number("minCandidateNodesAbsolute", 100, i64::from(i32::MAX))?;
    if (percent, least) == (0, 0) {
        let why = "cannot be zero at the same time as minCandidateNodesAbsolute";
        return Err(args.at("minCandidateNodesPercentage").invalid(why));
    }
    profile.rules_mut().preemption_candidates = (percent, least);
    Ok(())
}

fn volume_binding(args: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    only(args, &["bindTimeoutSeconds"])?;
    if let Some(at) = args.get("bindTimeoutSeconds") {
        profile.rules_mut().volume_patience = Duration::from_secs(at.int_in(0, 1 << 31)?.unsigned_abs());
    }
    Ok(())
}

fn dynamic_resources(args: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    // The search for devices is limited by steps instead of time.
    only(args, &["filterTimeout", "bindingTimeout"])?;
    args.get("filterTimeout").map(|at| at.duration()).transpose()?;
    if let Some(at) = args.get("bindingTimeout") {
        let patience = at.duration()?;
        if patience < Duration::from_secs(1) {
            return Err(at.invalid("must be at least 1 second"));
        }
        profile.rules_mut().device_patience = patience;
    }
    Ok(())
}

fn node_affinity(args: &Object<'_>, profile: &mut Profile) -> Result<(), FieldError> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    only(args, &["addedAffinity"])?;
    let Some(added) = args.get("addedAffinity") else { return Ok(()) };
    let added = added.object()?;
    added.only(&[REQUIRED, PREFERRED])?;
    if let Some(required) = added.get(REQUIRED) {
        let required = required.object()?;
        required.only(&["nodeSelectorTerms"])?;
        let terms: Result<Vec<_>, _> = required.list("nodeSelectorTerms")?.iter().map(term).collect();
        let node_selector_terms = terms?;
        if node_selector_terms.is_empty() {
            return Err(required.at("nodeSelectorTerms").required());
        }
        profile.rules_mut().enforced = Some(NodeSelector { node_selector_terms });
    }
    for at in added.list(PREFERRED)? {
        let object = at.object()?;
        object.only(&["weight", "preference"])?;
        let weight = object.at("weight").int_in(1, 100)?;
        profile.preferred.push((weight, term(&object.at("preference"))?));
    }
    Ok(())
}

fn term(at: &At<'_>) -> Result<NodeTerm, FieldError> {
    let object = at.object()?;
    object.only(&["matchExpressions", "matchFields"])?;
    let requirements = |name: &str, is_field: bool| -> Result<Vec<_>, FieldError> {
        object.list(name)?.iter().map(|at| requirement(at, is_field)).collect()
    };
    Ok(NodeTerm {
        match_expressions: requirements("matchExpressions", false)?,
        match_fields: requirements("matchFields", true)?,
    })
}

fn requirement(at: &At<'_>, is_field: bool) -> Result<NodeRequirement, FieldError> {
    const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    let object = at.object()?;
    object.only(&["key", "operator", "values"])?;
    let key = object.at("key").qualified()?;
    let operator = object.at("operator").one_of(if is_field { &OPERATORS[..2] } else { OPERATORS })?;
    if is_field && key != "metadata.name" {
        return Err(object.at("key").invalid("not a valid field selector key"));
    }
    let values: Result<Vec<String>, _> =
        object.list("values")?.iter().map(|at| at.text().map(str::to_owned)).collect();
    let values = values?;
    let fits = match operator {
        "In" | "NotIn" => !values.is_empty() && (!is_field || values.len() == 1),
        "Exists" | "DoesNotExist" => values.is_empty(),
        _ => values.len() == 1 && values[0].parse::<i64>().is_ok(),
    };
    if !fits {
        return Err(object.at("values").invalid(format!("not what the operator {operator} takes")));
    }
    Ok(NodeRequirement { key: key.to_owned(), operator: operator.to_owned(), values })
}
