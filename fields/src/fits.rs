//! Rust types that may be written to a field.

use crate::{
    Access, Amount, At, Base64, Bool, Double, Duration, Int32, Int64, IntOrString, Json, List, Made, Map,
    Text, Time,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// A value that may be written to a place of type `T`.
pub trait Fits<T> {
    /// The JSON; never `null`, `None` removes the field.
    fn fit(self) -> Option<Value>;
}

impl<T, X: Fits<T>> Fits<T> for Option<X> {
    fn fit(self) -> Option<Value> {
        self.and_then(Fits::fit)
    }
}

impl<T> Fits<T> for Made<T> {
    fn fit(self) -> Option<Value> {
        Some(self.0)
    }
}

/// The value at one place may be written to another of the same type.
impl<C: Access, T> Fits<T> for At<C, T> {
    fn fit(self) -> Option<Value> {
        Some(self.reader().tree()).filter(|tree| !tree.is_null())
    }
}

macro_rules! fits {
    ($($leaf:ty: $($from:ty)*;)*) => { $($(
        impl Fits<$leaf> for $from {
            fn fit(self) -> Option<Value> {
                Some(self.into())
            }
        }
    )*)* };
}

fits! {
    Text: &str String;
    Time: &str String;
    Duration: &str String;
    Base64: &str String;
    Amount: &str String;
    Int32: i32 i64 u8 u16 u64 usize;
    Int64: i32 i64 u32 u64 usize;
    Bool: bool;
    Double: f64;
    IntOrString: i32 i64 &str String;
    Json: Value;
}

impl<T, X: Fits<T> + Clone> Fits<T> for &X {
    fn fit(self) -> Option<Value> {
        self.clone().fit()
    }
}

impl<T, X: Fits<T>> Fits<List<T>> for Vec<X> {
    fn fit(self) -> Option<Value> {
        Some(self.into_iter().filter_map(Fits::fit).collect())
    }
}

impl<T, X: Fits<T>, const N: usize> Fits<List<T>> for [X; N] {
    fn fit(self) -> Option<Value> {
        Some(self.into_iter().filter_map(Fits::fit).collect())
    }
}

impl<T, X: Fits<T>> Fits<Map<T>> for BTreeMap<String, X> {
    fn fit(self) -> Option<Value> {
        let entries = self.into_iter().filter_map(|(key, value)| Some((key, value.fit()?)));
        Some(Value::Object(entries.collect()))
    }
}

impl<T, X: Fits<T>, const N: usize> Fits<Map<T>> for [(&str, X); N] {
    fn fit(self) -> Option<Value> {
        let entries = self.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.fit()?)));
        Some(Value::Object(entries.collect()))
    }
}
