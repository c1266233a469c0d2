//! What evaluation costs: functions that measure values, and fail when the budget is spent. Rewritten expressions call them.

use cel::common::types::{
    CelBytes, CelInt, CelList, CelMap, CelOptional, CelString, CelStruct, DYN_TYPE, INT_TYPE,
};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};
use std::cell::RefCell;

/// Charges a fixed cost, then gives the value back.
pub(super) const TICK: &str = "@tick";
/// Charges what it costs to copy a value, then gives it back.
pub(super) const COPY: &str = "@copy";
/// Measures one argument of a call; the last one charges what the call costs.
pub(super) const MEASURE: &str = "@measure";
/// Internal name of the function that replaces `matches`; no source expression can call it.
pub(super) const MATCHES: &str = "@matches";

/// What the interpreter says when the budget is spent, as Go's does.
pub(super) const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// Arguments of a call that are measured together.
pub(super) const MEASURED: usize = 4;
/// How the cost of a call follows from its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// With the size of all of them.
    Sum,
    /// Every part of one meets every part of another.
    Product,
    /// Every part meets every other.
    Square,
    /// Every part meets some others.
    Sort,
    /// As characters times the length of a pattern.
    Pattern,
    /// As the text that replaces.
    Replace,
    /// As many parts as characters.
    Split,
    /// The separator between all items.
    Join,
    /// As the number says.
    Range,
    /// Characters have to be counted, items not.
    Size,
}

const GROWTHS: [Growth; 10] = [
    Growth::Sum,
    Growth::Product,
    Growth::Square,
    Growth::Sort,
    Growth::Pattern,
    Growth::Replace,
    Growth::Split,
    Growth::Join,
    Growth::Range,
    Growth::Size,
];

impl Growth {
    pub(super) fn of(function: &str) -> Self {
        match function {
            "contains" | "indexOf" | "lastIndexOf" | "equivalent" | "intersects" => Self::Product,
            "distinct" => Self::Square,
            "sort" | "@sortByAssociatedKeys" => Self::Sort,
            MATCHES | "find" | "findAll" => Self::Pattern,
            "replace" => Self::Replace,
            "split" => Self::Split,
            "join" => Self::Join,
            "range" => Self::Range,
            "size" => Self::Size,
            _ => Self::Sum,
        }
    }

    /// Texts have lengths, other values weigh what is in them.
    fn measure(self, value: &dyn Val) -> u64 {
        match self {
            Self::Sum | Self::Product | Self::Square | Self::Sort => weight(value),
            Self::Range => value.downcast_ref::<CelInt>().map_or(0, |n| (*n.inner()).try_into().unwrap_or(0)),
            Self::Size => length(value).unwrap_or(0),
            _ => length(value).unwrap_or_else(|| weight(value)),
        }
    }

    /// The cost by what was measured, arguments in the order of the call, the value that it is called on first.
    fn cost(self, [a, b, c, d]: [u64; MEASURED]) -> u64 {
        let sum = a.saturating_add(b).saturating_add(c).saturating_add(d);
        match self {
            Self::Sum => sum / 4,
            Self::Product => a.saturating_mul(b) / 8,
            Self::Square => a.saturating_mul(a) / 64 + sum,
            Self::Sort => sum.saturating_mul(4),
            Self::Pattern => (a + 1).div_ceil(10).saturating_mul(b.div_ceil(4)).saturating_add(a / 4),
            Self::Replace => (a + 1).saturating_mul(c) / b.max(1) / 16 + sum / 8,
            Self::Split => sum,
            Self::Join => a.saturating_mul(b) / 16 + sum,
            Self::Range => sum,
            Self::Size => sum / 10,
        }
    }
}

/// The budget of the evaluation that is under way on this thread.
#[derive(Default)]
struct Meter {
    left: u64,
    exceeded: bool,
    measured: Vec<[u64; MEASURED]>,
}

thread_local! {
    static METER: RefCell<Meter> = RefCell::default();
}

/// Whether evaluation stayed within its limit, what it gave, and what it cost.
pub(super) struct Metered<T> {
    pub outcome: T,
    pub exceeded: bool,
    pub spent: u64,
}

