//! The kernel: version, namespaces, and file systems, links and rules that are really made. Attempts run on a thread in
//! fresh mount and network namespaces, which take everything away when the thread ends.

use super::finding::Finding;
use super::links;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PART: &str = "kernel";
/// `cgroup.kill` came with 5.14.
const LEAST: (u32, u32) = (5, 14);

/// Major and minor of a release such as `6.1.0-37-cloud-amd64`.
fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether it is new enough.
pub fn version() -> Finding {
    let release = nix::sys::utsname::uname().map(|u| u.release().to_string_lossy().into_owned());
    judge_version(&release.unwrap_or_default())
}

fn judge_version(release: &str) -> Finding {
    let (major, minor) = LEAST;
    match parse(release) {
        Some(version) if version >= LEAST => Finding::ok(PART, "version", release),
        _ => Finding::missing(
            PART,
            "version",
            format!("{release:?}"),
            format!("Linux {major}.{minor} or newer is needed; Debian 12 has 6.1"),
        ),
    }
}

/// The kinds of namespaces that nodes and pods are made of.
pub fn namespaces() -> Vec<Finding> {
    let there = |kind: &str| Path::new("/proc/self/ns").join(kind).exists();
    let wanted = ["net", "mnt", "pid", "uts", "ipc", "cgroup"];
    let absent: Vec<&str> = wanted.into_iter().filter(|kind| !there(kind)).collect();
    let needed = if absent.is_empty() {
        Finding::ok(PART, "namespaces", wanted.join(", "))
    } else {
        let options: Vec<String> = absent.iter().map(|k| format!("CONFIG_{}_NS", k.to_uppercase())).collect();
        Finding::missing(PART, "namespaces", format!("without {}", absent.join(", ")), options.join(", "))
    };
    let user = if there("user") {
        Finding::ok(PART, "user namespaces", "for pods with hostUsers: false")
    } else {
        Finding::limited(
            PART,
            "user namespaces",
            "pods with hostUsers: false will not start",
            "a kernel with CONFIG_USER_NS",
        )
    };
    vec![needed, user]
}

/// Whether system calls of containers can be filtered.
pub fn seccomp() -> Finding {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.starts_with("Seccomp:")) {
        Finding::ok(PART, "seccomp", "filters are available")
    } else {
        Finding::limited(
            PART,
            "seccomp",
            "seccomp profiles of pods are not applied",
            "a kernel with CONFIG_SECCOMP_FILTER",
        )
    }
}

/// Something that is tried.
struct Attempt {
    name: &'static str,
    /// What it is for.
    purpose: &'static str,
    /// What to do when it fails.
    advice: &'static str,
    /// Without it pods still run.
    optional: bool,
    attempt: fn(&Path) -> Result<(), Failure>,
}

/// Why an attempt came to nothing.
enum Failure {
    /// The kernel would not.
    Refused(String),
    /// The program that asks the kernel is not there, which says nothing of the kernel.
    NoProgram(&'static str),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Refused(format!("{error:#}"))
    }
}

const ATTEMPTS: [Attempt; 8] = [
    Attempt {
        name: "overlayfs",
        purpose: "file systems of containers",
        advice: "modprobe overlay; the data directory must not itself be on an overlay (--data-dir)",
        optional: false,
        attempt: overlay,
    },
    Attempt {
        name: "tmpfs",
        purpose: "secrets and memory volumes",
        advice: "a kernel with CONFIG_TMPFS",
        optional: false,
        attempt: |dir| mount_at(dir, "tmpfs", ""),
    },
    Attempt {
        name: "veth",
        purpose: "links of pods",
        advice: "modprobe veth (a kernel with CONFIG_VETH)",
        optional: false,
        attempt: |_| Ok(links::veth()?),
    },
    Attempt {
        name: "bridge",
        purpose: "the network of a node",
        advice: "modprobe bridge (a kernel with CONFIG_BRIDGE)",
        optional: false,
        attempt: |_| Ok(links::bridge()?),
    },
    Attempt {
        name: "vxlan",
        purpose: "the network between nodes",
        advice: "modprobe vxlan (a kernel with CONFIG_VXLAN); without it nodes must share an L2 network",
        optional: true,
        attempt: |_| Ok(links::vxlan()?),
    },
    Attempt {
        name: "nftables nat",
        purpose: "services, node ports, masquerading",
        advice: "modprobe nf_tables nft_chain_nat nft_masq (CONFIG_NF_TABLES, CONFIG_NFT_NAT, CONFIG_NFT_MASQ)",
        optional: false,
        attempt: |_| {
            nft("table ip coracle-doctor {
                map backends { type ipv4_addr . inet_service : ipv4_addr . inet_service; }
                chain towards { type nat hook prerouting priority -100; dnat to ip daddr . tcp dport map @backends; }
                chain back { type nat hook postrouting priority 100; masquerade; }
            }")
        },
    },
    Attempt {
        name: "nftables numgen, ct, reject",
        purpose: "load balancing, network policy",
        advice: "modprobe nft_numgen nft_ct nft_reject_inet (CONFIG_NFT_NUMGEN, CONFIG_NFT_CT, CONFIG_NFT_REJECT)",
        optional: false,
        attempt: |_| {
            nft("table inet coracle-doctor {
                chain one { accept; }
                chain filter { type filter hook forward priority 0; ct state established accept; \
                 numgen random mod 2 vmap { 0 : jump one, 1 : jump one }; reject; }
            }")
        },
    },
    Attempt {
        name: "IP forwarding",
        purpose: "traffic of pods leaves the node",
        advice: "/proc/sys must be writable: not in an unprivileged container",
        optional: false,
        attempt: |_| fs::write("/proc/sys/net/ipv4/ip_forward", "1").map_err(|e| e.to_string().into()),
    },
];

