//! `--feature-gates`: the names of Kubernetes, for those who bring its options along. Few gates can be switched; the others are
//! accepted with the value that the server has anyway, and refused otherwise.

// Every gate.
mod table;

use crate::closest;
use table::{OFF, ON};

/// What this server does about a gate that is on by default. A place is `file#symbol`: a name or a short literal of the code that the
/// feature is about, which occurs in this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Support {
    /// The feature is there, at this place in the code.
    Honoured(&'static str),
    /// A part of the feature is there, at this place; what that part is.
    Partly(&'static str, &'static str),
    /// The feature is not there: what it is instead.
    Refused(&'static str),
    /// The gate is about something that this server does not have: what.
    NotApplicable(&'static str),
}

/// Gates that can be switched, off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// `MaxUnavailableStatefulSet`: StatefulSets keep `spec.updateStrategy.rollingUpdate.maxUnavailable`.
    pub max_unavailable_stateful_set: bool,
    /// `ContainerStopSignals`: containers keep `lifecycle.stopSignal`, and nodes send it.
    pub container_stop_signals: bool,
    /// `Initializers`: objects are hidden until their initializers have finished.
    pub initializers: bool,
    /// `PodLogsQuerySplitStreams`: a request for logs may name a stream.
    pub pod_logs_query_split_streams: bool,
}

/// Why a gate cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Not of the form `name=true`.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// Neither true nor false.
    #[error("invalid value of {name}={value}: expected true or false")]
    NotABool {
        /// The gate.
        name: String,
        /// As it was given.
        value: String,
    },
    /// No gate of Kubernetes 1.36.
    #[error("unrecognized feature gate: {name}{}", .similar.map_or_else(String::new, |name| format!(", did you mean {name}?")))]
    Unknown {
        /// As it was given.
        name: String,
        /// What was probably meant, if anything.
        similar: Option<&'static str>,
    },
    /// A feature that cannot be turned off.
    #[error("cannot set feature gate {0} to false: the feature is always on, see docs/feature-gates.md")]
    AlwaysOn(&'static str),
    /// A feature that is not there.
    #[error("cannot set feature gate {0} to true: the feature is not there, see docs/feature-gates.md")]
    NotThere(&'static str),
    /// All beta features, of which some are not there.
    #[error(
        "cannot set feature gate AllBeta to true: some beta features are not there, see docs/feature-gates.md"
    )]
    AllBetaOn,
    /// No beta features, of which some are there.
    #[error(
        "cannot set feature gate AllBeta to false: some beta features are always on, see docs/feature-gates.md"
    )]
    AllBetaOff,
}

/// Everything that is wrong with a list of gates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", joined(.0))]
pub struct GateErrors(Vec<GateError>);

fn joined(errors: &[GateError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What a list of gates says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gates {
    /// What it switches.
    pub switches: Switches,
    /// Gates that have no effect here.
    pub without_effect: Vec<&'static str>,
    /// Gates that it sets to true and to false.
    pub contradictory: Vec<String>,
}

/// A gate that can be switched: its name, and how to set it.
type Switch = (&'static str, fn(&mut Switches, bool));
const SWITCHES: &[Switch] = &[
    ("MaxUnavailableStatefulSet", |switches, on| switches.max_unavailable_stateful_set = on),
    ("PodLogsQuerySplitStreams", |switches, on| switches.pod_logs_query_split_streams = on),
    ("ContainerStopSignals", |switches, on| switches.container_stop_signals = on),
];
/// Name, whether it is on by default, stage: the gates of kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and
/// kube-proxy 1.36, with those of their libraries.
const UPSTREAM: &str = include_str!("upstream.txt");
/// Gates that stand for others: name and stage.
const GROUPS: [(&str, &str); 2] = [("AllAlpha", ALPHA), ("AllBeta", BETA)];
const ALPHA: &str = "ALPHA";
const BETA: &str = "BETA";

/// Gates of older versions of Kubernetes that can be switched.
const REMOVED: &[Switch] = &[("Initializers", |switches, on| switches.initializers = on)];

/// A gate and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Its stage as Kubernetes' metrics name it: `ALPHA`, `BETA`, `DEPRECATED`, and nothing for general availability.
    pub stage: &'static str,
    /// Whether the feature is there.
    pub enabled: bool,
}

/// The values in force, of all gates but those that do not apply here.
pub fn in_force(switches: Switches) -> Vec<Feature> {
    let upstream = UPSTREAM.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, _, stage) = (words.next()?, words.next()?, words.next()?);
        let stage = match stage {
            "alpha" => ALPHA,
            "beta" => BETA,
            "deprecated" => "DEPRECATED",
            _ => "",
        };
        Some(Feature { name, stage, enabled: is_enabled(name, switches)? })
    });
    let removed =
        REMOVED.iter().map(|&(name, set)| Feature { name, stage: ALPHA, enabled: is_on(set, switches) });
    let groups = GROUPS.map(|(name, stage)| Feature { name, stage, enabled: false });
    upstream.chain(removed).chain(groups).collect()
}

