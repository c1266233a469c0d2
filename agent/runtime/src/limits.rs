//! Resource limits.

use nix::errno::Errno;
use oci_spec::runtime::{PosixRlimit, PosixRlimitType};

use super::error::Error;

/// Raises hard limits of this process to those of a container, whose process inherits them: in a user namespace it could not
/// raise them. Nothing becomes less, which could end this process.
pub fn raise(limits: &[PosixRlimit]) -> Result<(), Error> {
    for limit in limits {
        let own = get(limit.typ()).map_err(Error::kernel("resource limit"))?;
        if limit.hard() > own.rlim_max {
            let raised = libc::rlimit { rlim_cur: own.rlim_cur, rlim_max: limit.hard() };
            set_one(limit.typ(), &raised).map_err(Error::kernel("resource limit"))?;
        }
    }
    Ok(())
}

/// Sets the limits of this process.
pub fn set(limits: &[PosixRlimit]) -> Result<(), Errno> {
    limits.iter().try_for_each(|limit| {
        set_one(limit.typ(), &libc::rlimit { rlim_cur: limit.soft(), rlim_max: limit.hard() })
    })
}

fn get(kind: PosixRlimitType) -> Result<libc::rlimit, Errno> {
    let mut value = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one struct, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::getrlimit(resource(kind), &raw mut value) };
    Errno::result(result).map(|_| value)
}

fn set_one(kind: PosixRlimitType, value: &libc::rlimit) -> Result<(), Errno> {
    // SAFETY: the kernel reads one struct, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::setrlimit(resource(kind), &raw const *value) };
    Errno::result(result).map(drop)
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn resource(limit: PosixRlimitType) -> Resource {
    match limit {
        PosixRlimitType::RlimitCpu => libc::RLIMIT_CPU,
        PosixRlimitType::RlimitFsize => libc::RLIMIT_FSIZE,
        PosixRlimitType::RlimitData => libc::RLIMIT_DATA,
        PosixRlimitType::RlimitStack => libc::RLIMIT_STACK,
        PosixRlimitType::RlimitCore => libc::RLIMIT_CORE,
        PosixRlimitType::RlimitRss => libc::RLIMIT_RSS,
        PosixRlimitType::RlimitNproc => libc::RLIMIT_NPROC,
        PosixRlimitType::RlimitNofile => libc::RLIMIT_NOFILE,
        PosixRlimitType::RlimitMemlock => libc::RLIMIT_MEMLOCK,
        PosixRlimitType::RlimitAs => libc::RLIMIT_AS,
        PosixRlimitType::RlimitLocks => libc::RLIMIT_LOCKS,
        PosixRlimitType::RlimitSigpending => libc::RLIMIT_SIGPENDING,
        PosixRlimitType::RlimitMsgqueue => libc::RLIMIT_MSGQUEUE,
        PosixRlimitType::RlimitNice => libc::RLIMIT_NICE,
        PosixRlimitType::RlimitRtprio => libc::RLIMIT_RTPRIO,
        PosixRlimitType::RlimitRttime => libc::RLIMIT_RTTIME,
    }
}
