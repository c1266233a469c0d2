#![allow(clippy::unwrap_used)]
use super::*;
use crate::rejection::Plugin;
use crate::scores::Weights;
use crate::scores::allocation::{Curve, Fit, Resource};

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn parse(rest: &str) -> Result<Configuration, String> {
    Configuration::parse(&format!("{HEAD}{rest}")).map_err(|error| coracle_cli::causes::chain(&error))
}

/// The only profile of a file.
fn profile(rest: &str) -> Profile {
    let config = parse(&format!("profiles:\n- {rest}\n")).unwrap();
    Profile::clone(config.profiles.get(DEFAULT_NAME).unwrap())
}

#[test]
fn profiles_set_filters_weights_and_strategies() {
    let config = parse(
        "percentageOfNodesToScore: 50
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
leaderElection: {leaderElect: false}
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  percentageOfNodesToScore: 70
  plugins:
    score: {disabled: [{name: ImageLocality}], enabled: [{name: NodeResourcesFit, weight: 5}]}
    filter: {disabled: [{name: TaintToleration}]}
    postFilter: {disabled: [{name: '*'}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
",
    )
    .unwrap();
    assert_eq!(config.backoff, Backoff { first: 2000, longest: 20_000 });
    let usual = config.profiles.get(DEFAULT_NAME).unwrap();
    assert_eq!(**usual, Profile { percentage: Some(50), ..Profile::default() });
    let packer = config.profiles.get("packer").unwrap();
    assert_eq!((packer.weights.fit, packer.weights.images, packer.percentage), (5, 0, Some(70)));
    let usual = vec![(Resource::Cpu, 1), (Resource::Memory, 1)];
    assert_eq!(packer.fit, Fit::new(Curve::MostAllocated, usual));
    assert!(
        packer.rules.skipped.has(Plugin::TaintToleration) && !packer.rules.skipped.has(Plugin::NodeAffinity)
    );
    assert!(!packer.rules.preempts);
    assert_eq!(packer.weights.taints, 3, "it still scores");
    assert_eq!(parse("").unwrap().profiles, Profiles::default());
}

#[test]
fn all_points_are_off_or_on_at_once() {
    let some = profile(
        "plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeAffinity, weight: 7}, {name: TaintToleration}]}, score: {disabled: [{name: TaintToleration}]}}",
    );
    assert_eq!(some.weights, Weights { node_affinity: 7, ..Weights::NONE });
    assert!(
        !some.rules.skipped.has(Plugin::NodeAffinity) && !some.rules.skipped.has(Plugin::TaintToleration)
    );
    for off in [Plugin::NodeResourcesFit, Plugin::VolumeBinding, Plugin::SchedulingGates, Plugin::NodeName] {
        assert!(some.rules.skipped.has(off), "{off:?}");
    }
    assert!(!some.rules.preempts);
    let again = profile("plugins: {filter: {disabled: [{name: '*'}], enabled: [{name: NodePorts}]}}");
    assert!(again.rules.skipped.has(Plugin::NodeName) && !again.rules.skipped.has(Plugin::NodePorts));
    assert!(!again.rules.skipped.has(Plugin::SchedulingGates), "it acts at another point");
}

#[test]
fn arguments_of_plugins_are_applied() {
    let made = profile(
        "pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      ignoredResources: [example.com/a]
      ignoredResourceGroups: [example.org]
      scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: x.io/gpu, weight: 3}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu}, {name: memory}, {name: x.io/gpu, weight: 1}]}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 7, ignorePreferredTermsOfExistingPods: true}
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [a]}]}]}}}
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: 5}
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 30}",
    );
    assert!(made.rules.ignored.has("example.com/a") && made.rules.ignored.has("example.org/x"));
    assert!(!made.rules.ignored.has("example.com/b"));
    let curve = Curve::RequestedToCapacityRatio(vec![(0, 0), (100, 10)]);
    assert_eq!(made.fit, Fit::new(curve, vec![(Resource::named("x.io/gpu"), 3)]));
    let constraint = &made.spread.as_ref().unwrap()[0];
    assert_eq!((constraint.topology.as_str(), constraint.max_skew, constraint.hard), ("zone", 2, true));
    assert_eq!((made.rules.hard_affinity, made.rules.ignores_preferences), (7, true));
    assert_eq!(made.rules.enforced.as_ref().unwrap().node_selector_terms.len(), 1);
    assert_eq!(
        (made.rules.preemption_candidates, made.rules.volume_patience),
        ((20, 5), std::time::Duration::from_secs(30))
    );
}

#[test]
fn unknown_names_disable_nothing() {
    let made = profile("plugins: {filter: {disabled: [{name: NodeName}, {name: Magic}, {}]}}");
    let known = profile("plugins: {filter: {disabled: [{name: NodeName}]}}");
    assert!(made == known && made.rules.skipped.has(Plugin::NodeName));
    let made = profile("pluginConfig: [{name: Magic, args: {kind: MagicArgs, wands: 2}}]");
    assert!(made == profile("{}"), "nor have they arguments");
}