/// Evaluates with a limit on the cost. `calls` is how many calls of the expression are measured.
pub(super) fn within<T>(limit: u64, calls: usize, evaluate: impl FnOnce() -> T) -> Metered<T> {
    let meter = Meter { left: limit, exceeded: false, measured: vec![[0; MEASURED]; calls] };
    let before = METER.replace(meter);
    // Restores the meter also when evaluation panics: another request may use the thread next.
    struct Restore(Option<Meter>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(before) = self.0.take() {
                METER.replace(before);
            }
        }
    }
    let mut restore = Restore(Some(before));
    let outcome = evaluate();
    let after = METER.replace(restore.0.take().unwrap_or_default());
    Metered { outcome, exceeded: after.exceeded, spent: limit - after.left }
}

/// Takes from the budget.
pub(super) fn charge(cost: u64) -> Result<(), ExecutionError> {
    METER.with_borrow_mut(|meter| match meter.left.checked_sub(cost) {
        Some(left) if !meter.exceeded => {
            meter.left = left;
            Ok(())
        }
        _ => {
            (meter.left, meter.exceeded) = (0, true);
            Err(ExecutionError::function_error("cost", EXCEEDED))
        }
    })
}

/// The functions that rewritten expressions call. Source expressions cannot call them: their names contain `@`.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let numbered = || vec![INT_TYPE, DYN_TYPE];
    env.add_overload(TICK, "tick", numbered(), |mut args| {
        charge(number(&args))?;
        args.pop().ok_or_else(ExecutionError::missing_argument_or_target)
    })?;
    env.add_overload(COPY, "copy", vec![DYN_TYPE], |mut args| {
        let value = args.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
        charge(weight(value.as_ref()))?;
        Ok(value)
    })?;
    env.add_overload(MEASURE, "measure", numbered(), |mut args| {
        let code = number(&args);
        let value = args.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
        measure(code, value.as_ref())?;
        Ok(value)
    })
}

fn number(args: &[CowVal<'_, '_>]) -> u64 {
    let number = args.first().and_then(|arg| arg.downcast_ref::<CelInt>());
    number.map_or(u64::MAX, |number| (*number.inner()).try_into().unwrap_or(u64::MAX))
}

/// Which call, how its cost grows, which argument, and whether it is the last: in one number.
pub(super) fn code(call: usize, growth: Growth, argument: usize, last: bool) -> i64 {
    let growth = GROWTHS.iter().position(|other| *other == growth).unwrap_or(0);
    (((call * 16 + growth) * MEASURED + argument) * 2 + usize::from(last)) as i64
}

fn measure(code: u64, value: &dyn Val) -> Result<(), ExecutionError> {
    let code = usize::try_from(code).unwrap_or(0);
    let (last, argument) = (code % 2 == 1, code / 2 % MEASURED);
    let (growth, call) = (GROWTHS[code / 2 / MEASURED % 16 % GROWTHS.len()], code / 2 / MEASURED / 16);
    let size = growth.measure(value);
    let measured = METER.with_borrow_mut(|meter| {
        let all = meter.measured.get_mut(call)?;
        all[argument] = size;
        Some(*all)
    });
    match measured {
        Some(all) if last => charge(growth.cost(all)),
        Some(_) => Ok(()),
        None => charge(u64::MAX),
    }
}

/// The length of a text or of bytes.
fn length(value: &dyn Val) -> Option<u64> {
    let text = value.downcast_ref::<CelString>().map(|text| text.inner().len());
    text.or_else(|| value.downcast_ref::<CelBytes>().map(|bytes| bytes.inner().len()))
        .map(|length| length as u64)
}

/// What has to be touched when all of a value is: values in it, and eight characters at a time.
fn weight(value: &dyn Val) -> u64 {
    if let Some(length) = length(value) {
        return 1 + length / 8;
    }
    if let Some(list) = value.downcast_ref::<CelList>() {
        return 1 + list.inner().iter().map(|item| weight(item.as_ref())).sum::<u64>();
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        return 1 + map
            .inner()
            .iter()
            .map(|(key, value)| weight(key.inner()) + weight(value.as_ref()))
            .sum::<u64>();
    }
    if let Some(made) = value.downcast_ref::<CelStruct>() {
        return 1 + made.field_values().values().map(|field| weight(field.as_ref())).sum::<u64>();
    }
    match value.downcast_ref::<CelOptional>().and_then(CelOptional::inner) {
        Some(inside) => 1 + weight(inside),
        None => 1,
    }
}