/// Whether a feature of Kubernetes 1.36 is there; nothing if it does not apply here.
fn is_enabled(name: &str, switches: Switches) -> Option<bool> {
    if let Some((_, set)) = SWITCHES.iter().find(|(known, _)| *known == name) {
        return Some(is_on(*set, switches));
    }
    match ON.iter().find(|(known, _)| *known == name) {
        Some((_, Support::Honoured(_) | Support::Partly(..))) => Some(true),
        Some((_, Support::NotApplicable(_))) => None,
        Some((_, Support::Refused(_))) | None => Some(false),
    }
}

/// Whether a gate is switched on, which is when switching it on changes nothing.
fn is_on(set: fn(&mut Switches, bool), switches: Switches) -> bool {
    let mut on = switches;
    set(&mut on, true);
    on == switches
}

fn parse_bool(name: &str, value: &str) -> Result<bool, GateError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(GateError::NotABool { name: name.to_owned(), value: value.to_owned() }),
    }
}

/// Name and value of a gate such as `MaxUnavailableStatefulSet=true`.
fn entry(gate: &str) -> Result<(&str, bool), GateError> {
    let (name, value) = gate.split_once('=').ok_or_else(|| GateError::NoValue(gate.to_owned()))?;
    // The component may be named, as in the options of Kubernetes since 1.32.
    let name = name.trim();
    let name = name.strip_prefix("kube:").unwrap_or(name);
    Ok((name, parse_bool(name, value.trim())?))
}

