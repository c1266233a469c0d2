//! Strategic merge patch: a partial object whose lists merge by key, with directives for what a merge cannot say.

use super::rejected;
use super::types::{Shape, Type};
use coracle_proto::status::ApiError;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Why a patch cannot be applied.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StrategicError {
    /// `$deleteFromPrimitiveList` is not a list.
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    /// `$retainKeys` is not a list, or leaves out a key that the patch sets.
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    /// `$setElementOrder` is not a list.
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    /// A list holds lists.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// The patch's items are not in the order it asks for.
    #[error("The order in patch list:\n{0}\n doesn't match $setElementOrder list:\n{1}\n")]
    OrderMismatch(String, String),
    /// An item lacks the field that tells it apart.
    #[error("map: {0} does not contain declared merge key: {1}")]
    NoMergeKey(String, String),
    /// `$patch` says something unknown.
    #[error("unknown patch type: {0} in map: {1}")]
    UnknownDirective(String, String),
    /// `$patch: merge` in a list item.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    /// A value of one JSON type where another is needed.
    #[error("expected a {0}, but received a {1}")]
    WrongType(&'static str, &'static str),
    /// Items of a merged list are of several JSON types.
    #[error("list element types are not identical: {0}")]
    MixedList(String),
}

impl From<StrategicError> for ApiError {
    fn from(error: StrategicError) -> Self {
        use StrategicError as E;
        match error {
            E::PrimitiveList | E::RetainKeys | E::SetElementOrder => ApiError::bad_request(error.to_string()),
            E::ListOfLists
            | E::NoMergeKey(..)
            | E::WrongType(..)
            | E::MixedList(_)
            | E::OrderMismatch(..) => rejected(error),
            E::UnknownDirective(..) | E::MergeDirective => ApiError::new(500, "", error.to_string()),
        }
    }
}

type Result<T> = std::result::Result<T, StrategicError>;
type Object = Map<String, Value>;

/// Applies a patch to an object of a type. 415 when the type is not known: such objects take other patches.
pub fn apply(object: &Value, patch: &Value, ty: Type) -> std::result::Result<Value, ApiError> {
    if matches!(ty, Type::Deduced | Type::Opaque) {
        return Err(ApiError::unsupported_media_type("strategic merge patch format is not supported"));
    }
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(ApiError::bad_request("error decoding patch: a strategic merge patch must be an object"));
    };
    Ok(Value::Object(merge_map(object.clone(), patch.clone(), ty)?))
}

fn merge_map(mut object: Object, mut patch: Object, ty: Type) -> Result<Object> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(Value::String(s)) if s == "replace" => return Ok(patch),
        Some(Value::String(s)) if s == "delete" => return Ok(Object::new()),
        Some(Value::String(s)) if s == "merge" => {}
        Some(other) => {
            return Err(StrategicError::UnknownDirective(plain(&other), Value::Object(patch).to_string()));
        }
    }
    retain_keys(&mut object, &mut patch)?;
    set_orders(&mut object, &mut patch, ty)?;
    for (key, value) in patch {
        if let Some(name) = key.strip_prefix(DELETE_FROM) {
            let Value::Array(gone) = value else { return Err(StrategicError::PrimitiveList) };
            if let Some(Value::Array(items)) = object.get_mut(name) {
                let gone: HashSet<Value> = gone.into_iter().collect();
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if value.is_null() {
            object.remove(&key);
            continue;
        }
        let merged = match (object.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) if !replaces(ty, &key) => {
                Some(Value::Object(merge_map(old, new, ty.child(&key))?))
            }
            (Some(Value::Object(_)), new @ Value::Object(_)) => Some(new),
            (Some(Value::Array(old)), Value::Array(new)) => {
                Some(Value::Array(merge_field_list(old, new, ty, &key)?))
            }
            (_, new) => fresh(new),
        };
        if let Some(merged) = merged {
            object.insert(key, merged);
        }
    }
    Ok(object)
}

fn replaces(ty: Type, key: &str) -> bool {
    ty.field(key).and_then(|f| f.patch.as_deref()).is_some_and(|p| p.replace)
}

