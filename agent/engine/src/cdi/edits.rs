//! Changes of a container's OCI configuration.

use oci_spec::runtime::{
    Hook, Hooks, LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType, LinuxIntelRdt, Mount, Spec,
};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::error::EditError;
use super::spec::{self, DeviceNode, Edits, IntelRdt};

/// Makes the changes that a spec file asks for.
pub(super) fn apply(config: &mut Spec, edits: &Edits) -> Result<(), EditError> {
    env(config, &edits.env);
    for node in &edits.device_nodes {
        device(config, node)?;
    }
    mounts(config, &edits.mounts);
    for hook in &edits.hooks {
        add_hook(config, hook);
    }
    if let (Some(rdt), Some(linux)) = (&edits.intel_rdt, config.linux_mut()) {
        linux.set_intel_rdt(Some(intel_rdt(rdt)));
    }
    groups(config, &edits.additional_gids);
    Ok(())
}

/// A variable replaces one of the same name.
fn env(config: &mut Spec, new: &[String]) {
    let Some(process) = config.process_mut() else { return };
    let all = process.env_mut().get_or_insert_default();
    let name = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
    for variable in new {
        match all.iter_mut().find(|old| name(old) == name(variable)) {
            Some(old) => old.clone_from(variable),
            None => all.push(variable.clone()),
        }
    }
}

fn device(config: &mut Spec, node: &DeviceNode) -> Result<(), EditError> {
    let (kind, major, minor) = numbers(node)?;
    let user = config.process().as_ref().map(|process| process.user().clone()).unwrap_or_default();
    let mut device = LinuxDevice::default();
    device
        .set_path(node.path.clone().into())
        .set_typ(kind)
        .set_major(major)
        .set_minor(minor)
        .set_file_mode(node.file_mode)
        .set_uid(node.uid.or(Some(user.uid()).filter(|uid| *uid > 0)))
        .set_gid(node.gid.or(Some(user.gid()).filter(|gid| *gid > 0)));
    let Some(linux) = config.linux_mut() else { return Ok(()) };
    let devices = linux.devices_mut().get_or_insert_default();
    devices.retain(|other| other.path() != device.path());
    devices.push(device);
    if matches!(kind, LinuxDeviceType::B | LinuxDeviceType::C) {
        let access = match node.permissions.as_str() {
            "" => "rwm",
            "none" => return Ok(()),
            access => access,
        };
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_allow(true)
            .set_typ(Some(kind))
            .set_major(Some(major))
            .set_minor(Some(minor))
            .set_access(Some(access.to_owned()));
        let resources = linux.resources_mut().get_or_insert_default();
        resources.devices_mut().get_or_insert_default().push(rule);
    }
    Ok(())
}

/// Type and numbers of a device, from the host where the file does not have them.
fn numbers(node: &DeviceNode) -> Result<(LinuxDeviceType, i64, i64), EditError> {
    let wanted = match node.kind.as_str() {
        "b" => Some(LinuxDeviceType::B),
        "c" => Some(LinuxDeviceType::C),
        "u" => Some(LinuxDeviceType::U),
        "p" => Some(LinuxDeviceType::P),
        _ => None,
    };
    if let Some(kind) = wanted.filter(|kind| *kind == LinuxDeviceType::P || node.major > 0) {
        return Ok((kind, node.major, node.minor));
    }
    let path = if node.host_path.is_empty() { &node.path } else { &node.host_path };
    let metadata = fs::metadata(path).map_err(|source| EditError::Node { path: path.clone(), source })?;
    let found = match metadata.file_type() {
        kind if kind.is_block_device() => LinuxDeviceType::B,
        kind if kind.is_char_device() => LinuxDeviceType::C,
        kind if kind.is_fifo() => LinuxDeviceType::P,
        _ => return Err(EditError::Type { path: path.clone(), wanted: node.kind.clone() }),
    };
    // `u` is another name for `c`.
    let same = |kind| kind == found || (kind == LinuxDeviceType::U && found == LinuxDeviceType::C);
    if wanted.is_some_and(|kind| !same(kind)) {
        return Err(EditError::Type { path: path.clone(), wanted: node.kind.clone() });
    }
    let kind = wanted.unwrap_or(found);
    if kind == LinuxDeviceType::P || node.major > 0 {
        return Ok((kind, node.major, node.minor));
    }
    let number = metadata.rdev();
    Ok((kind, libc::major(number).into(), libc::minor(number).into()))
}

/// A mount replaces one at the same path; parents are mounted before what is below them.
fn mounts(config: &mut Spec, new: &[spec::Mount]) {
    if new.is_empty() {
        return;
    }
    let all = config.mounts_mut().get_or_insert_default();
    for mount in new {
        let kind = if mount.kind.is_empty() { "bind" } else { &mount.kind };
        let mut options = mount.options.clone();
        if kind == "bind" && !options.iter().any(|option| matches!(option.as_str(), "bind" | "rbind")) {
            options.push("rbind".to_owned());
        }
        let path = mount.container_path.trim_end_matches('/');
        let mut made = Mount::default();
        made.set_destination(path.into())
            .set_source(Some(mount.host_path.clone().into()))
            .set_typ(Some(kind.to_owned()))
            .set_options(Some(options));
        all.retain(|other| other.destination() != Path::new(path));
        all.push(made);
    }
    all.sort_by_key(|mount| mount.destination().components().count());
}

fn add_hook(config: &mut Spec, hook: &spec::Hook) {
    let list = |list: &[String]| Some(list.to_vec()).filter(|list| !list.is_empty());
    let mut made = Hook::default();
    made.set_path(hook.path.clone().into())
        .set_args(list(&hook.args))
        .set_env(list(&hook.env))
        .set_timeout(hook.timeout);
    if config.hooks().is_none() {
        config.set_hooks(Some(Hooks::default()));
    }
    let Some(hooks) = config.hooks_mut() else { return };
    #[allow(deprecated, reason = "specs of CDI may use it")]
    let list = match hook.hook_name.as_str() {
        "prestart" => hooks.prestart_mut(),
        "createRuntime" => hooks.create_runtime_mut(),
        "createContainer" => hooks.create_container_mut(),
        "startContainer" => hooks.start_container_mut(),
        "poststop" => hooks.poststop_mut(),
        _ => hooks.poststart_mut(),
    };
    list.get_or_insert_default().push(made);
}

fn intel_rdt(rdt: &IntelRdt) -> LinuxIntelRdt {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let monitors = rdt.enable_monitoring || rdt.enable_cmt || rdt.enable_mbm;
    let mut made = LinuxIntelRdt::default();
    made.set_clos_id(text(&rdt.clos_id))
        .set_l3_cache_schema(text(&rdt.l3_cache_schema))
        .set_mem_bw_schema(text(&rdt.mem_bw_schema))
        .set_schemata(Some(rdt.schemata.clone()).filter(|lines| !lines.is_empty()))
        .set_enable_monitoring(monitors.then_some(true));
    made
}

fn groups(config: &mut Spec, new: &[u32]) {
    let Some(process) = config.process_mut().as_mut().filter(|_| !new.is_empty()) else { return };
    let mut user = process.user().clone();
    let all = user.additional_gids_mut().get_or_insert_default();
    for group in new.iter().filter(|group| **group != 0) {
        if !all.contains(group) {
            all.push(*group);
        }
    }
    process.set_user(user);
}
