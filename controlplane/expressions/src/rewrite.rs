//! Expressions that measure themselves. The interpreter has neither a budget nor a way to stop, so every expression is
//! rewritten before it is evaluated: calls of the functions of `meter` measure the values on their way. Every loop has such a
//! call that no operator can absorb, so that a spent budget ends all loops at their next turn.

use super::meter::{COPY, Growth, MEASURE, MEASURED, TICK, code};
use super::{go_time, messages, objects, patterns, two_variables};
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr,
    MapExpr, StructExpr, operators,
};
use cel::common::types::CelInt;

/// Functions whose first name is no value.
const QUALIFIED: [(&str, &[&str]); 9] = [
    ("base64", &["encode", "decode"]),
    (
        "format",
        &[
            "byte",
            "date",
            "datetime",
            "dns1035Label",
            "dns1035LabelPrefix",
            "dns1123Label",
            "dns1123LabelPrefix",
            "dns1123Subdomain",
            "dns1123SubdomainPrefix",
            "labelValue",
            "named",
            "qualifiedName",
            "uri",
            "uuid",
        ],
    ),
    ("ip", &["isCanonical"]),
    ("jsonpatch", &["escapeKey"]),
    ("lists", &["range"]),
    ("math", &[]),
    ("optional", &["none", "of", "ofNonZeroValue", "unwrap"]),
    ("sets", &["contains", "equivalent", "intersects"]),
    ("strings", &["quote"]),
];
/// Functions of `math`; those with `@` stand for macros.
const MATH: [&str; 18] = [
    "@max",
    "@min",
    "abs",
    "bitAnd",
    "bitNot",
    "bitOr",
    "bitShiftLeft",
    "bitShiftRight",
    "bitXor",
    "ceil",
    "floor",
    "isFinite",
    "isInf",
    "isNaN",
    "round",
    "sign",
    "sqrt",
    "trunc",
];

/// An expression that measures itself.
pub(super) struct Measured {
    /// What is evaluated.
    pub expression: IdedExpr,
    /// How many calls are measured.
    pub calls: usize,
    /// What it costs at least, loops apart.
    pub base: u64,
    /// How often the interpreter calls itself.
    pub depth: usize,
}

/// Rewrites an expression. Those of mutations may construct objects.
pub(super) fn measured(expression: &IdedExpr, constructs: bool) -> Measured {
    let mut writer = Writer { constructs, ..Writer::default() };
    let base = steps(expression);
    let expression = writer.rewrite(expression.clone());
    Measured { depth: depth(&expression), expression, calls: writer.calls, base }
}

fn depth(node: &IdedExpr) -> usize {
    let entry = |entry: &IdedEntryExpr| match &entry.expr {
        EntryExpr::StructField(field) => depth(&field.value),
        EntryExpr::MapEntry(entry) => depth(&entry.key).max(depth(&entry.value)),
    };
    let inside = match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => None,
        Expr::Select(select) => Some(depth(&select.operand)),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).map(depth).max(),
        Expr::List(list) => list.elements.iter().map(depth).max(),
        Expr::Map(map) => map.entries.iter().map(entry).max(),
        Expr::Struct(made) => made.entries.iter().map(entry).max(),
        Expr::Comprehension(inner) => {
            let parts =
                [&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result];
            parts.into_iter().map(depth).max()
        }
    };
    1 + inside.unwrap_or(0)
}

/// What evaluation costs whatever the values are; loops count their turns themselves.
fn steps(node: &IdedExpr) -> u64 {
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) => 0,
        Expr::Ident(_) => 1,
        Expr::Select(select) => 1 + steps(&select.operand),
        Expr::Call(call) => {
            let own = !matches!(
                call.func_name.as_str(),
                operators::LOGICAL_AND | operators::LOGICAL_OR | operators::CONDITIONAL
            );
            let target = call.target.as_deref().map_or(0, steps);
            u64::from(own) + target + call.args.iter().map(steps).sum::<u64>()
        }
        Expr::List(list) => 10 + list.elements.iter().map(steps).sum::<u64>(),
        Expr::Map(map) => 30 + map.entries.iter().map(|entry| steps_of_entry(&entry.expr)).sum::<u64>(),
        Expr::Struct(made) => 40 + made.entries.iter().map(|entry| steps_of_entry(&entry.expr)).sum::<u64>(),
        Expr::Comprehension(inner) => {
            1 + steps(&inner.iter_range) + steps(&inner.accu_init) + steps(&inner.result)
        }
    }
}

fn steps_of_entry(entry: &EntryExpr) -> u64 {
    match entry {
        EntryExpr::StructField(field) => steps(&field.value),
        EntryExpr::MapEntry(entry) => steps(&entry.key) + steps(&entry.value),
    }
}

