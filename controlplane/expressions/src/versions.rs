//! Semantic versions: `semver('1.2.3')`, their parts and their order. What a version is built from does not count in comparisons.

use super::arguments::{
    Answer, Args, Function, anything, failed, give, give_int, give_opaque, text, unfit, value,
};
use cel::common::types::DYN_TYPE;
use cel::objects::Opaque;
use cel::{DeclarationError, Env, ExecutionError, Value};
use semver::Version;
use std::cmp::Ordering;

/// A version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Semver(pub(super) Version);

impl Opaque for Semver {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Semver"
    }
}

/// Adds the functions.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let global: [(&str, usize, Function); 4] = [
        ("isSemver", 1, |args| give(parsed(&args, false).is_ok())),
        ("isSemver", 2, |args| give(parsed(&args, flag(&args)?).is_ok())),
        ("semver", 1, |args| give_opaque(Semver(parsed(&args, false)?))),
        ("semver", 2, |args| give_opaque(Semver(parsed(&args, flag(&args)?)?))),
    ];
    for (name, arguments, function) in global {
        env.add_overload(name, &format!("{name}_{arguments}"), anything(arguments), function)?;
    }
    let members: [(&str, Function); 3] = [
        ("major", |args| part(&args, |version| version.major)),
        ("minor", |args| part(&args, |version| version.minor)),
        ("patch", |args| part(&args, |version| version.patch)),
    ];
    for (name, function) in members {
        env.add_member_overload(name, &format!("semver_{name}"), DYN_TYPE, anything(0), function)?;
    }
    Ok(())
}

/// How two versions compare; nothing if the first value is no version.
pub(super) fn order(a: &Value, b: &Value) -> Option<Result<Ordering, ExecutionError>> {
    let version = |value: &Value| match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<Semver>().map(|version| version.0.clone()),
        _ => None,
    };
    let a = version(a)?;
    Some(version(b).map(|b| a.cmp_precedence(&b)).ok_or_else(|| unfit("semver")))
}

fn part<'b, 'v>(args: &Args<'b, 'v>, of: fn(&Version) -> u64) -> Answer<'b, 'v> {
    match value(args, 0)? {
        Value::Opaque(opaque) => match opaque.downcast_ref::<Semver>() {
            Some(version) => give_int(i64::try_from(of(&version.0)).unwrap_or(i64::MAX)),
            None => Err(unfit("semver")),
        },
        _ => Err(unfit("semver")),
    }
}

fn flag(args: &Args<'_, '_>) -> Result<bool, ExecutionError> {
    match value(args, 1)? {
        Value::Bool(is) => Ok(is),
        _ => Err(unfit("bool")),
    }
}

fn parsed(args: &Args<'_, '_>, normalize: bool) -> Result<Version, ExecutionError> {
    let text = text(args, 0)?;
    let text = if normalize { normalized(&text) } else { text };
    Version::parse(&text).map_err(|error| failed("semver", error))
}

/// `v1.02` is `1.2.0`.
fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (core, rest) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let digits = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        digits => digits.to_owned(),
    };
    let mut parts: Vec<String> = core.split('.').map(digits).collect();
    // A version that is cut short has nothing behind it.
    while parts.len() < 3 && rest.is_empty() {
        parts.push("0".to_owned());
    }
    parts.join(".") + rest
}

#[cfg(test)]
mod tests {
    use crate::{Budget, compile, context};

    #[test]
    fn versions_compare_by_their_parts() {
        for (text, want) in [
            ("semver('1.2.3').isLessThan(semver('1.10.0'))", true),
            ("semver('1.0.0').compareTo(semver('1.0.0-rc.1')) == 1", true),
            ("semver('1.0.0+a').compareTo(semver('1.0.0+b')) == 0", true),
            ("semver('v1.02', true).minor() == 2 && semver('v1', true).patch() == 0", true),
            ("isSemver('1.2') || isSemver('v1.2.3') || isSemver('1.2-rc', true)", false),
            ("isSemver('1.2', true) && semver('2.3.4').major() == 2", true),
        ] {
            let program = compile(text).expect("an expression");
            let value = program.evaluate(&context(), &mut Budget::of(10_000));
            assert!(matches!(value, Ok(cel::Value::Bool(is)) if is == want), "{text}: {value:?}");
        }
        let program = compile("semver('1.2.3') .isLessThan(quantity('1'))").expect("an expression");
        assert!(program.evaluate(&context(), &mut Budget::of(10_000)).is_err());
    }
}
