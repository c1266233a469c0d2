//! Finds the fields of a variable that an expression selects.

use super::Program;
use super::error::StackError;
use super::program::on_large_stack;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};

/// Whether an expression has `variable.field` or `variable.?field` somewhere. As upstream, it is not found when the field is a key
/// in brackets.
pub fn selects(program: &Program, variable: &str, field: &str) -> Result<bool, StackError> {
    on_large_stack(|| Selection { variable, field }.is_in(program.expression()))
}

struct Selection<'n> {
    variable: &'n str,
    field: &'n str,
}

impl Selection<'_> {
    fn is_in(&self, node: &IdedExpr) -> bool {
        match &node.expr {
            Expr::Select(select) => {
                (select.field == self.field && self.is_variable(&select.operand))
                    || self.is_in(&select.operand)
            }
            Expr::Call(call) => {
                let is_optional = call.func_name == operators::OPT_SELECT
                    && matches!(call.args.as_slice(), [of, field] if self.is_variable(of) && self.is_field(field));
                is_optional
                    || call.args.iter().any(|argument| self.is_in(argument))
                    || call.target.as_ref().is_some_and(|target| self.is_in(target))
            }
            Expr::List(list) => list.elements.iter().any(|element| self.is_in(element)),
            Expr::Map(map) => map.entries.iter().any(|entry| self.is_in_entry(&entry.expr)),
            Expr::Struct(made) => made.entries.iter().any(|entry| self.is_in_entry(&entry.expr)),
            Expr::Comprehension(inner) => {
                [&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
                    .into_iter()
                    .any(|part| self.is_in(part))
            }
            Expr::Literal(_) | Expr::Ident(_) | Expr::Unspecified => false,
        }
    }

    fn is_in_entry(&self, entry: &EntryExpr) -> bool {
        match entry {
            EntryExpr::MapEntry(entry) => self.is_in(&entry.key) || self.is_in(&entry.value),
            EntryExpr::StructField(field) => self.is_in(&field.value),
        }
    }

    fn is_variable(&self, node: &IdedExpr) -> bool {
        matches!(&node.expr, Expr::Ident(name) if name == self.variable)
    }

    fn is_field(&self, node: &IdedExpr) -> bool {
        matches!(&node.expr, Expr::Literal(LiteralValue::String(name)) if name.inner() == self.field)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Budget, compile, context, to_cel_claims};
    use serde_json::json;

    #[test]
    fn a_selected_field_is_found_wherever_it_is() {
        for (text, expected) in [
            ("claims.email", true),
            ("claims.email.lowerAscii()", true),
            ("has(claims.email)", true),
            ("claims.?email.orValue('')", true),
            ("'a' + claims.email", true),
            ("[1].exists(n, claims.email == 'a')", true),
            ("{'k': [claims.email]}['k'][0]", true),
            ("claims.a ? claims.b : claims.email", true),
            ("claims.email_verified", false),
            ("claims.a.email", false),
            ("user.email", false),
            ("claims['email']", false),
            ("'claims.email'", false),
        ] {
            assert_eq!(selects(&compile(text).unwrap(), "claims", "email").unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn claims_are_read_as_upstream_reads_them() {
        let claims = json!({"exp": 20, "iat": 10, "a.b": "dot", "if": "word", "deep": [{"x-y": 1}],
            "c__dot__d": "no", "c.d": "yes", "e__dot__f": "no"});
        for (text, expected) in [
            ("claims.exp - claims.iat <= 10", true),
            ("claims.exp / 8.0 == 2.5", true),
            ("claims.a__dot__b == 'dot' && claims['a.b'] == 'dot'", true),
            ("claims.__if__ == 'word'", true),
            ("claims.deep[0].x__dash__y == 1.0", true),
            ("claims.c__dot__d == 'yes'", true),
            ("has(claims.e__dot__f)", false),
        ] {
            let mut context = context();
            context.add_variable_from_value("claims", to_cel_claims(&claims));
            let value = compile(text).unwrap().evaluate(&context, &mut Budget::of(100_000)).unwrap();
            assert!(matches!(value, cel::Value::Bool(found) if found == expected), "{text}: {value:?}");
        }
    }
}
