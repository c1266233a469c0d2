//! Limits of a pod's traffic, from its annotations.

use std::collections::HashMap;

use coracle_proto::quantity::{Quantity, QuantityError};

use super::cni::Bandwidth;

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";
/// Rates that Kubernetes calls reasonable, in bits per second.
const LEAST: i64 = 1_000;
const MOST: i64 = 1_000_000_000_000_000;

/// Why an annotation is no limit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BandwidthError {
    #[error("annotation {key}: {value:?} is not a quantity")]
    Quantity { key: &'static str, value: String, source: QuantityError },
    #[error("annotation {key}: {value:?} is unreasonably small (< 1kbit)")]
    Small { key: &'static str, value: String },
    #[error("annotation {key}: {value:?} is unreasonably large (> 1Pbit)")]
    Large { key: &'static str, value: String },
}

/// The limits of a pod with these annotations.
pub(crate) fn of(annotations: &HashMap<String, String>) -> Result<Option<Bandwidth>, BandwidthError> {
    let (ingress, egress) = (rate(annotations, INGRESS)?, rate(annotations, EGRESS)?);
    Ok((ingress.is_some() || egress.is_some())
        .then(|| Bandwidth { ingress: ingress.unwrap_or_default(), egress: egress.unwrap_or_default() }))
}

fn rate(annotations: &HashMap<String, String>, key: &'static str) -> Result<Option<u64>, BandwidthError> {
    let Some(value) = annotations.get(key) else { return Ok(None) };
    let value = value.clone();
    match value.parse::<Quantity>() {
        Err(source) => Err(BandwidthError::Quantity { key, value, source }),
        Ok(quantity) if quantity.value() < LEAST => Err(BandwidthError::Small { key, value }),
        Ok(quantity) if quantity.value() > MOST => Err(BandwidthError::Large { key, value }),
        Ok(quantity) => Ok(Some(quantity.value().unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(all: &[(&str, &str)]) -> Result<Option<Bandwidth>, String> {
        let all = all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        of(&all).map_err(|why| why.to_string())
    }

    #[test]
    fn annotations_are_limits() {
        assert_eq!(read(&[("other", "1")]), Ok(None));
        assert_eq!(read(&[(INGRESS, "10M")]), Ok(Some(Bandwidth { ingress: 10_000_000, egress: 0 })));
        let both = [(INGRESS, "1Ki"), (EGRESS, "1.5G")];
        assert_eq!(read(&both), Ok(Some(Bandwidth { ingress: 1024, egress: 1_500_000_000 })));
        for (value, why) in [
            ("fast", "not a quantity"),
            ("", "not a quantity"),
            ("999", "small"),
            ("-1M", "small"),
            ("2P", "large"),
        ] {
            let said = read(&[(EGRESS, value)]).unwrap_err();
            assert!(said.contains(EGRESS) && said.contains(why), "{said}");
        }
    }
}
