//! Functions that only the API server has.

use super::arguments::{
    Answer, Args, Function, anything, failed, give, give_int, give_opaque, give_value, list, optional, text,
    unfit, value,
};
use super::go_url::GoUrl;
use super::versions;
use cel::common::types::{DURATION_TYPE, DYN_TYPE, LIST_TYPE, STRING_TYPE, Type};
use cel::objects::{Opaque, OptionalValue};
use cel::{DeclarationError, Env, ExecutionError, Value};
use coracle_proto::quantity::{Format, Quantity};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// An amount of something.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Amount(pub(super) Quantity);

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

/// Types of addresses and of ranges of them.
const ADDRESS: &str = "net.IP";
const RANGE: &str = "net.CIDR";

/// An address, or a range of addresses when it has a length.
#[derive(Debug, PartialEq, Eq)]
struct Network(IpAddr, Option<u8>);

impl Opaque for Network {
    fn runtime_type_name(&self) -> &str {
        if self.1.is_some() { RANGE } else { ADDRESS }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(length) => write!(f, "{}/{length}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// An address on the web.
#[derive(Debug, PartialEq, Eq)]
struct Location(GoUrl);

impl Opaque for Location {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.URL"
    }
}

/// Adds them all.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let global: [(&str, usize, Function); 15] = [
        ("sign", 1, |args| give_int(i64::from(amount(&args, 0)?.signum()))),
        ("isQuantity", 1, |args| give(text(&args, 0).is_ok_and(|t| t.parse::<Quantity>().is_ok()))),
        ("quantity", 1, |args| {
            let amount: Quantity = text(&args, 0)?.parse().map_err(|error| failed("quantity", error))?;
            give_opaque(Amount(amount))
        }),
        ("isIP", 1, |args| give(text(&args, 0).is_ok_and(|t| address(&t, "isIP").is_ok()))),
        ("ip", 1, |args| give_opaque(Network(address(&text(&args, 0)?, "ip")?, None))),
        ("ip.isCanonical", 1, |args| {
            let text = text(&args, 0)?;
            give(address(&text, "ip.isCanonical")?.to_string() == text)
        }),
        ("isCIDR", 1, |args| give(text(&args, 0).is_ok_and(|t| range(&t).is_some()))),
        ("cidr", 1, |args| {
            let text = text(&args, 0)?;
            let found = range(&text)
                .ok_or_else(|| failed("cidr", format!("network address parse error: {text:?}")))?;
            give_opaque(found)
        }),
        ("isURL", 1, |args| give(text(&args, 0).is_ok_and(|t| GoUrl::of_request(&t).is_ok()))),
        ("url", 1, |args| give_opaque(Location(location_of(&text(&args, 0)?)?))),
        ("optional.unwrap", 1, |args| unwrapped(&list(&args, 0)?)),
        ("jsonpatch.escapeKey", 1, |args| give_text(&text(&args, 0)?.replace('~', "~0").replace('/', "~1"))),
        ("sets.contains", 2, |args| {
            let (a, b) = (list(&args, 0)?, list(&args, 1)?);
            give(b.iter().all(|item| a.contains(item)))
        }),
        ("sets.intersects", 2, |args| {
            let (a, b) = (list(&args, 0)?, list(&args, 1)?);
            give(b.iter().any(|item| a.contains(item)))
        }),
        ("sets.equivalent", 2, |args| {
            let (a, b) = (list(&args, 0)?, list(&args, 1)?);
            give(b.iter().all(|item| a.contains(item)) && a.iter().all(|item| b.contains(item)))
        }),
    ];
    for (name, arguments, function) in global {
        env.add_overload(name, &format!("{name}_{arguments}"), anything(arguments), function)?;
    }
    for (name, id) in [(ADDRESS, "ip_to_string"), (RANGE, "cidr_to_string")] {
        env.add_type(Type::new_opaque_type(name))?;
        env.add_overload("string", id, vec![Type::new_opaque_type(name)], |args| {
            give_text(&network(&args, 0)?.to_string())
        })?;
    }
    env.add_overload("int", "duration_to_int64", vec![DURATION_TYPE], |args| match value(&args, 0)? {
        Value::Duration(length) => {
            give_int(length.num_nanoseconds().ok_or_else(|| failed("int", "integer overflow"))?)
        }
        _ => Err(unfit("duration")),
    })?;
    on_lists(env)?;
    on_texts(env)?;
    on_values(env)
}

