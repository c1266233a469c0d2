//! System call filters for commands that enter a container: every verdict is that of libseccomp, which the runtime uses for
//! the container itself. A command whose filter lets through what the container's does not would be a way out.
#![cfg(target_arch = "x86_64")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coracle_seccomp::{bpf, default};
use serde_json::{Value, json};

const X86_64: u32 = 0xC000_003E;
const X86: u32 = 0x4000_0003;
const FOREIGN: [u32; 3] = [0xC000_00B7, 0x4000_0028, 0];
const ERRNO: u32 = 0x0005_0000;
const ENOSYS: u32 = ERRNO | 38;
const X32: u32 = 0x4000_0000;

/// In the order of libseccomp's `enum scmp_compare`, from 1.
const OPERATORS: [&str; 7] = [
    "SCMP_CMP_NE",
    "SCMP_CMP_LT",
    "SCMP_CMP_LE",
    "SCMP_CMP_EQ",
    "SCMP_CMP_GE",
    "SCMP_CMP_GT",
    "SCMP_CMP_MASKED_EQ",
];
const ACTIONS: [&str; 7] = [
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_LOG",
    "SCMP_ACT_TRACE",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_TRAP",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_KILL_PROCESS",
];
/// Of both ABIs, of one, of both twice.
const NAMES: &str = "read write openat close fstat mmap mprotect ioctl prctl kill clone clone3 personality setuid getpid futex \
    lseek dup2 ptrace mount umount2 chmod chown fchown32 _llseek stat64 mmap2 arch_prctl time waitpid rseq statx pidfd_open \
    socket bind sendto socketcall shmget semop ipc arm_fadvise64_64";

/// The verdict of a program of the kernel's packet filter.
fn verdict(program: &[u8], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut data = [number.to_le_bytes(), architecture.to_le_bytes(), [0; 4], [0; 4]].concat();
    data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
    let (mut at, mut held) = (0, 0);
    loop {
        let [c0, c1, yes, no, v0, v1, v2, v3] = program[at * 8..][..8].try_into().unwrap();
        let (code, value) = (u16::from_le_bytes([c0, c1]), u32::from_le_bytes([v0, v1, v2, v3]));
        at += 1;
        let holds = match code {
            0x20 => {
                held = u32::from_le_bytes(data[value as usize..][..4].try_into().unwrap());
                continue;
            }
            0x54 => {
                held &= value;
                continue;
            }
            0x05 => {
                at += value as usize;
                continue;
            }
            0x06 => return value,
            0x15 => held == value,
            0x25 => held > value,
            0x35 => held >= value,
            0x45 => held & value != 0,
            other => panic!("instruction {other:#x}"),
        };
        at += usize::from(if holds { yes } else { no });
    }
}

fn action(of: &Value, key: &str, errno: &str) -> u32 {
    let data = of.get(errno).map_or(1, |n| n.as_u64().unwrap() as u32);
    match of[key].as_str().unwrap() {
        "SCMP_ACT_ALLOW" => 0x7FFF_0000,
        "SCMP_ACT_LOG" => 0x7FFC_0000,
        "SCMP_ACT_TRACE" => 0x7FF0_0000 | data,
        "SCMP_ACT_ERRNO" => ERRNO | data,
        "SCMP_ACT_TRAP" => 0x0003_0000,
        "SCMP_ACT_KILL_THREAD" => 0,
        "SCMP_ACT_KILL_PROCESS" => 0x8000_0000,
        other => panic!("{other}"),
    }
}

fn list<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    of[key].as_array().into_iter().flatten()
}

fn names(rule: &Value) -> impl Iterator<Item = &str> {
    list(rule, "names").map(|name| name.as_str().unwrap())
}

/// The engine's program for a profile.
fn compile(profile: &Value) -> Option<Vec<u8>> {
    bpf::compile(&serde_json::from_value(profile.clone()).unwrap())
}

/// A profile as libseccomp compiles it.
struct Reference {
    program: Vec<u8>,
    /// Numbers of names: of x86_64 and of x86.
    numbers: BTreeMap<String, [Option<u32>; 2]>,
    /// Names that this libseccomp is too old for.
    unknown: BTreeSet<String>,
}

struct Libseccomp {
    dir: tempfile::TempDir,
    tool: PathBuf,
}

