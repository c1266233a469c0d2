//! `--runtime-config`: which of the older API versions are served, by the names of Kubernetes.

use coracle_kinds::registry::older::{OlderVersion, VERSIONS};
use coracle_kinds::registry::table;
use std::collections::BTreeSet;

/// Why an API version cannot be switched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// Neither true nor false.
    #[error("invalid value of {name}={value}: expected true or false")]
    NotABool {
        /// The version.
        name: String,
        /// As it was given.
        value: String,
    },
    /// A version that this server does not have.
    #[error("{0} is not an API version of this server")]
    Unknown(String),
    /// Versions that are always served.
    #[error("{0} cannot be switched off, this server has no switch for it")]
    AlwaysOn(String),
    /// Single resources.
    #[error("{0} names a resource: only whole versions can be switched")]
    Resource(String),
}

/// The older versions that are served, by group and version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig(BTreeSet<(&'static str, &'static str)>);

impl RuntimeConfig {
    /// Reads entries such as `networking.k8s.io/v1beta1=true`. Those of single versions count more than `api/beta`, and that
    /// more than `api/all`, whatever their order; of the same name the last one counts.
    pub fn parse(entries: &[String]) -> Result<Self, RuntimeConfigError> {
        let mut all = Vec::new();
        for entry in entries.iter().map(|entry| entry.trim()).filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('=').unwrap_or((entry, "true"));
            let (name, value) = (name.trim(), value.trim());
            let on = match value {
                "true" | "" => true,
                "false" => false,
                _ => {
                    let (name, value) = (name.to_owned(), value.to_owned());
                    return Err(RuntimeConfigError::NotABool { name, value });
                }
            };
            all.push((precedence(name)?, name, on));
        }
        all.sort_by_key(|(precedence, ..)| *precedence);
        let mut config = Self::default();
        for (_, name, on) in all {
            config.set(name, on)?;
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, on: bool) -> Result<(), RuntimeConfigError> {
        // What Kubernetes has removed is asked for by name only.
        let chosen: fn(&OlderVersion) -> bool = match name {
            "api/all" => |version| !version.is_removed,
            "api/beta" => |version| !version.is_removed && version.version.contains("beta"),
            "api/alpha" => |version| !version.is_removed && version.version.contains("alpha"),
            "api/ga" if on => return Ok(()),
            "api/ga" => return Err(RuntimeConfigError::AlwaysOn(name.to_owned())),
            _ => return self.set_one(name, on),
        };
        for version in VERSIONS.iter().filter(|version| chosen(version)) {
            self.put(version, on);
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, on: bool) -> Result<(), RuntimeConfigError> {
        let known = VERSIONS.iter().find(|known| format!("{}/{}", known.group, known.version) == name);
        match known {
            Some(version) => self.put(version, on),
            // Off is what it is.
            None if !on && is_prerelease(name) => {}
            None => {
                let is_served = table::builtin().iter().any(|row| row.api_version() == name);
                return match (is_served, on) {
                    (true, true) => Ok(()),
                    (true, false) => Err(RuntimeConfigError::AlwaysOn(name.to_owned())),
                    (false, _) => Err(RuntimeConfigError::Unknown(name.to_owned())),
                };
            }
        }
        Ok(())
    }

    fn put(&mut self, version: &OlderVersion, on: bool) {
        let key = (version.group, version.version);
        if on {
            self.0.insert(key);
        } else {
            self.0.remove(&key);
        }
    }

    /// Whether a version is served.
    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.0.contains(&(group, version))
    }
}

/// How much an entry counts.
fn precedence(name: &str) -> Result<u8, RuntimeConfigError> {
    match name {
        "api/all" => Ok(0),
        "api/ga" | "api/beta" | "api/alpha" => Ok(1),
        _ if name.matches('/').count() > 1 => Err(RuntimeConfigError::Resource(name.to_owned())),
        _ => Ok(2),
    }
}

fn is_prerelease(name: &str) -> bool {
    let version = name.rsplit('/').next().unwrap_or_default();
    version.contains("beta") || version.contains("alpha")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(entries: &[&str]) -> Result<RuntimeConfig, RuntimeConfigError> {
        RuntimeConfig::parse(&entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn versions_are_switched_by_name() {
        assert_eq!(parse(&[]), Ok(RuntimeConfig::default()));
        let one = parse(&["networking.k8s.io/v1beta1=true"]).unwrap();
        assert!(one.serves("networking.k8s.io", "v1beta1") && !one.serves("storage.k8s.io", "v1beta1"));
        assert_eq!(parse(&["networking.k8s.io/v1beta1"]).unwrap(), one, "the value may be left out");
        let beta = parse(&["networking.k8s.io/v1beta1=false", "api/beta=true"]).unwrap();
        assert!(!beta.serves("networking.k8s.io", "v1beta1"), "its own entry counts more");
        assert!(beta.serves("storage.k8s.io", "v1beta1") && beta.serves("resource.k8s.io", "v1beta2"));
        assert!(!beta.serves("admissionregistration.k8s.io", "v1alpha1"));
        assert!(!beta.serves("apps", "v1beta2"), "Kubernetes has no such version");
        let all = parse(&["api/all=true", "api/alpha=false", "apps/v1beta2=true"]).unwrap();
        assert!(all.serves("apps", "v1beta2") && all.serves("authentication.k8s.io", "v1beta1"));
        assert!(!all.serves("admissionregistration.k8s.io", "v1alpha1"));
        let as_it_is = ["resource.k8s.io/v1alpha3=false", "api/ga=true", "apps/v1=true", "v1"];
        assert_eq!(parse(&as_it_is), Ok(RuntimeConfig::default()));
    }

    #[test]
    fn what_has_no_switch_is_refused() {
        type E = RuntimeConfigError;
        assert!(matches!(parse(&["apps/v1beta2=yes"]), Err(E::NotABool { .. })));
        assert_eq!(
            parse(&["resource.k8s.io/v1alpha3=true"]),
            Err(E::Unknown("resource.k8s.io/v1alpha3".into()))
        );
        assert_eq!(parse(&["apps/v1=false"]), Err(E::AlwaysOn("apps/v1".into())));
        assert_eq!(parse(&["apps/v7=false"]), Err(E::Unknown("apps/v7".into())));
        assert_eq!(parse(&["api/ga=false"]), Err(E::AlwaysOn("api/ga".into())));
        let resource = "networking.k8s.io/v1beta1/ipaddresses";
        assert_eq!(parse(&[resource]), Err(E::Resource(resource.into())));
    }
}
