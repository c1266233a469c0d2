//! Types of leaves.

use std::marker::PhantomData;

macro_rules! leaves {
    ($($(#[$doc:meta])* $name:ident;)*) => { $($(#[$doc])* #[derive(Debug)] pub enum $name {})* };
}

leaves! {
    /// A string.
    Text;
    /// A 32 bit integer.
    Int32;
    /// A 64 bit integer.
    Int64;
    /// A truth value.
    Bool;
    /// A float.
    Double;
    /// Bytes in base64.
    Base64;
    /// A quantity.
    Amount;
    /// A number or a string.
    IntOrString;
    /// RFC 3339.
    Time;
    /// A Go duration.
    Duration;
    /// Any JSON: raw extensions, patches, custom resources.
    Json;
}

/// A list.
#[derive(Debug)]
pub struct List<T>(PhantomData<fn() -> T>);

/// A map with string keys.
#[derive(Debug)]
pub struct Map<T>(PhantomData<fn() -> T>);
