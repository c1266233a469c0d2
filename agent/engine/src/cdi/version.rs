//! Versions of spec files, and what each allows.

use super::error::SpecError;
use super::spec::{Edits, Spec};

/// All versions of the specification, in order.
const VERSIONS: [&str; 10] =
    ["0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

fn rank(version: &str) -> Option<usize> {
    let version = version.strip_prefix('v').unwrap_or(version);
    VERSIONS.iter().position(|known| *known == version)
}

/// Checks that the version of a spec file has all fields that the file uses.
pub(super) fn check(spec: &Spec) -> Result<(), SpecError> {
    let given = rank(&spec.cdi_version).ok_or_else(|| SpecError::Version(spec.cdi_version.clone()))?;
    let class_has_dot = spec.kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
    let digit = spec.devices.iter().any(|device| device.name.starts_with(|c: char| c.is_ascii_digit()));
    let annotated =
        !spec.annotations.is_empty() || spec.devices.iter().any(|device| !device.annotations.is_empty());
    let any = |uses: fn(&Edits) -> bool| spec.edits().any(|(_, edits)| uses(edits));
    let used = [
        ("1.1.0", "netDevices", any(|edits| !edits.net_devices.is_empty())),
        (
            "1.1.0",
            "intelRdt.schemata or intelRdt.enableMonitoring",
            any(|edits| {
                edits.intel_rdt.as_ref().is_some_and(|rdt| rdt.enable_monitoring || !rdt.schemata.is_empty())
            }),
        ),
        ("0.7.0", "intelRdt", any(|edits| edits.intel_rdt.is_some())),
        ("0.7.0", "additionalGids", any(|edits| !edits.additional_gids.is_empty())),
        ("0.6.0", "annotations", annotated),
        ("0.6.0", "a class with a dot", class_has_dot),
        (
            "0.5.0",
            "hostPath of a device node",
            any(|e| e.device_nodes.iter().any(|node| !node.host_path.is_empty())),
        ),
        ("0.5.0", "a device name that begins with a digit", digit),
        ("0.4.0", "type of a mount", any(|edits| edits.mounts.iter().any(|mount| !mount.kind.is_empty()))),
    ];
    let missing =
        used.into_iter().find(|(needed, _, used)| *used && rank(needed).is_some_and(|rank| rank > given));
    match missing {
        Some((needed, field, _)) => {
            Err(SpecError::VersionTooLow { given: spec.cdi_version.clone(), field, needed })
        }
        None => Ok(()),
    }
}
