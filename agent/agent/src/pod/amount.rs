//! Amounts of resources as whole numbers: what cgroups and admission calculate with.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const NANO: i128 = 1_000_000_000;

/// The quantity in units, rounded up; 0 when it cannot be read (the API server validated it).
pub fn units(quantity: &Quantity) -> i64 {
    parse_units(&quantity.0).unwrap_or(0)
}

/// The quantity in thousandths, rounded up; 0 when it cannot be read.
pub fn millis(quantity: &Quantity) -> i64 {
    parse_millis(&quantity.0).unwrap_or(0)
}

/// The text in units, rounded up; `None` when it is not a quantity.
pub fn parse_units(text: &str) -> Option<i64> {
    nanos(text).map(|nanos| clamp(div_ceil(nanos, NANO)))
}

/// The text in thousandths, rounded up; `None` when it is not a quantity.
pub fn parse_millis(text: &str) -> Option<i64> {
    nanos(text).map(|nanos| clamp(div_ceil(nanos, NANO / 1000)))
}

/// The quantity in billionths; `None` when the text is not a quantity.
fn nanos(text: &str) -> Option<i128> {
    let text = text.trim();
    let split =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let base = decimal(number)?;
    let factor: (i128, i128) = match suffix {
        "" => (1, 1),
        "n" => (1, NANO),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (NANO, 1),
        "T" => (NANO * 1000, 1),
        "P" => (NANO * 1_000_000, 1),
        "E" => (NANO * NANO, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let ten = 10i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (1, ten) } else { (ten, 1) }
        }
    };
    Some(base.checked_mul(factor.0)? / factor.1)
}

fn decimal(number: &str) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut scaled: i128 = 0;
    for (place, digit) in fraction.chars().enumerate().take(9) {
        scaled += i128::from(digit.to_digit(10)?) * 10i128.pow(8 - u32::try_from(place).ok()?);
    }
    let value = whole.checked_mul(NANO)? + scaled;
    Some(if negative { -value } else { value })
}

fn div_ceil(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_suffix() {
        for (text, want_units, want_millis) in [
            ("1", 1, 1000),
            ("100m", 1, 100),
            ("1.5", 2, 1500),
            ("0.5", 1, 500),
            ("64Mi", 64 << 20, 64_000 << 20),
            ("1G", 1_000_000_000, 1_000_000_000_000),
            ("1e3", 1000, 1_000_000),
            ("12e-1", 2, 1200),
            ("250u", 1, 1),
            ("-1", -1, -1000),
            ("nonsense", 0, 0),
            ("", 0, 0),
        ] {
            let quantity = Quantity(text.into());
            assert_eq!((units(&quantity), millis(&quantity)), (want_units, want_millis), "{text}");
        }
    }
}