fn on_lists(env: &mut Env) -> Result<(), DeclarationError> {
    let members: [(&str, usize, Function); 9] = [
        ("unwrapOpt", 0, |args| unwrapped(&list(&args, 0)?)),
        ("first", 0, |args| give_value(optional(list(&args, 0)?.into_iter().next()))),
        ("last", 0, |args| give_value(optional(list(&args, 0)?.pop()))),
        ("isSorted", 0, |args| give(list(&args, 0)?.windows(2).all(|pair| pair[0] <= pair[1]))),
        ("sum", 0, |args| sum(&list(&args, 0)?)),
        ("min", 0, |args| extreme("min", list(&args, 0)?, Ordering::Less)),
        ("max", 0, |args| extreme("max", list(&args, 0)?, Ordering::Greater)),
        ("indexOf", 1, |args| {
            let wanted = value(&args, 1)?;
            give_place(list(&args, 0)?.iter().position(|item| *item == wanted))
        }),
        ("lastIndexOf", 1, |args| {
            let wanted = value(&args, 1)?;
            give_place(list(&args, 0)?.iter().rposition(|item| *item == wanted))
        }),
    ];
    for (name, arguments, function) in members {
        env.add_member_overload(name, &format!("list_{name}"), LIST_TYPE, anything(arguments), function)?;
    }
    Ok(())
}

fn on_texts(env: &mut Env) -> Result<(), DeclarationError> {
    let members: [(&str, usize, Function); 3] = [
        ("find", 1, |args| {
            let subject = text(&args, 0)?;
            let found =
                pattern(&text(&args, 1)?)?.find(&subject).map_or("", |found| found.as_str()).to_owned();
            give_value(Value::from(found))
        }),
        ("findAll", 1, |args| give_all(&args, usize::MAX)),
        ("findAll", 2, |args| {
            let most = usize::try_from(int(&args, 2)?).unwrap_or(usize::MAX);
            give_all(&args, most)
        }),
    ];
    for (name, arguments, function) in members {
        let id = format!("string_{name}_{arguments}");
        env.add_member_overload(name, &id, STRING_TYPE, anything(arguments), function)?;
    }
    Ok(())
}

/// Members of quantities, addresses, ranges and locations.
fn on_values(env: &mut Env) -> Result<(), DeclarationError> {
    let members: [(&str, usize, Function); 26] = [
        ("isGreaterThan", 1, |args| give(compared(&args)? == Ordering::Greater)),
        ("isLessThan", 1, |args| give(compared(&args)? == Ordering::Less)),
        ("compareTo", 1, |args| give_int(compared(&args)? as i64)),
        ("isInteger", 0, |args| give(amount(&args, 0)?.milli_value() % 1000 == 0)),
        ("asInteger", 0, |args| {
            let amount = amount(&args, 0)?;
            match amount.milli_value() % 1000 {
                0 => give_int(amount.value()),
                _ => Err(failed("asInteger", "cannot convert value to integer")),
            }
        }),
        ("asApproximateFloat", 0, |args| give_value(Value::Float(amount(&args, 0)?.as_f64()))),
        ("sign", 0, |args| give_int(i64::from(amount(&args, 0)?.signum()))),
        ("add", 1, |args| {
            let mut sum = amount(&args, 0)?;
            sum.add(&amount(&args, 1)?);
            give_opaque(Amount(sum))
        }),
        ("sub", 1, |args| {
            let mut rest = amount(&args, 0)?;
            rest.sub(&amount(&args, 1)?);
            give_opaque(Amount(rest))
        }),
        ("family", 0, |args| give_int(if network(&args, 0)?.0.is_ipv4() { 4 } else { 6 })),
        ("isUnspecified", 0, |args| give(network(&args, 0)?.0.is_unspecified())),
        ("isLoopback", 0, |args| give(network(&args, 0)?.0.is_loopback())),
        ("isLinkLocalMulticast", 0, |args| give(link_local_multicast(network(&args, 0)?.0))),
        ("isLinkLocalUnicast", 0, |args| give(link_local(network(&args, 0)?.0))),
        ("isGlobalUnicast", 0, |args| {
            let address = network(&args, 0)?.0;
            let nowhere = address.is_unspecified() || address.is_loopback() || address.is_multicast();
            give(!nowhere && !link_local(address))
        }),
        ("containsIP", 1, |args| {
            let (range, address) = (network(&args, 0)?, network(&args, 1)?);
            give(covers(&range, &Network(address.0, None)))
        }),
        ("containsCIDR", 1, |args| {
            let (range, other) = (network(&args, 0)?, network(&args, 1)?);
            give(covers(&range, &other))
        }),
        ("ip", 0, |args| give_opaque(Network(network(&args, 0)?.0, None))),
        ("masked", 0, |args| {
            let Network(address, bits) = network(&args, 0)?;
            let base = bits.map_or(address, |bits| super::addresses::network(address, bits));
            give_opaque(Network(base, bits))
        }),
        ("prefixLength", 0, |args| give_int(i64::from(network(&args, 0)?.1.unwrap_or_default()))),
        ("getScheme", 0, |args| give_text(&location(&args)?.scheme)),
        ("getHost", 0, |args| give_text(&location(&args)?.host)),
        ("getHostname", 0, |args| give_text(location(&args)?.hostname())),
        ("getPort", 0, |args| give_text(location(&args)?.port())),
        ("getEscapedPath", 0, |args| give_text(&location(&args)?.path)),
        ("getQuery", 0, |args| give_query(&location(&args)?)),
    ];
    for (name, arguments, function) in members {
        let id = format!("value_{name}_{arguments}");
        env.add_member_overload(name, &id, DYN_TYPE, anything(arguments), function)?;
    }
    Ok(())
}

