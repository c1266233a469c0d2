//! Arguments and results of functions.

use cel::common::types::{DYN_TYPE, Type};
use cel::common::value::CowVal;
use cel::objects::{Opaque, OptionalValue};
use cel::{ExecutionError, Value};
use std::sync::Arc;

pub(super) type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
pub(super) type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;
pub(super) type Function = for<'b, 'v> fn(Args<'b, 'v>) -> Answer<'b, 'v>;

/// A value that may be there or not.
pub fn optional(value: Option<Value>) -> Value {
    Value::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

pub(super) fn anything(arguments: usize) -> Vec<Type> {
    (0..arguments).map(|_| DYN_TYPE).collect()
}

pub(super) fn failed(function: &str, why: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, why)
}

pub(super) fn unfit(wanted: &str) -> ExecutionError {
    failed(wanted, format!("no such overload: not a {wanted}"))
}

pub(super) fn value(args: &Args<'_, '_>, at: usize) -> Result<Value, ExecutionError> {
    let arg = args.get(at).ok_or_else(ExecutionError::missing_argument_or_target)?;
    Value::try_from(arg.as_ref())
}

pub(super) fn text(args: &Args<'_, '_>, at: usize) -> Result<String, ExecutionError> {
    match value(args, at)? {
        Value::String(text) => Ok(text.to_string()),
        _ => Err(unfit("string")),
    }
}

pub(super) fn list(args: &Args<'_, '_>, at: usize) -> Result<Vec<Value>, ExecutionError> {
    match value(args, at)? {
        Value::List(items) => Ok(Arc::unwrap_or_clone(items)),
        _ => Err(unfit("list")),
    }
}

pub(super) fn give<'b, 'v>(is: bool) -> Answer<'b, 'v> {
    give_value(Value::Bool(is))
}

pub(super) fn give_int<'b, 'v>(number: i64) -> Answer<'b, 'v> {
    give_value(Value::Int(number))
}

pub(super) fn give_opaque<'b, 'v>(opaque: impl Opaque) -> Answer<'b, 'v> {
    give_value(Value::Opaque(Arc::new(opaque)))
}

pub(super) fn give_value<'b, 'v>(value: Value) -> Answer<'b, 'v> {
    Ok(CowVal::Owned(value.try_into()?))
}
