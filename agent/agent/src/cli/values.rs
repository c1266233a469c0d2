//! Parsers of option values: invalid values are rejected at the start.

use std::collections::BTreeMap;
use std::net::{AddrParseError, IpAddr};

use crate::config::Threshold;
use crate::node::eviction_signals::{ThresholdError, parse_thresholds};
use crate::node::object::parse_taint;
use crate::pod::amount;

/// CPU manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CpuPolicy {
    /// Any.
    #[default]
    None,
    /// Whole cpus of their own for Guaranteed pods that ask for whole cpus.
    Static,
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

/// Eviction thresholds by signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds(pub BTreeMap<String, Threshold>);

/// `memory.available<100Mi,nodefs.available<10%`.
pub fn thresholds(text: &str) -> Result<Thresholds, ValueError> {
    Ok(Thresholds(parse_thresholds(text)?))
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
    fn values_that_mean_nothing_are_refused() {
        for (flag, value, part) in [
            ("--cpu-manager-policy", "static", ""),
            ("--cpu-manager-policy", "none", ""),
            ("--cpu-manager-policy", "Static", "[possible values: none, static]"),
            ("--cpu-manager-policy", "anything", "[possible values: none, static]"),
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
            ("--eviction-hard", "", ""),
            ("--eviction-hard", "memory.available<lots", "memory.available<lots"),
            ("--eviction-hard", "memory.availabel<100Mi", "memory.availabel"),
        ] {
            let said = said(flag, value);
            assert_eq!(said.is_empty(), part.is_empty(), "{flag} {value}: {said}");
            assert!(said.contains(part), "{flag} {value}: {said}");
        }
    }
}