#[test]
fn mistakes_are_refused_with_the_path_of_the_field() {
    let plugins = |text: &str| format!("profiles: [{{plugins: {{{text}}}}}]\n");
    let args = |name: &str, text: &str| {
        format!("profiles: [{{pluginConfig: [{{name: {name}, args: {{{text}}}}}]}}]\n")
    };
    let extender = |text: &str| format!("extenders: [{{urlPrefix: 'http://x', {text}}}]\n");
    let table = [
        (
            "profiles: [{}, {}]\n".to_owned(),
            "profiles[1].schedulerName: Duplicate value: \"default-scheduler\"",
        ),
        ("profile: []\n".into(), "profile: unknown field"),
        ("profiles: [{name: x}]\n".into(), "profiles[0].name: unknown field"),
        ("profiles: {}\n".into(), "profiles: must be a list"),
        ("leaderElection: {leader: true}\n".into(), "leaderElection.leader: unknown field"),
        ("parallelism: 0\n".into(), "parallelism: Invalid value: \"0\""),
        ("percentageOfNodesToScore: 101\n".into(), "percentageOfNodesToScore: Invalid value: \"101\""),
        (
            "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4\n".into(),
            "podMaxBackoffSeconds: Invalid value",
        ),
        (
            plugins("score: {enabled: [{name: Magic}]}"),
            "profiles[0].plugins.score.enabled[0].name: Invalid value: \"Magic\": unknown plugin",
        ),
        (
            plugins("multiPoint: {enabled: [{name: GangScheduling}]}"),
            "profiles[0].plugins.multiPoint.enabled[0].name: Invalid value: \"GangScheduling\": not supported",
        ),
        (plugins("filtre: {}"), "profiles[0].plugins.filtre: unknown field"),
        (
            plugins("filter: {enabled: [{name: ImageLocality}]}"),
            "profiles[0].plugins.filter.enabled[0].name: Invalid value: \"ImageLocality\": the plugin does not act at filter",
        ),
        (
            plugins("preFilter: {disabled: [{name: NodePorts}]}"),
            "profiles[0].plugins.preFilter.disabled: Invalid value: \"NodePorts\"",
        ),
        (
            plugins("bind: {disabled: [{name: '*'}]}"),
            "profiles[0].plugins.bind: Invalid value: \"DefaultBinder\"",
        ),
        (
            args("NodeResourcesFit", "scoringStrategy: {type: Best}"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: \"Best\"",
        ),
        (args("NodeResourcesFit", "strategy: x"), "profiles[0].pluginConfig[0].args.strategy: unknown field"),
        (
            args("ImageLocality", ""),
            "profiles[0].pluginConfig[0].args: Forbidden: the plugin has no arguments",
        ),
        (
            "profiles: [{pluginConfig: [{name: Magic}, {name: Magic}]}]\n".into(),
            "profiles[0].pluginConfig[1].name: Duplicate value: \"Magic\"",
        ),
        (
            args("InterPodAffinity", "hardPodAffinityWeight: 101"),
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: \"101\"",
        ),
        (
            args("PodTopologySpread", "defaultConstraints: [{maxSkew: 1}]"),
            "profiles[0].pluginConfig[0].args.defaultingType: Invalid value",
        ),
        (
            args(
                "NodeAffinity",
                "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Like}]}]}}",
            ),
            "nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: \"Like\"",
        ),
        ("extenders: [{filterVerb: f}]\n".into(), "extenders[0].urlPrefix: Required value"),
        (extender("filter: f"), "extenders[0].filter: unknown field"),
        (extender("prioritizeVerb: p"), "extenders[0].weight: Invalid value"),
        (extender("httpTimeout: soon"), "extenders[0].httpTimeout: Invalid value: \"soon\""),
        (
            extender("managedResources: [{name: cpu}]"),
            "extenders[0].managedResources[0].name: Invalid value: \"cpu\"",
        ),
        (extender("tlsConfig: {caData: '%'}"), "extenders[0].tlsConfig.caData: Invalid value"),
        (extender("tlsConfig: {caFile: /does/not/exist}"), "extenders[0]: tlsConfig: /does/not/exist"),
    ];
    for (text, expected) in table {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let other = Configuration::parse("kind: Pod\napiVersion: v1\n").unwrap_err().to_string();
    assert_eq!(other, "not a KubeSchedulerConfiguration: v1 Pod");
    assert!(
        Configuration::parse(
            "apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration\n"
        )
        .is_err()
    );
}

#[test]
fn two_extenders_share_neither_resources_nor_bindings() {
    let two = |a: &str, b: &str| {
        parse(&format!("extenders: [{{urlPrefix: 'http://a', {a}}}, {{urlPrefix: 'http://b', {b}}}]\n"))
    };
    let managed = "managedResources: [{name: x.io/gpu, ignoredByScheduler: true}]";
    let error = two(managed, managed).unwrap_err();
    assert_eq!(error, "extenders[1].managedResources[0].name: Duplicate value: \"x.io/gpu\"");
    let error = two("bindVerb: b", "bindVerb: c").unwrap_err();
    assert_eq!(error, "extenders[1].bindVerb: Forbidden: only one extender can implement bind");
    let config = two(managed, "filterVerb: f").unwrap();
    assert!(config.profiles.get(DEFAULT_NAME).unwrap().rules.ignored.has("x.io/gpu"));
}

/// The example of Kubernetes 1.2 to 1.22, as people have it in their files.
const POLICY: &str = r#"{"kind": "Policy", "apiVersion": "v1",
"predicates": [{"name": "PodFitsHostPorts"}, {"name": "PodFitsResources"}, {"name": "NoDiskConflict"},
  {"name": "NoVolumeZoneConflict"}, {"name": "MatchNodeSelector"}, {"name": "HostName"}],
"priorities": [{"name": "LeastRequestedPriority", "weight": 1}, {"name": "BalancedResourceAllocation", "weight": 1},
  {"name": "ServiceSpreadingPriority", "weight": 4}, {"name": "EqualPriority", "weight": 1}],
"hardPodAffinitySymmetricWeight": 10, "alwaysCheckAllPredicates": false}"#;

#[test]
fn a_policy_becomes_the_default_profile() {
    let config = policy::parse(POLICY).unwrap();
    let made = config.profiles.get(DEFAULT_NAME).unwrap();
    assert_eq!(made.weights, Weights { fit: 1, balance: 1, spread: 4, ..Weights::NONE });
    for on in
        [Plugin::NodePorts, Plugin::NodeResourcesFit, Plugin::TaintToleration, Plugin::NodeUnschedulable]
    {
        assert!(!made.rules.skipped.has(on), "{on:?}");
    }
    for off in [Plugin::InterPodAffinity, Plugin::PodTopologySpread, Plugin::VolumeBinding] {
        assert!(made.rules.skipped.has(off), "{off:?}");
    }
    assert_eq!(made.rules.hard_affinity, 10);
    let empty = policy::parse("kind: Policy\napiVersion: v1\n").unwrap();
    assert_eq!(empty.profiles, Profiles::default(), "what is not mentioned is as usual");
}

#[test]
fn custom_predicates_and_priorities_are_translated() {
    let text = "kind: Policy
apiVersion: v1
predicates:
- {name: Zoned, argument: {labelsPresence: {labels: [zone], presence: true}}}
priorities:
- {name: Ssd, weight: 3, argument: {labelPreference: {label: ssd, presence: true}}}
- {name: Racks, weight: 2, argument: {serviceAntiAffinity: {label: rack}}}
- {name: Ratio, weight: 1, argument: {requestedToCapacityRatioArguments: {shape: [{utilization: 50, score: 10}]}}}
extenders:
- {urlPrefix: 'http://x', filterVerb: f, httpTimeout: 100000000, enableHttps: false}
";
    let config = policy::parse(text).unwrap();
    let made = config.profiles.get(DEFAULT_NAME).unwrap();
    let requirement = &made.rules.enforced.as_ref().unwrap().node_selector_terms[0].match_expressions[0];
    assert_eq!((requirement.key.as_str(), requirement.operator.as_str()), ("zone", "Exists"));
    assert_eq!(made.preferred[0].0, 3);
    assert_eq!(made.spread.as_ref().unwrap()[0].topology, "rack");
    assert_eq!(made.weights, Weights { node_affinity: 3, spread: 2, fit: 1, ..Weights::NONE });
    assert_eq!(config.extenders.len(), 1);
    let table = [
        ("predicates: [{name: Magic}]", "predicates[0].name: Invalid value: \"Magic\": unknown predicate"),
        ("priorities: [{name: Magic, weight: 1}]", "priorities[0].name: Invalid value: \"Magic\""),
        ("priorities: [{name: EqualPriority}]", "priorities[0].weight: Invalid value"),
        (
            "priorities: [{name: LeastRequestedPriority, weight: 1}, {name: MostRequestedPriority, weight: 1}]",
            "priorities[1].name: Invalid value",
        ),
        (
            "predicates: [{name: A, argument: {serviceAffinity: {labels: [a]}}}]",
            "argument.serviceAffinity: Forbidden",
        ),
        ("predicate: []", "predicate: unknown field"),
    ];
    for (rest, expected) in table {
        let error =
            policy::parse(&format!("kind: Policy\napiVersion: v1\n{rest}\n")).unwrap_err().to_string();
        assert!(error.contains(expected), "{rest}: {error}");
    }
}
