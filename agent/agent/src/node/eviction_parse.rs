//! Reads eviction thresholds, and what is said about them, by signal.

use std::collections::BTreeMap;

use super::eviction_signals::SIGNALS;
use crate::config::eviction::Threshold;
use crate::pod::amount;

/// Why a list of thresholds is not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ThresholdError {
    /// Not a signal.
    #[error("unknown eviction signal {signal:?}")]
    Signal {
        /// The signal as given.
        signal: String,
    },
    /// A signal of kubelets that this node does not measure.
    #[error("eviction signal {signal:?} is not measured: pods together are limited to what is allocatable")]
    NotMeasured {
        /// The signal as given.
        signal: String,
    },
    /// Not a signal with a value.
    #[error("{text:?} is not of the form {form}")]
    Form {
        /// The part of the list as given.
        text: String,
        /// What it should be.
        form: &'static str,
    },
}

/// A list of values by signal, which `separator` separates. `value` reads one.
pub fn by_signal<T>(
    text: &str,
    separator: char,
    form: &'static str,
    value: impl Fn(&str) -> Option<T>,
) -> Result<BTreeMap<String, T>, ThresholdError> {
    let one = |part: &str| {
        let wrong = || ThresholdError::Form { text: part.to_owned(), form };
        let (signal, text) = part.split_once(separator).ok_or_else(wrong)?;
        if signal == "allocatableMemory.available" {
            return Err(ThresholdError::NotMeasured { signal: signal.to_owned() });
        }
        if !SIGNALS.contains(&signal) {
            return Err(ThresholdError::Signal { signal: signal.to_owned() });
        }
        Ok((signal.to_owned(), value(text).ok_or_else(wrong)?))
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(one).collect()
}

/// A quantity, or a part of the whole in percent.
fn part(text: &str) -> Option<Threshold> {
    match text.strip_suffix('%') {
        Some(percent) => {
            percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).map(Threshold::Percent)
        }
        None => amount::parse_units(text).filter(|amount| *amount >= 0).map(Threshold::Amount),
    }
}

/// `memory.available<100Mi,nodefs.available<10%,…`.
pub fn parse_thresholds(text: &str) -> Result<BTreeMap<String, Threshold>, ThresholdError> {
    by_signal(text, '<', "signal<quantity or signal<percent%", part)
}

/// `memory.available=100Mi,nodefs.available=5%,…`.
pub fn parse_reclaims(text: &str) -> Result<BTreeMap<String, Threshold>, ThresholdError> {
    let some = |text: &str| part(text).filter(|part| *part != Threshold::Percent(0.0));
    by_signal(text, '=', "signal=quantity or signal=percent%", some)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parsed = Result<BTreeMap<String, Threshold>, ThresholdError>;

    #[test]
    fn lists_are_read_by_signal() {
        let list = |all: &[(&str, Threshold)]| -> Parsed {
            Ok(all.iter().map(|(signal, part)| ((*signal).to_owned(), part.clone())).collect())
        };
        let form = |text: &str, form: &'static str| -> Parsed {
            Err(ThresholdError::Form { text: text.to_owned(), form })
        };
        let (memory, node) = ("memory.available", "nodefs.available");
        let both = || list(&[(memory, Threshold::Amount(100 << 20)), (node, Threshold::Percent(10.0))]);
        let less = "signal<quantity or signal<percent%";
        for (text, want) in [
            ("", list(&[])),
            ("memory.available<100Mi,nodefs.available<10%", both()),
            ("nodefs.available<10%,nonsense", form("nonsense", less)),
            ("memory.available=100Mi", form("memory.available=100Mi", less)),
            ("memory.available<-1", form("memory.available<-1", less)),
            ("nodefs.available<101%", form("nodefs.available<101%", less)),
            ("disk.available<1", Err(ThresholdError::Signal { signal: "disk.available".to_owned() })),
        ] {
            assert_eq!(parse_thresholds(text), want, "{text}");
        }
        let equal = "signal=quantity or signal=percent%";
        for (text, want) in [
            ("memory.available=100Mi, nodefs.available=10%", both()),
            ("memory.available=0", list(&[(memory, Threshold::Amount(0))])),
            ("memory.available=0%", form("memory.available=0%", equal)),
            ("memory.available<1Mi", form("memory.available<1Mi", equal)),
        ] {
            assert_eq!(parse_reclaims(text), want, "{text}");
        }
        let refused = ThresholdError::NotMeasured { signal: "allocatableMemory.available".to_owned() };
        assert_eq!(parse_thresholds("allocatableMemory.available<1Mi"), Err(refused));
    }
}
