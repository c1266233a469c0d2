//! `cel.bind(name, value, expression)`, which gives a value a name.

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::parser::Macro;
use cel::{DeclarationError, Env};

/// The variable of a loop over nothing.
const UNUSED: &str = "#unused";

/// The value is what a loop that takes no step begins with.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_macro(Macro::receiver("bind", 3, |helper, target, args| {
        let is_ours = |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if name == "cel");
        if !target.as_ref().is_some_and(is_ours) {
            return Ok(None);
        }
        let [name, value, inside] = args.as_mut_slice() else { return Ok(None) };
        let Expr::Ident(accu_var) = name.expr.clone() else {
            return Err(helper.new_error(name.id, "cel.bind() variable names must be simple identifiers"));
        };
        let (accu_init, result) = (std::mem::take(value), std::mem::take(inside));
        let bound = ComprehensionExpr {
            iter_range: helper.next_expr(Expr::List(ListExpr::new(Vec::new()))),
            iter_var: UNUSED.to_owned(),
            iter_var2: None,
            loop_cond: helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into()))),
            loop_step: helper.next_expr(Expr::Ident(accu_var.clone())),
            accu_var,
            accu_init,
            result,
        };
        Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(bound)))))
    }))
}
