//! The types of all parts of an expression, and what does not fit.

use super::Type;
use super::functions::{self, Overload};
use super::literals;
use super::unify::{Bindings, is_exactly, more_general, renamed};
use crate::error::located;
use crate::messages;
use crate::names::{escaped, is_reserved};
use crate::objects::{self, PatchForm};
use crate::program::on_large_stack;
use crate::{Program, StackError};
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, StructExpr,
    operators,
};
use std::collections::HashMap;

/// How many type errors of an expression are shown, as upstream: each of them repeats the line.
const SHOWN: usize = 100;

/// The type that an expression calls by a name.
fn named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::Map(Box::new(Type::Dyn), Box::new(Type::Dyn)),
        "null_type" => Type::Null,
        "optional_type" => Type::Optional(Box::new(Type::Dyn)),
        "string" => Type::String,
        "type" => Type::type_of(Type::Dyn),
        "uint" => Type::Uint,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "net.CIDR" | "net.IP" => Type::Opaque(name.into()),
        _ => return None,
    })
}

/// Why an expression has no type.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Its type errors, one after the other, each with its place.
    #[error("{0}")]
    Types(String),
    /// Its value has another type than it must have.
    #[error("must evaluate to {wanted} but got {found}")]
    Outcome {
        /// The types that it may have.
        wanted: String,
        /// The type that it has.
        found: String,
    },
    /// It could not be checked.
    #[error(transparent)]
    Stack(#[from] StackError),
}

/// Checks an expression. `variables` are the names that it may use.
pub fn check(program: &Program, variables: &[(&str, Type)]) -> Result<Type, CheckError> {
    checked(program, variables, false)
}

/// The same, of an expression whose value has one of these types.
pub fn check_outcome(
    program: &Program,
    variables: &[(&str, Type)],
    wanted: &[Type],
) -> Result<Type, CheckError> {
    outcome(checked(program, variables, false)?, wanted)
}

/// The same of a mutation, which may construct objects and has to evaluate to a patch.
pub fn check_patch(
    program: &Program,
    variables: &[(&str, Type)],
    form: PatchForm,
) -> Result<Type, CheckError> {
    outcome(checked(program, variables, true)?, &[objects::type_of(form)])
}

fn outcome(found: Type, wanted: &[Type]) -> Result<Type, CheckError> {
    if wanted.iter().any(|wanted| is_exactly(wanted, &found)) {
        return Ok(found);
    }
    let name = |of: &Type| if *of == Type::Null { "null_type".to_owned() } else { of.to_string() };
    let found = name(&found);
    let wanted = match wanted {
        [one] => name(one),
        several => format!("one of [{}]", several.iter().map(name).collect::<Vec<_>>().join(" ")),
    };
    Err(CheckError::Outcome { wanted, found })
}

fn checked(program: &Program, variables: &[(&str, Type)], constructs: bool) -> Result<Type, CheckError> {
    let checked = on_large_stack(|| {
        let scope = variables.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).collect();
        let mut checker = Checker {
            scope,
            constructs,
            bindings: Bindings::default(),
            types: HashMap::new(),
            errors: Vec::new(),
        };
        checker.read(program.expression());
        let found = checker.type_of(program.expression().id);
        if checker.errors.is_empty() {
            checker.errors = literals::mistakes(program.expression(), &|id| checker.type_of(id));
        }
        if checker.bindings.is_exceeded() {
            let why = "the types of the expression are too large".to_owned();
            checker.errors = vec![(program.expression().id, why)];
        }
        (found, checker.errors)
    });
    let (found, mut errors) = checked?;
    if errors.is_empty() {
        return Ok(found);
    }
    let start = |id: u64| program.source_info().offset_for(id).map_or(0, |(start, _)| start);
    errors.sort_by_key(|(id, _)| start(*id));
    let shown = errors.iter().take(SHOWN);
    let mut lines: Vec<String> = shown.map(|(id, why)| located(program.source_info(), *id, why)).collect();
    if errors.len() > SHOWN {
        lines.push(format!("{} more errors were truncated", errors.len() - SHOWN));
    }
    Err(CheckError::Types(lines.join("\n")))
}

