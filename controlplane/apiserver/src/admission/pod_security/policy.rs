//! Levels, versions and modes, and their parsing from namespace labels.

use coracle_fields::meta::ObjectMeta;
use coracle_fields::{Map, Text, View, make};
use coracle_proto::status::FieldError;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;

/// Why a text is neither a level nor a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum StandardError {
    #[error("must be one of privileged, baseline, restricted")]
    Level,
    #[error("must be \"latest\" or \"v1.x\"")]
    Version,
}

/// A setting that is neither a level nor a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct PolicyError(FieldError);

/// How strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Everything goes.
    #[default]
    Privileged,
    /// Nothing that is known to lead out of a container.
    Baseline,
    /// Hardened.
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Result<Self, StandardError> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err(StandardError::Level),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// As which minor version had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// The newest.
    #[default]
    Latest,
    /// `v1.N`.
    Minor(u32),
}

impl Version {
    fn parse(text: &str) -> Result<Self, StandardError> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").ok_or(StandardError::Version)?;
        let plain = minor.bytes().all(|b| b.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
        let parsed = minor.parse().ok().filter(|_| plain);
        parsed.map(Self::Minor).ok_or(StandardError::Version)
    }

    /// Whether something that came with `minor` belongs to this version.
    pub fn has(self, minor: u32) -> bool {
        match self {
            Self::Latest => true,
            Self::Minor(own) => own >= minor,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// A level as a version had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standard {
    /// How strict.
    pub level: Level,
    /// As of when.
    pub version: Version,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

impl Standard {
    /// Whether the two refuse the same pods.
    fn equivalent(&self, other: &Self) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

/// What a namespace asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// What is refused.
    pub enforce: Standard,
    /// What is noted.
    pub audit: Standard,
    /// What is warned of.
    pub warn: Standard,
}

const PREFIX: &str = "pod-security.kubernetes.io/";

impl Policy {
    /// Whether no mode has anything to say.
    pub fn fully_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|s| s.level == Level::Privileged)
    }

    /// Whether the two refuse, note and warn alike.
    pub fn equivalent(&self, other: &Self) -> bool {
        self.enforce.equivalent(&other.enforce)
            && self.audit.equivalent(&other.audit)
            && self.warn.equivalent(&other.warn)
    }

    /// The policy of settings such as `{"enforce": "baseline", "enforce-version": "v1.30"}`.
    pub fn parse(texts: &BTreeMap<String, String>) -> Result<Self, PolicyError> {
        let labels = texts.iter().map(|(key, value)| (format!("{PREFIX}{key}"), value.clone()));
        let meta = make!(part ObjectMeta { labels: labels.collect::<BTreeMap<String, String>>() });
        let (policy, errors) = Self::default().with_labels(meta.view().labels());
        match errors.into_iter().next() {
            // Settings, unlike labels, do not make warnings follow refusals.
            None => Ok(Self {
                warn: if texts.contains_key("warn") { policy.warn } else { Standard::default() },
                ..policy
            }),
            Some(error) => Err(PolicyError(error)),
        }
    }

    /// The policy that labels make of this one. Labels that cannot be read are refused; until they are mended the strictest
    /// is enforced and nothing is noted or warned of.
    pub fn with_labels(mut self, labels: View<'_, Map<Text>>) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let label = |name: &str| labels.key(&format!("{PREFIX}{name}")).get();
        let mut refuse = |name: &str, why: StandardError| {
            let field = format!("metadata.labels[{PREFIX}{name}]");
            let value = json!(label(name).unwrap_or_default());
            errors.push(FieldError::invalid(field, &value, &why.to_string()));
        };
        let mut enforced = false;
        for (mode, standard, on_error) in [
            ("enforce", &mut self.enforce, Level::Restricted),
            ("audit", &mut self.audit, Level::Privileged),
            ("warn", &mut self.warn, Level::Privileged),
        ] {
            if let Some(text) = label(mode) {
                match Level::parse(text) {
                    Ok(level) => {
                        standard.level = level;
                        enforced |= mode == "enforce";
                    }
                    Err(why) => {
                        standard.level = on_error;
                        refuse(mode, why);
                    }
                }
            }
            let version = format!("{mode}-version");
            if let Some(text) = label(&version) {
                standard.version = Version::parse(text).unwrap_or_else(|why| {
                    refuse(&version, why);
                    Version::Latest
                });
            }
        }
        // Who asks for refusals and says nothing of warnings is warned about workloads too.
        if label("warn").is_none() && enforced && self.enforce.level > self.warn.level {
            self.warn.level = self.enforce.level;
            if label("warn-version").is_none() {
                self.warn.version = self.enforce.version;
            }
        }
        (self, errors)
    }

    /// The modes that labels set to something stricter than privileged: `enforce=baseline:latest, …`.
    pub fn explicit(&self, labels: View<'_, Map<Text>>) -> String {
        let set = |mode: &str| {
            [mode.to_owned(), format!("{mode}-version")]
                .iter()
                .any(|name| labels.key(&format!("{PREFIX}{name}")).is_set())
        };
        let modes = [("enforce", self.enforce), ("audit", self.audit), ("warn", self.warn)];
        let shown = modes.iter().filter(|(mode, s)| s.level != Level::Privileged && set(mode));
        shown.map(|(mode, standard)| format!("{mode}={standard}")).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Made;

    fn meta(pairs: &[(&str, &str)]) -> Made<ObjectMeta> {
        let labels = pairs.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        make!(part ObjectMeta { labels: labels.collect::<BTreeMap<String, String>>() })
    }

    #[test]
    fn labels_make_a_policy() {
        let of = |pairs: &[(&str, &str)]| {
            let (policy, errors) = Policy::default().with_labels(meta(pairs).view().labels());
            let errors: Vec<String> = errors.into_iter().map(|e| e.message).collect();
            (format!("{} {} {}", policy.enforce, policy.audit, policy.warn), errors.join("|"))
        };
        let cases = [
            (vec![], "privileged:latest privileged:latest privileged:latest", ""),
            (
                vec![("enforce", "baseline"), ("enforce-version", "v1.30")],
                "baseline:v1.30 privileged:latest baseline:v1.30",
                "",
            ),
            (
                vec![("enforce", "restricted"), ("warn", "privileged")],
                "restricted:latest privileged:latest privileged:latest",
                "",
            ),
            (vec![("audit", "restricted")], "privileged:latest restricted:latest privileged:latest", ""),
            (
                vec![("enforce", "bogus")],
                "restricted:latest privileged:latest privileged:latest",
                "Invalid value: \"bogus\": must be one of privileged, baseline, restricted",
            ),
            (
                vec![("warn-version", "1.3")],
                "privileged:latest privileged:latest privileged:latest",
                "Invalid value: \"1.3\": must be \"latest\" or \"v1.x\"",
            ),
        ];
        for (pairs, expected, error) in cases {
            assert_eq!(of(&pairs), (expected.to_owned(), error.to_owned()), "{pairs:?}");
        }
    }
}