impl Libseccomp {
    fn build() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("compile");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("attacks/confinement/libseccomp.c");
        let built = Command::new("cc").arg("-o").arg(&tool).arg(source).arg("-lseccomp").output().unwrap();
        let text = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "libseccomp-dev is needed, see scripts/deps: {text}");
        Self { dir, tool }
    }

    /// As runtimes do: rules with the default action are left out.
    fn compile(&self, profile: &Value) -> Reference {
        let default = action(profile, "defaultAction", "defaultErrnoRet");
        let mut input = format!("default {default:#x}\n");
        if list(profile, "architectures").any(|name| name == "SCMP_ARCH_X86") {
            input += &format!("arch {X86:#x}\n");
        }
        for rule in list(profile, "syscalls") {
            let own = action(rule, "action", "errnoRet");
            for name in names(rule) {
                if own == default {
                    input += &format!("name {name}\n");
                    continue;
                }
                input += &format!("rule {own:#x} {name}");
                for arg in list(rule, "args") {
                    let op = 1 + OPERATORS.iter().position(|op| arg["op"] == *op).unwrap();
                    let two = arg["valueTwo"].as_u64().unwrap_or(0);
                    input += &format!(" {} {op} {} {two}", arg["index"], arg["value"]);
                }
                input += "\n";
            }
        }
        let path = self.dir.path().join("program");
        let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
        let mut tool = Command::new(&self.tool).arg(&path).stdin(stdin).stdout(stdout).spawn().unwrap();
        let mut stdin = tool.stdin.take().unwrap();
        // The tool writes as it reads, and what it writes may be more than a pipe holds.
        let feed = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = tool.wait_with_output().unwrap();
        feed.join().unwrap().unwrap();
        assert!(output.status.success(), "{profile}");
        let mut reference = Reference {
            program: std::fs::read(path).unwrap(),
            numbers: BTreeMap::new(),
            unknown: BTreeSet::new(),
        };
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                [name] => drop(reference.unknown.insert(name.to_owned())),
                [name, ref numbers @ ..] => {
                    let numbers = [0, 1].map(|at: usize| numbers[at].parse::<u32>().ok());
                    reference.numbers.insert(name.to_owned(), numbers);
                }
                [] => {}
            }
        }
        reference
    }
}

/// A generator of numbers that is the same every time (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn value(&mut self) -> u64 {
        let edge = self.of(&[
            0,
            1,
            2,
            10,
            0xFF,
            0x7FFF_FFFF,
            0x8000_0000,
            0xFFFF_FFFF,
            1 << 32,
            (1 << 32) + 1,
            u64::MAX,
        ]);
        match self.below(4) {
            0 => self.next(),
            1 => edge ^ (1 << self.below(64)),
            _ => edge,
        }
    }

    fn action(&mut self) -> Value {
        let action = self.of(&ACTIONS);
        match action {
            "SCMP_ACT_ERRNO" | "SCMP_ACT_TRACE" => {
                json!({ "action": action, "errnoRet": self.of(&[0, 1, 13, 38, 4094]) })
            }
            _ => json!({ "action": action }),
        }
    }

    fn conditions(&mut self) -> Value {
        let mut indices: Vec<u64> = (0..6).collect();
        let count = 1 + self.below(3);
        let mut args = Vec::new();
        for _ in 0..count {
            let index = indices.remove(self.below(indices.len()));
            let mut arg = json!({ "index": index, "value": self.value(), "op": self.of(&OPERATORS) });
            if arg["op"] == "SCMP_CMP_MASKED_EQ" {
                arg["valueTwo"] = self.value().into();
            }
            args.push(arg);
        }
        args.into()
    }

    fn profile(&mut self) -> Value {
        let all: Vec<&str> = NAMES.split_whitespace().collect();
        let default = self.action();
        // Mostly one action for a name: two that meet on one call are the runtime's to sort.
        let usual: BTreeMap<&str, Value> = all.iter().map(|name| (*name, self.action())).collect();
        let mut rules = Vec::new();
        for _ in 0..5 + self.below(25) {
            let name = self.of(&all);
            let mut rule = if self.below(10) == 0 { self.action() } else { usual[name].clone() };
            rule["names"] = json!([name]);
            if self.below(2) == 0 {
                rule["args"] = self.conditions();
            }
            if self.below(8) == 0 {
                rules.push(rule.clone());
            }
            rules.push(rule);
        }
        let architectures = if self.below(3) == 0 {
            json!(["SCMP_ARCH_X86_64"])
        } else {
            json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"])
        };
        let mut profile =
            json!({ "defaultAction": default["action"], "architectures": architectures, "syscalls": rules });
        if let Some(errno) = default.get("errnoRet") {
            profile["defaultErrnoRet"] = errno.clone();
        }
        profile
    }
}