/// A type variable that stands for nothing can be any type.
fn without_variables(of: Type) -> Type {
    match of {
        Type::Variable(_) => Type::Dyn,
        Type::Type(of) => Type::type_of(without_variables(*of)),
        Type::List(item) => Type::list(without_variables(*item)),
        Type::Optional(item) => Type::Optional(Box::new(without_variables(*item))),
        Type::Map(key, value) => {
            Type::Map(Box::new(without_variables(*key)), Box::new(without_variables(*value)))
        }
        other => other,
    }
}

struct Checker {
    scope: Vec<(String, Type)>,
    /// Whether the expression may construct objects.
    constructs: bool,
    bindings: Bindings,
    /// The types of all parts, some of which are known better later.
    types: HashMap<u64, Type>,
    errors: Vec<(u64, String)>,
}

impl Checker {
    fn error(&mut self, id: u64, why: String) -> Type {
        self.errors.push((id, why));
        Type::Error
    }

    fn undeclared(&mut self, id: u64, name: &str) -> Type {
        self.error(id, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn mismatch(&mut self, id: u64, expected: &Type, found: &Type) -> Type {
        let (expected, found) = (self.bindings.resolve(expected), self.bindings.resolve(found));
        self.error(id, format!("expected type '{expected}' but found '{found}'"))
    }

    /// The type of a part of the expression when all of it has been read.
    fn type_of(&self, id: u64) -> Type {
        self.types.get(&id).map_or(Type::Dyn, |of| without_variables(self.bindings.resolve(of)))
    }

    fn read(&mut self, node: &IdedExpr) -> Type {
        let found = self.read_part(node);
        self.bindings.count(&found);
        if self.bindings.is_exceeded() {
            return Type::Error;
        }
        self.types.insert(node.id, found.clone());
        found
    }

    fn read_part(&mut self, node: &IdedExpr) -> Type {
        match &node.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::UInt(_) => Type::Uint,
                LiteralValue::String(_) => Type::String,
                LiteralValue::Null => Type::Null,
            },
            Expr::Ident(name) => self.ident(name).unwrap_or_else(|| self.undeclared(node.id, name)),
            Expr::Select(select) => {
                if let Some(name) = qualified(node).filter(|_| !select.test) {
                    if let Some(of) = named(&name) {
                        return Type::type_of(of);
                    }
                    // A variable whose own name has a dot.
                    if let Some(known) = self.ident(&name) {
                        return known;
                    }
                }
                let of = self.read(&select.operand);
                let found = self.select(node.id, &of, &select.field, false);
                if select.test { Type::Bool } else { found }
            }
            Expr::Call(call) => self.call(node.id, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(made) => self.construct(node.id, made),
            Expr::Comprehension(inner) => self.comprehension(inner),
            Expr::Unspecified => Type::Error,
        }
    }

    fn ident(&self, name: &str) -> Option<Type> {
        let known = self.scope.iter().rev().find(|(known, _)| known == name).map(|(_, of)| of.clone());
        let made = || (self.constructs && objects::is_type(name)).then(|| objects::constructed(name));
        known.or_else(|| named(name).or_else(made).map(Type::type_of))
    }

    /// The ways to call a function; those for patches are for mutations only.
    fn overloads(&self, name: &str) -> Option<&'static [Overload]> {
        let is_there = self.constructs || !name.starts_with(objects::PATCH_FUNCTIONS);
        is_there.then(|| functions::find(name)).flatten()
    }

