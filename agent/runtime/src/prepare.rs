//! The configuration as libcontainer is to see it.
//!
//! What confines the process is taken out: [`super::confine`] does it. The rest is changed where libcontainer does with it
//! what runc does not.

use std::fs;
use std::path::{Path, PathBuf};

use coracle_keeper::enter::Request;
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxSeccomp, PosixRlimit, Process, Spec, User};
use serde_json::{Value, json};

use super::error::Error;
use super::filter::Filter;
use super::process;
use super::rootfs::Rootfs;

/// Configurations are not longer.
const MAX_CONFIG: u64 = 16 << 20;
const CONFIG: &str = "config.json";
/// Directory in the bundle, while a container is created.
const SCRATCH: &str = ".coracle-runtime";

/// A configuration, in parts.
pub struct Prepared {
    /// For libcontainer.
    pub spec: Spec,
    /// Directory of its root file system.
    pub root: PathBuf,
    /// How its process is confined.
    pub request: Request,
    /// Its seccomp filter.
    pub filter: Filter,
    /// Its device rules.
    pub devices: Vec<LinuxDeviceCgroup>,
    /// What is done to its file system in the container.
    pub rootfs: Rootfs,
    /// Its resource limits.
    pub limits: Vec<PosixRlimit>,
    /// Whether it has a terminal.
    pub terminal: bool,
}

/// Process and seccomp filter of a configuration, for commands.
pub struct Settings {
    /// The first process.
    pub process: Process,
    /// The filter of all.
    pub filter: Filter,
}

/// Reads what a command needs of a bundle.
pub fn settings(bundle: &Path) -> Result<Settings, Error> {
    let (spec, filter) = read(bundle)?;
    let process = spec.process().clone().ok_or(Error::Missing("process"))?;
    Ok(Settings { process, filter })
}

/// Reads the configuration of a bundle.
pub fn prepare(bundle: &Path, id: &str) -> Result<Prepared, Error> {
    let (mut spec, filter) = read(bundle)?;
    let mut process = spec.process().clone().ok_or(Error::Missing("process"))?;
    let request = process::request(&process)?;
    if request.args.is_empty() {
        return Err(Error::Missing("process.args"));
    }
    let terminal = process.terminal().unwrap_or(false);
    process.set_capabilities(None).set_apparmor_profile(None).set_selinux_label(None);
    // libcontainer takes a `false` for a wish.
    process.set_no_new_privileges(process.no_new_privileges().filter(|wanted| *wanted));
    // It works as root, and leaves the terminal, the limits and the user to [`super::confine`].
    let limits = process.rlimits().clone().unwrap_or_default();
    process.set_terminal(Some(false)).set_rlimits(None).set_user(User::default());
    spec.set_process(Some(process));
    let mut root = spec.root().clone().ok_or(Error::Missing("root"))?;
    let path = bundle.join(root.path());
    let top = fs::canonicalize(&path).map_err(Error::file(path))?;
    root.set_path(top.clone());
    spec.set_root(Some(root));
    let rootfs = Rootfs::take_out(&mut spec, &top, bundle)?;
    let mut linux = spec.linux().clone().ok_or(Error::Missing("linux"))?;
    if linux.cgroups_path().is_none() {
        linux.set_cgroups_path(Some(Path::new("/").join(id)));
    }
    let rules = linux.resources().as_ref().and_then(|resources| resources.devices().clone());
    spec.set_linux(Some(linux));
    let devices = rules.unwrap_or_default();
    Ok(Prepared { spec, root: top, request, filter, devices, rootfs, limits, terminal })
}

fn read(bundle: &Path) -> Result<(Spec, Filter), Error> {
    let path = bundle.join(CONFIG);
    let size = fs::metadata(&path).map_err(Error::file(&path))?.len();
    if size > MAX_CONFIG {
        return Err(Error::Invalid { what: "length of config.json", value: size.to_string() });
    }
    let text = fs::read(&path).map_err(Error::file(&path))?;
    let mut json: Value = serde_json::from_slice(&text).map_err(Error::json(&path))?;
    let profile = json.pointer_mut("/linux/seccomp").map(Value::take).filter(|profile| !profile.is_null());
    let profile = profile.map(complete).map(serde_json::from_value::<LinuxSeccomp>);
    let profile = profile.transpose().map_err(Error::json(&path))?;
    let spec = serde_json::from_value(json).map_err(Error::json(&path))?;
    Ok((spec, Filter::of(profile)?))
}