/// Whether the list in a field merges, and by which key.
fn list_strategy<'s>(ty: Type<'s>, key: &str) -> Option<&'s str> {
    let patch = ty.field(key)?.patch.as_deref()?;
    patch.merge.then(|| patch.key.as_deref().unwrap_or_default())
}

/// A value that meets nothing in the object: directives and nulls in it say nothing.
fn fresh(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(k, v)| !v.is_null() && !is_directive(k));
            Some(Value::Object(kept.filter_map(|(k, v)| Some((k, fresh(v)?))).collect()))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(fresh).collect()),
        other => Some(other),
    }
}

fn is_directive(key: &str) -> bool {
    key == RETAIN_KEYS || key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER)
}

/// `$retainKeys` drops every key of the object that it does not list.
fn retain_keys(object: &mut Object, patch: &mut Object) -> Result<()> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(StrategicError::RetainKeys) };
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let listed = |key: &str| keys.contains(key);
    if patch.iter().any(|(k, v)| !v.is_null() && !is_directive(k) && !listed(k)) {
        return Err(StrategicError::RetainKeys);
    }
    object.retain(|key, _| listed(key));
    Ok(())
}

/// Merges the lists that come with `$setElementOrder` and puts them into that order.
fn set_orders(object: &mut Object, patch: &mut Object, ty: Type) -> Result<()> {
    let orders: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
    for directive in orders {
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err(StrategicError::SetElementOrder);
        };
        let name = directive[SET_ORDER.len()..].to_owned();
        let live = list(object.remove(&name))?;
        let changes = list(patch.remove(&name))?;
        let Some(key) = list_strategy(ty, &name) else {
            // A list that does not merge takes the patch's items, which already are in order.
            if let Some(items) = changes.or(live) {
                object.insert(name, Value::Array(items));
            }
            continue;
        };
        check_order(changes.as_deref().unwrap_or_default(), &order, key)?;
        let before = live.clone().unwrap_or_default();
        let merged = match (live, changes) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(changes)) => changes.into_iter().filter_map(fresh).collect(),
            (Some(live), Some(changes)) => merge_list(live, changes, ty.child(&name).item(), key)?,
        };
        object.insert(name, Value::Array(in_order(merged, &order, &before, key)?));
    }
    Ok(())
}

fn list(value: Option<Value>) -> Result<Option<Vec<Value>>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(StrategicError::WrongType("[]interface {}", json_type(&other))),
    }
}

/// The patch's items must come in the order that the directive gives.
fn check_order(changes: &[Value], order: &[Value], key: &str) -> Result<()> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in changes.iter().filter(|i| i.get(DIRECTIVE).is_none()) {
        let mut found = false;
        for place in rest.by_ref() {
            if id(item, key)? == id(place, key)? {
                found = true;
                break;
            }
        }
        if !found {
            let text = |items: &[Value]| items.iter().map(Value::to_string).collect::<Vec<_>>().join(" ");
            return Err(StrategicError::OrderMismatch(text(changes), text(order)));
        }
    }
    Ok(())
}

fn merge_field_list(old: Vec<Value>, new: Vec<Value>, ty: Type, key: &str) -> Result<Vec<Value>> {
    match list_strategy(ty, key) {
        Some(merge_key) => {
            let before = old.clone();
            let order: Vec<Value> = new.iter().filter(|i| i.get(DIRECTIVE).is_none()).cloned().collect();
            let merged = merge_list(old, new, ty.child(key).item(), merge_key)?;
            in_order(merged, &order, &before, merge_key)
        }
        None => Ok(new.into_iter().filter(|i| i.get(DIRECTIVE).is_none()).collect()),
    }
}

