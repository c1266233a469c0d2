//! Typed access to the fields of Kubernetes objects in JSON.
//!
//! `At<C, T>` is a place in an object: `C` says how it is reached (read or write), `T` which type of the schema table it has.
//! Its methods are the fields of `T`, generated from `proto/schema`. A method is the JSON name in snake case: `bootID` is
//! `boot_id()`, `clusterIPs` is `cluster_ips()`. What would be a word of Rust or a method of every place ends in an underscore:
//! `type` is `type_()`.
//!
//! ```
//! use coracle_fields::{Schema, core::v1::Pod, make};
//! let mut pod = make!(Pod { metadata: { name: "web" }, spec: { node_name: "n1" } });
//! assert!(pod.view().spec().node_name() == "n1");
//! pod.edit().spec().priority().set(3);
//! let tree = pod.into_value();
//! assert_eq!(Pod::of(&tree).spec().priority().int(), Some(3));
//! ```
//!
//! A field that does not exist does not compile:
//!
//! ```compile_fail,E0599
//! use coracle_fields::Schema;
//! let pod = serde_json::json!({});
//! coracle_fields::core::v1::Pod::of(&pod).spec().node_nam().text();
//! ```
//!
//! Nor does a field that is read or written as another type, or a place of another type:
//!
//! ```compile_fail,E0599
//! use coracle_fields::Schema;
//! let pod = serde_json::json!({});
//! coracle_fields::core::v1::Pod::of(&pod).spec().node_name().int();
//! ```
//! ```compile_fail,E0277
//! use coracle_fields::Schema;
//! let mut pod = serde_json::json!({});
//! coracle_fields::core::v1::Pod::edit(&mut pod).spec().priority().set("high");
//! ```
//! ```compile_fail,E0308
//! use coracle_fields::{Schema, View, core::v1::{Pod, ServiceSpec}};
//! fn ports(spec: View<'_, ServiceSpec>) {}
//! let pod = serde_json::json!({});
//! ports(Pod::of(&pod).spec());
//! ```
//! ```compile_fail,E0599
//! coracle_fields::make!(coracle_fields::core::v1::Pod { spec: { nodename: "n" } });
//! ```
//! ```compile_fail,E0277
//! coracle_fields::fields! { struct Spec: coracle_fields::apps::v1::DeploymentSpec { replicas: String } }
//! ```
//!
//! May depend on serde only. The build script reads `proto/schema`.

#![forbid(unsafe_code)]

// Types of leaves: strings, numbers, lists, maps.
mod leaf;
// Reads from a tree or from a document.
mod read;
// Lists and maps.
mod lists;
// Entries of maps that may be missing.
mod find;
// Fields without a schema.
mod json;
// Lists and maps for accesses of other crates.
mod elements;
// Trees as places, places as trees.
mod values;
// Comparisons and shapes of whole values.
mod shape;
// JSON bytes as a flat list of values that borrow from them.
mod doc;
// Writes to a tree.
mod edit;
// Writes that fill gaps.
mod defaults;
// Rust types that may be written to a field.
mod fits;
// New objects.
mod made;
// Objects that are patches.
mod patch;
// Structs that hold some fields of a type.
mod structs;
// More Rust types that such structs may have.
mod holds;
// The storage class of claims and volumes.
pub mod storage_class;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ops::Deref;

pub use doc::Doc;
pub use edit::Writer;
pub use elements::Elements;
pub use fits::Fits;
pub use leaf::{
    Amount, Base64, Bool, Double, Duration, Int32, Int64, IntOrString, Json, List, Map, Text, Time,
};
pub use lists::Items;
pub use made::Made;
pub use read::Reader;
pub use structs::{FromField, IsEmpty, Last, Position, next};

/// What the macros of this crate expand to.
#[doc(hidden)]
pub mod private {
    pub use serde;
    pub use serde_json;
}

include!(concat!(env!("OUT_DIR"), "/fields.rs"));

/// A field of the schema table.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// JSON name.
    pub name: &'static str,
    /// Whether it is left out when it is empty.
    pub omit: bool,
}

impl Field {
    /// A field by name and flag.
    #[inline]
    pub const fn new(name: &'static str, omit: bool) -> Self {
        Self { name, omit }
    }
}

/// Shared access to a place, such as a read.
pub trait Access: Sized {
    /// Access to a field of the place.
    fn field(&self, field: Field) -> Self;

    /// The value at the place.
    fn reader<'a>(&self) -> Reader<'a>
    where
        Self: 'a;
}

/// A place of type `T`.
pub struct At<C, T> {
    access: C,
    of: PhantomData<fn() -> T>,
}

/// A place that is read.
pub type View<'a, T> = At<Reader<'a>, T>;
/// A place that is written.
pub type Edit<'a, T> = At<Writer<'a>, T>;

impl<C: Clone, T> Clone for At<C, T> {
    fn clone(&self) -> Self {
        Self::new(self.access.clone())
    }
}

impl<C: Copy, T> Copy for At<C, T> {}

/// Methods of the access itself, whatever the type of the place.
impl<C, T> Deref for At<C, T> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        &self.access
    }
}

impl<C, T> At<C, T> {
    /// Declares that `access` leads to a `T`, which nothing checks. For generated methods and roots.
    #[inline]
    pub fn new(access: C) -> Self {
        Self { access, of: PhantomData }
    }
}

impl<C: Access, T> At<C, T> {
    #[inline]
    pub(crate) fn field_at<U>(&self, name: &'static str) -> At<C, U> {
        At::new(self.access.field(Field::new(name, false)))
    }

    #[inline]
    pub(crate) fn omit_at<U>(&self, name: &'static str) -> At<C, U> {
        At::new(self.access.field(Field::new(name, true)))
    }
}

/// A struct of the schema table.
pub trait Schema: Sized {
    /// Reads a tree as this type, which nothing checks.
    fn of(tree: &serde_json::Value) -> View<'_, Self> {
        At::new(Reader::Tree(tree))
    }

    /// Changes a tree as this type.
    fn edit(tree: &mut serde_json::Value) -> Edit<'_, Self> {
        At::new(Writer::new(tree))
    }
}

/// A struct that is an object of its own.
pub trait Kind: Schema {
    /// Group and version.
    const API_VERSION: &'static str;
    /// Kind.
    const KIND: &'static str;

    /// A new object with `apiVersion` and `kind`.
    fn made() -> Made<Self> {
        Made::new(serde_json::json!({"apiVersion": Self::API_VERSION, "kind": Self::KIND}))
    }
}
