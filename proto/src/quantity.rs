//! Resource quantities: `100m`, `1.5Gi`, `12e6`. Exact to a billionth; smaller fractions are rounded up, away from
//! zero.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// How a quantity is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `12e6`.
    DecimalExponent,
    /// `12Mi`.
    BinarySi,
    /// `12M`.
    DecimalSi,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is not one.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANO: i128 = 1_000_000_000;
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;

/// An amount. Comparison is by value; the text a client wrote is kept where it is canonical already.
///
/// ```
/// use coracle_proto::quantity::{Quantity, QuantityError};
/// let (tenth, half): (Quantity, Quantity) = ("100m".parse()?, "0.5".parse()?);
/// assert!(tenth < half);
/// assert_eq!(half.to_string(), "500m");
/// # Ok::<(), QuantityError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    text: Option<Box<str>>,
}

impl Quantity {
    /// A whole number.
    pub fn new(value: i64, format: Format) -> Self {
        Self { nanos: i128::from(value) * NANO, format, text: None }
    }

    /// Thousandths.
    pub fn milli(value: i64, format: Format) -> Self {
        Self { nanos: i128::from(value) * (NANO / 1000), format, text: None }
    }

    /// Zero, printed as a decimal.
    pub fn zero() -> Self {
        Self::new(0, Format::DecimalSi)
    }