    fn select(&mut self, id: u64, of: &Type, field: &str, optional: bool) -> Type {
        let of = self.bindings.resolve(of);
        let (target, was_optional) = match &of {
            Type::Optional(inside) => (&**inside, true),
            other => (other, false),
        };
        let found = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match object.fields.get(field) {
                Some(found) => found.clone(),
                None if is_reserved(field) && object.fields.contains_key(&escaped(field)) => {
                    object.fields.get(&escaped(field)).cloned().unwrap_or(Type::Dyn)
                }
                None if self.constructs && objects::has_any_field(&object.name) => Type::Dyn,
                None => self.error(id, format!("undefined field '{field}'")),
            },
            Type::Variable(_) => {
                self.bindings.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                self.error(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if was_optional || optional { Type::Optional(Box::new(found)) } else { found }
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Type {
        let name = call.func_name.as_str();
        if name == operators::OPT_SELECT {
            return self.optional_select(id, call);
        }
        let mut arguments: Vec<Type> = call.args.iter().map(|argument| self.read(argument)).collect();
        if matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR) {
            return self.logical(call, &arguments);
        }
        let Some(target) = &call.target else {
            return match self.overloads(name) {
                Some(overloads) => self.overload(id, name, overloads, &arguments, false),
                // Where `math.greatest` was written, the macro made something else of it.
                None => self.undeclared(id, name.split(".@").next().unwrap_or(name)),
            };
        };
        // `a.b.c()` is the function `a.b.c`, or `c` called on `a.b`.
        let whole = qualified(target).map(|prefix| format!("{prefix}.{name}"));
        if let Some(whole) = whole
            && let Some(overloads) = self.overloads(&whole)
        {
            return self.overload(id, &whole, overloads, &arguments, false);
        }
        let of = self.read(target);
        arguments.insert(0, of);
        match self.overloads(name) {
            Some(overloads) => self.overload(id, name, overloads, &arguments, true),
            None => self.undeclared(id, name),
        }
    }

    fn optional_select(&mut self, id: u64, call: &CallExpr) -> Type {
        let [operand, field] = call.args.as_slice() else { return Type::Error };
        let Expr::Literal(LiteralValue::String(field)) = &field.expr else { return Type::Error };
        let field = field.inner().to_owned();
        let of = self.read(operand);
        self.select(id, &of, &field, true)
    }

    fn logical(&mut self, call: &CallExpr, arguments: &[Type]) -> Type {
        let mut found = Type::Bool;
        for (node, of) in call.args.iter().zip(arguments) {
            if !self.bindings.assignable(of, &Type::Bool) {
                found = self.mismatch(node.id, &Type::Bool, of);
            }
        }
        found
    }

    /// The result of a call: the type on which all overloads that fit agree.
    fn overload(
        &mut self,
        id: u64,
        name: &str,
        overloads: &[Overload],
        arguments: &[Type],
        is_member: bool,
    ) -> Type {
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|overload| overload.is_member == is_member) {
            let variables: Vec<Type> = (0..overload.variables).map(|_| self.bindings.fresh()).collect();
            let places: Vec<Type> = overload.arguments.iter().map(|of| renamed(of, &variables)).collect();
            if !self.bindings.all_assignable(arguments, &places) {
                continue;
            }
            let found = self.bindings.resolve(&renamed(&overload.result, &variables));
            result = Some(match result {
                None => found,
                Some(before) if before == found => found,
                Some(_) => Type::Dyn,
            });
        }
        result.unwrap_or_else(|| {
            let shown: Vec<String> =
                arguments.iter().map(|of| self.bindings.resolve(of).to_string()).collect();
            let signature = match (is_member, shown.as_slice()) {
                (true, [target, rest @ ..]) => format!("{target}.({})", rest.join(", ")),
                _ => format!("({})", shown.join(", ")),
            };
            self.error(id, format!("found no matching overload for '{name}' applied to '{signature}'"))
        })
    }

    fn list(&mut self, list: &ListExpr) -> Type {
        let mut items: Option<Type> = None;
        for (at, element) in list.elements.iter().enumerate() {
            let of = self.read(element);
            let of = if list.optional_indices.contains(&at) { self.unwrapped(element.id, of) } else { of };
            items = Some(self.joined(items, of));
        }
        Type::list(items.unwrap_or_else(|| self.bindings.fresh()))
    }

    fn map(&mut self, map: &MapExpr) -> Type {
        let (mut keys, mut values): (Option<Type>, Option<Type>) = (None, None);
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.read(&entry.key);
            keys = Some(self.joined(keys, key));
            let value = self.read(&entry.value);
            let value = if entry.optional { self.unwrapped(entry.value.id, value) } else { value };
            values = Some(self.joined(values, value));
        }
        let key = keys.unwrap_or_else(|| self.bindings.fresh());
        Type::Map(Box::new(key), Box::new(values.unwrap_or_else(|| self.bindings.fresh())))
    }