#[derive(Default)]
struct Writer {
    calls: usize,
    /// Loops around the current place: names are looked up in all of them.
    loops: u64,
    /// Whether objects may be constructed.
    constructs: bool,
    /// Loops over pairs so far: each has a variable of its own.
    pairs: usize,
}

impl Writer {
    fn rewrite(&mut self, node: IdedExpr) -> IdedExpr {
        let IdedExpr { id, expr } = node;
        let expr = match expr {
            Expr::Select(mut select) if !is_name(&select.operand.expr) => {
                *select.operand = self.rewrite(*select.operand);
                Expr::Select(select)
            }
            Expr::Call(call) => return IdedExpr { id, ..self.call(call) },
            Expr::List(mut list) => {
                list.elements = list.elements.into_iter().map(|element| self.copied(element)).collect();
                Expr::List(list)
            }
            Expr::Map(mut map) => {
                map.entries = map.entries.into_iter().map(|entry| self.entry(entry)).collect();
                Expr::Map(map)
            }
            Expr::Struct(made)
                if messages::find(&made.type_name).is_some()
                    || (self.constructs && objects::is_type(&made.type_name)) =>
            {
                self.construct(made)
            }
            Expr::Struct(mut made) => {
                made.entries = made.entries.into_iter().map(|entry| self.entry(entry)).collect();
                Expr::Struct(made)
            }
            Expr::Comprehension(inner) if inner.iter_var2.is_some() => {
                self.pairs += 1;
                let lowered = two_variables::lowered(*inner, self.pairs);
                return self.rewrite(IdedExpr { id, expr: lowered });
            }
            Expr::Comprehension(inner) => Expr::Comprehension(Box::new(self.comprehension(*inner))),
            other => other,
        };
        IdedExpr { id, expr }
    }

    /// A value that becomes part of another one, and is copied for it.
    fn copied(&mut self, node: IdedExpr) -> IdedExpr {
        match &node.expr {
            Expr::Literal(_) => node,
            _ => wrapped(COPY, None, self.rewrite(node)),
        }
    }

    /// An object is constructed by a function from its type and a map of its fields: the interpreter would have to know all
    /// types before.
    fn construct(&mut self, made: StructExpr) -> Expr {
        let entries = made.entries.into_iter().map(|entry| {
            let expr = match entry.expr {
                EntryExpr::StructField(field) => EntryExpr::MapEntry(MapEntryExpr {
                    key: objects::literal(&field.field),
                    value: self.copied(field.value),
                    optional: field.optional,
                }),
                other => other,
            };
            IdedEntryExpr { id: entry.id, expr }
        });
        let fields = IdedExpr { id: 0, expr: Expr::Map(MapExpr { entries: entries.collect() }) };
        let args = vec![objects::literal(&made.type_name), fields];
        Expr::Call(CallExpr { func_name: objects::CONSTRUCT.to_owned(), target: None, args })
    }

    fn entry(&mut self, entry: IdedEntryExpr) -> IdedEntryExpr {
        let expr = match entry.expr {
            EntryExpr::StructField(mut field) => {
                field.value = self.copied(field.value);
                EntryExpr::StructField(field)
            }
            EntryExpr::MapEntry(MapEntryExpr { key, value, optional }) => {
                let (key, value) = (self.copied(key), self.copied(value));
                EntryExpr::MapEntry(MapEntryExpr { key, value, optional })
            }
        };
        IdedEntryExpr { id: entry.id, expr }
    }

