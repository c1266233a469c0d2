//! `semver('1.2.3')` and what can be asked about it. Versions are read and compared as semver.org 2.0.0 says.

use super::arguments::{
    Answer, Args, Function, anything, failed, give, give_int, give_value, text, unfit, value,
};
use cel::common::types::DYN_TYPE;
use cel::objects::Opaque;
use cel::{DeclarationError, Env, ExecutionError, Value};
use std::cmp::Ordering;
use std::sync::Arc;

/// Why a text is no version.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum SemverError {
    #[error("Version string empty")]
    Empty,
    #[error("No Major.Minor.Patch elements found")]
    Elements,
    #[error("Invalid character(s) found in {0} number {1:?}")]
    Characters(&'static str, String),
    #[error("{0} number must not contain leading zeroes {1:?}")]
    LeadingZero(&'static str, String),
    #[error("{0} number {1:?} is too large")]
    TooLarge(&'static str, String),
    #[error("short version cannot contain PreRelease/Build meta data")]
    Short,
    #[error("{0} meta data is empty")]
    EmptyPart(&'static str),
}

/// An identifier of a pre-release; numbers come before texts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

/// A version. Build metadata does not count.
#[derive(Debug, Default)]
pub(super) struct Semver {
    numbers: [u64; 3],
    before: Vec<Identifier>,
}

impl Opaque for Semver {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Semver"
    }
}

impl PartialEq for Semver {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Semver {}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        // A pre-release comes before the release.
        let released = |version: &Self| version.before.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| released(self).cmp(&released(other)))
            .then_with(|| self.before.cmp(&other.before))
    }
}

impl Semver {
    fn parse(text: &str) -> Result<Self, SemverError> {
        if text.is_empty() {
            return Err(SemverError::Empty);
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(SemverError::Elements);
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, before) =
            rest.split_once('-').map_or((rest, None), |(rest, before)| (rest, Some(before)));
        for identifier in build.into_iter().flat_map(|build| build.split('.')) {
            checked("Build", identifier)?;
        }
        let before = before.into_iter().flat_map(|before| before.split('.')).map(identifier);
        Ok(Self {
            numbers: [number("Major", major)?, number("Minor", minor)?, number("Patch", patch)?],
            before: before.collect::<Result<_, _>>()?,
        })
    }

    /// Reads `v1`, `1.2` and `01.2.3`, too.
    fn normalized(text: &str) -> Result<Self, SemverError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err(SemverError::Short);
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}

fn number(what: &'static str, text: &str) -> Result<u64, SemverError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SemverError::Characters(what, text.to_owned()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(SemverError::LeadingZero(what, text.to_owned()));
    }
    text.parse().map_err(|_| SemverError::TooLarge(what, text.to_owned()))
}

fn checked(what: &'static str, text: &str) -> Result<(), SemverError> {
    if text.is_empty() {
        return Err(SemverError::EmptyPart(what));
    }
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Ok(());
    }
    Err(SemverError::Characters(what, text.to_owned()))
}

fn identifier(text: &str) -> Result<Identifier, SemverError> {
    checked("Prerelease", text)?;
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return number("Prerelease", text).map(Identifier::Number);
    }
    Ok(Identifier::Text(text.to_owned()))
}

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let global: [(&str, usize, Function); 4] = [
        ("semver", 1, |args| give_version(&args)),
        ("semver", 2, |args| give_version(&args)),
        ("isSemver", 1, |args| give(read(&args)?.is_ok())),
        ("isSemver", 2, |args| give(read(&args)?.is_ok())),
    ];
    for (name, arguments, function) in global {
        env.add_overload(name, &format!("{name}_{arguments}"), anything(arguments), function)?;
    }
    let members: [(&str, Function); 3] = [
        ("major", |args| part(&args, 0)),
        ("minor", |args| part(&args, 1)),
        ("patch", |args| part(&args, 2)),
    ];
    for (name, function) in members {
        env.add_member_overload(name, &format!("semver_{name}"), DYN_TYPE, anything(0), function)?;
    }
    Ok(())
}

fn read(args: &Args<'_, '_>) -> Result<Result<Semver, SemverError>, ExecutionError> {
    let normalizes = match args.len() {
        1 => false,
        _ => match value(args, 1)? {
            Value::Bool(normalizes) => normalizes,
            _ => return Err(unfit("bool")),
        },
    };
    let text = text(args, 0)?;
    Ok(if normalizes { Semver::normalized(&text) } else { Semver::parse(&text) })
}

fn give_version<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    let version = read(args)?.map_err(|error| failed("semver", error))?;
    give_value(Value::Opaque(Arc::new(version)))
}

fn part<'b, 'v>(args: &Args<'b, 'v>, at: usize) -> Answer<'b, 'v> {
    let number = with(&value(args, 0)?, |version| version.numbers[at]).ok_or_else(|| unfit("Semver"))?;
    give_int(i64::try_from(number).map_err(|_| failed("semver", "integer overflow"))?)
}

fn with<T>(value: &Value, work: impl FnOnce(&Semver) -> T) -> Option<T> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<Semver>().map(work),
        _ => None,
    }
}

/// The order of two versions; nothing if the first value is none.
pub(super) fn compared(args: &Args<'_, '_>) -> Result<Option<Ordering>, ExecutionError> {
    let (one, other) = (value(args, 0)?, value(args, 1)?);
    let order = with(&one, |one| with(&other, |other| one.cmp(other)));
    order.map(|order| order.ok_or_else(|| unfit("Semver"))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_semver_says() {
        let order = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.2.0",
            "1.10.0",
        ];
        let versions: Vec<Semver> = order.iter().map(|text| Semver::parse(text).expect(text)).collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        assert_eq!(Semver::parse("1.0.0+a"), Semver::parse("1.0.0+b"));
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in [
            "",
            "1",
            "1.2",
            "1.2.x",
            "01.2.3",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3+",
            "1.2.3-a_b",
            "v1.2.3",
            "99999999999999999999.0.0",
        ] {
            assert!(Semver::parse(text).is_err(), "{text}");
        }
        for (text, same) in
            [("v1.2.3", "1.2.3"), ("1", "1.0.0"), ("01.002.0", "1.2.0"), ("1.2.03-a", "1.2.3-a")]
        {
            assert_eq!(Semver::normalized(text), Semver::parse(same), "{text}");
        }
        assert_eq!(Semver::normalized("1.2-a"), Err(SemverError::Short));
    }
}
