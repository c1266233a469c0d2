//! A seccomp profile of the OCI configuration as the program that the kernel runs.
//!
//! For commands that enter a container without the runtime. What this does not know it does not guess: the answer is
//! `None`, and the runtime does it. That is every list of what is forbidden, too: a mistake there would be a hole, while in a
//! list of what is allowed it is a refusal.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::Value;
use syscalls::{aarch64, arm, x86, x86_64};

/// The kernel takes no longer program.
const LONGEST: usize = 4096;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const GOTO: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Places in `struct seccomp_data`, little-endian.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
/// Calls of x32 are x86_64's with this bit.
const X32: u32 = 0x4000_0000;

/// One instruction of the kernel's packet filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

const fn step(code: u16, value: u32) -> Step {
    Step { code, yes: 0, no: 0, value }
}

/// A jump over so many steps, either way.
const fn jump(code: u16, value: u32, yes: u8, no: u8) -> Step {
    Step { code, yes, no, value }
}

/// A set of calls: what programs of one kind see.
#[derive(Clone, Copy)]
struct Abi {
    /// In profiles.
    names: &'static [&'static str],
    /// To the kernel.
    number: u32,
    call: fn(&str) -> Option<u32>,
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
            Abi { names: &["SCMP_ARCH_X86_64"], number: 0xC000_003E, call: calls!(x86_64) },
            Abi { names: &["SCMP_ARCH_X86"], number: 0x4000_0003, call: calls!(x86) },
        ]),
        "aarch64" => Some([
            Abi { names: &["SCMP_ARCH_AARCH64"], number: 0xC000_00B7, call: calls!(aarch64) },
            Abi { names: &["SCMP_ARCH_ARM"], number: 0x4000_0028, call: calls!(arm) },
        ]),
        _ => None,
    }
}

/// What is done with one call.
#[derive(Default)]
struct Rules {
    always: Option<u32>,
    /// The first whose conditions all hold.
    when: Vec<(Vec<Condition>, u32)>,
}

#[derive(Clone, Copy)]
enum Test {
    Equal,
    NotEqual,
    Masked(u64),
}

#[derive(Clone, Copy)]
struct Condition {
    argument: u32,
    test: Test,
    value: u64,
}

