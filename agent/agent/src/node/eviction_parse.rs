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
    /// Not a signal with a value.
    #[error("{text:?} is not of the form {form}")]
    Form {
        /// The part of the list as given.
        text: String,
        /// What it should be.
        form: &'static str,
    },
    /// A value that makes no sense.
    #[error("{text:?}: {why}")]
    Value {
        /// The part of the list as given.
        text: String,
        /// What is wrong with its value.
        why: &'static str,
    },
}

/// What is wrong with a value: nothing is said of one that is not understood at all.
pub type Wrong = Option<&'static str>;

/// A list of values by signal, which `separator` separates. `value` reads one.
pub fn by_signal<T>(
    text: &str,
    separator: char,
    form: &'static str,
    value: impl Fn(&str) -> Result<T, Wrong>,
) -> Result<BTreeMap<String, T>, ThresholdError> {
    let one = |part: &str| {
        let wrong = |why: Wrong| {
            let text = part.to_owned();
            why.map_or(ThresholdError::Form { text: text.clone(), form }, |why| ThresholdError::Value {
                text,
                why,
            })
        };
        let (signal, text) = part.split_once(separator).ok_or_else(|| wrong(None))?;
        if !SIGNALS.contains(&signal) {
            return Err(ThresholdError::Signal { signal: signal.to_owned() });
        }
        Ok((signal.to_owned(), value(text).map_err(wrong)?))
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(one).collect()
}

/// A quantity, or a part of the whole in percent.
fn part(text: &str) -> Result<Threshold, Wrong> {
    match text.strip_suffix('%') {
        Some(percent) => match percent.parse().map_err(|_| Wrong::None)? {
            percent if (0.0..=100.0).contains(&percent) => Ok(Threshold::Percent(percent)),
            _ => Err(Some("a percentage must be from 0% to 100%")),
        },
        None => match amount::parse_units(text).ok_or(Wrong::None)? {
            ..0 => Err(Some("a quantity must not be negative")),
            amount => Ok(Threshold::Amount(amount)),
        },
    }
}

/// Nothing is ever less than 0 bytes: who says so means something else.
fn threshold(text: &str) -> Result<Threshold, Wrong> {
    match part(text)? {
        Threshold::Amount(0) => Err(Some("a quantity must be more than 0; 0% switches a threshold off")),
        threshold => Ok(threshold),
    }
}

/// `memory.available<100Mi,nodefs.available<10%,…`.
pub fn parse_thresholds(text: &str) -> Result<BTreeMap<String, Threshold>, ThresholdError> {
    by_signal(text, '<', "signal<quantity or signal<percent%", threshold)
}

/// `memory.available=100Mi,nodefs.available=5%,…`.
pub fn parse_reclaims(text: &str) -> Result<BTreeMap<String, Threshold>, ThresholdError> {
    let some = |text: &str| match part(text)? {
        Threshold::Percent(0.0) => Err(Some("a percentage must be more than 0%")),
        part => Ok(part),
    };
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
        let value = |text: &str, why: &'static str| -> Parsed {
            Err(ThresholdError::Value { text: text.to_owned(), why })
        };
        let (memory, node) = ("memory.available", "nodefs.available");
        let both = || list(&[(memory, Threshold::Amount(100 << 20)), (node, Threshold::Percent(10.0))]);
        let less = "signal<quantity or signal<percent%";
        for (text, want) in [
            ("", list(&[])),
            ("memory.available<100Mi,nodefs.available<10%", both()),
            ("nodefs.available<10%,nonsense", form("nonsense", less)),
            ("memory.available=100Mi", form("memory.available=100Mi", less)),
            ("memory.available<-1", value("memory.available<-1", "a quantity must not be negative")),
            (
                "memory.available<0",
                value("memory.available<0", "a quantity must be more than 0; 0% switches a threshold off"),
            ),
            ("nodefs.available<101%", value("nodefs.available<101%", "a percentage must be from 0% to 100%")),
            ("nodefs.available<x%", form("nodefs.available<x%", less)),
            ("disk.available<1", Err(ThresholdError::Signal { signal: "disk.available".to_owned() })),
        ] {
            assert_eq!(parse_thresholds(text), want, "{text}");
        }
        let equal = "signal=quantity or signal=percent%";
        for (text, want) in [
            ("memory.available=100Mi, nodefs.available=10%", both()),
            ("memory.available=0", list(&[(memory, Threshold::Amount(0))])),
            ("memory.available=0%", value("memory.available=0%", "a percentage must be more than 0%")),
            ("memory.available<1Mi", form("memory.available<1Mi", equal)),
        ] {
            assert_eq!(parse_reclaims(text), want, "{text}");
        }
    }
}
