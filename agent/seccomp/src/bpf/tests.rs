#![allow(clippy::unwrap_used)]
use super::instruction::AND;
use super::*;
use crate::default::default_profile;
use serde_json::{Value, json};
use std::collections::BTreeSet;

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

/// The program of a profile on disk; none for what oci-spec does not read, which is the runtime's.
fn compiled(profile: &Value) -> Option<Vec<u8>> {
    compile(&serde_json::from_value(profile.clone()).ok()?)
}

/// What the profile says, read as it is written.
fn meant(profile: &LinuxSeccomp, name: &str, arguments: [u64; 6]) -> Option<u32> {
    use oci_spec::runtime::{LinuxSeccompArg, LinuxSeccompOperator};
    let holds = |c: &LinuxSeccompArg| {
        let argument = arguments[c.index()];
        match c.op() {
            LinuxSeccompOperator::ScmpCmpEq => argument == c.value(),
            LinuxSeccompOperator::ScmpCmpNe => argument != c.value(),
            _ => argument & c.value() == c.value_two().unwrap(),
        }
    };
    let rules = entries(profile).iter();
    let mut of = rules.filter(|rule| rule.names().iter().any(|n| n == name)).peekable();
    of.peek()?;
    let matching = of.find(|rule| rule.args().iter().flatten().all(holds));
    let default = action(profile.default_action(), profile.default_errno_ret());
    matching.map_or(default, |rule| action(rule.action(), rule.errno_ret()))
}

#[test]
fn the_default_profile_is_kept_call_by_call() {
    for capabilities in [BTreeSet::new(), BTreeSet::from(["CAP_SYS_ADMIN", "CAP_SYS_CHROOT"])] {
        let profile = default_profile(&capabilities);
        let program = compile(&profile).unwrap();
        for abi in abis().unwrap() {
            let names: BTreeSet<&String> = entries(&profile).iter().flat_map(|rule| rule.names()).collect();
            let known: BTreeMap<u32, &str> =
                names.iter().filter_map(|name| Some(((abi.call)(name)?, name.as_str()))).collect();
            let newest = *known.last_key_value().unwrap().0;
            for number in 0..600 {
                for first in [0, 8, 40, 0x2_0000, 0x0200_0000, 0x7E02_0000, 0xFFFF_FFFF, 1 << 40, u64::MAX] {
                    let arguments = [first, 1, 2, 3, 4, 5];
                    let low = first & u64::from(u32::MAX);
                    let seen = if abi.width == Width::Half { [low, 1, 2, 3, 4, 5] } else { arguments };
                    let wanted = match known.get(&number) {
                        Some(name) => meant(&profile, name, seen).unwrap(),
                        None if number > newest => ERRNO | 38,
                        None => ERRNO | 1,
                    };
                    let got = verdict(&program, abi.number(), number, arguments);
                    assert_eq!(got, wanted, "{number} {:?} {first:#x}", known.get(&number));
                }
            }
        }
        assert_eq!(verdict(&program, 0x1234, 0, [0; 6]), KILL_THREAD);
    }
}

#[test]
fn actions_and_conditions_of_profiles_on_disk() {
    let number = (abis().unwrap()[0].call)("kill").unwrap();
    let own = abis().unwrap()[0].number();
    let with = |rules: Value| {
        compiled(&json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 13, "syscalls": rules }))
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
    let kill = |rules: Value| json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules });
    let arg = |index: u32, op: &str, value: u64| json!({ "index": index, "value": value, "op": op });
    for profile in [
        json!({}),
        json!({ "defaultAction": "SCMP_ACT_NOTIFY" }),
        json!({ "defaultAction": "SCMP_ACT_ERRNO", "listenerPath": "/run/x" }),
        json!({ "defaultAction": "SCMP_ACT_ERRNO", "flags": ["SECCOMP_FILTER_FLAG_LOG"] }),
        json!({ "defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"] }),
        json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 4095 }),
        json!({ "defaultAction": "SCMP_ACT_TRACE", "defaultErrnoRet": 65536 }),
        // A call that is newer than the tables would be allowed.
        json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["brand_new"], "action": "SCMP_ACT_ERRNO" }] }),
        // Both for one argument, and two that hold for one call.
        kill(json!([{ "names": ["kill"], "action": "SCMP_ACT_ALLOW",
            "args": [arg(1, "SCMP_CMP_EQ", 10), arg(1, "SCMP_CMP_EQ", 12)] }])),
        kill(json!([{ "names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [arg(1, "SCMP_CMP_NE", 10)] },
            { "names": ["kill"], "action": "SCMP_ACT_LOG", "args": [arg(1, "SCMP_CMP_EQ", 9)] }])),
    ] {
        assert_eq!(compiled(&profile), None, "{profile}");
    }
    let apart =
        kill(json!([{ "names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [arg(1, "SCMP_CMP_NE", 10)] },
        { "names": ["kill"], "action": "SCMP_ACT_LOG", "args": [arg(1, "SCMP_CMP_EQ", 10)] }]));
    assert!(compiled(&apart).is_some(), "no argument satisfies both");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_that_32_bit_x86_has_twice() {
    let with = |rules: Value| json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86"], "syscalls": rules });
    let rule = |name: &str| json!({ "names": [name], "action": "SCMP_ACT_ERRNO" });
    assert_eq!(compiled(&with(json!([rule("socket")]))), None, "socketcall would go on");
    assert!(compiled(&with(json!([rule("socket"), rule("socketcall")]))).is_some());
}
