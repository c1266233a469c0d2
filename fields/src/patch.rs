//! Objects that are patches: in a merge patch `null` removes a field.

use crate::Edit;
use serde_json::Value;

impl<T> Edit<'_, T> {
    /// Writes `null`, by which a merge patch removes the field.
    pub fn null(&mut self) {
        *self.access.make() = Value::Null;
    }
}

#[cfg(test)]
mod tests {
    use crate::core::v1::Pod;
    use crate::make;
    use serde_json::json;

    #[test]
    fn null_is_written() {
        let mut patch = make!(part Pod { status: { phase: "Running" } });
        patch.edit().status().nominated_node_name().null();
        patch.edit().metadata().labels().null();
        let expected =
            json!({"metadata": {"labels": null}, "status": {"phase": "Running", "nominatedNodeName": null}});
        assert_eq!(patch.into_value(), expected);
    }
}