fn int(args: &Args<'_, '_>, at: usize) -> Result<i64, ExecutionError> {
    match value(args, at)? {
        Value::Int(number) => Ok(number),
        _ => Err(unfit("int")),
    }
}

/// A quantity, or a whole number that stands for one.
fn amount(args: &Args<'_, '_>, at: usize) -> Result<Quantity, ExecutionError> {
    match value(args, at)? {
        Value::Int(number) => Ok(Quantity::new(number, Format::DecimalSi)),
        Value::Opaque(opaque) => {
            opaque.downcast_ref::<Amount>().map(|amount| amount.0.clone()).ok_or_else(|| unfit("quantity"))
        }
        _ => Err(unfit("quantity")),
    }
}

/// The order of two versions or two quantities.
fn compared(args: &Args<'_, '_>) -> Result<Ordering, ExecutionError> {
    match versions::order(&value(args, 0)?, &value(args, 1)?) {
        Some(order) => order,
        None => Ok(amount(args, 0)?.cmp(&amount(args, 1)?)),
    }
}

/// The parameters of a URL, each with its values in order.
fn give_query<'b, 'v>(location: &GoUrl) -> Answer<'b, 'v> {
    let mut all: HashMap<String, Vec<Value>> = HashMap::new();
    for (name, value) in location.parameters() {
        all.entry(name).or_default().push(Value::from(value.as_str()));
    }
    let lists = all.into_iter().map(|(name, values)| (name, Value::List(Arc::new(values))));
    give_value(Value::from(lists.collect::<HashMap<String, Value>>()))
}

/// An address or a range, or the text of one.
fn network(args: &Args<'_, '_>, at: usize) -> Result<Network, ExecutionError> {
    match value(args, at)? {
        Value::Opaque(opaque) => match opaque.downcast_ref::<Network>() {
            Some(Network(address, bits)) => Ok(Network(*address, *bits)),
            None => Err(unfit("network")),
        },
        Value::String(text) => match address(&text, "network") {
            Ok(address) => Ok(Network(address, None)),
            Err(_) => range(&text).ok_or_else(|| unfit("network")),
        },
        _ => Err(unfit("network")),
    }
}

fn location(args: &Args<'_, '_>) -> Result<GoUrl, ExecutionError> {
    match value(args, 0)? {
        Value::Opaque(opaque) => {
            opaque.downcast_ref::<Location>().map(|found| found.0.clone()).ok_or_else(|| unfit("URL"))
        }
        _ => Err(unfit("URL")),
    }
}

