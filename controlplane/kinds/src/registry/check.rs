//! How the write pipeline asks a kind: what to prepare before a write, and which field rules a write breaks.

use super::kinds::{Change, Kind};
use coracle_proto::status::FieldError;
use coracle_validation::{meta, ratchet};
use serde_json::Value;
use std::borrow::Cow;

impl Kind {
    /// Before a create.
    pub fn prepare_create(&self, new: &mut Value) {
        (self.strategy.prepare_create)(new);
        (self.strategy.drop_disabled)(new, None);
        (self.strategy.drop_unsupported)(new, None);
    }

    /// Before an update: the main resource (`""`), `status`, or another subresource that updates the object.
    pub fn prepare_update(&self, subresource: &str, new: &mut Value, old: &Value) {
        match subresource {
            "" => {
                (self.strategy.prepare_update)(new, old);
                (self.strategy.drop_disabled)(new, Some(old));
                (self.strategy.drop_unsupported)(new, Some(old));
            }
            "status" => (self.strategy.prepare_status)(new, old),
            other => {
                if let Some(change) = self.change_of(other) {
                    (change.prepare)(new, old);
                }
            }
        }
    }

    /// The rules that a new object breaks, metadata first.
    pub fn check_create(&self, new: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::check(new, self.namespaced(), self.names.rule(), &mut errors);
        self.check_fields_of_new(new, &mut errors);
        errors
    }

    /// The rules that a change breaks, metadata first. A rule that the stored object breaks in the
    /// same way is not among them.
    pub fn check_update(&self, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::check_update(new, old, &mut errors);
        let (new, old) = (self.stored_form(new), self.stored_form(old));
        match subresource {
            "" => {
                ratchet::changed(self.strategy.validate, &new, &old, &mut errors);
                (self.strategy.validate_update)(&new, &old, &mut errors);
            }
            "status" => (self.strategy.validate_status)(&new, &old, &mut errors),
            other => {
                if let Some(change) = self.change_of(other) {
                    (change.validate)(&new, &old, &mut errors);
                }
            }
        }
        if let Some(custom) = &self.custom {
            custom.validate(&new, Some(&old), &mut errors);
        }
        errors
    }

    /// The rules that a change by an initializer breaks. Nobody has seen the object: it is held to the rules of a new one.
    pub fn check_initializing(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::check_update(new, old, &mut errors);
        self.check_fields_of_new(new, &mut errors);
        errors
    }

    fn check_fields_of_new(&self, new: &Value, errors: &mut Vec<FieldError>) {
        let new = self.stored_form(new);
        (self.strategy.validate)(&new, errors);
        (self.strategy.validate_create)(&new, errors);
        if let Some(custom) = &self.custom {
            custom.validate(&new, None, errors);
        }
    }

    /// The form that field rules know: a view's objects as they are stored.
    fn stored_form<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        let Some(stored) = self.stored_as else { return Cow::Borrowed(object) };
        let mut object = object.clone();
        (stored.encode)(&mut object);
        Cow::Owned(object)
    }

    fn change_of(&self, subresource: &str) -> Option<Change> {
        self.changes.iter().find(|(name, _)| *name == subresource).map(|(_, change)| *change)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::registry::index::Registry;
    use serde_json::{Value, json};

    #[test]
    fn views_are_held_to_the_rules_of_what_is_stored() {
        let kind = Registry::builtin().resource("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let mut hpa = json!({"metadata": {"name": "h", "namespace": "n"}, "spec": {"maxReplicas": 0,
            "targetCPUUtilizationPercentage": 0, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment",
            "name": "d"}}});
        (kind.strategy.defaults)(&mut hpa);
        let errors: Vec<String> = kind.check_create(&hpa).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "spec.maxReplicas: Required value: must be set and greater than 0",
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
                "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
            ]
        );
    }

    #[test]
    fn changes_are_not_held_to_errors_of_the_stored_object() {
        let kind = Registry::builtin().resource("", "v1", "persistentvolumes").unwrap();
        let volume = |finalizers: &[&str], handle: &str| {
            let csi =
                json!({"driver": "d.io", "volumeHandle": handle, "nodePublishSecretRef": {"name": "s"}});
            json!({"metadata": {"name": "v", "resourceVersion": "1", "finalizers": finalizers}, "spec": {"accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"}, "csi": csi}})
        };
        let fields = |new: &Value, old: &Value| -> Vec<String> {
            kind.check_update("", new, old).into_iter().map(|error| error.field).collect()
        };
        let old = volume(&["example.com/hold"], "h");
        assert_eq!(fields(&volume(&[], "h"), &old), [""; 0]);
        assert_eq!(
            fields(&volume(&[], ""), &old),
            ["spec.csi.volumeHandle", "spec.persistentvolumesource"],
            "errors of the change"
        );
        let mut sound = volume(&[], "h");
        sound["spec"]["csi"]["nodePublishSecretRef"]["namespace"] = json!("n");
        assert_eq!(
            fields(&old, &sound),
            ["spec.csi.nodePublishSecretRef.namespace", "spec.persistentvolumesource"]
        );
    }

    #[test]
    fn status_leaves_metadata_alone_where_upstream_does() {
        for (group, plural, kept) in [
            ("admissionregistration.k8s.io", "validatingadmissionpolicies", true),
            ("apiregistration.k8s.io", "apiservices", true),
            ("flowcontrol.apiserver.k8s.io", "flowschemas", true),
            ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", true),
            ("networking.k8s.io", "servicecidrs", true),
            ("resource.k8s.io", "resourceclaims", true),
            ("storage.k8s.io", "volumeattachments", true),
            // Upstream resets the metadata of these to what the client sent; its own controllers count on that.
            ("apiextensions.k8s.io", "customresourcedefinitions", false),
            ("", "nodes", false),
        ] {
            let kind = Registry::builtin().resource(group, "v1", plural).unwrap();
            let old = json!({"metadata": {"labels": {"a": "old"}, "finalizers": ["example.com/hold"]}});
            let mut new = json!({"metadata": {"labels": {"a": "new"}, "managedFields": [{}]}, "status": {}});
            kind.prepare_update("status", &mut new, &old);
            let meta = &new["metadata"];
            assert_eq!(
                (meta["labels"]["a"] == "old", meta["finalizers"].is_array()),
                (kept, kept),
                "{plural}"
            );
            assert_eq!(meta["managedFields"], json!([{}]), "{plural}");
        }
    }

    #[test]
    fn every_kind_survives_an_empty_object_and_itself() {
        for kind in Registry::builtin().all() {
            let mut object = json!({"metadata": {"name": "a", "namespace": "b", "uid": "u"}});
            (kind.strategy.defaults)(&mut object);
            (kind.strategy.prepare_create)(&mut object);
            kind.check_create(&object);
            (kind.strategy.warnings)(&object, None);
            let old = object.clone();
            for subresource in ["", "status", "finalize", "approval", "resize", "ephemeralcontainers"] {
                let mut new = old.clone();
                kind.prepare_update(subresource, &mut new, &old);
                kind.check_update(subresource, &new, &old);
            }
            for column in &kind.columns {
                if let crate::registry::columns::Cell::With(draw) = &column.cell {
                    draw((&object).into());
                }
            }
        }
    }
}