/// Adds to the conditions of a seccomp profile what Go takes for zero, and oci-spec for missing.
fn complete(mut profile: Value) -> Value {
    let rules = profile.get_mut("syscalls").and_then(Value::as_array_mut).into_iter().flatten();
    let conditions = rules.filter_map(|rule| rule.get_mut("args")?.as_array_mut()).flatten();
    for condition in conditions.filter_map(Value::as_object_mut) {
        for field in ["index", "value"] {
            condition.entry(field).or_insert(json!(0));
        }
    }
    profile
}

/// A bundle with the prepared configuration, which is deleted when dropped.
pub struct Scratch {
    /// Its directory.
    pub dir: PathBuf,
}

impl Scratch {
    /// A directory in the bundle: whoever removes the bundle removes it, too.
    pub fn create(bundle: &Path) -> Result<Self, Error> {
        let dir = bundle.join(SCRATCH);
        // Of a creation that was interrupted.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).map_err(Error::file(&dir))?;
        Ok(Self { dir })
    }

    /// Writes the configuration.
    pub fn write(&self, spec: &Spec) -> Result<(), Error> {
        let path = self.dir.join(CONFIG);
        let text = serde_json::to_vec(spec).map_err(Error::json(&path))?;
        fs::write(&path, text).map_err(Error::file(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn bundle(change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("rootfs")).unwrap();
        let mut spec = json!({
            "ociVersion": "1.1.0",
            "process": {
                "user": { "uid": 1, "gid": 1 }, "args": ["true"], "cwd": "/", "noNewPrivileges": false,
                "capabilities": { "bounding": ["CAP_KILL"] }, "apparmorProfile": "p",
            },
            "root": { "path": "rootfs" },
            "linux": { "namespaces": [{ "type": "mount" }], "seccomp": { "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
                { "names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [{ "op": "SCMP_CMP_EQ" }] }] } },
        });
        change(&mut spec);
        fs::write(dir.path().join(CONFIG), spec.to_string()).unwrap();
        dir
    }

    #[test]
    fn what_confines_the_process_is_taken_out() {
        let dir = bundle(|_| {});
        let prepared = prepare(dir.path(), "c1").unwrap();
        let process = prepared.spec.process().as_ref().unwrap();
        assert_eq!((process.capabilities(), process.apparmor_profile()), (&None, &None));
        assert_eq!(process.no_new_privileges(), None, "libcontainer takes `false` for a wish");
        assert_eq!(prepared.request.apparmor.as_deref(), Some("p"));
        assert!(!prepared.request.no_new_privileges);
        assert!(matches!(prepared.filter, Filter::Compiled(_)));
        let linux = prepared.spec.linux().as_ref().unwrap();
        assert!(linux.seccomp().is_none());
        assert_eq!(linux.cgroups_path().as_deref(), Some(Path::new("/c1")));
        assert!(prepared.spec.root().as_ref().unwrap().path().is_absolute());
    }

    #[test]
    fn a_bundle_without_a_process_is_refused() {
        for field in ["process", "root", "linux"] {
            let dir = bundle(|spec| drop(spec.as_object_mut().unwrap().remove(field)));
            let refused = prepare(dir.path(), "c1").err().map(|error| error.to_string());
            assert!(refused.is_some_and(|text| text.contains(field)), "{field}");
        }
    }

    #[test]
    fn the_prepared_bundle_is_gone_afterwards() {
        let dir = bundle(|_| {});
        let prepared = prepare(dir.path(), "c1").unwrap();
        let scratch = Scratch::create(dir.path()).unwrap();
        scratch.write(&prepared.spec).unwrap();
        assert!(Spec::load(scratch.dir.join(CONFIG)).is_ok());
        drop(scratch);
        assert!(!dir.path().join(SCRATCH).exists());
    }
}