/// The program, eight bytes an instruction; `None` for what only the runtime can do.
pub fn compile(profile: &Value) -> Option<Vec<u8>> {
    let empty = |key: &str| profile.get(key).is_none_or(|value| value.as_array().is_some_and(Vec::is_empty));
    if profile.get("listenerPath").is_some() || !empty("flags") {
        return None;
    }
    let default = action(profile, "defaultAction", "defaultErrnoRet")?;
    let refuses = default & 0xFFFF_0000 == ERRNO || matches!(default, 0 | KILL_PROCESS);
    if !refuses {
        return None;
    }
    let wanted: Vec<&str> =
        profile["architectures"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let abis = abis()?;
    let abis: Vec<Abi> = abis
        .into_iter()
        .enumerate()
        // Programs of the machine's own kind always run.
        .filter(|(at, abi)| *at == 0 || abi.names.iter().any(|name| wanted.contains(name)))
        .map(|(_, abi)| abi)
        .collect();
    let sections = abis.iter().map(|abi| section(profile, *abi, default)).collect::<Option<Vec<_>>>()?;
    let mut program = vec![step(LOAD, ARCHITECTURE)];
    // Each choice is two steps, the end one more; sections follow in order.
    let mut place = abis.len() * 2 + 1;
    for (at, (abi, section)) in abis.iter().zip(&sections).enumerate() {
        program.push(jump(IF_EQUAL, abi.number, 0, 1));
        program.push(step(GOTO, u32::try_from(place - (at * 2 + 2)).ok()?));
        place += section.len();
    }
    program.push(step(RETURN, KILL_PROCESS));
    program.extend(sections.into_iter().flatten());
    if program.len() > LONGEST {
        return None;
    }
    let bytes = |s: Step| {
        let [c0, c1] = s.code.to_ne_bytes();
        let [v0, v1, v2, v3] = s.value.to_ne_bytes();
        [c0, c1, s.yes, s.no, v0, v1, v2, v3]
    };
    Some(program.into_iter().flat_map(bytes).collect())
}

fn action(of: &Value, key: &str, errno: &str) -> Option<u32> {
    let errno = || Some(ERRNO | u32::try_from(of.get(errno).map_or(Some(1), Value::as_u64)?).ok()? & 0xFFFF);
    match of[key].as_str()? {
        "SCMP_ACT_ALLOW" => Some(0x7FFF_0000),
        "SCMP_ACT_LOG" => Some(0x7FFC_0000),
        "SCMP_ACT_ERRNO" => errno(),
        "SCMP_ACT_TRAP" => Some(0x0003_0000),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Some(0),
        "SCMP_ACT_KILL_PROCESS" => Some(KILL_PROCESS),
        _ => None,
    }
}

/// The steps for calls of one kind of program.
fn section(profile: &Value, abi: Abi, default: u32) -> Option<Vec<Step>> {
    let calls = rules(profile, abi, default)?;
    let mut steps = vec![step(LOAD, NUMBER)];
    if abi.number == 0xC000_003E {
        steps.extend([jump(IF_AT_LEAST, X32, 0, 1), step(RETURN, KILL_PROCESS)]);
    }
    for (number, rules) in calls.iter().filter(|(_, rules)| rules.always.is_none()) {
        let mut body = Vec::new();
        for (conditions, action) in &rules.when {
            body.extend(guarded(conditions, *action)?);
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
    // A call that is newer than the profile does not exist, so that C libraries take the older one.
    if default & 0xFFFF_0000 == ERRNO
        && let Some((newest, _)) = calls.last_key_value()
    {
        const ENOSYS: u32 = 38;
        steps.extend([jump(IF_GREATER, *newest, 0, 1), step(RETURN, ERRNO | ENOSYS)]);
    }
    steps.push(step(RETURN, default));
    Some(steps)
}

fn rules(profile: &Value, abi: Abi, default: u32) -> Option<BTreeMap<u32, Rules>> {
    let mut calls: BTreeMap<u32, Rules> = BTreeMap::new();
    for rule in profile["syscalls"].as_array().into_iter().flatten() {
        let action = action(rule, "action", "errnoRet")?;
        let conditions: Vec<Condition> =
            rule["args"].as_array().into_iter().flatten().map(condition).collect::<Option<_>>()?;
        let mut arguments: Vec<u32> = conditions.iter().map(|condition| condition.argument).collect();
        arguments.sort_unstable();
        arguments.dedup();
        // Runtimes take two conditions on one argument for alternatives.
        if arguments.len() < conditions.len() {
            return None;
        }
        for name in rule["names"].as_array()?.iter().filter_map(Value::as_str) {
            // Names that this machine does not have mean nothing here.
            let Some(number) = (abi.call)(name) else { continue };
            let rules = calls.entry(number).or_default();
            // Runtimes leave out what would be done anyway: it takes nothing from other rules.
            if action == default {
                continue;
            }
            if !conditions.is_empty() {
                rules.when.push((conditions.clone(), action));
            } else if *rules.always.get_or_insert(action) != action {
                return None;
            }
        }
    }
    Some(calls)
}

fn condition(of: &Value) -> Option<Condition> {
    let number = |key: &str| of.get(key).map_or(Some(0), Value::as_u64);
    let argument = u32::try_from(number("index")?).ok().filter(|n| *n < 6)?;
    let (value, two) = (number("value")?, number("valueTwo")?);
    let (test, value) = match of["op"].as_str()? {
        "SCMP_CMP_EQ" => (Test::Equal, value),
        "SCMP_CMP_NE" => (Test::NotEqual, value),
        "SCMP_CMP_MASKED_EQ" => (Test::Masked(value), two & value),
        _ => return None,
    };
    Some(Condition { argument, test, value })
}

/// Returns the action when all conditions hold, goes on after itself when one does not.
fn guarded(conditions: &[Condition], action: u32) -> Option<Vec<Step>> {
    /// Stands for the way to the end.
    const OUT: u8 = u8::MAX;
    let mut steps = Vec::new();
    for Condition { argument, test, value } in conditions {
        let low = step(LOAD, ARGUMENTS + 8 * argument);
        let high = step(LOAD, ARGUMENTS + 8 * argument + 4);
        let (top, bottom) = ((value >> 32) as u32, *value as u32);
        match test {
            Test::Equal => {
                steps.extend([high, jump(IF_EQUAL, top, 0, OUT), low, jump(IF_EQUAL, bottom, 0, OUT)]);
            }
            Test::NotEqual => {
                steps.extend([high, jump(IF_EQUAL, top, 0, 2), low, jump(IF_EQUAL, bottom, OUT, 0)]);
            }
            Test::Masked(mask) => steps.extend([
                high,
                step(AND, (mask >> 32) as u32),
                jump(IF_EQUAL, top, 0, OUT),
                low,
                step(AND, *mask as u32),
                jump(IF_EQUAL, bottom, 0, OUT),
            ]),
        }
    }
    steps.push(step(RETURN, action));
    let end = steps.len();
    for (at, step) in steps.iter_mut().enumerate() {
        let out = u8::try_from(end - at - 1).ok().filter(|way| *way != OUT)?;
        for way in [&mut step.yes, &mut step.no] {
            if *way == OUT {
                *way = out;
            }
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::engine::spec::seccomp::default_profile;
    use serde_json::json;
    use std::collections::BTreeSet;

    const ALLOW: u32 = 0x7FFF_0000;

    /// What the kernel would do.
    fn verdict(program: &[u8], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [number.to_le_bytes(), architecture.to_le_bytes(), [0; 4], [0; 4]].concat();
        data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        let word = |at: u32| u32::from_le_bytes(data[at as usize..][..4].try_into().unwrap());
        let (mut at, mut held) = (0, 0);
        loop {
            let step = &program[at * 8..][..8];
            let code = u16::from_ne_bytes([step[0], step[1]]);
            let value = u32::from_ne_bytes(step[4..].try_into().unwrap());
            at += 1;
            let holds = match code {
                LOAD => {
                    held = word(value);
                    continue;
                }
                AND => {
                    held &= value;
                    continue;
                }
                GOTO => {
                    at += value as usize;
                    continue;
                }
                RETURN => return value,
                IF_EQUAL => held == value,
                IF_GREATER => held > value,
                IF_AT_LEAST => held >= value,
                other => panic!("{other:#x}"),
            };
            at += usize::from(if holds { step[2] } else { step[3] });
        }
    }

    /// What the profile says, read as it is written.
    fn meant(profile: &Value, name: &str, arguments: [u64; 6]) -> Option<u32> {
        let holds = |c: &Value| {
            let argument = arguments[c["index"].as_u64().unwrap() as usize];
            let (value, two) = (c["value"].as_u64().unwrap(), c["valueTwo"].as_u64().unwrap_or(0));
            match c["op"].as_str().unwrap() {
                "SCMP_CMP_EQ" => argument == value,
                "SCMP_CMP_NE" => argument != value,
                _ => argument & value == two,
            }
        };
        let rules = profile["syscalls"].as_array().unwrap().iter();
        let mut of =
            rules.filter(|rule| rule["names"].as_array().unwrap().iter().any(|n| n == name)).peekable();
        of.peek()?;
        let matching = of.find(|r| r["args"].as_array().into_iter().flatten().all(holds));
        let default = action(profile, "defaultAction", "defaultErrnoRet");
        matching.map_or(default, |rule| action(rule, "action", "errnoRet"))
    }

    #[test]
    fn the_default_profile_is_kept_call_by_call() {
        for capabilities in [BTreeSet::new(), BTreeSet::from(["CAP_SYS_ADMIN", "CAP_SYS_CHROOT"])] {
            let profile = default_profile(&capabilities);
            let program = compile(&profile).unwrap();
            for abi in abis().unwrap() {
                let names: BTreeSet<&str> = profile["syscalls"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|rule| rule["names"].as_array().unwrap())
                    .filter_map(Value::as_str)
                    .collect();
                let known: BTreeMap<u32, &str> =
                    names.iter().filter_map(|name| Some(((abi.call)(name)?, *name))).collect();
                let newest = *known.last_key_value().unwrap().0;
                for number in 0..600 {
                    for first in
                        [0, 8, 40, 0x2_0000, 0x0200_0000, 0x7E02_0000, 0xFFFF_FFFF, 1 << 40, u64::MAX]
                    {
                        let arguments = [first, 1, 2, 3, 4, 5];
                        let wanted = match known.get(&number) {
                            Some(name) => meant(&profile, name, arguments).unwrap(),
                            None if number > newest => ERRNO | 38,
                            None => ERRNO | 1,
                        };
                        let got = verdict(&program, abi.number, number, arguments);
                        assert_eq!(got, wanted, "{number} {:?} {first:#x}", known.get(&number));
                    }
                }
            }
            assert_eq!(verdict(&program, 0x1234, 0, [0; 6]), KILL_PROCESS);
        }
    }

    #[test]
    fn actions_and_conditions_of_profiles_on_disk() {
        let number = (abis().unwrap()[0].call)("kill").unwrap();
        let own = abis().unwrap()[0].number;
        let with = |rules: Value| {
            compile(&json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 13, "syscalls": rules }))
                .unwrap()
        };
        let both = with(json!([{ "names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [
            { "index": 0, "value": 7, "op": "SCMP_CMP_EQ" },
            { "index": 1, "value": 9, "op": "SCMP_CMP_NE" }] }, { "names": ["kill"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13 }]));
        for (arguments, wanted) in [
            ([7, 8, 0, 0, 0, 0], ALLOW),
            ([7, 9, 0, 0, 0, 0], ERRNO | 13),
            ([7, (1 << 32) + 9, 0, 0, 0, 0], ALLOW),
            ([(1 << 32) + 7, 8, 0, 0, 0, 0], ERRNO | 13),
        ] {
            assert_eq!(verdict(&both, own, number, arguments), wanted, "{arguments:?}");
        }
        assert_eq!(verdict(&both, own, 100_000, [0; 6]), ERRNO | 38, "newer than the profile");
        let kill = with(json!([{ "names": ["kill"], "action": "SCMP_ACT_KILL_PROCESS" }]));
        assert_eq!(verdict(&kill, own, number, [0; 6]), KILL_PROCESS);
    }

    #[test]
    fn what_only_a_runtime_can_do() {
        for profile in [
            json!({ "defaultAction": "SCMP_ACT_NOTIFY" }),
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["kill"], "action": "SCMP_ACT_ERRNO" }] }),
            json!({ "defaultAction": "SCMP_ACT_ERRNO", "listenerPath": "/run/x" }),
            json!({ "defaultAction": "SCMP_ACT_ERRNO", "flags": ["SECCOMP_FILTER_FLAG_LOG"] }),
            json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{ "names": ["kill"], "action": "SCMP_ACT_TRACE" }] }),
            json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{ "names": ["kill"], "action": "SCMP_ACT_ALLOW",
                "args": [{ "index": 0, "value": 1, "op": "SCMP_CMP_LT" }] }] }),
            json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{ "names": ["kill"], "action": "SCMP_ACT_ALLOW",
                "args": [{ "index": 1, "value": 10, "op": "SCMP_CMP_EQ" }, { "index": 1, "value": 12, "op": "SCMP_CMP_EQ" }] }] }),
            json!({}),
        ] {
            assert_eq!(compile(&profile), None, "{profile}");
        }
    }
}
