//! More Rust types that hold what stands in a field, for structs that are kept in memory.

use crate::{FromField, Text};
use std::sync::Arc;

impl FromField<Text> for Arc<str> {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::core::v1::PodSpec;
    use crate::fields;
    use std::sync::Arc;

    fields! {
        struct Spec: PodSpec {
            node_name: Option<Arc<str>>,
            hostname: Box<str>,
        }
    }

    #[test]
    fn shared_texts() {
        let spec: Spec = serde_json::from_str(r#"{"nodeName":"n","hostname":null}"#).unwrap();
        assert_eq!((spec.node_name.as_deref(), &*spec.hostname), (Some("n"), ""));
    }
}
