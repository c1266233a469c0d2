//! Labels of mandatory access control: AppArmor profiles and SELinux contexts.
//!
//! A container that asks for a label gets it or does not start.

use coracle_proto::cri;
use coracle_proto::cri::security_profile::ProfileType;
use sha2::{Digest, Sha256};

use super::{DEFAULT_PROFILE, Error, Host, ProfileError, SeLinux};

const LOCALHOST: &str = "localhost/";
/// The unconfined SELinux type; allowed on hosts without SELinux.
pub const UNCONFINED_TYPE: &str = "spc_t";

/// The AppArmor profile that a configuration asks for; clients of old CRI versions give it as text.
pub fn requested(security: &cri::LinuxContainerSecurityContext) -> Option<(ProfileType, String)> {
    if let Some(profile) = &security.apparmor {
        let name = profile.localhost_ref.trim_start_matches(LOCALHOST).to_owned();
        // A kind that is not known is asked for by name, and not found.
        let kind = ProfileType::try_from(profile.profile_type).unwrap_or(ProfileType::Localhost);
        return Some((kind, name));
    }
    #[allow(deprecated)]
    let text = security.apparmor_profile.as_str();
    match text {
        "" => None,
        "runtime/default" => Some((ProfileType::RuntimeDefault, String::new())),
        "unconfined" => Some((ProfileType::Unconfined, String::new())),
        name => Some((ProfileType::Localhost, name.trim_start_matches(LOCALHOST).to_owned())),
    }
}

/// The AppArmor profile of a container's processes.
pub fn apparmor(security: &cri::LinuxContainerSecurityContext, host: &Host) -> Result<Option<String>, Error> {
    let wanted = requested(security);
    if !host.apparmor {
        return match wanted {
            None | Some((ProfileType::Unconfined, _)) => Ok(None),
            Some(_) => Err(ProfileError::NoAppArmor.into()),
        };
    }
    match (wanted, &host.no_default_profile) {
        (Some((ProfileType::Unconfined, _)), _) => Ok(Some("unconfined".into())),
        (Some((ProfileType::Localhost, name)), _) if name.is_empty() => Err(ProfileError::Unnamed.into()),
        (Some((ProfileType::Localhost, name)), _) => Ok(Some(name)),
        (None | Some((ProfileType::RuntimeDefault, _)), _) if security.privileged => Ok(None),
        // Not requested: a container on a host without the profile runs without it.
        (None, Some(_)) => Ok(None),
        (Some((ProfileType::RuntimeDefault, _)), Some(reason)) => {
            Err(ProfileError::NotLoaded { reason: reason.clone() }.into())
        }
        (None | Some((ProfileType::RuntimeDefault, _)), None) => Ok(Some(DEFAULT_PROFILE.into())),
    }
}

/// The SELinux labels of a container that asks for some; `sandbox` is the id of its pod's sandbox.
pub fn selinux(
    security: &cri::LinuxContainerSecurityContext,
    sandbox: &str,
    host: &Host,
) -> Result<Option<SeLinux>, Error> {
    let empty = cri::SeLinuxOption::default();
    let Some(options) = security.selinux_options.as_ref().filter(|options| **options != empty) else {
        return Ok(None);
    };
    let Some(policy) = &host.selinux else {
        if security.privileged || options.r#type == UNCONFINED_TYPE {
            return Ok(None);
        }
        return Err(ProfileError::NoSelinux.into());
    };
    // As other runtimes: privileged containers stay in the runtime's own domain.
    if security.privileged {
        return Ok(None);
    }
    let level = if options.level.is_empty() { own_level(sandbox) } else { options.level.clone() };
    let own = [&options.user, &options.role, &options.r#type, &level];
    let process = overlaid(&policy.process, own, "process")?;
    let none = String::new();
    let mount = overlaid(&policy.file, [&options.user, &none, &none, &level], "file")?;
    Ok(Some(SeLinux { process, mount }))
}

/// A context with these fields instead of its own where they are given.
fn overlaid(context: &str, fields: [&String; 4], what: &'static str) -> Result<String, Error> {
    let mut of_policy = context.splitn(4, ':');
    let mut parts = Vec::new();
    for field in fields {
        let from = of_policy.next().unwrap_or_default();
        let part = if field.is_empty() { from } else { field.as_str() };
        // A quote would end the mount option that the label is part of.
        if part.is_empty() || part.contains(['"', '\n', '\0']) {
            return Err(ProfileError::Label { what, context: context.to_owned() }.into());
        }
        parts.push(part);
    }
    Ok(parts.join(":"))
}