/// Reads gates such as `MaxUnavailableStatefulSet=true`; all that are wrong are in the error. Of a gate that is named more than
/// once the last value counts, as in Kubernetes.
pub fn parse(gates: &[String]) -> Result<Gates, GateErrors> {
    let (mut all, mut errors) = (Gates::default(), Vec::new());
    let mut entries: Vec<(&str, bool)> = Vec::new();
    for gate in gates.iter().map(|gate| gate.trim()).filter(|gate| !gate.is_empty()) {
        let (name, value) = match entry(gate) {
            Ok(entry) => entry,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let Some((_, before)) = entries.iter_mut().find(|(known, _)| *known == name) else {
            entries.push((name, value));
            continue;
        };
        if *before != value && !all.contradictory.iter().any(|known| known == name) {
            all.contradictory.push(name.to_owned());
        }
        *before = value;
    }
    errors.extend(entries.into_iter().filter_map(|(name, value)| all.set(name, value).err()));
    if errors.is_empty() { Ok(all) } else { Err(GateErrors(errors)) }
}

impl Gates {
    fn set(&mut self, name: &str, value: bool) -> Result<(), GateError> {
        if let Some((_, set)) = SWITCHES.iter().chain(REMOVED).find(|(known, _)| *known == name) {
            set(&mut self.switches, value);
        } else if let Some((known, support)) = ON.iter().find(|(known, _)| *known == name) {
            match support {
                Support::Honoured(_) | Support::Partly(..) if value => {}
                Support::Honoured(_) | Support::Partly(..) => return Err(GateError::AlwaysOn(known)),
                Support::Refused(_) if value => return Err(GateError::NotThere(known)),
                Support::Refused(_) => {}
                Support::NotApplicable(_) => self.without_effect.push(known),
            }
        } else if name == "AllBeta" {
            return Err(if value { GateError::AllBetaOn } else { GateError::AllBetaOff });
        } else if let Some(known) = OFF.iter().chain(&["AllAlpha"]).find(|known| **known == name) {
            if value {
                return Err(GateError::NotThere(known));
            }
        } else {
            return Err(GateError::Unknown { name: name.to_owned(), similar: similar(name) });
        }
        Ok(())
    }
}

/// The gate whose name is the same but for upper and lower case, or else the most like one.
fn similar(name: &str) -> Option<&'static str> {
    let switches = SWITCHES.iter().chain(REMOVED).map(|(known, _)| *known);
    let others = ON.iter().map(|(known, _)| *known).chain(OFF.iter().copied());
    let all = || switches.clone().chain(others.clone()).chain(["AllAlpha", "AllBeta"]);
    all().find(|known| known.eq_ignore_ascii_case(name)).or_else(|| closest::closest(name, all()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    fn all(gates: &[&str]) -> Result<Gates, GateErrors> {
        parse(&gates.iter().map(|gate| (*gate).to_owned()).collect::<Vec<_>>())
    }

    /// What a list switches and what has no effect, or its first error.
    fn set(gates: &[&str]) -> Result<(Switches, Vec<&'static str>), GateError> {
        let set = all(gates).map_err(|errors| errors.0[0].clone())?;
        Ok((set.switches, set.without_effect))
    }

    fn unknown(name: &str, similar: Option<&'static str>) -> GateError {
        GateError::Unknown { name: name.to_owned(), similar }
    }

    #[test]
    fn feature_gates_of_kubernetes_are_accepted_or_refused_by_name() {
        let none = Switches::default();
        assert_eq!(set(&[]), Ok((none, vec![])));
        assert_eq!(
            set(&["SidecarContainers=true", "ResourceHealthStatusMessage=false", "MemoryQoS=false"]),
            Ok((none, vec![]))
        );
        assert_eq!(set(&["WinDSR=false"]), Ok((none, vec!["WinDSR"])));
        let on = Switches { max_unavailable_stateful_set: true, ..none };
        assert_eq!(set(&[" MaxUnavailableStatefulSet=true"]), Ok((on, vec![])));
        let on = Switches { container_stop_signals: true, ..none };
        assert_eq!(set(&["kube:ContainerStopSignals=true", "kube:SidecarContainers=true"]), Ok((on, vec![])));
        assert_eq!(set(&["other:MemoryQoS=false"]), Err(unknown("other:MemoryQoS", None)));
        let on = Switches { initializers: true, ..none };
        assert_eq!(set(&["Initializers=true"]), Ok((on, vec![])));
        assert_eq!(set(&["Initializers=true", "Initializers=false"]), Ok((none, vec![])));
        assert_eq!(set(&["SidecarContainers=false"]), Err(GateError::AlwaysOn("SidecarContainers")));
        assert_eq!(
            set(&["ResourceHealthStatusMessage=true"]),
            Err(GateError::NotThere("ResourceHealthStatusMessage"))
        );
        assert_eq!(set(&["MemoryQoS=1"]), Err(GateError::NotThere("MemoryQoS")));
        assert_eq!(set(&["Nonsense=true"]), Err(unknown("Nonsense", None)));
        assert_eq!(set(&["MemoryQoS"]), Err(GateError::NoValue("MemoryQoS".into())));
        assert!(matches!(set(&["MemoryQoS=yes"]), Err(GateError::NotABool { .. })));
        assert_eq!(set(&["AllAlpha=false"]), Ok((none, vec![])));
        assert_eq!(set(&["AllAlpha=true"]), Err(GateError::NotThere("AllAlpha")));
        assert_eq!(set(&["AllBeta=true"]), Err(GateError::AllBetaOn));
        assert_eq!(set(&["AllBeta=false"]), Err(GateError::AllBetaOff));
    }

    #[test]
    fn errors_say_what_is_so_instead() {
        for (gate, why) in [
            ("SidecarContainers=false", "SidecarContainers to false: the feature is always on"),
            ("MemoryQoS=true", "MemoryQoS to true: the feature is not there"),
            ("AllBeta=true", "AllBeta to true: some beta features are not there"),
            ("AllBeta=false", "AllBeta to false: some beta features are always on"),
        ] {
            let error = set(&[gate]).unwrap_err().to_string();
            assert!(error.contains(why), "{gate}: {error}");
        }
    }

    #[test]
    fn all_wrong_gates_are_reported_with_what_was_probably_meant() {
        let gates = [
            "Nonsense=true",
            "SidecarContainers=false",
            "MemoryQoS",
            "MemoryQoS=yes",
            "sidecarContainer=true",
        ];
        assert_eq!(
            all(&gates).unwrap_err().to_string(),
            "missing bool value for MemoryQoS; invalid value of MemoryQoS=yes: expected true or false; \
             unrecognized feature gate: Nonsense; cannot set feature gate SidecarContainers to false: the feature is \
             always on, see docs/feature-gates.md; unrecognized feature gate: sidecarContainer, did you mean \
             SidecarContainers?"
        );
        for (name, meant) in [
            ("SIDECARCONTAINERS", "SidecarContainers"),
            ("SidecarContaners", "SidecarContainers"),
            ("memoryqos", "MemoryQoS"),
            ("allbeta", "AllBeta"),
            ("Initialisers", "Initializers"),
            ("containerStopSignal", "ContainerStopSignals"),
        ] {
            assert_eq!(set(&[&format!("{name}=true")]), Err(unknown(name, Some(meant))));
        }
    }

    #[test]
    fn of_a_gate_that_is_named_twice_the_last_value_counts() {
        let both = all(&["Initializers=false", "WinDSR=false", "Initializers=true", "WinDSR=false"]).unwrap();
        assert!(both.switches.initializers);
        assert_eq!(
            (both.without_effect, both.contradictory),
            (vec!["WinDSR"], vec!["Initializers".to_owned()])
        );
        let last = all(&["SidecarContainers=false", "kube:SidecarContainers=true"]).unwrap();
        assert_eq!(last.contradictory, ["SidecarContainers"]);
        let wrong = set(&["SidecarContainers=true", "SidecarContainers=false"]);
        assert_eq!(wrong, Err(GateError::AlwaysOn("SidecarContainers")));
    }

    #[test]
    fn the_values_in_force_are_those_of_the_features() {
        let set = Switches { container_stop_signals: true, initializers: true, ..Switches::default() };
        let all = in_force(set);
        for (name, expected) in [
            ("SidecarContainers", Some(("", true))),
            ("ResourceHealthStatus", Some(("BETA", true))),
            ("ResourceHealthStatusMessage", Some(("BETA", false))),
            ("MemoryQoS", Some(("ALPHA", false))),
            ("ContainerStopSignals", Some(("ALPHA", true))),
            ("MaxUnavailableStatefulSet", Some(("BETA", false))),
            ("Initializers", Some(("ALPHA", true))),
            ("AllBeta", Some(("BETA", false))),
            ("WinDSR", None),
        ] {
            let found = all.iter().find(|feature| feature.name == name);
            assert_eq!(found.map(|feature| (feature.stage, feature.enabled)), expected, "{name}");
        }
        let off = in_force(Switches::default());
        assert!(off.iter().any(|feature| feature.name == "Initializers" && !feature.enabled));
        let names: BTreeSet<&str> = all.iter().map(|feature| feature.name).collect();
        let skipped = ON.iter().filter(|(_, support)| matches!(support, Support::NotApplicable(_))).count();
        assert_eq!((names.len(), all.len()), (243 - skipped, 243 - skipped), "each once");
    }

    fn upstream() -> impl Iterator<Item = (&'static str, bool, &'static str)> {
        UPSTREAM.lines().map(|line| {
            let mut words = line.split_whitespace();
            let (name, default, stage) = (words.next(), words.next(), words.next());
            (name.unwrap(), default == Some("on"), stage.unwrap())
        })
    }

    #[test]
    fn every_gate_of_kubernetes_is_in_the_table() {
        let (on, off): (Vec<_>, Vec<_>) = upstream().partition(|(_, on, _)| *on);
        let names = |gates: &[(&'static str, bool, &'static str)]| {
            gates.iter().map(|(name, ..)| *name).collect::<BTreeSet<_>>()
        };
        assert_eq!(on.len() + off.len(), 240);
        assert_eq!(ON.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(), names(&on));
        let ours = OFF.iter().copied().chain(SWITCHES.iter().map(|(name, _)| *name));
        assert_eq!(ours.collect::<BTreeSet<_>>(), names(&off));
        // One of the two values is accepted for every name: a list of gates with their values here can be given.
        for (name, ..) in on.iter().chain(&off) {
            let accepted = ["true", "false"].map(|value| set(&[&format!("{name}={value}")]).is_ok());
            assert!(accepted.contains(&true), "{name}");
        }
    }

    /// File and symbol of a place.
    fn parts(place: &'static str) -> (&'static str, &'static str) {
        place.split_once('#').unwrap_or_else(|| panic!("{place}: not of the form file#symbol"))
    }

    /// Whether the symbol occurs as a whole word, in comments or code but not in the unit tests at the end of the file.
    fn occurs(symbol: &str, text: &str) -> bool {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let in_word = |next: Option<char>| next.is_some_and(|c| c.is_alphanumeric() || c == '_');
        code.match_indices(symbol).any(|(at, _)| {
            !in_word(code[..at].chars().next_back()) && !in_word(code[at + symbol.len()..].chars().next())
        })
    }

    #[test]
    fn places_in_the_table_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (name, support) in ON {
            if let Support::Honoured(place) | Support::Partly(place, _) = support {
                let (file, symbol) = parts(place);
                let text = std::fs::read_to_string(root.join(file))
                    .unwrap_or_else(|e| panic!("{name}: {file}: {e}"));
                assert!(!symbol.is_empty() && occurs(symbol, &text), "{name}: no {symbol} in {file}");
            }
        }
        assert!(occurs("swap", "fn swap()") && !occurs("swap", "swap_total, mem_swap"));
        assert!(!occurs("swap", "#[cfg(test)]\nmod tests {\n    fn swap() {}\n}\n"));
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let text = include_str!("../../../docs/feature-gates.md");
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        let link = |place| {
            let (file, symbol) = parts(place);
            format!("[{file}](../{file}) `{symbol}`")
        };
        let wanted = ON.iter().map(|(name, support)| {
            let (word, detail) = match support {
                Support::Honoured(place) => ("honoured", link(place)),
                Support::Partly(place, what) => ("in part", format!("{what}: {}", link(place))),
                Support::Refused(why) => ("refused", (*why).to_owned()),
                Support::NotApplicable(why) => ("not applicable", (*why).to_owned()),
            };
            (format!("`{name}`"), word, detail)
        });
        let told = rows.iter().map(|row| (row[0].to_owned(), row[2], row[3].to_owned()));
        assert_eq!(told.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
        let stages = rows.iter().map(|row| (row[0].trim_matches('`'), row[1]));
        let wanted = upstream().filter(|(_, on, _)| *on).map(|(name, _, stage)| (name, stage));
        assert_eq!(stages.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
        let count = |kind: fn(&Support) -> bool| ON.iter().filter(|(_, support)| kind(support)).count();
        for (word, number) in [
            ("honoured", count(|support| matches!(support, Support::Honoured(_)))),
            ("in part", count(|support| matches!(support, Support::Partly(..)))),
            ("refused", count(|support| matches!(support, Support::Refused(_)))),
            ("not applicable", count(|support| matches!(support, Support::NotApplicable(_)))),
        ] {
            assert!(text.contains(&format!("- **{word}** ({number}):")), "{word}: {number}");
        }
        assert!(text.contains(&format!("on by default in Kubernetes 1.36, {} in all", ON.len())));
        let mut names: Vec<&str> = ON.iter().map(|(name, _)| *name).chain(OFF.iter().copied()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ON.len() + OFF.len(), "a gate is listed twice");
    }
}
