//! Objects for the tests of pure cores.

use crate::object::{Meta, Object};
use coracle_fields::Schema;
use coracle_fields::meta::PartialObjectMetadata;
use serde_json::Value;
use std::sync::Arc;

/// An object with the metadata that is in the JSON.
pub fn object(value: Value) -> Arc<Object> {
    let meta: Meta = PartialObjectMetadata::of(&value).metadata().read().expect("test metadata parses");
    let json = serde_json::to_vec(&value).expect("JSON serialises").into();
    Arc::new(Object { revision: 1, json, meta, fields: Box::default() })
}