    fn call(&mut self, call: CallExpr) -> IdedExpr {
        let CallExpr { func_name, target, args } =
            go_time::replace_call(patterns::replace_matches_call(call));
        let name = func_name.as_str();
        let operator = !name.starts_with(|c: char| c.is_ascii_alphabetic()) && target.is_none();
        let alone = args.is_empty() && target.is_none();
        if alone || (operator && !grows(name, &args)) {
            // What is taken out of a value as an optional is a copy.
            let copies = matches!(name, operators::OPT_INDEX | operators::OPT_SELECT);
            let args = args.into_iter().map(|arg| self.rewrite(arg)).collect();
            let made = IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name, target: None, args }) };
            return if copies { wrapped(COPY, None, made) } else { made };
        }
        let qualified = target.as_deref().is_some_and(|target| is_qualified(target, name));
        let growth = Growth::of(name);
        let (site, member) = (self.calls, target.is_some() && !qualified);
        self.calls += 1;
        let count = args.len();
        let args = args.into_iter().enumerate().map(|(at, arg)| {
            // The value that a function is called on is evaluated after the arguments.
            let (place, last) = if member { (at + 1, false) } else { (at, at + 1 == count) };
            let arg = self.rewrite(arg);
            match place < MEASURED {
                true => wrapped(MEASURE, Some(code(site, growth, place, last)), arg),
                false => wrapped(COPY, None, arg),
            }
        });
        let args = args.collect();
        let target = target.map(|target| match member {
            true => Box::new(wrapped(MEASURE, Some(code(site, growth, 0, true)), self.rewrite(*target))),
            false => target,
        });
        IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name, target, args }) }
    }

    fn comprehension(&mut self, mut inner: ComprehensionExpr) -> ComprehensionExpr {
        let site = self.calls;
        self.calls += 1;
        self.loops += 1;
        let turn = (1 + steps(&inner.loop_cond) + steps(&inner.loop_step)) * self.loops.div_ceil(4);
        let turn = i64::try_from(turn).unwrap_or(i64::MAX);
        inner.loop_cond = self.rewrite(inner.loop_cond);
        inner.loop_step = self.rewrite(inner.loop_step);
        // `map` and `filter` are recognized by their form, which has to stay: what they append, or the condition to do
        // so, is evaluated at every turn. The condition of any other loop is.
        match appended(&mut inner) {
            Some(every_turn) => *every_turn = wrapped(TICK, Some(turn), std::mem::take(every_turn)),
            None => inner.loop_cond = wrapped(TICK, Some(turn), std::mem::take(&mut inner.loop_cond)),
        }
        self.loops -= 1;
        let range = self.rewrite(inner.iter_range);
        inner.iter_range = wrapped(MEASURE, Some(code(site, Growth::Sum, 0, true)), range);
        inner.accu_init = match &inner.accu_init.expr {
            Expr::List(list) if list.elements.is_empty() => inner.accu_init,
            _ => self.copied(inner.accu_init),
        };
        inner.result = self.rewrite(inner.result);
        inner
    }
}

/// Whether an operator's cost depends on its operands. A literal beside it is all there is to compare.
fn grows(operator: &str, args: &[IdedExpr]) -> bool {
    let literal = |arg: &IdedExpr| matches!(&arg.expr, Expr::Literal(_));
    let number = |arg: &IdedExpr| {
        matches!(
            &arg.expr,
            Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_) | LiteralValue::Double(_))
        )
    };
    match operator {
        operators::EQUALS
        | operators::NOT_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS => !args.iter().any(literal),
        operators::ADD => !args.iter().any(number) && !is_append(args),
        operators::IN => true,
        // Operators on numbers and on truth, and places in lists and maps.
        operators::SUBSTRACT
        | operators::MULTIPLY
        | operators::DIVIDE
        | operators::MODULO
        | operators::NEGATE
        | operators::LOGICAL_NOT
        | operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::CONDITIONAL
        | operators::NOT_STRICTLY_FALSE
        | operators::INDEX
        | operators::OPT_INDEX
        | operators::OPT_SELECT => false,
        _ => true,
    }
}

/// `@result + [item]`, the form of `map` and `filter`.
fn is_append(args: &[IdedExpr]) -> bool {
    matches!(args, [IdedExpr { expr: Expr::Ident(name), .. }, IdedExpr { expr: Expr::List(_), .. }]
        if name.starts_with('@'))
}

/// What a loop that appends to a list evaluates at every turn.
fn appended(inner: &mut ComprehensionExpr) -> Option<&mut IdedExpr> {
    let is_accumulator = |node: &IdedExpr| matches!(&node.expr, Expr::Ident(name) if *name == inner.accu_var);
    if !is_accumulator(&inner.result) || !matches!(inner.loop_cond.expr, Expr::Literal(_)) {
        return None;
    }
    let Expr::Call(step) = &mut inner.loop_step.expr else { return None };
    match step.func_name.as_str() {
        operators::CONDITIONAL => step.args.first_mut(),
        operators::ADD if is_append(&step.args) => match &mut step.args[1].expr {
            Expr::List(list) => list.elements.first_mut(),
            _ => None,
        },
        _ => None,
    }
}

/// `a.b.c`, which the interpreter looks up as a whole.
fn is_name(expr: &Expr) -> bool {
    match expr {
        Expr::Ident(_) => true,
        Expr::Select(select) => !select.test && is_name(&select.operand.expr),
        _ => false,
    }
}

fn is_qualified(target: &IdedExpr, function: &str) -> bool {
    let Expr::Ident(namespace) = &target.expr else { return false };
    let known = QUALIFIED.iter().find(|(name, _)| name == namespace);
    known.is_some_and(|(name, all)| all.contains(&function) || (*name == "math" && MATH.contains(&function)))
}

fn wrapped(function: &str, number: Option<i64>, value: IdedExpr) -> IdedExpr {
    let number =
        number.map(|number| IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Int(CelInt::from(number))) });
    let args = number.into_iter().chain([value]).collect();
    IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) }
}
