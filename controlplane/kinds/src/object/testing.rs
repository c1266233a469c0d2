//! Objects for the tests of pure cores.

use crate::object::{Meta, Object};
use serde_json::Value;
use std::sync::Arc;

/// An object with the metadata that is in the JSON.
pub fn object(value: Value) -> Arc<Object> {
    let meta: Meta = serde_json::from_value(value["metadata"].clone()).expect("test metadata parses");
    let json = serde_json::to_vec(&value).expect("JSON serialises").into();
    Arc::new(Object { revision: 1, json, meta, fields: Box::default() })
}
