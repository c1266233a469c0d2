//! What an expression costs at most, by the schema of the values that it is about: upstream's estimate, so that a rule that
//! is taken there is taken here. Sizes that nobody can tell count little; evaluation counts what they really are.

use super::Program;
use super::names::{self, escaped};
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Json, Schema as _, View};
use serde_json::Value;

/// A schema or part of one.
type Props<'s> = View<'s, JSONSchemaProps>;

/// One rule may cost so much for all values that it is about.
pub const RULE: u64 = 10_000_000;
/// All rules of a schema together.
pub const SCHEMA: u64 = 100_000_000;
/// The longest pattern of a format, in characters.
const NAME_PATTERN: u64 = 128;
/// The largest request.
const REQUEST: u64 = 3 << 20;

/// The message about a cost above a limit.
pub fn message(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 { "more than 100".to_owned() } else { format!("{factor:.1}") };
    format!(
        "{what} exceeds budget by factor of {factor}x (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// The cost of a program, once. `variables` are the names that it may use, each with the schema of its value.
pub fn cost(program: &Program, variables: &[(&str, &Value)]) -> u64 {
    let scope = variables.iter();
    let scope = scope.map(|(name, schema)| ((*name).to_owned(), Guess::of(JSONSchemaProps::of(schema))));
    Estimator { scope: scope.collect() }.read(program.expression()).cost
}

/// How many values of a schema one request can hold: so often is a rule evaluated where no list around it is bounded.
pub fn most_values(schema: View<'_, JSONSchemaProps>) -> u64 {
    REQUEST / (least_bytes(schema) + 1)
}

/// How many items or entries a value of the schema can have, if it has a bound of its own.
pub fn bound(schema: View<'_, JSONSchemaProps>) -> Option<u64> {
    let most = if schema.type_() == "array" { schema.max_items() } else { schema.max_properties() };
    most.int().map(|most| most.max(0).unsigned_abs())
}

/// The bytes that the smallest value of a schema takes.
fn least_bytes(schema: Props<'_>) -> u64 {
    if schema.x_kubernetes_int_or_string().flag() {
        return 1;
    }
    match (schema.type_().text(), schema.format().text()) {
        ("string", "duration") => 4,
        ("string", "date") => 12,
        ("string", "date-time") => 22,
        ("boolean", _) => 4,
        ("integer" | "number", _) => 1,
        ("object", _) if !schema.additional_properties().is_object() => {
            let required = schema.required().items().filter_map(|name| name.get());
            let fields = required.filter_map(|name| Some((name, schema.properties().find(name)?)));
            let sized = fields.filter(|(_, field)| !field.default_().is_set());
            2 + sized.map(|(name, field)| name.len() as u64 + least_bytes(field) + 4).sum::<u64>()
        }
        _ => 2,
    }
}

/// How long a text can be, how many items or entries a list or map can have; nothing for what has no size.
fn most_elements(schema: Props<'_>) -> Option<u64> {
    let (items, entries) = (schema.items(), schema.additional_properties());
    let least = |inside: View<'_, Json>| least_bytes(inside.as_type());
    let longest = || schema.max_length().int().map(|most| most.max(0).unsigned_abs() * 4);
    if schema.x_kubernetes_int_or_string().flag() {
        return Some(longest().unwrap_or(REQUEST - 2));
    }
    match schema.type_().get()? {
        "array" if items.is_object() => Some(bound(schema).unwrap_or((REQUEST - 2) / (least(items) + 1))),
        "object" if entries.is_object() => {
            Some(bound(schema).unwrap_or((REQUEST - 2) / (least(entries) + 6)))
        }
        "string" => match schema.format().text() {
            "duration" => Some(32),
            "date" => Some(12),
            "date-time" => Some(38),
            _ => {
                let words = schema.enum_();
                let lengths = words.items().filter_map(|word| word.as_value().as_str().map(str::len));
                let word = (!words.is_empty()).then(|| lengths.max().unwrap_or(0));
                Some(longest().or(word.map(|length| length as u64)).unwrap_or(REQUEST - 2))
            }
        },
        _ => Some(0),
    }
}

/// What is known of a value, and what it costs to get it.
#[derive(Clone, Copy, Default)]
struct Guess<'s> {
    cost: u64,
    schema: Option<Props<'s>>,
    size: Option<u64>,
    /// The size of items, where no schema tells.
    item: Option<u64>,
    /// Whether upstream takes it for endless, if it is a text.
    endless: bool,
}

impl<'s> Guess<'s> {
    fn of(schema: Props<'s>) -> Self {
        Self { cost: 0, schema: Some(schema), size: most_elements(schema), ..Self::default() }
    }

    fn costs(cost: u64) -> Self {
        Self { cost, ..Self::default() }
    }

    /// Unknown sizes count as one.
    fn length(&self) -> u64 {
        self.size.unwrap_or(1)
    }

    /// A field of an object, or an entry of a map.
    fn field(&self, name: &str) -> Guess<'s> {
        let Some(schema) = self.schema else { return Guess::default() };
        let named = schema
            .properties()
            .entries()
            .find(|(field, _)| escaped(field) == name || (names::is_reserved(name) && *field == name));
        let entries = schema.additional_properties();
        let found = named
            .map(|(_, field)| field)
            .or_else(|| entries.is_object().then(|| entries.as_type::<JSONSchemaProps>()));
        found.map(Guess::of).unwrap_or_default()
    }

    /// What is inside a list or a map.
    fn inside(&self) -> Guess<'s> {
        let inside = self.schema.and_then(names::within);
        inside.map_or(Guess { size: self.item, ..Guess::default() }, Guess::of)
    }

    /// What a loop with one variable goes over: the items of a list, the keys of a map.
    fn turns(&self) -> Guess<'s> {
        let is_map = self.schema.is_some_and(|schema| schema.type_() == "object");
        if is_map { Guess { size: Some(0), ..Guess::default() } } else { self.inside() }
    }
}

fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

struct Estimator<'s> {
    scope: Vec<(String, Guess<'s>)>,
}

impl<'s> Estimator<'s> {
    fn read(&mut self, node: &IdedExpr) -> Guess<'s> {
        match &node.expr {
            Expr::Literal(literal) => Guess {
                size: Some(match literal {
                    LiteralValue::String(text) => text.inner().chars().count() as u64,
                    LiteralValue::Bytes(bytes) => bytes.inner().len() as u64,
                    _ => 1,
                }),
                ..Guess::default()
            },
            Expr::Ident(name) => {
                let known = self.scope.iter().rev().find(|(known, _)| known == name).map(|(_, guess)| *guess);
                Guess { cost: 1, ..known.unwrap_or_default() }
            }
            Expr::Select(select) => {
                let of = self.read(&select.operand);
                let cost = of.cost.saturating_add(1);
                if select.test { Guess::costs(cost) } else { Guess { cost, ..of.field(&select.field) } }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let all: Vec<Guess<'s>> = list.elements.iter().map(|element| self.read(element)).collect();
                Guess {
                    cost: sum(&all).saturating_add(10),
                    schema: None,
                    size: Some(all.len() as u64),
                    item: all.iter().map(Guess::length).max(),
                    endless: false,
                }
            }
            Expr::Map(map) => {
                let cost = self.entries(map.entries.iter().map(|entry| &entry.expr));
                Guess { size: Some(map.entries.len() as u64), ..Guess::costs(cost.saturating_add(30)) }
            }
            Expr::Struct(made) => {
                let cost = self.entries(made.entries.iter().map(|entry| &entry.expr));
                Guess::costs(cost.saturating_add(40))
            }
            Expr::Comprehension(inner) => self.comprehension(inner),
            Expr::Unspecified => Guess::default(),
        }
    }

    fn entries<'e>(&mut self, entries: impl Iterator<Item = &'e EntryExpr>) -> u64 {
        entries.fold(0, |cost, entry| {
            cost.saturating_add(match entry {
                EntryExpr::StructField(field) => self.read(&field.value).cost,
                EntryExpr::MapEntry(entry) => {
                    self.read(&entry.key).cost.saturating_add(self.read(&entry.value).cost)
                }
            })
        })
    }

    fn comprehension(&mut self, inner: &ComprehensionExpr) -> Guess<'s> {
        let over = self.read(&inner.iter_range);
        let start = self.read(&inner.accu_init);
        let depth = self.scope.len();
        self.scope.push((inner.accu_var.clone(), start));
        match &inner.iter_var2 {
            Some(second) => {
                self.scope.push((inner.iter_var.clone(), Guess { size: Some(1), ..Guess::default() }));
                self.scope.push((second.clone(), over.inside()));
            }
            None => self.scope.push((inner.iter_var.clone(), over.turns())),
        }
        let (condition, step) = (self.read(&inner.loop_cond), self.read(&inner.loop_step));
        self.scope.truncate(depth + 1);
        let result = self.read(&inner.result);
        self.scope.truncate(depth);
        let turns = over.length().saturating_mul(condition.cost.saturating_add(step.cost));
        let cost = over.cost.saturating_add(start.cost).saturating_add(result.cost).saturating_add(turns);
        match &inner.accu_init.expr {
            Expr::List(_) | Expr::Map(_) => Guess { size: over.size, item: step.item, ..Guess::costs(cost) },
            _ => Guess::costs(cost),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Guess<'s> {
        let target = call.target.as_deref().map(|target| self.read(target));
        let args: Vec<Guess<'s>> = call.args.iter().map(|arg| self.read(arg)).collect();
        let before = sum(&args).saturating_add(target.map_or(0, |target| target.cost));
        let name = call.func_name.as_str();
        let made = match (name, args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, _) => return Guess::costs(before),
            (operators::CONDITIONAL, [condition, yes, no]) => Guess {
                cost: condition.cost.saturating_add(yes.cost.max(no.cost)),
                schema: yes.schema.or(no.schema),
                size: yes.size.max(no.size),
                item: yes.item.max(no.item),
                endless: yes.endless || no.endless,
            },
            (operators::INDEX, [of, _]) => Guess { cost: 1, ..of.inside() },
            (operators::ADD, [a, b]) => {
                let endless = (a.endless || b.endless) && call.args.iter().any(is_text);
                let size = if endless { u64::MAX } else { a.length().saturating_add(b.length()) };
                let lists =
                    [a, b].iter().any(|side| side.schema.is_some_and(|schema| schema.type_() == "array"))
                        || matches!(call.args[1].expr, Expr::List(_));
                Guess {
                    cost: if lists { 1 } else { tenth(size) },
                    schema: None,
                    size: Some(size),
                    item: a.item.max(b.item),
                    endless,
                }
            }
            (operators::IN, [_, list]) => Guess::costs(list.length()),
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                [a, b],
            ) => Guess::costs(tenth(match (a.size, b.size) {
                (Some(a), Some(b)) => a.min(b),
                (a, b) => a.or(b).unwrap_or(1),
            })),
            ("split", [_, _]) if target.is_some() => {
                let made = function(name, target, &args);
                Guess { size: limit_of(&call.args[1]).or(made.size), ..made }
            }
            // Upstream knows no longest part of a text.
            ("join", _)
                if is_split(call.target.as_deref()) && target.is_some_and(|list| list.length() > 0) =>
            {
                Guess::costs(u64::MAX)
            }
            _ => function(name, target, &args),
        };
        match name {
            operators::CONDITIONAL => made,
            _ => Guess { cost: made.cost.saturating_add(before), ..made },
        }
    }
}

