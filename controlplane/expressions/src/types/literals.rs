//! What is written into an expression and cannot be right, whatever the values are: texts that a function cannot read, lists and maps
//! of several types, and formats that do not fit their arguments. Looked at once all types fit.

use super::unify::is_exactly;
use super::{Type, formats};
use crate::go_time;
use crate::objects::children;
use crate::patterns;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr};

/// The function whose arguments, and the lists and maps in them, may be of several types.
const FORMAT: &str = "format";

/// The texts that Go reads as truth values.
const BOOLS: [&str; 12] = ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"];

/// The mistakes, by the parts of the expression that they are in. `type_of` is the type of a part.
pub(super) fn mistakes(expression: &IdedExpr, type_of: &dyn Fn(u64) -> Type) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    // Parts that are not looked at yet, and whether they are inside of a call of `format`.
    let mut open = vec![(expression, false)];
    while let Some((node, in_format)) = open.pop() {
        let mut in_format = in_format;
        match &node.expr {
            Expr::Call(call) => {
                in_format |= call.func_name == FORMAT;
                if let Some(argument) = unreadable(call) {
                    found.push((argument.id, format!("invalid {} argument", call.func_name)));
                }
                if let Some((format, arguments)) = formatted(call)
                    && let Err((id, why)) = formats::check(format, arguments, type_of)
                {
                    found.push((id.unwrap_or(node.id), why.to_string()));
                }
            }
            Expr::List(list) if !in_format => found.extend(mixed_list(list, type_of)),
            Expr::Map(map) if !in_format => mixed_map(map, type_of, &mut found),
            _ => {}
        }
        open.extend(children(node).into_iter().map(|child| (child, in_format)));
    }
    found
}

/// The argument of a call that its function cannot read.
fn unreadable(call: &CallExpr) -> Option<&IdedExpr> {
    let is_global = call.target.is_none();
    call.args.iter().enumerate().find_map(|(at, argument)| {
        let Expr::Literal(literal) = &argument.expr else { return None };
        let is_readable = match (call.func_name.as_str(), at, literal) {
            // In Kubernetes also the text that is looked at must be a pattern.
            ("matches", _, LiteralValue::String(text)) => !patterns::is_mistake(text.inner()),
            ("find" | "findAll", 0, LiteralValue::String(text)) if !is_global => {
                !patterns::is_mistake(text.inner())
            }
            ("duration", 0, LiteralValue::String(text)) if is_global => {
                go_time::duration(text.inner()).is_ok()
            }
            ("duration", 0, LiteralValue::Int(_)) if is_global => false,
            ("timestamp", 0, LiteralValue::String(text)) if is_global => {
                go_time::timestamp(text.inner()).is_ok()
            }
            ("timestamp", 0, LiteralValue::Int(seconds)) if is_global => {
                go_time::of_seconds(*seconds.inner()).is_ok()
            }
            ("bool", 0, LiteralValue::String(text)) if is_global => BOOLS.contains(&text.inner()),
            ("int", 0, LiteralValue::String(text)) if is_global => text.inner().parse::<i64>().is_ok(),
            ("uint", 0, LiteralValue::String(text)) if is_global => {
                !text.inner().starts_with('+') && text.inner().parse::<u64>().is_ok()
            }
            ("uint", 0, LiteralValue::Int(number)) if is_global => *number.inner() >= 0,
            ("double", 0, LiteralValue::String(text)) if is_global => is_double(text.inner()),
            ("string", 0, LiteralValue::Null) if is_global => false,
            _ => true,
        };
        (!is_readable).then_some(argument)
    })
}

/// Numbers in hexadecimal are not looked at more closely.
fn is_double(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    match text.parse::<f64>() {
        Ok(number) => number.is_finite() || !digits.starts_with(|first: char| first.is_ascii_digit()),
        Err(_) => digits.starts_with("0x") || digits.starts_with("0X"),
    }
}

/// A text with a format, and what is put into it.
fn formatted(call: &CallExpr) -> Option<(&str, &[IdedExpr])> {
    let (Expr::Literal(LiteralValue::String(format)), [arguments]) =
        (&call.target.as_ref()?.expr, &call.args[..])
    else {
        return None;
    };
    let Expr::List(list) = &arguments.expr else { return None };
    (call.func_name == FORMAT).then_some((format.inner(), &list.elements[..]))
}

fn mismatch(id: u64, expected: &Type, found: &Type) -> (u64, String) {
    (id, format!("expected type '{expected}' but found '{found}'"))
}

/// The first item whose type is not that of the first one.
fn mixed_list(list: &ListExpr, type_of: &dyn Fn(u64) -> Type) -> Option<(u64, String)> {
    let items = list.elements.iter().enumerate();
    let mut types = items.map(|(at, item)| {
        let of = type_of(item.id);
        (item.id, if list.optional_indices.contains(&at) { unwrapped(of) } else { of })
    });
    let (_, expected) = types.next()?;
    let (id, found) = types.find(|(_, of)| !is_exactly(&expected, of))?;
    Some(mismatch(id, &expected, &found))
}

fn mixed_map(map: &MapExpr, type_of: &dyn Fn(u64) -> Type, mistakes: &mut Vec<(u64, String)>) {
    let mut expected: Option<(Type, Type)> = None;
    for entry in &map.entries {
        let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
        let (key, value) = (type_of(entry.key.id), type_of(entry.value.id));
        let value = if entry.optional { unwrapped(value) } else { value };
        let Some((keys, values)) = &expected else {
            expected = Some((key, value));
            continue;
        };
        if !is_exactly(keys, &key) {
            mistakes.push(mismatch(entry.key.id, keys, &key));
        }
        if !is_exactly(values, &value) {
            mistakes.push(mismatch(entry.value.id, values, &value));
        }
    }
}

/// The type inside of an optional value.
fn unwrapped(of: Type) -> Type {
    match of {
        Type::Optional(inside) => *inside,
        other => other,
    }
}
