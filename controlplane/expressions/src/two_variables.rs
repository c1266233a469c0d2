//! Comprehensions with two variables: the index and the item of a list, or the key and the value of a map.
//!
//! The parser makes loops with two variables of them, which names and types are checked by. The interpreter knows loops with
//! one variable: before an expression is evaluated, each becomes a loop over pairs, with places in the pair instead of variables.

use super::arguments::{Answer, Args, anything, failed, give_value, list, unfit, value};
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators,
};
use cel::objects::Key;
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{DeclarationError, Env, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// The accumulator, by the name that all macros give it.
const RESULT: &str = "@result";
/// Adds an entry to a map; only for types, never evaluated.
const INSERT: &str = "@mapInsert";
/// Makes pairs of a list or a map.
const PAIRS: &str = "@pairs";
/// Makes a map of pairs and maps.
const TO_MAP: &str = "@toMap";

type Helper<'h, 'p> = &'h mut MacroExprHelper<'p>;

/// What a macro makes of its loop.
#[derive(Clone, Copy)]
enum Kind {
    All,
    Exists,
    ExistsOne,
    List,
    Map,
    Entries,
}

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let macros = [
        ("all", 3, Kind::All),
        ("exists", 3, Kind::Exists),
        ("existsOne", 3, Kind::ExistsOne),
        ("exists_one", 3, Kind::ExistsOne),
        ("transformList", 3, Kind::List),
        ("transformList", 4, Kind::List),
        ("transformMap", 3, Kind::Map),
        ("transformMap", 4, Kind::Map),
        ("transformMapEntry", 3, Kind::Entries),
        ("transformMapEntry", 4, Kind::Entries),
    ];
    for (name, arguments, kind) in macros {
        env.add_macro(Macro::receiver(name, arguments, move |helper, target, args| {
            let Some(range) = target.take() else { return Ok(None) };
            expand(kind, helper, range, std::mem::take(args)).map(Some)
        }))?;
    }
    env.add_overload(PAIRS, "pairs", anything(1), |args| pairs(&args))?;
    env.add_overload(TO_MAP, "to_map", anything(1), |args| to_map(&args))
}

fn expand(
    kind: Kind,
    helper: Helper<'_, '_>,
    range: IdedExpr,
    mut args: Vec<IdedExpr>,
) -> Result<IdedExpr, ParseError> {
    let body = args.pop().unwrap_or_default();
    let filter = (args.len() == 3).then(|| args.pop()).flatten();
    let mut names = Vec::new();
    for arg in args {
        match arg.expr {
            Expr::Ident(name) if names.contains(&name) => {
                return Err(helper.new_error(arg.id, format!("duplicate variable name: {name}")));
            }
            Expr::Ident(name) if name != RESULT => names.push(name),
            _ => return Err(helper.new_error(arg.id, "argument must be a simple name")),
        }
    }
    let (second, first) = (names.pop(), names.pop().unwrap_or_default());
    let mut node = |expr: Expr| helper.next_expr(expr);
    let truth = |is: bool| Expr::Literal(LiteralValue::Boolean(is.into()));
    let number = |n: i64| Expr::Literal(LiteralValue::Int(n.into()));
    let accumulator = || Expr::Ident(RESULT.to_owned());
    let call = |name: &str, args: Vec<IdedExpr>| {
        Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args })
    };
    let (init, condition, step, result) = match kind {
        Kind::All | Kind::Exists => {
            let is_all = matches!(kind, Kind::All);
            let seen = node(accumulator());
            let seen = if is_all { seen } else { node(call(operators::LOGICAL_NOT, vec![seen])) };
            let condition = call(operators::NOT_STRICTLY_FALSE, vec![seen]);
            let joined = if is_all { operators::LOGICAL_AND } else { operators::LOGICAL_OR };
            let step = call(joined, vec![node(accumulator()), body]);
            (truth(is_all), condition, step, accumulator())
        }
        Kind::ExistsOne => {
            let more = call(operators::ADD, vec![node(accumulator()), node(number(1))]);
            let step = call(operators::CONDITIONAL, vec![body, node(more), node(accumulator())]);
            let result = call(operators::EQUALS, vec![node(accumulator()), node(number(1))]);
            (number(0), truth(true), step, result)
        }
        Kind::List | Kind::Map | Kind::Entries => {
            let (init, step) = match kind {
                Kind::List => {
                    let item = Expr::List(ListExpr::new(vec![body]));
                    let step = call(operators::ADD, vec![node(accumulator()), node(item)]);
                    (Expr::List(ListExpr::new(Vec::new())), step)
                }
                Kind::Map => {
                    let key = node(Expr::Ident(first.clone()));
                    (no_entries(), call(INSERT, vec![node(accumulator()), key, body]))
                }
                _ => (no_entries(), call(INSERT, vec![node(accumulator()), body])),
            };
            let step = match filter {
                Some(filter) => call(operators::CONDITIONAL, vec![filter, node(step), node(accumulator())]),
                None => step,
            };
            (init, truth(true), step, accumulator())
        }
    };
    let inner = ComprehensionExpr {
        iter_range: range,
        iter_var: first,
        iter_var2: second,
        accu_var: RESULT.to_owned(),
        accu_init: node(init),
        loop_cond: node(condition),
        loop_step: node(step),
        result: node(result),
    };
    Ok(node(Expr::Comprehension(Box::new(inner))))
}

fn no_entries() -> Expr {
    Expr::Map(MapExpr { entries: Vec::new() })
}

