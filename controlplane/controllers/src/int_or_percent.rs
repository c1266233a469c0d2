//! A number or a percentage: `maxSurge: 25%`, `minAvailable: 2`.

use coracle_fields::{FromField, IntOrString};
use serde::Deserialize;

/// An `intstr.IntOrString` that stands for a share of a total.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    /// A number.
    Number(i32),
    /// Text such as `25%`.
    Text(String),
}

impl FromField<IntOrString> for IntOrPercent {}

/// Which way a share that is not whole goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// To the next higher number.
    Up,
    /// To the next lower number.
    Down,
}

impl IntOrPercent {
    /// The share of `total`; `None` for text that is no percentage.
    pub fn of(&self, total: i32, round: Round) -> Option<i32> {
        match self {
            Self::Number(n) => Some(*n),
            Self::Text(text) => {
                let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
                let share = percent.saturating_mul(i64::from(total));
                let whole = match round {
                    Round::Up => share.saturating_add(99).div_euclid(100),
                    Round::Down => share.div_euclid(100),
                };
                i32::try_from(whole).ok()
            }
        }
    }

    /// Whether it is a percentage.
    pub fn is_percent(&self) -> bool {
        matches!(self, Self::Text(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_as_asked() {
        let text = |t: &str| IntOrPercent::Text(t.into());
        for (amount, total, round, want) in [
            (IntOrPercent::Number(3), 10, Round::Up, Some(3)),
            (text("25%"), 10, Round::Up, Some(3)),
            (text("25%"), 10, Round::Down, Some(2)),
            (text("100%"), 7, Round::Down, Some(7)),
            (text("0%"), 7, Round::Up, Some(0)),
            (text("1%"), 1, Round::Up, Some(1)),
            (text("many"), 7, Round::Up, None),
        ] {
            assert_eq!(amount.of(total, round), want, "{amount:?} of {total}");
        }
    }
}
