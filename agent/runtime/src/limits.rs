//! Resource limits.

use oci_spec::runtime::{PosixRlimitType, Process};

use super::error::Error;

/// Sets the resource limits, which the command inherits: in the container's user namespace it could not raise them.
pub fn set(process: &Process) -> Result<(), Error> {
    for limit in process.rlimits().iter().flatten() {
        let value = libc::rlimit { rlim_cur: limit.soft(), rlim_max: limit.hard() };
        // SAFETY: the kernel reads one struct, which outlives the call.
        #[allow(unsafe_code)]
        let result = unsafe { libc::setrlimit(resource(limit.typ()), &raw const value) };
        nix::errno::Errno::result(result).map_err(Error::kernel("resource limit"))?;
    }
    Ok(())
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
