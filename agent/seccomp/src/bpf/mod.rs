//! Compiles a seccomp profile of the OCI configuration to a BPF program.
//!
//! For commands that enter a container without the runtime. The verdict on every call is the one of libseccomp, which
//! runtimes use; `tests/attacks/confinement/filters.rs` compares the two. For unsupported profiles the result is `None`,
//! and the OCI runtime is used.

// Instructions of the packet filter.
mod instruction;
// Conditions on arguments.
mod condition;

use std::collections::BTreeMap;
use std::str::FromStr;

use oci_spec::runtime::{Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSyscall};
use syscalls::{aarch64, arm, x86, x86_64};

use self::condition::{Condition, Width, exclusive, guarded};
use self::instruction::{GOTO, IF_AT_LEAST, IF_EQUAL, IF_GREATER, LOAD, RETURN, Step, jump, step};

/// Maximum length of a BPF program.
const MAX_INSTRUCTIONS: usize = 4096;

/// Places in `struct seccomp_data`, little-endian.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

const KILL_PROCESS: u32 = 0x8000_0000;
/// For programs of a kind that the profile does not name, as libseccomp has it.
const KILL_THREAD: u32 = 0;
const ERRNO: u32 = 0x0005_0000;
const MAX_ERRNO: u32 = 4094;
const TRACE: u32 = 0x7FF0_0000;
const LOG: u32 = 0x7FFC_0000;
const ALLOW: u32 = 0x7FFF_0000;
/// Call number that a tracer sets to skip a call.
const NO_CALL: u32 = u32::MAX;
/// Calls of x32 are x86_64's with this bit.
const X32: u32 = 0x4000_0000;

/// A set of calls: what programs of one kind see.
#[derive(Clone, Copy)]
struct Abi {
    arch: Arch,
    width: Width,
    call: fn(&str) -> Option<u32>,
}

impl Abi {
    /// To the kernel.
    fn number(self) -> u32 {
        self.arch as u32
    }
}

macro_rules! calls {
    ($module:ident) => {
        |name| $module::Sysno::from_str(name).ok().map(|call| call as u32)
    };
}

/// Those of this machine, its own first.
fn abis() -> Option<[Abi; 2]> {
    match std::env::consts::ARCH {
        "x86_64" => Some([
            Abi { arch: Arch::ScmpArchX86_64, width: Width::Whole, call: calls!(x86_64) },
            Abi { arch: Arch::ScmpArchX86, width: Width::Half, call: calls!(x86) },
        ]),
        "aarch64" => Some([
            Abi { arch: Arch::ScmpArchAarch64, width: Width::Whole, call: calls!(aarch64) },
            Abi { arch: Arch::ScmpArchArm, width: Width::Half, call: calls!(arm) },
        ]),
        _ => None,
    }
}

/// Rules of one system call.
#[derive(Default)]
struct Rules {
    always: Option<u32>,
    /// Evaluated in order; the first with all conditions true decides.
    when: Vec<(Vec<Condition>, u32)>,
}

/// Compiles a profile, eight bytes per instruction; `None` if it is not supported here.
pub fn compile(profile: &LinuxSeccomp) -> Option<Vec<u8>> {
    if profile.listener_path().is_some() || profile.flags().as_ref().is_some_and(|flags| !flags.is_empty()) {
        return None;
    }
    let default = action(profile.default_action(), profile.default_errno_ret())?;
    let wanted = profile.architectures().as_deref().unwrap_or_default();
    // Its calls are numbered from another base.
    if wanted.contains(&Arch::ScmpArchX32) {
        return None;
    }
    if is_permissive(default) && !knows_all_names(profile) {
        return None;
    }
    let abis = abis()?;
    let abis: Vec<Abi> = abis
        .into_iter()
        .enumerate()
        // Programs of the machine's own kind always run.
        .filter(|(at, abi)| *at == 0 || wanted.contains(&abi.arch))
        .map(|(_, abi)| abi)
        .collect();
    let sections = abis.iter().map(|abi| section(profile, *abi, default)).collect::<Option<Vec<_>>>()?;
    let mut program = vec![step(LOAD, ARCHITECTURE)];
    // Each choice is two steps, the end one more; sections follow in order.
    let mut place = abis.len() * 2 + 1;
    for (at, (abi, section)) in abis.iter().zip(&sections).enumerate() {
        program.push(jump(IF_EQUAL, abi.number(), 0, 1));
        program.push(step(GOTO, u32::try_from(place - (at * 2 + 2)).ok()?));
        place += section.len();
    }
    program.push(step(RETURN, KILL_THREAD));
    program.extend(sections.into_iter().flatten());
    if program.len() > MAX_INSTRUCTIONS {
        return None;
    }
    let bytes = |s: Step| {
        let [c0, c1] = s.code.to_ne_bytes();
        let [v0, v1, v2, v3] = s.value.to_ne_bytes();
        [c0, c1, s.yes, s.no, v0, v1, v2, v3]
    };
    Some(program.into_iter().flat_map(bytes).collect())
}