    fn construct(&mut self, id: u64, made: &StructExpr) -> Type {
        let message = messages::find(&made.type_name);
        let patch = || {
            (self.constructs && objects::is_type(&made.type_name))
                .then(|| objects::constructed(&made.type_name))
        };
        let of = message.as_ref().map(|message| message.constructed.clone()).or_else(patch);
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            let value = self.read(&field.value);
            let value = if field.optional { self.unwrapped(field.value.id, value) } else { value };
            let Some(of) = &of else { continue };
            let place = self.select(entry.id, of, &field.field, false);
            if !self.bindings.assignable(&place, &value) {
                let (place, value) = (self.bindings.resolve(&place), self.bindings.resolve(&value));
                let name = &field.field;
                self.error(
                    entry.id,
                    format!("expected type of field '{name}' is '{place}' but provided type is '{value}'"),
                );
            }
        }
        message.map(|message| message.of).or(of).unwrap_or_else(|| self.undeclared(id, &made.type_name))
    }

    fn unwrapped(&mut self, id: u64, of: Type) -> Type {
        match self.bindings.resolve(&of) {
            Type::Optional(inside) => *inside,
            same @ (Type::Dyn | Type::Any) => same,
            other => self.mismatch(id, &Type::Optional(Box::new(other.clone())), &other),
        }
    }

    /// The type of items of a list, or of entries of a map, of which some have been read before.
    fn joined(&mut self, before: Option<Type>, now: Type) -> Type {
        match before {
            None => now,
            Some(before) if self.bindings.assignable(&before, &now) => more_general(before, now),
            // A mistake, but not in the arguments of formats.
            Some(_) => Type::Dyn,
        }
    }

    fn comprehension(&mut self, inner: &ComprehensionExpr) -> Type {
        let over = self.read(&inner.iter_range);
        let start = self.read(&inner.accu_init);
        let two = inner.iter_var2.is_some();
        let (first, second) = match self.bindings.resolve(&over) {
            Type::List(item) if two => (Type::Int, *item),
            Type::List(item) => (*item, Type::Dyn),
            Type::Map(key, value) => (*key, *value),
            other @ (Type::Dyn | Type::Error | Type::Variable(_)) => {
                self.bindings.assignable(&Type::Dyn, &other);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                (self.error(inner.iter_range.id, why), Type::Error)
            }
        };
        let depth = self.scope.len();
        self.scope.push((inner.accu_var.clone(), start.clone()));
        self.scope.push((inner.iter_var.clone(), first));
        if let Some(name) = &inner.iter_var2 {
            self.scope.push((name.clone(), second));
        }
        for (part, expected) in [(&inner.loop_cond, &Type::Bool), (&inner.loop_step, &start)] {
            let found = self.read(part);
            if !self.bindings.assignable(&found, expected) {
                self.mismatch(part.id, expected, &found);
            }
        }
        self.scope.truncate(depth + 1);
        let result = self.read(&inner.result);
        self.scope.truncate(depth);
        self.bindings.resolve(&result)
    }
}

/// `a.b.c` of selections, which may be the name of a function.
fn qualified(node: &IdedExpr) -> Option<String> {
    match &node.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified(&select.operand)?, select.field))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