/// Two categories for the pod, so that it does not reach the files of others: all of its containers have the same.
fn own_level(sandbox: &str) -> String {
    const CATEGORIES: u32 = 1024;
    let hash = Sha256::digest(sandbox);
    let first = u32::from(u16::from_le_bytes([hash[0], hash[1]])) % CATEGORIES;
    let second = u32::from(u16::from_le_bytes([hash[2], hash[3]])) % (CATEGORIES - 1);
    // Never twice the same.
    let second = if second >= first { second + 1 } else { second };
    format!("s0:c{},c{}", first.min(second), first.max(second))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Contexts;
    use super::*;

    fn asks(kind: ProfileType, name: &str) -> cri::LinuxContainerSecurityContext {
        let profile = cri::SecurityProfile { profile_type: kind as i32, localhost_ref: name.into() };
        cri::LinuxContainerSecurityContext { apparmor: Some(profile), ..Default::default() }
    }

    #[test]
    fn apparmor_profiles_are_given_or_refused() {
        let off = Host::default();
        let on = Host { apparmor: true, ..Host::default() };
        let unloaded = Host { no_default_profile: Some("no parser".into()), ..on.clone() };
        let nothing = cri::LinuxContainerSecurityContext::default();
        let privileged = cri::LinuxContainerSecurityContext { privileged: true, ..nothing.clone() };
        let default = asks(ProfileType::RuntimeDefault, "");
        let local = asks(ProfileType::Localhost, "localhost/mine");
        for (security, host, want) in [
            (&nothing, &off, Ok(None)),
            (&asks(ProfileType::Unconfined, ""), &off, Ok(None)),
            (&default, &off, Err("AppArmor is not enabled on the host")),
            (&local, &off, Err("AppArmor is not enabled on the host")),
            (&nothing, &on, Ok(Some("coracle-default"))),
            (&privileged, &on, Ok(None)),
            (&default, &on, Ok(Some("coracle-default"))),
            (&local, &on, Ok(Some("mine"))),
            (&asks(ProfileType::Unconfined, ""), &on, Ok(Some("unconfined"))),
            (&asks(ProfileType::Localhost, ""), &on, Err("the AppArmor profile has no name")),
            (&nothing, &unloaded, Ok(None)),
            (&default, &unloaded, Err("the AppArmor profile \"coracle-default\" is not loaded: no parser")),
        ] {
            let got = apparmor(security, host).map_err(|error| error.to_string());
            assert_eq!(got.as_ref().map(Option::as_deref).map_err(String::as_str), want, "{security:?}");
        }
        #[allow(deprecated)]
        let old = cri::LinuxContainerSecurityContext { apparmor_profile: "localhost/x".into(), ..nothing };
        assert_eq!(apparmor(&old, &on), Ok(Some("x".into())));
        assert!(apparmor(&old, &off).is_err());
    }

    #[test]
    fn selinux_labels_are_given_or_refused() {
        let contexts = Contexts {
            process: "system_u:system_r:container_t:s0".into(),
            file: "system_u:object_r:container_file_t:s0".into(),
        };
        let on = Host { selinux: Some(contexts), ..Host::default() };
        let with = |options: cri::SeLinuxOption| cri::LinuxContainerSecurityContext {
            selinux_options: Some(options),
            ..Default::default()
        };
        let level = with(cri::SeLinuxOption { level: "s0:c1,c2".into(), ..Default::default() });
        let got = selinux(&level, "s", &on).unwrap().unwrap();
        assert_eq!(got.process, "system_u:system_r:container_t:s0:c1,c2");
        assert_eq!(got.mount, "system_u:object_r:container_file_t:s0:c1,c2");
        let kind = with(cri::SeLinuxOption { r#type: "mine_t".into(), ..Default::default() });
        let (one, other) =
            (selinux(&kind, "a", &on).unwrap().unwrap(), selinux(&kind, "b", &on).unwrap().unwrap());
        assert!(one.process.starts_with("system_u:system_r:mine_t:s0:c"), "{one:?}");
        assert!(one.mount.starts_with("system_u:object_r:container_file_t:s0:c"), "{one:?}");
        assert_ne!(one, other, "pods do not share categories");
        assert_eq!(
            selinux(&with(Default::default()), "s", &Host::default()),
            Ok(None),
            "nothing is asked for"
        );
        assert!(selinux(&level, "s", &Host::default()).is_err());
        let none = with(cri::SeLinuxOption { r#type: UNCONFINED_TYPE.into(), ..Default::default() });
        assert_eq!(selinux(&none, "s", &Host::default()), Ok(None), "no confinement is asked for");
        let bare = Host { selinux: Some(Contexts::default()), ..Host::default() };
        assert!(selinux(&level, "s", &bare).is_err(), "the policy knows no containers");
        let quote = with(cri::SeLinuxOption { level: "s0\",upperdir=/".into(), ..Default::default() });
        assert!(selinux(&quote, "s", &on).is_err());
    }
}
