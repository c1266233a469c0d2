//! New objects.

use crate::{Edit, Schema, View};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

/// A tree of a type, such as a new object or a copy of one that is to be changed.
pub struct Made<T>(pub(crate) Value, PhantomData<fn() -> T>);

impl<T: Schema> Made<T> {
    /// Declares that a tree is a `T`, which nothing checks.
    pub fn new(tree: Value) -> Self {
        Self(tree, PhantomData)
    }

    /// Reads it.
    pub fn view(&self) -> View<'_, T> {
        T::of(&self.0)
    }

    /// Changes it.
    pub fn edit(&mut self) -> Edit<'_, T> {
        T::edit(&mut self.0)
    }

    /// The tree.
    pub fn into_value(self) -> Value {
        self.0
    }
}

impl<T> From<Made<T>> for Value {
    fn from(made: Made<T>) -> Self {
        made.0
    }
}

/// New objects may stand in `json!` literals.
impl<T> serde::Serialize for Made<T> {
    fn serialize<S: serde::Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(writer)
    }
}

impl<T> Clone for Made<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<T> fmt::Debug for Made<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<T: Schema> Default for Made<T> {
    fn default() -> Self {
        Self::new(Value::Object(serde_json::Map::new()))
    }
}

/// Makes an object of a kind, or a struct that is part of one: `make!(Pod { spec: { node_name: "n" } })`.
#[macro_export]
macro_rules! make {
    (@in $at:ident;) => {};
    (@in $at:ident; $field:ident : { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        {
            let mut inner = $at.$field();
            $crate::make!(@in inner; $($inner)*);
        }
        $crate::make!(@in $at; $($($rest)*)?);
    };
    (@in $at:ident; $field:ident : [ $({ $($item:tt)* }),+ $(,)? ] $(, $($rest:tt)*)?) => {
        {
            let mut list = $at.$field();
            $({
                let mut item = list.add();
                $crate::make!(@in item; $($item)*);
            })+
        }
        $crate::make!(@in $at; $($($rest)*)?);
    };
    (@in $at:ident; $field:ident : $value:expr $(, $($rest:tt)*)?) => {
        $at.$field().set($value);
        $crate::make!(@in $at; $($($rest)*)?);
    };
    (@in $at:ident; $field:ident $(, $($rest:tt)*)?) => {
        $at.$field().set($field);
        $crate::make!(@in $at; $($($rest)*)?);
    };
    (part $name:ty { $($inner:tt)* }) => {{
        let mut made = $crate::Made::<$name>::default();
        {
            #[allow(unused_mut, unused_variables)]
            let mut at = made.edit();
            $crate::make!(@in at; $($inner)*);
        }
        made
    }};
    ($name:ty { $($inner:tt)* }) => {{
        let mut made = <$name as $crate::Kind>::made();
        {
            #[allow(unused_mut, unused_variables)]
            let mut at = made.edit();
            $crate::make!(@in at; $($inner)*);
        }
        made
    }};
}
