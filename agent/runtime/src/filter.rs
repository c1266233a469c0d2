//! Seccomp filters.
//!
//! The filter is that of commands which enter the container through the keeper. libseccomp makes those of the few profiles
//! that `coracle-seccomp` does not compile.

use coracle_keeper::enter::{StepError, seccomp};
use coracle_seccomp::bpf;
use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction};

use super::error::Error;

/// The filter of a process.
#[derive(Clone, Debug)]
pub enum Filter {
    /// There is none.
    None,
    /// BPF instructions.
    Compiled(Vec<u8>),
    /// For libseccomp.
    Profile(Box<LinuxSeccomp>),
}

impl Filter {
    /// For a profile.
    pub fn of(profile: Option<LinuxSeccomp>) -> Result<Self, Error> {
        let Some(profile) = profile else { return Ok(Self::None) };
        if let Some(program) = bpf::compile(&profile) {
            return Ok(Self::Compiled(program));
        }
        let rules = profile.syscalls().iter().flatten().map(|rule| rule.action());
        let asks = rules.chain([profile.default_action()]).any(|it| it == LinuxSeccompAction::ScmpActNotify);
        if asks || profile.listener_path().is_some() {
            return Err(Error::Unsupported("a seccomp profile that asks a listener"));
        }
        Ok(Self::Profile(Box::new(profile)))
    }

    /// Loads it into this process.
    pub fn load(&self) -> Result<(), StepError> {
        match self {
            Self::None => Ok(()),
            Self::Compiled(program) => Ok(seccomp::load_seccomp(program, 0)?),
            Self::Profile(profile) => {
                libcontainer::seccomp::initialize_seccomp(profile)?;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn of(profile: Value) -> Result<Filter, Error> {
        Filter::of(Some(serde_json::from_value(profile).unwrap()))
    }

    #[test]
    fn every_profile_has_its_way_or_is_refused() {
        let plain = json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [] });
        assert!(matches!(of(plain), Ok(Filter::Compiled(_))));
        let flags = json!({ "defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"] });
        assert!(matches!(of(flags), Ok(Filter::Profile(_))));
        let asks = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["kill"], "action": "SCMP_ACT_NOTIFY" }] });
        assert!(matches!(of(asks), Err(Error::Unsupported(_))));
        assert!(matches!(Filter::of(None), Ok(Filter::None)));
    }
}