/// Merges items by key, or by value when the key is empty; the order is put right by the caller.
fn merge_list(mut old: Vec<Value>, new: Vec<Value>, of: Type, key: &str) -> Result<Vec<Value>> {
    check_items(old.iter().chain(&new))?;
    let objects = matches!(of.shape(), Shape::Struct { .. }) || new.iter().chain(&old).any(Value::is_object);
    if !objects {
        let mut seen = HashSet::new();
        return Ok(old.into_iter().chain(new).filter(|item| seen.insert(item.clone())).collect());
    }
    let (special, changes): (Vec<Value>, Vec<Value>) =
        new.into_iter().partition(|i| i.get(DIRECTIVE).is_some());
    let mut gone = HashSet::new();
    for item in &special {
        match item[DIRECTIVE].as_str() {
            Some("replace") => return Ok(changes),
            Some("delete") => {
                gone.insert(id(item, key)?);
            }
            Some("merge") => return Err(StrategicError::MergeDirective),
            _ => return Err(StrategicError::UnknownDirective(plain(&item[DIRECTIVE]), item.to_string())),
        }
    }
    old.retain(|item| item.get(key).is_none_or(|id| !gone.contains(id)));
    // The first of those that share a key is the one that changes.
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(old.len());
    for (place, item) in old.iter().enumerate() {
        if let Some(id) = item.get(key) {
            places.entry(id.clone()).or_insert(place);
        }
    }
    for item in changes {
        let wanted = id(&item, key)?.clone();
        let Some(place) = places.get(&wanted).copied() else {
            if let Some(item) = fresh(item) {
                // What is null is not there.
                if item.get(key) == Some(&wanted) {
                    places.insert(wanted, old.len());
                }
                old.push(item);
            }
            continue;
        };
        let slot = &mut old[place];
        let (Value::Object(before), Value::Object(change)) = (slot.take(), item) else {
            return Err(StrategicError::WrongType("map[string]interface {}", "value"));
        };
        *slot = Value::Object(merge_map(before, change, of)?);
    }
    Ok(old)
}

fn check_items<'a>(items: impl Iterator<Item = &'a Value>) -> Result<()> {
    let mut first: Option<&Value> = None;
    for item in items {
        if item.is_array() {
            return Err(StrategicError::ListOfLists);
        }
        match first {
            None => first = Some(item),
            Some(other) if json_type(other) != json_type(item) => {
                return Err(StrategicError::MixedList(format!("{other} {item}")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What tells an item apart: its merge key, or itself.
fn id<'v>(item: &'v Value, key: &str) -> Result<&'v Value> {
    if key.is_empty() {
        return Ok(item);
    }
    match item {
        Value::Object(map) => {
            map.get(key).ok_or_else(|| StrategicError::NoMergeKey(item.to_string(), key.to_owned()))
        }
        other => Err(StrategicError::WrongType("map[string]interface {}", json_type(other))),
    }
}

/// Where items are, by what tells them apart; the first of those that share it.
fn places<'v>(list: &'v [Value], key: &str) -> HashMap<&'v Value, usize> {
    let mut places = HashMap::with_capacity(list.len());
    for (place, item) in list.iter().enumerate() {
        if let Ok(id) = id(item, key) {
            places.entry(id).or_insert(place);
        }
    }
    places
}

/// Items of the patch in the order it wants, the others in the order they had, interleaved by that old order.
fn in_order(merged: Vec<Value>, order: &[Value], before: &[Value], key: &str) -> Result<Vec<Value>> {
    let (order, before) = (places(order, key), places(before, key));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for item in merged {
        let id = id(&item, key)?;
        match order.get(id).copied() {
            Some(at) => ours.push((at, item)),
            None => theirs.push((before.get(id).copied().unwrap_or(usize::MAX), item)),
        }
    }
    ours.sort_by_key(|(at, _)| *at);
    theirs.sort_by_key(|(at, _)| *at);
    let mut out = Vec::with_capacity(ours.len() + theirs.len());
    let mut theirs = theirs.into_iter().peekable();
    for (_, item) in ours {
        if let Some(at) = before.get(id(&item, key)?) {
            while let Some((_, other)) = theirs.next_if(|(other, _)| other < at) {
                out.push(other);
            }
        }
        out.push(item);
    }
    out.extend(theirs.map(|(_, item)| item));
    Ok(out)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
