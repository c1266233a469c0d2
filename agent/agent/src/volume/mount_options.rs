//! Mount options of PersistentVolumes: those of the kernel become flags, all others belong to the file system. Pure.

use k8s_openapi::api::core::v1::PersistentVolume;
use nix::mount::MsFlags;

/// Where options stood before `spec.mountOptions`; it has precedence.
const ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

/// The mount options of a volume, one per entry.
pub fn of_volume(volume: &PersistentVolume) -> Vec<String> {
    let annotated = volume.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
    let given: Vec<&str> = match annotated {
        Some(text) => vec![text.as_str()],
        None => {
            let spec = volume.spec.as_ref().and_then(|spec| spec.mount_options.as_deref());
            spec.unwrap_or_default().iter().map(String::as_str).collect()
        }
    };
    let options = given.into_iter().flat_map(|option| option.split(',')).map(str::trim);
    options.filter(|option| !option.is_empty()).map(str::to_owned).collect()
}

/// Options as the kernel takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Of any file system.
    pub flags: MsFlags,
    /// What the file system itself reads.
    pub data: Vec<String>,
}

impl Planned {
    /// From options as mount(8) takes them; a later one prevails over an earlier one.
    pub fn of<'a>(options: impl IntoIterator<Item = &'a str>) -> Self {
        let mut planned = Self { flags: MsFlags::empty(), data: vec![] };
        for option in options {
            match flag(option) {
                Some((flag, is_set)) => planned.flags.set(flag, is_set),
                None if is_comment(option) => {}
                None => planned.data.push(option.to_owned()),
            }
        }
        planned
    }

    /// The file system's options in one text, if there are any.
    pub fn text(&self) -> Option<String> {
        (!self.data.is_empty()).then(|| self.data.join(","))
    }
}

/// Whether nothing can be written to what is mounted with these options.
pub fn is_read_only(options: &[String]) -> bool {
    Planned::of(options.iter().map(String::as_str)).flags.contains(MsFlags::MS_RDONLY)
}

/// The flag of an option, and whether the option sets it.
fn flag(option: &str) -> Option<(MsFlags, bool)> {
    Some(match option {
        "ro" => (MsFlags::MS_RDONLY, true),
        "rw" => (MsFlags::MS_RDONLY, false),
        "noexec" => (MsFlags::MS_NOEXEC, true),
        "exec" => (MsFlags::MS_NOEXEC, false),
        "nosuid" => (MsFlags::MS_NOSUID, true),
        "suid" => (MsFlags::MS_NOSUID, false),
        "nodev" => (MsFlags::MS_NODEV, true),
        "dev" => (MsFlags::MS_NODEV, false),
        "noatime" => (MsFlags::MS_NOATIME, true),
        "atime" => (MsFlags::MS_NOATIME, false),
        "nodiratime" => (MsFlags::MS_NODIRATIME, true),
        "diratime" => (MsFlags::MS_NODIRATIME, false),
        "relatime" => (MsFlags::MS_RELATIME, true),
        "norelatime" => (MsFlags::MS_RELATIME, false),
        "strictatime" => (MsFlags::MS_STRICTATIME, true),
        "nostrictatime" => (MsFlags::MS_STRICTATIME, false),
        "lazytime" => (MsFlags::MS_LAZYTIME, true),
        "nolazytime" => (MsFlags::MS_LAZYTIME, false),
        "sync" => (MsFlags::MS_SYNCHRONOUS, true),
        "async" => (MsFlags::MS_SYNCHRONOUS, false),
        "dirsync" => (MsFlags::MS_DIRSYNC, true),
        "silent" => (MsFlags::MS_SILENT, true),
        "loud" => (MsFlags::MS_SILENT, false),
        _ => return None,
    })
}

/// What mount(8) reads and the kernel does not.
fn is_comment(option: &str) -> bool {
    let words = ["", "defaults", "auto", "noauto", "nofail", "_netdev"];
    words.contains(&option) || option.starts_with("x-") || option.starts_with("X-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn options_are_flags_or_the_file_systems() {
        let planned = Planned::of(["noexec", "ro", "data=ordered", "x-systemd.automount", "rw", "barrier=0"]);
        assert_eq!(planned.flags, MsFlags::MS_NOEXEC);
        assert_eq!(planned.text().as_deref(), Some("data=ordered,barrier=0"));
        assert_eq!(Planned::of(["defaults"]).text(), None);
    }

    #[test]
    fn an_annotation_stands_before_the_spec() {
        let mut volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"annotations": {}},
            "spec": {"mountOptions": ["noatime, nodev", ""]}}))
        .unwrap();
        assert_eq!(of_volume(&volume), ["noatime", "nodev"]);
        volume.metadata.annotations.as_mut().unwrap().insert(ANNOTATION.into(), "sync,ro".into());
        assert_eq!(of_volume(&volume), ["sync", "ro"]);
        assert!(of_volume(&PersistentVolume::default()).is_empty());
    }
}