/// Whether an expression is a text, as far as that can be told without types.
fn is_text(node: &IdedExpr) -> bool {
    match &node.expr {
        Expr::Literal(LiteralValue::String(_)) => true,
        Expr::Call(call) => match call.func_name.as_str() {
            operators::ADD => call.args.iter().any(is_text),
            name => name == "string" && call.target.is_none(),
        },
        _ => false,
    }
}

/// Whether an expression is the parts of a text.
fn is_split(node: Option<&IdedExpr>) -> bool {
    matches!(node.map(|node| &node.expr), Some(Expr::Call(call)) if call.func_name == "split")
}

/// How many parts an expression asks for, if it says so itself.
fn limit_of(node: &IdedExpr) -> Option<u64> {
    match &node.expr {
        Expr::Literal(LiteralValue::Int(limit)) => u64::try_from(*limit.inner()).ok(),
        _ => None,
    }
}

fn sum(all: &[Guess<'_>]) -> u64 {
    all.iter().fold(0, |cost, guess| cost.saturating_add(guess.cost))
}

/// Whether the schema of a value says that it is a number or a truth value.
fn is_scalar(of: Guess<'_>) -> bool {
    of.schema.is_some_and(|schema| {
        matches!(schema.type_().text(), "integer" | "number" | "boolean")
            && !schema.x_kubernetes_int_or_string().flag()
    })
}

/// The cost of a function itself, and the size of what it gives.
fn function<'s>(name: &str, target: Option<Guess<'s>>, args: &[Guess<'s>]) -> Guess<'s> {
    // Functions that are called on a value may be called with it as well.
    let (of, rest) = match (target, args) {
        (Some(target), args) => (target, args),
        (None, [first, rest @ ..]) => (*first, rest),
        (None, []) => return Guess::costs(1),
    };
    let length = of.length();
    let other = |at: usize| rest.get(at).map_or(0, Guess::length);
    let sized = |cost: u64, size: u64| Guess { size: Some(size), ..Guess::costs(cost) };
    match name {
        "startsWith" | "endsWith" => Guess::costs(tenth(other(0))),
        "matches" => Guess::costs(tenth(length.saturating_add(1)).saturating_mul(other(0).div_ceil(4))),
        "find" | "findAll" => {
            sized(tenth(length.saturating_add(1)).saturating_mul(other(0).div_ceil(4)), length)
        }
        "contains" => Guess::costs(tenth(length).saturating_mul(tenth(other(0)))),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            let item = of.inside();
            let is_text = item.schema.is_some_and(|schema| schema.type_() == "string");
            Guess::costs(if is_text { length.saturating_mul(1 + tenth(item.length())) } else { length })
        }
        "lowerAscii" | "upperAscii" | "substring" | "trim" => sized(tenth(length), length),
        "replace" => {
            let size = match (other(0), other(1)) {
                (0, with) => length.saturating_add(1).saturating_mul(with).saturating_add(length),
                (what, with) if with <= what => length,
                (what, with) => length.div_ceil(what).saturating_mul(with),
            };
            sized(length.div_ceil(5), size)
        }
        "split" => sized(length.div_ceil(5), length),
        "join" => {
            let separators = other(0).saturating_mul(length.saturating_sub(1));
            let size = length.saturating_mul(of.inside().length()).saturating_add(separators);
            sized(tenth(size), size)
        }
        "bytes" | "quote" | "format" | "url" | "isURL" | "ip" | "isIP" | "cidr" | "isCIDR" | "quantity"
        | "isQuantity" | "semver" | "isSemver" => sized(tenth(length).max(1), length),
        "validate" => Guess::costs(tenth(other(0)).saturating_mul(NAME_PATTERN / 4)),
        // What an optional holds has no size for upstream, nor has the text of a number.
        "value" if target.is_some() => Guess { endless: true, ..Guess::costs(1) },
        "string" if target.is_none() => Guess { endless: is_scalar(of), ..Guess::costs(1) },
        _ => Guess::costs(1),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::compile;
    use super::*;
    use serde_json::json;

    fn costs(schema: &Value, text: &str) -> u64 {
        cost(&compile(text).unwrap(), &[("self", schema)])
    }

    /// Bounds that upstream's own validator draws.
    #[test]
    fn estimates_are_those_of_upstream() {
        let tags = |items: u64, length: u64| json!({"type": "array", "maxItems": items, "items": {"type": "string", "maxLength": length}});
        for (length, items) in [(16, 909_090), (63, 333_333), (253, 94_339), (1024, 24_154)] {
            let cost = |items| costs(&tags(items, length), "self.all(x, x.contains('gpu'))");
            assert!(cost(items) <= RULE && cost(items + 1) > RULE, "{length}: {}", cost(items));
        }
    }

    #[test]
    fn unbounded_values_cost_what_a_request_can_hold() {
        let list = json!({"type": "array", "items": {"type": "integer"}});
        assert!(costs(&list, "self.all(x, x > 0)") <= RULE);
        assert!(costs(&list, "self.all(x, self.all(y, x != y))") > 100 * RULE);
        let object = json!({"type": "object", "properties": {"a": {"type": "string"}, "b-c": {"type": "string"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}}, "mode": {"type": "string", "enum": ["on", "off"]}}});
        assert!(costs(&object, "self.a == 'x' && self.mode in ['on', 'off'] && has(self.map.x)") < 100);
        assert!(costs(&object, "self.a.contains(self.b__dash__c)") > RULE);
        assert!(costs(&object, "self.map.all(k, self.map[k].matches('^[a-z]+$'))") > RULE);
        assert_eq!(costs(&object, "true"), 0);
    }

    #[test]
    fn formats_cost_what_their_patterns_do() {
        let of = |text: Value| json!({"type": "object", "properties": {"s": text}});
        let rule = "format.dns1123Label().validate(self.s).hasValue()";
        let cost = costs(&of(json!({"type": "string"})), rule);
        assert!(cost > RULE && cost < RULE + RULE / 100, "{cost}");
        assert!(costs(&of(json!({"type": "string", "maxLength": 50})), rule) < 1000);
        let whole = names::of_root(&json!({"type": "object"}));
        let named = "!format.dns1123Label().validate(self.metadata.name).hasValue()";
        assert!(costs(&whole, named) > RULE);
    }

    #[test]
    fn texts_that_upstream_takes_for_endless() {
        let schema = json!({"type": "object", "properties": {"s": {"type": "string", "maxLength": 50},
            "i": {"type": "integer"}, "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}}}});
        for (rule, is_endless) in [
            ("self.s.split(',', 2).join('-') == 'a-b'", true),
            ("self.s.split(',').join('-') == 'a-b'", true),
            ("self.s.split(',', 0).join('-') == ''", false),
            ("self.s.split(',', 2).all(part, part != '')", false),
            ("self.l.join('-') == 'a-b'", false),
            ("self.?s.optMap(v, v + 'a').orValue('') == 'b'", true),
            ("self.?s.optMap(v, 'a' + 'b' + v).orValue('') == 'b'", true),
            ("self.?i.optMap(v, v + 1).orValue(1) == 2", false),
            ("self.?s.optMap(v, v == 'a').orValue(true)", false),
            ("'x' + string(self.i) == 'x1'", true),
            ("'x' + self.s + string(self.i) == 'x1'", true),
            ("string(self.i) == '1' && self.s == string(self.i)", false),
            ("self.i + 1 == 2 && self.s + 'x' == 'yx'", false),
        ] {
            let cost = costs(&schema, rule);
            assert_eq!(cost > 100 * RULE, is_endless, "{rule}: {cost}");
            assert!(is_endless || cost < 1000, "{rule}: {cost}");
        }
    }

    #[test]
    fn messages() {
        let said = message("estimated rule cost", 25_000_000, RULE);
        assert!(
            said.starts_with(
                "estimated rule cost exceeds budget by factor of 2.5x (try simplifying the rule"
            ),
            "{said}"
        );
        assert!(message("it", u64::MAX, RULE).contains("by factor of more than 100x"));
    }
}