/// Whether calls without a rule are allowed.
fn is_permissive(default: u32) -> bool {
    matches!(default & 0xFFFF_0000, ALLOW | LOG | TRACE)
}

/// In a list of what is forbidden, a name that is skipped is a hole: it may be a call that is newer than our tables.
fn knows_all_names(profile: &LinuxSeccomp) -> bool {
    let tables: [fn(&str) -> Option<u32>; 4] = [calls!(x86_64), calls!(x86), calls!(aarch64), calls!(arm)];
    let mut names = entries(profile).iter().flat_map(|rule| rule.names());
    names.all(|name| tables.iter().any(|call| call(name).is_some()))
}

fn entries(profile: &LinuxSeccomp) -> &[LinuxSyscall] {
    profile.syscalls().as_deref().unwrap_or_default()
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Option<u32> {
    // libseccomp refuses what is too large, so there is no container with such a profile.
    let with_data = |largest: u32| Some(errno.unwrap_or(1)).filter(|data| *data <= largest);
    match action {
        LinuxSeccompAction::ScmpActAllow => Some(ALLOW),
        LinuxSeccompAction::ScmpActLog => Some(LOG),
        LinuxSeccompAction::ScmpActTrace => Some(TRACE | with_data(0xFFFF)?),
        LinuxSeccompAction::ScmpActErrno => Some(ERRNO | with_data(MAX_ERRNO)?),
        LinuxSeccompAction::ScmpActTrap => Some(0x0003_0000),
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => Some(KILL_THREAD),
        LinuxSeccompAction::ScmpActKillProcess => Some(KILL_PROCESS),
        LinuxSeccompAction::ScmpActNotify => None,
    }
}

/// The steps for calls of one kind of program.
fn section(profile: &LinuxSeccomp, abi: Abi, default: u32) -> Option<Vec<Step>> {
    let calls = rules(profile, abi, default)?;
    let mut steps = vec![step(LOAD, NUMBER)];
    if abi.arch == Arch::ScmpArchX86_64 {
        steps.extend([
            jump(IF_AT_LEAST, X32, 0, 3),
            jump(IF_EQUAL, NO_CALL, 0, 1),
            step(RETURN, default),
            step(RETURN, KILL_THREAD),
        ]);
    }
    // A call that is newer than the profile does not exist, so that C libraries take the older one. Runtimes ask for
    // this before anything else.
    if default & 0xFFFF_0000 == ERRNO
        && let Some(newest) = newest(profile, abi)
    {
        const ENOSYS: u32 = 38;
        steps.extend([jump(IF_GREATER, newest, 0, 1), step(RETURN, ERRNO | ENOSYS)]);
    }
    for (number, rules) in calls.iter().filter(|(_, rules)| rules.always.is_none()) {
        let mut body = Vec::new();
        for (conditions, action) in &rules.when {
            body.extend(guarded(conditions, *action, abi.width)?);
        }
        body.push(step(RETURN, default));
        steps.push(jump(IF_EQUAL, *number, 0, u8::try_from(body.len()).ok()?));
        steps.extend(body);
    }
    let mut runs: Vec<(u32, u32, u32)> = Vec::new();
    for (number, action) in calls.iter().filter_map(|(n, rules)| Some((*n, rules.always?))) {
        match runs.last_mut() {
            Some((_, last, same)) if *last + 1 == number && *same == action => *last = number,
            _ => runs.push((number, number, action)),
        }
    }
    for (first, last, action) in runs {
        if first == last {
            steps.push(jump(IF_EQUAL, first, 0, 1));
        } else {
            steps.extend([jump(IF_AT_LEAST, first, 0, 2), jump(IF_GREATER, last, 1, 0)]);
        }
        steps.push(step(RETURN, action));
    }
    steps.push(step(RETURN, default));
    Some(steps)
}

fn rules(profile: &LinuxSeccomp, abi: Abi, default: u32) -> Option<BTreeMap<u32, Rules>> {
    let mut calls: BTreeMap<u32, Rules> = BTreeMap::new();
    for rule in entries(profile) {
        let action = action(rule.action(), rule.errno_ret())?;
        let conditions: Vec<Condition> = rule
            .args()
            .iter()
            .flatten()
            .map(|of| Some(Condition::read(of)?.of_width(abi.width)))
            .collect::<Option<_>>()?;
        let mut arguments: Vec<u32> = conditions.iter().map(|condition| condition.argument).collect();
        arguments.sort_unstable();
        arguments.dedup();
        // Runtimes take two conditions on one argument for alternatives.
        if arguments.len() < conditions.len() {
            return None;
        }
        for name in rule.names() {
            // Names that this machine does not have mean nothing here.
            let Some(number) = (abi.call)(name) else { continue };
            let rules = calls.entry(number).or_default();
            // Runtimes leave out what would be done anyway: it takes nothing from other rules.
            if action == default {
                continue;
            }
            // A rule without conditions replaces those with conditions; of two without, the first stays.
            if conditions.is_empty() {
                rules.always.get_or_insert(action);
            } else if !rules.when.contains(&(conditions.clone(), action)) {
                rules.when.push((conditions.clone(), action));
            }
        }
    }
    (calls.values().all(Rules::is_ordered) && is_demultiplexed(profile, abi, default, &calls))
        .then_some(calls)
}

impl Rules {
    /// libseccomp merges rules about one call into a tree, in an order of its own. The verdict is that of any order where all
    /// conditions compare for equality and no two rules with different actions hold at once. Trees with comparisons of
    /// order lose rules (seen with 2.5.4): the runtime makes them, so that both have the same.
    fn is_ordered(&self) -> bool {
        let plain = self.when.iter().all(|(conditions, _)| conditions.iter().all(|c| c.is_equality()));
        let clash = |(at, (conditions, action)): (usize, &(Vec<Condition>, u32))| {
            self.when[..at].iter().any(|(earlier, other)| other != action && !exclusive(earlier, conditions))
        };
        self.always.is_some() || self.when.len() < 2 || plain && !self.when.iter().enumerate().any(clash)
    }
}

/// Calls that 32-bit x86 has twice: by a number of their own, and as a case of one call for many.
const MULTIPLEXED: [(&str, &[&str]); 2] = [
    (
        "socketcall",
        &[
            "socket",
            "bind",
            "connect",
            "listen",
            "accept",
            "getsockname",
            "getpeername",
            "socketpair",
            "send",
            "recv",
            "sendto",
            "recvfrom",
            "shutdown",
            "setsockopt",
            "getsockopt",
            "sendmsg",
            "recvmsg",
            "accept4",
            "recvmmsg",
            "sendmmsg",
        ],
    ),
    (
        "ipc",
        &[
            "semop",
            "semget",
            "semctl",
            "semtimedop",
            "msgsnd",
            "msgrcv",
            "msgget",
            "msgctl",
            "shmat",
            "shmdt",
            "shmget",
            "shmctl",
        ],
    ),
];

/// The call for many that has this one as a case.
fn multiplexer(abi: Abi, name: &str) -> Option<u32> {
    let many = MULTIPLEXED.iter().find(|(_, cases)| cases.contains(&name));
    many.filter(|_| abi.arch == Arch::ScmpArchX86).and_then(|(many, _)| (abi.call)(many))
}

/// The largest number in the profile. To runtimes, calls of 32-bit x86 that are there twice have none.
fn newest(profile: &LinuxSeccomp, abi: Abi) -> Option<u32> {
    let names = entries(profile).iter().flat_map(|rule| rule.names());
    names.filter(|name| multiplexer(abi, name).is_none()).filter_map(|name| (abi.call)(name)).max()
}

/// libseccomp adds a case of the call for many to every rule about one of these. Here they are equal only where the call for
/// many is decided as a whole.
fn is_demultiplexed(profile: &LinuxSeccomp, abi: Abi, default: u32, calls: &BTreeMap<u32, Rules>) -> bool {
    let decided = |number: u32| calls.get(&number).is_some_and(|rules| rules.always.is_some());
    entries(profile).iter().all(|rule| {
        let own = action(rule.action(), rule.errno_ret());
        let decided = |name: &String| multiplexer(abi, name).is_none_or(decided);
        own == Some(default) || rule.names().iter().all(decided)
    })
}

#[cfg(test)]
mod tests;