/// A loop with two variables as one over pairs, which are in the variable of this number.
pub(super) fn lowered(mut inner: ComprehensionExpr, number: usize) -> Expr {
    let Some(second) = inner.iter_var2.take() else { return Expr::Comprehension(Box::new(inner)) };
    let pair = format!("@pair{number}");
    let names = [(inner.iter_var.as_str(), 0), (second.as_str(), 1)];
    let names = Names { names: &names, pair: &pair };
    let is_map = inserts(&mut inner.loop_step);
    for part in [&mut inner.loop_cond, &mut inner.loop_step] {
        names.replace(part);
    }
    inner.iter_range = call(PAIRS, vec![std::mem::take(&mut inner.iter_range)]);
    inner.iter_var = pair;
    if !is_map {
        return Expr::Comprehension(Box::new(inner));
    }
    inner.accu_init.expr = Expr::List(ListExpr::new(Vec::new()));
    let made = IdedExpr { id: 0, expr: Expr::Comprehension(Box::new(inner)) };
    call(TO_MAP, vec![made]).expr
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

/// Replaces the insertion into a map by one into a list, which the interpreter does without copying; whether there was one.
fn inserts(step: &mut IdedExpr) -> bool {
    let Expr::Call(made) = &mut step.expr else { return false };
    match made.func_name.as_str() {
        operators::CONDITIONAL => made.args.get_mut(1).is_some_and(inserts),
        INSERT => {
            let mut rest = made.args.split_off(1);
            let item = match rest.len() {
                1 => rest.pop().unwrap_or_default(),
                _ => IdedExpr { id: 0, expr: Expr::List(ListExpr::new(rest)) },
            };
            made.args.push(IdedExpr { id: 0, expr: Expr::List(ListExpr::new(vec![item])) });
            made.func_name = operators::ADD.to_owned();
            true
        }
        _ => false,
    }
}

/// Variables that become places in a pair.
#[derive(Clone, Copy)]
struct Names<'n> {
    names: &'n [(&'n str, i64)],
    pair: &'n str,
}

impl Names<'_> {
    fn replace(&self, node: &mut IdedExpr) {
        match &mut node.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => {
                if let Some((_, at)) = self.names.iter().find(|(known, _)| known == name) {
                    let place = Expr::Literal(LiteralValue::Int((*at).into()));
                    let pair = Expr::Ident(self.pair.to_owned());
                    let args = vec![IdedExpr { id: 0, expr: pair }, IdedExpr { id: 0, expr: place }];
                    node.expr = call(operators::INDEX, args).expr;
                }
            }
            Expr::Select(select) => self.replace(&mut select.operand),
            Expr::Call(call) => {
                call.target
                    .as_deref_mut()
                    .into_iter()
                    .chain(&mut call.args)
                    .for_each(|part| self.replace(part));
            }
            Expr::List(list) => list.elements.iter_mut().for_each(|element| self.replace(element)),
            Expr::Map(map) => map.entries.iter_mut().for_each(|entry| self.replace_entry(&mut entry.expr)),
            Expr::Struct(made) => {
                made.entries.iter_mut().for_each(|entry| self.replace_entry(&mut entry.expr))
            }
            Expr::Comprehension(inner) => self.replace_loop(inner),
        }
    }

    fn replace_entry(&self, entry: &mut EntryExpr) {
        match entry {
            EntryExpr::StructField(field) => self.replace(&mut field.value),
            EntryExpr::MapEntry(entry) => {
                self.replace(&mut entry.key);
                self.replace(&mut entry.value);
            }
        }
    }

    /// A loop may have variables of the same names, which are its own inside.
    fn replace_loop(&self, inner: &mut ComprehensionExpr) {
        self.replace(&mut inner.iter_range);
        self.replace(&mut inner.accu_init);
        let own = |name: &str| {
            inner.iter_var == name || inner.accu_var == name || inner.iter_var2.as_deref() == Some(name)
        };
        let names: Vec<(&str, i64)> = self.names.iter().filter(|(name, _)| !own(name)).copied().collect();
        let inside = Names { names: &names, pair: self.pair };
        for part in [&mut inner.loop_cond, &mut inner.loop_step, &mut inner.result] {
            inside.replace(part);
        }
    }
}

fn pairs<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    let pair = |first: Value, second: Value| Value::List(Arc::new(vec![first, second]));
    let made: Vec<Value> = match value(args, 0)? {
        Value::List(items) => {
            let items = Arc::unwrap_or_clone(items).into_iter().enumerate();
            items.map(|(at, item)| pair(Value::Int(at as i64), item)).collect()
        }
        Value::Map(map) => {
            let entries = map.map.iter();
            entries.map(|(key, value)| pair(Value::from(key), value.clone())).collect()
        }
        _ => return Err(unfit("list or map")),
    };
    give_value(Value::List(Arc::new(made)))
}

fn to_map<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    let mut made: HashMap<Key, Value> = HashMap::new();
    let mut insert = |key: Key, value: Value| match made.contains_key(&key) {
        true => Err(failed("transformMap", format!("insert failed: key {key} already exists"))),
        false => {
            made.insert(key, value);
            Ok(())
        }
    };
    for item in list(args, 0)? {
        match item {
            Value::Map(map) => {
                map.map.iter().try_for_each(|(key, value)| insert(key.clone(), value.clone()))?
            }
            Value::List(pair) => match &pair[..] {
                [key, value] => {
                    let key: Key = key.clone().try_into().map_err(|_| unfit("key of a map"))?;
                    insert(key, value.clone())?;
                }
                _ => return Err(unfit("map")),
            },
            _ => return Err(unfit("map")),
        }
    }
    give_value(Value::from(made))
}
