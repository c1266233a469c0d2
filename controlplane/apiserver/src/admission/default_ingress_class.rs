//! DefaultIngressClass: sets the default class on ingresses that name none.

use super::default_storage_class::newest;
use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
const OLD_CLASS: &str = "kubernetes.io/ingress.class";

/// The plugin.
pub struct DefaultIngressClass;

#[async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, ingress: &mut Value) -> Result<(), ApiError> {
        let named = !ingress["spec"]["ingressClassName"].is_null()
            || ingress["metadata"]["annotations"].get(OLD_CLASS).is_some();
        if at.operation != Operation::Create || !at.is("networking.k8s.io", "ingresses") || named {
            return Ok(());
        }
        if let Some(class) = newest(at.cached("networking.k8s.io", "ingressclasses", None), &[DEFAULT]) {
            ingress["spec"]["ingressClassName"] = json!(class);
        }
        Ok(())
    }
}
