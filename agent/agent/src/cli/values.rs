//! Parsers of option values: invalid values are rejected at the start.

use std::collections::BTreeMap;
use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::time::Duration;

use crate::config::eviction::Threshold;
use crate::config::go_duration::go_duration;
use crate::node::eviction_parse::{ThresholdError, by_signal, parse_reclaims, parse_thresholds};
use crate::node::object::parse_taint;
use crate::node::shutdown::Group;
use crate::pod::{amount, backoff};
use coracle_proto::time::parse_duration;
use http::{HeaderName, HeaderValue};

/// Seccomp profile of containers that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DefaultSeccomp {
    /// That of the runtime.
    #[default]
    #[value(name = "RuntimeDefault")]
    RuntimeDefault,
    /// None.
    #[value(name = "Unconfined")]
    Unconfined,
}

/// Whether containers use swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SwapBehavior {
    /// None does.
    #[default]
    #[value(name = "NoSwap")]
    NoSwap,
    /// Those of Burstable pods may use a part of it that is as large as their part of the memory.
    #[value(name = "LimitedSwap")]
    LimitedSwap,
}

/// Why a value is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// Not a pair.
    #[error("not of the form key=value")]
    Pair,
    /// A resource that cannot be reserved.
    #[error("{key:?} cannot be reserved, only cpu, memory, ephemeral-storage and pid")]
    Resource {
        /// The key as given.
        key: String,
    },
    /// Not an amount.
    #[error("{text:?} is not a quantity such as 100m or 256Mi")]
    Quantity {
        /// The value as given.
        text: String,
    },
    /// Not a duration.
    #[error("{text:?} is not a duration such as 90s, 2m or 168h")]
    Duration {
        /// The value as given.
        text: String,
    },
    /// A duration that is too short or too long.
    #[error("{text} must be between {} and {}", short(.least), short(.most))]
    Range {
        /// The value as given.
        text: String,
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// Not a priority and a duration.
    #[error("not of the form PRIORITY=DURATION, such as 1000=30s")]
    ShutdownGroup,
    /// Not a header.
    #[error("not of the form NAME:VALUE")]
    Header,
    /// Not a taint.
    #[error("not of the form key=value:effect, with the effect NoSchedule, PreferNoSchedule or NoExecute")]
    Taint,
    /// Not an address.
    #[error("not an IP address")]
    Address {
        /// The cause.
        #[source]
        source: AddrParseError,
    },
    /// Not an address and port.
    #[error("not of the form address:port")]
    Socket {
        /// The cause.
        #[source]
        source: AddrParseError,
    },
    /// Not a list of thresholds.
    #[error(transparent)]
    Threshold(#[from] ThresholdError),
}

/// `key=value`.
pub fn pair(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(ValueError::Pair),
    }
}

/// `cpu=100m`: thousandths of cpus, units of everything else.
pub fn reserved(text: &str) -> Result<(String, i64), ValueError> {
    let (key, value) = pair(text)?;
    if !["cpu", "memory", "ephemeral-storage", "pid"].contains(&key.as_str()) {
        return Err(ValueError::Resource { key });
    }
    let amount = if key == "cpu" { amount::parse_millis(&value) } else { amount::parse_units(&value) };
    match amount.filter(|amount| *amount >= 0) {
        Some(amount) => Ok((key, amount)),
        None => Err(ValueError::Quantity { text: value }),
    }
}

/// `10Mi`.
pub fn bytes(text: &str) -> Result<u64, ValueError> {
    let amount = amount::parse_units(text).and_then(|amount| u64::try_from(amount).ok());
    amount.filter(|amount| *amount > 0).ok_or_else(|| ValueError::Quantity { text: text.to_owned() })
}

/// `Authorization:Bearer x`. The value is not shown in logs.
pub fn header(text: &str) -> Result<(HeaderName, HeaderValue), ValueError> {
    let (name, value) = text.split_once(':').ok_or(ValueError::Header)?;
    let name = name.trim().parse().map_err(|_| ValueError::Header)?;
    let mut value: HeaderValue = value.trim().parse().map_err(|_| ValueError::Header)?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// `90s`, `1.5ms`, `1h30m`, as Go reads durations, but not negative.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let nanos = parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| ValueError::Duration { text: text.to_owned() })
}

/// `5m` for what Go writes as `5m0s`.
fn short(duration: &Duration) -> String {
    let text = go_duration(*duration);
    text.strip_suffix("m0s").map_or(text.clone(), |minutes| format!("{minutes}m"))
}

/// A duration within limits, which belong to the range.
fn duration_between(text: &str, least: Duration, most: Duration) -> Result<Duration, ValueError> {
    let value = duration(text)?;
    let range = || ValueError::Range { text: text.to_owned(), least, most };
    Some(value).filter(|value| (least..=most).contains(value)).ok_or_else(range)
}