    /// How it is printed.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        self.nanos.signum() as i32
    }

    /// The whole number, fractions away from zero, at the bounds of 64 bits when it is beyond.
    pub fn value(&self) -> i64 {
        clamp(round_away(self.nanos, NANO))
    }

    /// In thousandths, with the same rounding.
    pub fn milli_value(&self) -> i64 {
        clamp(round_away(self.nanos, NANO / 1000))
    }

    /// As a float, for scores and metrics.
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Adds; zero takes over the format of what is added.
    pub fn add(&mut self, other: &Quantity) {
        self.take_format(other);
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// Subtracts; zero takes over the format of what is subtracted.
    pub fn sub(&mut self, other: &Quantity) {
        self.take_format(other);
        self.nanos = self.nanos.saturating_sub(other.nanos);
    }

    /// Multiplies by a whole number.
    pub fn mul(&mut self, by: i64) {
        self.text = None;
        self.nanos = self.nanos.saturating_mul(i128::from(by));
    }

    fn take_format(&mut self, other: &Quantity) {
        self.text = None;
        if self.is_zero() {
            self.format = other.format;
        }
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn round_away(value: i128, unit: i128) -> i128 {
    value / unit + if value % unit == 0 { 0 } else { value.signum() }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The parts of a text: sign, whole digits without leading zeros, digits after the point, suffix.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
    let digits = |s: &str| s.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(s.len());
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if exponent.bytes().any(|b| !b.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    Ok(Parts { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
}

/// Base, exponent and format of a suffix.
fn interpret(suffix: &str) -> Result<(u32, i32, Format), QuantityError> {
    let decimal = |exponent| Ok((10, exponent, Format::DecimalSi));
    let binary = |exponent| Ok((2, exponent, Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).and_then(|e| e.parse::<i32>().ok());
            exponent.map(|e| (10, e, Format::DecimalExponent)).ok_or(QuantityError::Suffix)
        }
    }
}

/// `digits` times `unit`, saturating.
fn scaled(digits: &str, unit: i128) -> i128 {
    let number = digits.bytes().fold(0i128, |n, b| n.saturating_mul(10).saturating_add(i128::from(b - b'0')));
    number.saturating_mul(unit)
}

fn decimal_nanos(whole: &str, fraction: &str, exponent: i32) -> i128 {
    let digits = format!("{whole}{fraction}");
    let shift = i64::from(exponent) - fraction.len() as i64 + 9;
    if shift >= 0 {
        let unit = u32::try_from(shift).ok().and_then(|s| 10i128.checked_pow(s));
        return if digits.bytes().all(|b| b == b'0') {
            0
        } else {
            scaled(&digits, unit.unwrap_or(i128::MAX))
        };
    }
    let keep = digits.len().saturating_sub(usize::try_from(-shift).unwrap_or(usize::MAX));
    let (kept, dropped) = digits.split_at(keep);
    scaled(kept, 1).saturating_add(i128::from(dropped.bytes().any(|b| b != b'0')))
}

fn binary_nanos(whole: &str, fraction: &str, exponent: i32) -> i128 {
    let unit = (1i128 << exponent) * NANO;
    let (mut part, mut inexact) = (0i128, false);
    for digit in fraction.bytes().rev() {
        let sum = i128::from(digit - b'0') * unit + part;
        inexact |= sum % 10 != 0;
        part = sum / 10;
    }
    scaled(whole, unit).saturating_add(part).saturating_add(i128::from(inexact))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = split(text)?;
        let (base, exponent, mut format) = interpret(parts.suffix)?;
        let Parts { whole, fraction, .. } = parts;
        if !text.bytes().any(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Numeric);
        }
        let (mut nanos, canonical) = if base == 10 {
            let scale = i64::from(exponent) - fraction.len() as i64;
            let shifted = if fraction.is_empty() { whole.to_owned() } else { format!("{whole}{fraction}") };
            let canonical = shifted.len() <= 18
                && scale >= -9
                && scale % 3 == 0
                && !shifted.ends_with("000")
                && !shifted.starts_with('0');
            (decimal_nanos(whole, fraction, exponent), canonical)
        } else {
            let fast = fraction.is_empty() && 14 - whole.len() as i32 - exponent * 3 / 10 >= 0;
            let canonical = fast && scaled(whole, 1) & 7 != 0;
            (binary_nanos(whole, fraction, exponent), canonical)
        };
        if format == Format::BinarySi {
            nanos = nanos.min(MAX_BINARY);
            if nanos > 0 && nanos < NANO {
                format = Format::DecimalSi;
            }
        }
        if parts.negative {
            nanos = -nanos;
        }
        Ok(Self { nanos, format, text: canonical.then(|| text.into()) })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        let whole = self.nanos % NANO == 0;
        let small = self.nanos.abs() < 1024 * NANO;
        if self.format == Format::BinarySi && whole && !small {
            let (mut amount, mut thousands) = (self.nanos / NANO, 0);
            while amount % 1024 == 0 && thousands < 6 {
                amount /= 1024;
                thousands += 1;
            }
            return write!(f, "{amount}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][thousands]);
        }
        let (mut amount, mut exponent) = (self.nanos, -9i32);
        while amount % 1000 == 0 && (exponent < 18 || self.format == Format::DecimalExponent) {
            amount /= 1000;
            exponent += 3;
        }
        match (self.format, exponent) {
            (_, 0) => write!(f, "{amount}"),
            (Format::DecimalExponent, _) => write!(f, "{amount}e{exponent}"),
            _ => {
                let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][(exponent / 3 + 3) as usize];
                write!(f, "{amount}{suffix}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn texts_become_canonical() {
        for (text, canonical) in [
            ("0", "0"),
            ("0Ki", "0"),
            ("000", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("100m", "100m"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("0.0001", "100u"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1000Mi", "1000Mi"),
            ("100Mi", "100Mi"),
            ("1Ki", "1Ki"),
            ("512Ki", "512Ki"),
            ("0.5Mi", "512Ki"),
            ("0.1Ki", "102400m"),
            ("1.1Ki", "1126400m"),
            ("1000", "1k"),
            ("12000000", "12M"),
            ("12e6", "12e6"),
            ("12E6", "12E6"),
            ("1200e4", "12e6"),
            ("1e-3", "1e-3"),
            ("1e-10", "1e-9"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("-1.5", "-1500m"),
            ("-0.5Gi", "-512Mi"),
            ("9Ei", "9223372036854775807"),
            ("1G", "1G"),
            ("1E", "1E"),
            ("10k", "10k"),
            ("1.0", "1"),
            ("250.5m", "250500u"),
        ] {
            assert_eq!(q(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for (text, why) in [
            ("", QuantityError::Format),
            ("1.1.M", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("1+1.0M", QuantityError::Format),
            ("a", QuantityError::Format),
            ("1mm", QuantityError::Suffix),
            ("1K", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1Mi5", QuantityError::Suffix),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn values_round_away_from_zero() {
        assert_eq!(q("1500m").value(), 2);
        assert_eq!(q("-1500m").value(), -2);
        assert_eq!(q("1.0005").milli_value(), 1001);
        assert_eq!(q("1Ei").value(), 1 << 60);
        assert!(q("1Gi") > q("1G") && q("1000m") == q("1") && q("0.1") < q("101m"));
    }

    #[test]
    fn zero_takes_the_format_of_what_is_added() {
        let mut sum = Quantity::zero();
        sum.add(&q("512Mi"));
        sum.add(&q("512Mi"));
        assert_eq!(sum.to_string(), "1Gi");
        sum.sub(&q("1Gi"));
        assert_eq!(sum.to_string(), "0");
    }

    proptest! {
        #[test]
        fn printing_keeps_the_value(number in -1_000_000_000_000i64..1_000_000_000_000, point in 0usize..12,
                                    suffix in prop::sample::select(vec!["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-2"])) {
            let mut text = number.unsigned_abs().to_string();
            if point > 0 && point < text.len() {
                text.insert(point, '.');
            }
            let parsed = q(&format!("{}{text}{suffix}", if number < 0 { "-" } else { "" }));
            let printed = parsed.to_string();
            prop_assert_eq!(&q(&printed), &parsed);
            prop_assert_eq!(q(&printed).to_string(), printed);
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.eEinumkKMGTPx]{0,24}") {
            if let Ok(parsed) = text.parse::<Quantity>() {
                let _ = (parsed.to_string(), parsed.value(), parsed.milli_value());
            }
        }

        #[test]
        fn adding_and_comparing_agree(a in -1_000_000i64..1_000_000, b in 1i64..1_000_000) {
            let (low, step) = (Quantity::milli(a, Format::DecimalSi), Quantity::milli(b, Format::DecimalSi));
            let mut high = low.clone();
            high.add(&step);
            prop_assert!(high > low);
            high.sub(&step);
            prop_assert_eq!(high, low);
        }
    }
}
