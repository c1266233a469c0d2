//! `format.NAME()` and `format.named('NAME')`: named formats of text, with `validate`.

use super::arguments::{Answer, Args, Function, anything, give_value, optional, text, unfit, value};
use super::go_url::GoUrl;
use cel::common::types::DYN_TYPE;
use cel::objects::Opaque;
use cel::{DeclarationError, Env, Value};
use coracle_proto::names;
use std::sync::{Arc, LazyLock};

/// What is wrong with a text.
type Check = fn(&str) -> Vec<String>;

/// The formats, by the names of their functions.
static FORMATS: [(&str, Check); 13] = [
    ("dns1123Label", names::dns1123_label),
    ("dns1123Subdomain", names::dns1123_subdomain),
    ("dns1035Label", names::dns1035_label),
    ("qualifiedName", names::qualified_name),
    ("dns1123LabelPrefix", |text| names::dns1123_label(&names::mask_trailing_dash(text))),
    ("dns1123SubdomainPrefix", |text| names::dns1123_subdomain(&names::mask_trailing_dash(text))),
    ("dns1035LabelPrefix", |text| names::dns1035_label(&names::mask_trailing_dash(text))),
    ("labelValue", names::label_value),
    ("uri", |text| match GoUrl::of_request(text) {
        Ok(_) => Vec::new(),
        Err(error) => vec![format!("parse {text:?}: {error}")],
    }),
    ("uuid", |text| because(UUID.is_match(text), "does not match the UUID format")),
    ("byte", |text| because(BASE64.is_match(text), "invalid base64")),
    ("date", |text| because(is_date(text), "invalid date")),
    ("datetime", |text| because(is_datetime(text), "invalid datetime")),
];

static UUID: LazyLock<regex::Regex> =
    LazyLock::new(|| known("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static BASE64: LazyLock<regex::Regex> = LazyLock::new(|| {
    known("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
});
static TIME: LazyLock<regex::Regex> =
    LazyLock::new(|| known("^([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})$"));

fn known(pattern: &str) -> regex::Regex {
    regex::Regex::new(pattern).expect("a pattern of this file is one")
}

fn because(is_fine: bool, why: &str) -> Vec<String> {
    if is_fine { Vec::new() } else { vec![why.to_owned()] }
}

fn is_date(text: &str) -> bool {
    let digits = |part: &str, count: usize| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    if !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
        return false;
    }
    let number = |part: &str| part.parse::<u32>().unwrap_or(0);
    let (year, month, day) = (number(year), number(month), number(day));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

fn is_datetime(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME.captures(time) else { return false };
    is_date(date) && &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

/// A format.
#[derive(Debug, PartialEq, Eq)]
struct Format(&'static str);

impl Opaque for Format {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.NamedFormat"
    }
}

fn format<'b, 'v>(name: &'static str) -> Answer<'b, 'v> {
    give_value(Value::Opaque(Arc::new(Format(name))))
}

/// One function for each, because a function does not know by which name it was called.
const CONSTANTS: [(&str, Function); 13] = [
    ("format.dns1123Label", |_| format("dns1123Label")),
    ("format.dns1123Subdomain", |_| format("dns1123Subdomain")),
    ("format.dns1035Label", |_| format("dns1035Label")),
    ("format.qualifiedName", |_| format("qualifiedName")),
    ("format.dns1123LabelPrefix", |_| format("dns1123LabelPrefix")),
    ("format.dns1123SubdomainPrefix", |_| format("dns1123SubdomainPrefix")),
    ("format.dns1035LabelPrefix", |_| format("dns1035LabelPrefix")),
    ("format.labelValue", |_| format("labelValue")),
    ("format.uri", |_| format("uri")),
    ("format.uuid", |_| format("uuid")),
    ("format.byte", |_| format("byte")),
    ("format.date", |_| format("date")),
    ("format.datetime", |_| format("datetime")),
];

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    for (name, function) in CONSTANTS {
        env.add_overload(name, name, Vec::new(), function)?;
    }
    env.add_overload("format.named", "format_named", anything(1), |args| {
        let name = text(&args, 0)?;
        let found = FORMATS.iter().find(|(known, _)| *known == name);
        give_value(optional(found.map(|&(known, _)| Value::Opaque(Arc::new(Format(known))))))
    })?;
    env.add_member_overload("validate", "format_validate", DYN_TYPE, anything(1), |args| validate(&args))
}

fn validate<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    let format: Value = value(args, 0)?;
    let check = match &format {
        Value::Opaque(opaque) => opaque.downcast_ref::<Format>().and_then(|Format(name)| check(name)),
        _ => None,
    };
    let check: Check = check.ok_or_else(|| unfit("kubernetes.NamedFormat"))?;
    let errors = check(&text(args, 1)?);
    let errors =
        (!errors.is_empty()).then(|| Value::List(Arc::new(errors.into_iter().map(Value::from).collect())));
    give_value(optional(errors))
}

fn check(name: &str) -> Option<Check> {
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, check)| *check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_upstream() {
        for (format, good, bad) in [
            ("dns1123Label", "a-1", "A"),
            ("dns1123Subdomain", "a.b", "a..b"),
            ("dns1035Label", "a1", "1a"),
            ("qualifiedName", "example.com/Name", "a/b/c"),
            ("dns1123LabelPrefix", "a-", "-"),
            ("dns1123SubdomainPrefix", "a.b-", "-."),
            ("dns1035LabelPrefix", "a-", "1a-"),
            ("labelValue", "", "-a"),
            ("uri", "https://a/b", "a b"),
            ("uri", "/path", "path"),
            ("uuid", "6BA7B810-9dad-11d1-80b4-00c04fd430c8", "6ba7b810"),
            ("byte", "YQ==", "YQ="),
            ("date", "2024-02-29", "2023-02-29"),
            ("datetime", "2024-02-29T23:59:59.5Z", "2024-02-29T24:00:00Z"),
            ("datetime", "2024-02-29t00:00:00+01:00", "2024-02-29"),
        ] {
            let check = check(format).expect("a format");
            assert!(check(good).is_empty(), "{format} {good}: {:?}", check(good));
            assert!(!check(bad).is_empty(), "{format} {bad}");
        }
    }

    #[test]
    fn every_format_has_its_function() {
        let functions: Vec<&str> =
            CONSTANTS.iter().filter_map(|(name, _)| name.strip_prefix("format.")).collect();
        let formats: Vec<&str> = FORMATS.iter().map(|(name, _)| *name).collect();
        assert_eq!(functions, formats);
    }
}