/// `30s`, up to the default of 5 minutes.
pub fn crash_loop_max(text: &str) -> Result<Duration, ValueError> {
    duration_between(text, Duration::from_secs(1), backoff::LONGEST)
}

/// `20ms`: what the kernel takes as the period of a quota.
pub fn cpu_cfs_quota_period(text: &str) -> Result<Duration, ValueError> {
    duration_between(text, Duration::from_millis(1), Duration::from_secs(1))
}

/// `1000=30s`.
pub fn shutdown_group(text: &str) -> Result<Group, ValueError> {
    let (priority, period) = text.split_once('=').ok_or(ValueError::ShutdownGroup)?;
    let priority = priority.trim().parse().map_err(|_| ValueError::ShutdownGroup)?;
    Ok(Group { priority, period: duration(period.trim())? })
}

/// `8Mi`; 0 is allowed.
pub fn bytes_or_none(text: &str) -> Result<u64, ValueError> {
    let amount = amount::parse_units(text).and_then(|amount| u64::try_from(amount).ok());
    amount.ok_or_else(|| ValueError::Quantity { text: text.to_owned() })
}

/// `key=value:effect`.
pub fn taint(text: &str) -> Result<String, ValueError> {
    parse_taint(text).filter(|taint| !taint.key.is_empty()).map(|_| text.to_owned()).ok_or(ValueError::Taint)
}

/// An address of the node.
pub fn address(text: &str) -> Result<String, ValueError> {
    let address: IpAddr = text.parse().map_err(|source| ValueError::Address { source })?;
    Ok(address.to_string())
}

/// An address and port, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOrNone(pub Option<SocketAddr>);

/// `0.0.0.0:10256`; empty is none.
pub fn socket_or_none(text: &str) -> Result<SocketOrNone, ValueError> {
    match text {
        "" => Ok(SocketOrNone(None)),
        text => text.parse().map(|at| SocketOrNone(Some(at))).map_err(|source| ValueError::Socket { source }),
    }
}

/// Eviction thresholds by signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds(pub BTreeMap<String, Threshold>);

/// `memory.available<100Mi,nodefs.available<10%`.
pub fn thresholds(text: &str) -> Result<Thresholds, ValueError> {
    Ok(Thresholds(parse_thresholds(text)?))
}

/// `memory.available=200Mi,nodefs.available=5%`.
pub fn reclaims(text: &str) -> Result<Thresholds, ValueError> {
    Ok(Thresholds(parse_reclaims(text)?))
}

/// Grace periods of eviction thresholds by signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graces(pub BTreeMap<String, Duration>);

