//! The default seccomp profile: allows what usual programs need, denies what affects the host.
//!
//! Calls that act on the whole machine come with the capability that the kernel asks for anyway. Names that a kernel or
//! libseccomp does not know are skipped by the runtime.

use std::collections::BTreeSet;

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator,
    LinuxSyscall,
};

/// Always allowed.
const ALWAYS: &str = "
    accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown chown32 clock_adjtime
    clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
    clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1
    epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit
    exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2
    fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat
    fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait
    futex_waitv futex_wake futimesat getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid
    getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
    getresgid getresgid32 getresuid getresuid32 getrlimit get_robust_list getrusage getsid getsockname getsockopt
    get_thread_area gettid gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch inotify_init
    inotify_init1 inotify_rm_watch io_cancel ioctl io_destroy io_getevents io_pgetevents io_pgetevents_time64
    ioprio_get ioprio_set io_setup io_submit ipc kill landlock_add_rule landlock_create_ruleset landlock_restrict_self
    lchown lchown32 lgetxattr link linkat listen listmount listxattr listxattrat llistxattr _llseek lremovexattr lseek
    lsetxattr lstat lstat64 madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod
    mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
    mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync
    munlock munlockall munmap name_to_handle_at nanosleep newfstatat _newselect open openat openat2 pause pidfd_open
    pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv
    preadv2 prlimit64 process_mrelease pselect6 pselect6_time64 pwrite64 pwritev pwritev2 read readahead readlink
    readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr removexattrat rename
    renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
    rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_getaffinity
    sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min sched_getscheduler
    sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam
    sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile
    sendfile64 sendmmsg sendmsg sendto setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32
    setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32
    setrlimit set_robust_list setsid setsockopt set_thread_area set_tid_address setuid setuid32 setxattr setxattrat
    shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn socketcall socketpair
    splice stat stat64 statfs statfs64 statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee
    tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime
    timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill
    truncate truncate64 ugetrlimit umask uname unlink unlinkat uretprobe utime utimensat utimensat_time64 utimes vfork
    vmsplice wait4 waitid waitpid write writev
    arch_prctl modify_ldt set_tls arm_fadvise64_64 arm_sync_file_range sync_file_range2 breakpoint cacheflush
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd
    ";

/// Allowed with a capability.
const WITH: [(&str, &str); 12] = [
    ("CAP_DAC_READ_SEARCH", "open_by_handle_at"),
    (
        "CAP_SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie lsm_get_self_attr \
         lsm_list_modules lsm_set_self_attr mount mount_setattr move_mount open_tree perf_event_open quotactl \
         quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare",
    ),
    ("CAP_SYS_BOOT", "reboot"),
    ("CAP_SYS_CHROOT", "chroot"),
    ("CAP_SYS_MODULE", "delete_module init_module finit_module"),
    ("CAP_SYS_PACCT", "acct"),
    ("CAP_SYS_PTRACE", "process_madvise"),
    ("CAP_SYS_RAWIO", "iopl ioperm"),
    ("CAP_SYS_TIME", "settimeofday stime clock_settime clock_settime64"),
    ("CAP_SYS_TTY_CONFIG", "vhangup"),
    ("CAP_SYS_NICE", "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    ("CAP_SYSLOG", "syslog"),
];

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// New namespaces: not for clone without CAP_SYS_ADMIN. clone3 hides its flags in memory, so it does not exist then,
/// and C libraries go back to clone.
const NAMESPACE_FLAGS: u64 = 0x7E02_0000;
const AF_VSOCK: u64 = 40;
/// Allowed personalities: Linux, 32-bit Linux, with and without UNAME26, and the query.
const PERSONALITIES: [u64; 5] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF];

