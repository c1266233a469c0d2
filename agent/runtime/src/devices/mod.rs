//! Device rules as a BPF program of the container's cgroup.
//!
//! libcontainer leaves them out on cgroup v2 unless it is built with libbpf. Without rules a container with CAP_MKNOD, which
//! is a default capability, could open the disks of the node.

// The program.
mod program;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

use self::program::{Access, Kind, Rule};
use super::error::Error;

/// A configuration with more is refused: jumps in the program have 16 bits.
const MAX_RULES: usize = 1000;

/// What runc allows every container, after all other rules: making devices, and the devices that each has.
const DEFAULT: [(Kind, Option<u32>, Option<u32>, Access); 11] = [
    (Kind::Character, None, None, Access::MKNOD),
    (Kind::Block, None, None, Access::MKNOD),
    // null, zero, full, random, urandom
    (Kind::Character, Some(1), Some(3), Access::ALL),
    (Kind::Character, Some(1), Some(5), Access::ALL),
    (Kind::Character, Some(1), Some(7), Access::ALL),
    (Kind::Character, Some(1), Some(8), Access::ALL),
    (Kind::Character, Some(1), Some(9), Access::ALL),
    // tty, ptmx
    (Kind::Character, Some(5), Some(0), Access::ALL),
    (Kind::Character, Some(5), Some(2), Access::ALL),
    // pts
    (Kind::Character, Some(136), None, Access::ALL),
    // tun: runc 1.2.0 did without it, and took it back, because pods cannot ask for it.
    (Kind::Character, Some(10), Some(200), Access::ALL),
];

/// Applies the rules to everything in a cgroup.
pub fn apply(cgroup: &Path, rules: &[LinuxDeviceCgroup]) -> Result<(), Error> {
    if rules.len() > MAX_RULES {
        return Err(Error::DeviceRules(rules.len()));
    }
    let mut all = rules.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    all.extend(DEFAULT.map(|(kind, major, minor, access)| Rule {
        allow: true,
        kind: Some(kind),
        major,
        minor,
        access,
    }));
    let dir = File::open(cgroup).map_err(Error::file(cgroup))?;
    let program = load(&program::compile(&all)).map_err(Error::kernel("device filter"))?;
    attach(&program, &dir).map_err(Error::kernel("device filter"))
}

fn read(rule: &LinuxDeviceCgroup) -> Result<Rule, Error> {
    let kind = match rule.typ() {
        None | Some(LinuxDeviceType::A) => None,
        Some(LinuxDeviceType::B) => Some(Kind::Block),
        Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(Kind::Character),
        Some(LinuxDeviceType::P) => {
            return Err(Error::Invalid { what: "device rule type", value: "p".into() });
        }
    };
    // Negative: any.
    let number = |number: Option<i64>| match number.filter(|number| *number >= 0) {
        Some(number) => u32::try_from(number)
            .map(Some)
            .map_err(|_| Error::Invalid { what: "device number", value: number.to_string() }),
        None => Ok(None),
    };
    let access = match rule.access().as_deref() {
        None | Some("") => Access::ALL,
        Some(letters) => Access::read(letters)
            .ok_or_else(|| Error::Invalid { what: "device access", value: letters.to_owned() })?,
    };
    Ok(Rule { allow: rule.allow(), kind, major: number(rule.major())?, minor: number(rule.minor())?, access })
}

/// `union bpf_attr`, as `BPF_PROG_LOAD` reads its beginning.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// `union bpf_attr`, as `BPF_PROG_ATTACH` reads its beginning.
#[repr(C)]
struct AttachAttributes {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

fn load(program: &[u8]) -> Result<OwnedFd, Errno> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
    let attributes = LoadAttributes {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        instructions: u32::try_from(program.len() / 8).map_err(|_| Errno::E2BIG)?,
        program: program.as_ptr() as u64,
        license: c"Apache".as_ptr() as u64,
        ..LoadAttributes::default()
    };
    // SAFETY: the kernel reads the attributes, the instructions and the license, which outlive the call; a result that is
    // not negative is a new descriptor.
    #[allow(unsafe_code)]
    unsafe {
        let size = size_of::<LoadAttributes>();
        let result = libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attributes, size);
        Ok(OwnedFd::from_raw_fd(Errno::result(result)? as i32))
    }
}

fn attach(program: &OwnedFd, cgroup: &File) -> Result<(), Errno> {
    const BPF_PROG_ATTACH: libc::c_int = 8;
    const BPF_CGROUP_DEVICE: u32 = 6;
    /// Programs of cgroups above go on to apply, and containers within containers may add theirs.
    const BPF_F_ALLOW_MULTI: u32 = 2;
    let attributes = AttachAttributes {
        target: cgroup.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        kind: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: the kernel reads the attributes, which outlive the call.
    #[allow(unsafe_code)]
    let result = unsafe {
        let size = size_of::<AttachAttributes>();
        libc::syscall(libc::SYS_bpf, BPF_PROG_ATTACH, &raw const attributes, size)
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn rule(json: Value) -> Result<Rule, Error> {
        read(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn rules_are_read_as_the_specification_has_them() {
        let every = rule(json!({ "allow": false, "access": "rwm" })).unwrap();
        assert_eq!((every.allow, every.kind, every.major, every.minor), (false, None, None, None));
        let one =
            rule(json!({ "allow": true, "type": "b", "major": 8, "minor": -1, "access": "r" })).unwrap();
        assert_eq!((one.kind, one.major, one.minor), (Some(Kind::Block), Some(8), None));
        assert!(rule(json!({ "allow": true, "access": "x" })).is_err());
        assert!(rule(json!({ "allow": true, "major": 1i64 << 40 })).is_err());
    }
}
