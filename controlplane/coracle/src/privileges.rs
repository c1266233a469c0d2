//! Drops the capabilities that a server started by root does not need. It keeps access to files of any owner and to low
//! ports. A compromised server cannot mount, load modules, trace processes or change the network, and `no_new_privs` prevents
//! it from regaining the capabilities by executing a program.

use nix::errno::Errno;

/// `linux/capability.h`: DAC_OVERRIDE, DAC_READ_SEARCH, NET_BIND_SERVICE.
const KEPT: [u32; 3] = [1, 2, 10];
/// `_LINUX_CAPABILITY_VERSION_3`: two words per set.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops all capabilities but `KEPT` from this thread and the threads that it starts: call it before there are
/// others. Without root there is nothing to drop.
pub fn drop_capabilities() -> nix::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    let header = Header { version: VERSION, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: both point to structures of the layout that the version in the header says, and outlive the call.
    #[allow(unsafe_code)]
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) })?;
    for capability in (0..64).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: takes numbers only. Without the right to, or beyond the last there is, nothing changes.
        #[allow(unsafe_code)]
        let _ = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
    }
    let kept = KEPT.iter().fold(0, |bits, capability| bits | 1 << capability);
    for (word, kept) in sets.iter_mut().zip([kept, 0]) {
        word.effective &= kept;
        word.permitted &= kept;
        word.inheritable = 0;
    }
    // SAFETY: as above.
    #[allow(unsafe_code)]
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn a_thread_keeps_what_it_needs_and_does_not_get_the_rest_back() {
        // A thread of its own: what it gives up is gone for good.
        let status = std::thread::spawn(|| {
            super::drop_capabilities().unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = status.join().unwrap();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let kept = u64::from_str_radix("406", 16).unwrap();
        for set in ["CapEff:", "CapPrm:", "CapInh:"] {
            assert_eq!(u64::from_str_radix(line(set), 16).unwrap() & !kept, 0, "{set} {}", line(set));
        }
        assert_eq!(line("NoNewPrivs:"), "1");
    }
}