/// The filter for a process with these capabilities.
pub fn default_profile(capabilities: &BTreeSet<&str>) -> LinuxSeccomp {
    use LinuxSeccompOperator::{ScmpCmpEq, ScmpCmpMaskedEq, ScmpCmpNe};
    let mut rules = vec![allow(ALWAYS)];
    for (capability, list) in WITH {
        if capabilities.contains(capability) {
            rules.push(allow(list));
        }
    }
    for persona in PERSONALITIES {
        rules.push(allow_if("personality", condition(ScmpCmpEq, persona)));
    }
    rules.push(allow_if("socket", condition(ScmpCmpNe, AF_VSOCK)));
    if !capabilities.contains("CAP_SYS_ADMIN") {
        rules.push(allow_if("clone", condition(ScmpCmpMaskedEq, NAMESPACE_FLAGS).value_two(0u64)));
        let mut absent = allow("clone3");
        absent.set_action(LinuxSeccompAction::ScmpActErrno).set_errno_ret(Some(ENOSYS));
        rules.push(absent);
    }
    let mut profile = LinuxSeccomp::default();
    profile
        .set_default_action(LinuxSeccompAction::ScmpActErrno)
        .set_default_errno_ret(Some(EPERM))
        .set_architectures(Some(architectures().to_owned()))
        .set_syscalls(Some(rules));
    profile
}

fn allow(names: &str) -> LinuxSyscall {
    let mut rule = LinuxSyscall::default();
    rule.set_names(names.split_whitespace().map(str::to_owned).collect())
        .set_action(LinuxSeccompAction::ScmpActAllow);
    rule
}

fn allow_if(name: &str, condition: LinuxSeccompArgBuilder) -> LinuxSyscall {
    let condition: LinuxSeccompArg = condition.build().expect("all fields have defaults");
    let mut rule = allow(name);
    rule.set_args(Some(vec![condition]));
    rule
}

/// On the first argument.
fn condition(op: LinuxSeccompOperator, value: u64) -> LinuxSeccompArgBuilder {
    LinuxSeccompArgBuilder::default().index(0usize).value(value).op(op)
}

/// The ABIs that programs may use. Each one costs every start and every exec several milliseconds in the runtime, and x32
/// is off in kernels: its calls end the process.
fn architectures() -> &'static [Arch] {
    match std::env::consts::ARCH {
        "x86_64" => &[Arch::ScmpArchX86_64, Arch::ScmpArchX86],
        "aarch64" => &[Arch::ScmpArchAarch64, Arch::ScmpArchArm],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn allowed(profile: &LinuxSeccomp, name: &str) -> bool {
        profile.syscalls().iter().flatten().any(|rule| {
            rule.action() == LinuxSeccompAction::ScmpActAllow
                && rule.args().is_none()
                && rule.names().iter().any(|n| n == name)
        })
    }

    #[test]
    fn conditions_in_the_runtime_s_form() {
        let profile = serde_json::to_value(default_profile(&BTreeSet::new())).unwrap();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        assert_eq!(profile["defaultErrnoRet"], 1);
        let rules = profile["syscalls"].as_array().unwrap();
        let of = |name: &str| rules.iter().rfind(|rule| rule["names"] == json!([name])).unwrap();
        let masked = json!([{ "index": 0, "value": 0x7E02_0000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }]);
        assert_eq!(*of("clone"), json!({ "names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": masked }));
        assert_eq!(of("socket")["args"], json!([{ "index": 0, "value": 40, "op": "SCMP_CMP_NE" }]));
        let absent = json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 });
        assert_eq!(*of("clone3"), absent);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(profile["architectures"], json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]));
    }

    #[test]
    fn machine_wide_calls_need_their_capability() {
        let plain = default_profile(&BTreeSet::new());
        let admin = default_profile(&BTreeSet::from(["CAP_SYS_ADMIN", "CAP_SYS_CHROOT"]));
        for name in ["read", "execve", "futex", "openat", "epoll_pwait2", "rt_sigreturn"] {
            assert!(allowed(&plain, name), "{name}");
        }
        for name in ["mount", "unshare", "setns", "clone", "bpf", "chroot"] {
            assert!(!allowed(&plain, name), "{name}");
            assert!(allowed(&admin, name), "{name}");
        }
        for name in ["kexec_load", "add_key", "keyctl", "userfaultfd", "io_uring_setup", "swapon", "reboot"] {
            assert!(!allowed(&plain, name) && !allowed(&admin, name), "{name}");
        }
    }
}