fn address(text: &str, function: &str) -> Result<IpAddr, ExecutionError> {
    let parsed: IpAddr =
        text.parse().map_err(|_| failed(function, format!("IP Address {text:?} parse error")))?;
    match is_mapped(parsed) {
        true => Err(failed(function, format!("IPv4-mapped IPv6 address {text:?} is not allowed"))),
        false => Ok(parsed),
    }
}

/// Whether it is an address of IPv4 that is written as one of IPv6.
fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

fn location_of(text: &str) -> Result<GoUrl, ExecutionError> {
    let wrong = |error| {
        failed("url", format!("URL parse error during conversion from string: parse {text:?}: {error}"))
    };
    GoUrl::parse(text).map_err(wrong)
}

/// The values of those that have one.
fn unwrapped<'b, 'v>(all: &[Value]) -> Answer<'b, 'v> {
    let mut values = Vec::new();
    for item in all {
        let Value::Opaque(opaque) = item else { return Err(unfit("list of optional values")) };
        let optional =
            opaque.downcast_ref::<OptionalValue>().ok_or_else(|| unfit("list of optional values"))?;
        values.extend(optional.value().cloned());
    }
    give_value(Value::List(Arc::new(values)))
}

fn range(text: &str) -> Option<Network> {
    let (address, bits) = super::addresses::cidr(text)?;
    (!is_mapped(address)).then_some(Network(address, Some(bits)))
}

fn covers(range: &Network, other: &Network) -> bool {
    let width = if other.0.is_ipv4() { 32 } else { 128 };
    let (bits, inner) = (range.1.unwrap_or(width), other.1.unwrap_or(width));
    let base = |address| super::addresses::network(address, bits);
    range.0.is_ipv4() == other.0.is_ipv4() && bits <= inner && base(range.0) == base(other.0)
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn pattern(text: &str) -> Result<Arc<regex::Regex>, ExecutionError> {
    super::patterns::compiled(text).map_err(|why| failed("find", why))
}

fn sum<'b, 'v>(items: &[Value]) -> Answer<'b, 'v> {
    let mut total = Value::Int(0);
    for item in items {
        total = match (total, item) {
            (Value::Int(a), Value::Int(b)) => {
                Value::Int(a.checked_add(*b).ok_or_else(|| failed("sum", "integer overflow"))?)
            }
            (Value::Int(0), Value::Float(b)) => Value::Float(*b),
            (Value::Float(a), Value::Float(b)) => Value::Float(a + b),
            (Value::Int(0), Value::UInt(b)) => Value::UInt(*b),
            (Value::UInt(a), Value::UInt(b)) => {
                Value::UInt(a.checked_add(*b).ok_or_else(|| failed("sum", "unsigned integer overflow"))?)
            }
            (Value::Int(0), Value::Duration(b)) => Value::Duration(*b),
            (Value::Duration(a), Value::Duration(b)) => {
                let nanoseconds = a.num_nanoseconds().zip(b.num_nanoseconds());
                let sum = nanoseconds.and_then(|(a, b)| a.checked_add(b));
                let sum = sum.ok_or_else(|| failed("sum", "duration overflow"))?;
                Value::Duration(chrono::TimeDelta::nanoseconds(sum))
            }
            _ => return Err(unfit("list of numbers")),
        };
    }
    give_value(total)
}

fn extreme<'b, 'v>(name: &str, items: Vec<Value>, wanted: Ordering) -> Answer<'b, 'v> {
    let best = items.into_iter().reduce(|best, item| match item.partial_cmp(&best) {
        Some(order) if order == wanted => item,
        _ => best,
    });
    best.map_or_else(|| Err(failed(name, format!("{name} called on empty list"))), give_value)
}

fn give_all<'b, 'v>(args: &Args<'b, 'v>, most: usize) -> Answer<'b, 'v> {
    let (subject, pattern) = (text(args, 0)?, pattern(&text(args, 1)?)?);
    let found: Vec<Value> =
        pattern.find_iter(&subject).take(most).map(|found| Value::from(found.as_str())).collect();
    give_value(Value::List(Arc::new(found)))
}

fn give_text<'b, 'v>(text: &str) -> Answer<'b, 'v> {
    give_value(Value::from(text))
}

fn give_place<'b, 'v>(place: Option<usize>) -> Answer<'b, 'v> {
    give_int(place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1))
}