/// Values on both sides of every boundary of the conditions on a call, by argument.
fn boundaries(profile: &Value, name: &str) -> [Vec<u64>; 6] {
    let mut values: [Vec<u64>; 6] = std::array::from_fn(|_| vec![0, u64::MAX, 0xFFFF_FFFF]);
    for rule in list(profile, "syscalls").filter(|rule| names(rule).any(|n| n == name)) {
        for arg in list(rule, "args") {
            let (value, two) = (arg["value"].as_u64().unwrap(), arg["valueTwo"].as_u64().unwrap_or(0));
            let of = &mut values[arg["index"].as_u64().unwrap() as usize];
            for value in [value, two & value, (two & value) | !value] {
                of.extend([value, value.wrapping_sub(1), value.wrapping_add(1), value & 0xFFFF_FFFF]);
                of.extend([value ^ (1 << 32), value ^ 1, value ^ (1 << 31), value ^ (1 << 63)]);
            }
        }
    }
    values
}

/// Asks both programs about every call. What runtimes add to libseccomp: a call that is newer than the whole profile does not
/// exist, where others are refused with an error.
fn compare(profile: &Value, ours: &[u8], theirs: &Reference, random: &mut Random) {
    let default = action(profile, "defaultAction", "defaultErrnoRet");
    let check = |architecture: u32, number: u32, arguments: [u64; 6], newest: Option<u32>| {
        let x32 = architecture == X86_64 && number >= X32;
        let is_new = default & 0xFFFF_0000 == ERRNO && !x32 && newest.is_some_and(|newest| number > newest);
        let wanted = if is_new { ENOSYS } else { verdict(&theirs.program, architecture, number, arguments) };
        let got = verdict(ours, architecture, number, arguments);
        let concerned = || {
            let named = |name: &str| theirs.numbers.get(name).is_some_and(|of| of.contains(&Some(number)));
            let rules = list(profile, "syscalls").filter(|rule| names(rule).any(named));
            rules.map(Value::to_string).collect::<Vec<_>>().join("\n")
        };
        assert!(
            got == wanted,
            "{got:#x}, libseccomp says {wanted:#x}: architecture {architecture:#x}, call {number}, {arguments:x?}, default {default:#x}\n{}",
            concerned()
        );
    };
    for architecture in FOREIGN {
        check(architecture, 0, [0; 6], None);
    }
    let has_x86 = list(profile, "architectures").any(|name| name == "SCMP_ARCH_X86");
    for (at, architecture) in [X86_64, X86].into_iter().enumerate() {
        if architecture == X86 && !has_x86 {
            check(X86, 1, [0; 6], None);
            continue;
        }
        let newest = theirs.numbers.values().filter_map(|numbers| numbers[at]).max();
        let far = [X32 - 1, X32, X32 + 1, X32 + 512, 0x8000_0000, u32::MAX - 1, u32::MAX];
        for number in (0..1024).chain(far) {
            check(architecture, number, [0; 6], newest);
        }
        for (name, numbers) in &theirs.numbers {
            let Some(number) = numbers[at] else { continue };
            let values = boundaries(profile, name);
            for _ in 0..60 {
                let arguments = std::array::from_fn(|argument| random.of(&values[argument]));
                check(architecture, number, arguments, newest);
            }
            // One argument at a time, so that every boundary is asked about at least once.
            for (argument, list) in values.iter().enumerate() {
                for value in list {
                    let mut arguments = std::array::from_fn(|argument| random.of(&values[argument]));
                    arguments[argument] = *value;
                    check(architecture, number, arguments, newest);
                }
            }
        }
    }
}

#[test]
fn a_command_in_a_container_cannot_call_what_the_container_cannot() {
    let libseccomp = Libseccomp::build();
    let mut random = Random(18);
    for capabilities in [BTreeSet::new(), BTreeSet::from(["CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SYSLOG"])] {
        let mut profile = serde_json::to_value(default::default_profile(&capabilities)).unwrap();
        // Calls that are newer than this libseccomp cannot be compared.
        let unknown = libseccomp.compile(&profile).unknown;
        for rule in profile["syscalls"].as_array_mut().unwrap() {
            let names = rule["names"].as_array_mut().unwrap();
            names.retain(|name| !unknown.contains(name.as_str().unwrap()));
        }
        let ours = compile(&profile).expect("the default profile");
        compare(&profile, &ours, &libseccomp.compile(&profile), &mut random);
    }
}

#[test]
fn filters_of_generated_profiles_are_libseccomps() {
    let libseccomp = Libseccomp::build();
    let mut random = Random(1);
    let (mut compared, mut left) = (0, 0);
    while compared < 50 {
        let profile = random.profile();
        // What is not compiled here the runtime compiles, with libseccomp.
        let Some(ours) = compile(&profile) else {
            left += 1;
            assert!(left < 200, "only {compared} profiles of {} are compiled", compared + left);
            continue;
        };
        compare(&profile, &ours, &libseccomp.compile(&profile), &mut random);
        compared += 1;
    }
    println!("{compared} profiles are equal, {left} are left to the runtime");
}