/// `memory.available=90s,nodefs.available=2m`.
pub fn graces(text: &str) -> Result<Graces, ValueError> {
    let form = "signal=duration, such as memory.available=90s";
    Ok(Graces(by_signal(text, '=', form, |text| duration(text).map_err(|_| None))?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::cli::Cli;
    use clap::Parser as _;

    fn said(flag: &str, value: &str) -> String {
        let result = Cli::try_parse_from(["coracle-agent", "run", "--kubeconfig", "k", flag, value]);
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn durations_are_read_to_the_nanosecond() {
        for (text, nanos) in [
            ("1.5ms", Some(1_500_000)),
            ("100000us", Some(100_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("2m0.25s", Some(120_250_000_000)),
            ("0", Some(0)),
            ("-1s", None),
            ("10", None),
            ("", None),
        ] {
            let read = super::duration(text).ok().map(|duration| duration.as_nanos());
            assert_eq!(read, nanos, "{text}");
        }
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        for (flag, value, part) in [
            ("--cpu-manager-policy", "static", ""),
            ("--cpu-manager-policy", "none", ""),
            ("--cpu-manager-policy", "Static", "[possible values: none, static]"),
            ("--cpu-manager-policy", "anything", "[possible values: none, static]"),
            ("--memory-manager-policy", "static", ""),
            ("--topology-manager-policy", "single-numa-node", ""),
            (
                "--topology-manager-policy",
                "strict",
                "[possible values: none, best-effort, restricted, single-numa-node]",
            ),
            ("--topology-manager-scope", "pod", ""),
            ("--topology-manager-scope", "node", "[possible values: container, pod]"),
            ("--image-pull-credentials-verification-policy", "AlwaysVerify", ""),
            ("--image-pull-credentials-verification-policy", "Sometimes", "NeverVerifyPreloadedImages"),
            ("--preloaded-images-verification-allowlist", "nginx,registry.example/team/*", ""),
            ("--preloaded-images-verification-allowlist", "nginx,registry.example/app:1", "has a tag"),
            ("--reserved", "cpu=100m,memory=256Mi", ""),
            ("--reserved", "cpu=lots", "is not a quantity"),
            ("--reserved", "gpu=1", "cannot be reserved"),
            ("--reserved", "memory", "key=value"),
            ("--node-labels", "a=b,c=", ""),
            ("--node-labels", "a", "key=value"),
            ("--register-with-taints", "a=b:NoSchedule,c:NoExecute", ""),
            ("--register-with-taints", "a=b", "key=value:effect"),
            ("--node-ip", "192.0.2.1", ""),
            ("--node-ip", "node1", "not an IP address"),
            ("--container-log-max-size", "10Mi", ""),
            ("--container-log-max-size", "ten", "is not a quantity"),
            ("--trace-size", "0", ""),
            ("--trace-size", "8Mi", ""),
            ("--trace-size", "lots", "is not a quantity"),
            ("--eviction-hard", "memory.available<1Mi,imagefs.available<15%", ""),
            ("--eviction-hard", "allocatableMemory.available<1Mi", ""),
            ("--image-gc-high-threshold", "100", ""),
            ("--image-gc-high-threshold", "101", "101"),
            ("--image-minimum-gc-age", "1h30m", ""),
            ("--image-minimum-gc-age", "500ms", ""),
            ("--image-minimum-gc-age", "1.5h", ""),
            ("--image-minimum-gc-age", "0", ""),
            ("--image-minimum-gc-age", "2", "is not a duration"),
            ("--image-maximum-gc-age", "2d", "is not a duration"),
            ("--image-maximum-gc-age", "99999999999999999999h", "is not a duration"),
            ("--crash-loop-back-off-max", "1s", ""),
            ("--crash-loop-back-off-max", "5m", ""),
            ("--crash-loop-back-off-max", "999ms", "999ms must be between 1s and 5m"),
            ("--crash-loop-back-off-max", "5m1s", "5m1s must be between 1s and 5m"),
            ("--crash-loop-back-off-max", "30", "is not a duration"),
            ("--cpu-cfs-quota-period", "1ms", ""),
            ("--cpu-cfs-quota-period", "1s", ""),
            ("--cpu-cfs-quota-period", "1.5ms", ""),
            ("--cpu-cfs-quota-period", "1500us", ""),
            ("--cpu-cfs-quota-period", "100000µs", ""),
            ("--cpu-cfs-quota-period", "500us", "500us must be between 1ms and 1s"),
            ("--cpu-cfs-quota-period", "0ms", "0ms must be between 1ms and 1s"),
            ("--cpu-cfs-quota-period", "1001ms", "1001ms must be between 1ms and 1s"),
            ("--cpu-cfs-quota", "false", ""),
            ("--cpu-cfs-quota", "off", "[possible values: true, false]"),
            ("--shutdown-grace-period-by-pod-priority", "0=10s,100000=1m,-5=2s", ""),
            ("--shutdown-grace-period-by-pod-priority", "0=10", "is not a duration"),
            ("--shutdown-grace-period-by-pod-priority", "high=10s", "PRIORITY=DURATION"),
            ("--default-seccomp-profile", "Unconfined", ""),
            ("--default-seccomp-profile", "Localhost", "[possible values: RuntimeDefault, Unconfined]"),
            ("--memory-swap-behavior", "LimitedSwap", ""),
            ("--memory-swap-behavior", "UnlimitedSwap", "[possible values: NoSwap, LimitedSwap]"),
            ("--proxy-healthz-bind-address", "", ""),
            ("--proxy-healthz-bind-address", "127.0.0.1:10256", ""),
            ("--proxy-healthz-bind-address", "10256", "address:port"),
            ("--eviction-hard", "", ""),
            ("--eviction-hard", "memory.available<lots", "memory.available<lots"),
            ("--eviction-hard", "memory.availabel<100Mi", "memory.availabel"),
            ("--eviction-soft", "memory.available<1Gi,imagefs.inodesFree<10%", ""),
            ("--eviction-soft", "memory.available=1Gi", "signal<quantity or signal<percent%"),
            ("--eviction-soft-grace-period", "memory.available=1m30s,pid.available=0s", ""),
            ("--eviction-soft-grace-period", "memory.available=90", "signal=duration"),
            ("--eviction-soft-grace-period", "memory.free=90s", "unknown eviction signal"),
            ("--eviction-minimum-reclaim", "memory.available=0,imagefs.available=5%", ""),
            ("--eviction-minimum-reclaim", "memory.available=-1", "a quantity must not be negative"),
            ("--eviction-max-pod-grace-period", "-1", ""),
            ("--eviction-max-pod-grace-period", "30s", "invalid digit"),
        ] {
            let said = said(flag, value);
            assert_eq!(said.is_empty(), part.is_empty(), "{flag} {value}: {said}");
            assert!(said.contains(part), "{flag} {value}: {said}");
        }
    }
}