/// Tries everything, as root; `data_dir` is where containers' file systems will be.
pub fn attempts(root: bool, data_dir: &Path) -> Vec<Finding> {
    if !root {
        let names: Vec<&str> = ATTEMPTS.iter().map(|attempt| attempt.name).collect();
        let seen = format!("not tried: {}", names.join(", "));
        return vec![Finding::missing(PART, "abilities", seen, "run as root: sudo coracle doctor")];
    }
    let scratch = match Scratch::near(data_dir) {
        Ok(scratch) => scratch,
        Err(error) => {
            let seen = format!("{} cannot be written: {error}", data_dir.display());
            return vec![Finding::missing(PART, "abilities", seen, "choose another --data-dir")];
        }
    };
    ATTEMPTS.iter().map(|attempt| try_alone(attempt, &scratch.0)).collect()
}

/// Each attempt has namespaces of its own, so that none sees what another left.
fn try_alone(attempt: &Attempt, dir: &Path) -> Finding {
    let outcome = std::thread::scope(|scope| {
        let tried = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
                .map_err(|e| format!("unshare: {e} (root of a container that may not make namespaces?)"))?;
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
                .map_err(|e| format!("private mounts: {e}"))?;
            (attempt.attempt)(dir)
        });
        tried.join().unwrap_or_else(|_| Err("the attempt broke".to_owned().into()))
    });
    judge_attempt(attempt, outcome)
}

fn judge_attempt(attempt: &Attempt, outcome: Result<(), Failure>) -> Finding {
    match outcome {
        Ok(()) => Finding::ok(PART, attempt.name, attempt.purpose),
        Err(Failure::NoProgram(program)) => {
            let seen = format!("not tried: that needs {program}, which is not in PATH");
            Finding::limited(PART, attempt.name, seen, super::programs::advice(program))
        }
        Err(Failure::Refused(why)) if attempt.optional => {
            Finding::limited(PART, attempt.name, why, attempt.advice)
        }
        Err(Failure::Refused(why)) => Finding::missing(PART, attempt.name, why, attempt.advice),
    }
}

/// A directory that is removed again, in the nearest directory above `data_dir` that exists.
struct Scratch(PathBuf);

impl Scratch {
    fn near(data_dir: &Path) -> std::io::Result<Self> {
        let home = data_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
        let path = home.join(format!(".coracle-doctor-{}", std::process::id()));
        for part in ["lower", "upper", "work", "merged"] {
            fs::create_dir_all(path.join(part))?;
        }
        fs::write(path.join("lower/file"), "below")?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mount_at(dir: &Path, kind: &str, options: &str) -> Result<(), Failure> {
    mount(Some(kind), &dir.join("merged"), Some(kind), MsFlags::empty(), Some(options))
        .map_err(|e| format!("mount: {e}").into())
}

/// Mounts an overlay, and changes and removes files through it: some upper file systems can do only the first.
fn overlay(dir: &Path) -> Result<(), Failure> {
    let d = dir.display();
    mount_at(dir, "overlay", &format!("lowerdir={d}/lower,upperdir={d}/upper,workdir={d}/work"))?;
    let file = dir.join("merged/file");
    fs::write(&file, "above").map_err(|e| format!("copy up: {e}"))?;
    fs::remove_file(&file).map_err(|e| format!("whiteout: {e}").into())
}

fn nft(rules: &str) -> Result<(), Failure> {
    finish("nft", Command::new("nft").args(["-f", "-"]), rules)
}

/// Runs a program; the first line of what it says when it fails.
fn finish(name: &'static str, command: &mut Command, input: &str) -> Result<(), Failure> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = match piped.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Failure::NoProgram(name)),
        spawned => spawned.map_err(|e| format!("{name}: {e}"))?,
    };
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", text.lines().next().unwrap_or("failed")).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Outcome;
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        for (release, want) in [
            ("6.1.0-37-cloud-amd64", Outcome::Ok),
            ("5.14", Outcome::Ok),
            ("10.0.1", Outcome::Ok),
            ("5.9.16", Outcome::Missing),
            ("4.19.0-27", Outcome::Missing),
            ("", Outcome::Missing),
        ] {
            assert_eq!(judge_version(release).outcome, want, "{release}");
        }
    }

    #[test]
    fn without_root_it_says_what_was_not_tried() {
        let dir = tempfile::tempdir().unwrap();
        let findings = attempts(false, dir.path());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].seen.contains("overlayfs") && findings[0].advice.contains("root"));
    }

    #[test]
    fn scratch_is_near_and_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::near(&dir.path().join("not/there/yet")).unwrap();
        assert!(scratch.0.starts_with(dir.path()) && scratch.0.join("lower/file").exists());
        drop(scratch);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_program_that_is_missing_says_nothing_of_the_kernel() {
        let nat = ATTEMPTS.iter().find(|attempt| attempt.name == "nftables nat").unwrap();
        let untried = finish("nft", &mut Command::new("/nowhere/nft"), "");
        let finding = judge_attempt(nat, untried);
        assert_eq!(
            (finding.outcome, finding.advice.as_str()),
            (Outcome::Limited, "apt-get install nftables")
        );
        let refused = judge_attempt(nat, finish("nft", &mut Command::new("false"), ""));
        assert_eq!((refused.outcome, refused.advice.as_str()), (Outcome::Missing, nat.advice));
    }
}
