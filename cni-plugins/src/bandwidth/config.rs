//! The bandwidth configuration.

use serde::Deserialize;
use serde_json::Value;

use super::BandwidthError;
use crate::{
    protocol::{Call, Result},
    route::TokenBucket,
};

/// Runtimes whose user has not chosen a burst offer the largest number of an int32 or a uint32. It would be minutes of traffic at
/// common rates, and no limit for most pods.
const NO_CHOICE: u64 = i32::MAX as u64;
/// The burst where nobody has chosen one: a tenth of a second, but enough for a few large packets.
const BURSTS_PER_SECOND: u64 = 10;
const LEAST_BURST: u64 = 32 << 10;
/// How long packets may wait: 25 ms, as the plugin of the CNI project has it.
const WAITS_PER_SECOND: u64 = 40;
/// What a frame has in addition to its packet, with VLAN tags.
const FRAME_HEADER: u64 = 22;

/// A limit of one direction, in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    rate: u64,
    burst: u64,
}

/// The limits of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Of traffic towards the container.
    pub ingress: Option<Limit>,
    /// Of traffic from the container.
    pub egress: Option<Limit>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    #[serde(flatten)]
    own: Rates,
    #[serde(default)]
    runtime_config: RuntimeConfig,
    #[serde(default)]
    shaped_subnets: Value,
    #[serde(default)]
    unshaped_subnets: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeConfig {
    bandwidth: Option<Rates>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rates {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

impl Config {
    /// Reads the configuration of a call; what the runtime says of this container comes before what the network says of all.
    pub fn of(call: &Call) -> Result<Self> {
        Ok(Self::from_input(call.config_as()?)?)
    }

    fn from_input(input: Input) -> Result<Self, BandwidthError> {
        let is_set = |subnets: &Value| subnets.as_array().is_some_and(|list| !list.is_empty());
        if is_set(&input.shaped_subnets) || is_set(&input.unshaped_subnets) {
            return Err(BandwidthError::Subnets);
        }
        let rates = input.runtime_config.bandwidth.unwrap_or(input.own);
        Ok(Self {
            ingress: limit("ingress", rates.ingress_rate, rates.ingress_burst)?,
            egress: limit("egress", rates.egress_rate, rates.egress_burst)?,
        })
    }

    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

fn limit(direction: &'static str, rate: u64, burst: u64) -> Result<Option<Limit>, BandwidthError> {
    match (rate, burst) {
        (0, 0) => Ok(None),
        (0, _) => Err(BandwidthError::BurstAlone { direction }),
        // Less than a byte per second.
        (1..8, _) => Err(BandwidthError::Rate { direction, rate }),
        _ => Ok(Some(Limit { rate, burst })),
    }
}

impl Limit {
    /// The bucket for a link with packets of up to `mtu` bytes.
    pub fn bucket(&self, mtu: u32) -> TokenBucket {
        let rate = self.rate / 8;
        let burst = match self.burst {
            0 | NO_CHOICE.. => (rate / BURSTS_PER_SECOND).max(LEAST_BURST),
            bits => bits / 8,
        };
        // A packet that is larger than the bucket would never be sent.
        let burst = burst.max(u64::from(mtu) + FRAME_HEADER);
        let limit = (rate / WAITS_PER_SECOND).saturating_add(burst);
        let clamp = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        TokenBucket { rate, burst: clamp(burst), limit: clamp(limit) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn read(config: Value) -> Result<Config, BandwidthError> {
        Config::from_input(serde_json::from_value(config).unwrap())
    }

    #[test]
    fn the_runtime_comes_before_the_network() {
        let own = json!({ "name": "net", "ingressRate": 8000, "ingressBurst": 80 });
        let limit = |rate, burst| Some(Limit { rate, burst });
        assert_eq!(read(own.clone()).unwrap(), Config { ingress: limit(8000, 80), egress: None });
        let mut both = own;
        both["runtimeConfig"] = json!({ "bandwidth": { "egressRate": 9000, "egressBurst": 90 } });
        assert_eq!(read(both).unwrap(), Config { ingress: None, egress: limit(9000, 90) });
        assert!(read(json!({ "name": "net", "runtimeConfig": {} })).unwrap().is_empty());
    }

    #[test]
    fn what_makes_no_limit_is_an_error() {
        let error = |config| read(config).unwrap_err().to_string();
        assert_eq!(error(json!({ "ingressBurst": 5 })), "ingressBurst is set without ingressRate");
        assert_eq!(error(json!({ "egressRate": 7 })), "egressRate of 7 bits per second is less than a byte");
        assert!(error(json!({ "ingressRate": 8, "unshapedSubnets": ["10.0.0.0/8"] })).contains("Subnets"));
        assert!(read(json!({ "unshapedSubnets": [] })).unwrap().is_empty());
    }

    #[test]
    fn buckets() {
        for ((rate, burst), mtu, expected) in [
            ((8_000_000, 800_000), 1500, (1_000_000, 100_000, 125_000)),
            // Nobody has chosen a burst.
            ((80_000_000, 0), 1500, (10_000_000, 1_000_000, 1_250_000)),
            ((80_000_000, u64::from(u32::MAX)), 1500, (10_000_000, 1_000_000, 1_250_000)),
            ((8_000, NO_CHOICE), 1500, (1_000, 32_768, 32_793)),
            // Large packets fit in.
            ((8_000, 80), 9000, (1_000, 9_022, 9_047)),
            ((u64::MAX, u64::MAX), 1500, (u64::MAX / 8, u32::MAX, u32::MAX)),
        ] {
            let bucket = Limit { rate, burst }.bucket(mtu);
            assert_eq!((bucket.rate, bucket.burst, bucket.limit), expected, "{rate} {burst}");
        }
    }
}
