//! DefaultIngressClass: sets the default class on ingresses that name none.

use super::default_storage_class::newest;
use super::{Attributes, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::networking::v1::Ingress;
use coracle_proto::status::ApiError;
use serde_json::Value;

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
const OLD_CLASS: &str = "kubernetes.io/ingress.class";

/// The plugin.
pub struct DefaultIngressClass;

#[async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate && at.is_new() && at.is("networking.k8s.io", "ingresses")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, ingress: &mut Value) -> Result<(), ApiError> {
        let view = Ingress::of(ingress);
        let named =
            view.spec().ingress_class_name().is_set() || view.metadata().annotations().has_key(OLD_CLASS);
        if !at.is_new() || !at.is("networking.k8s.io", "ingresses") || named {
            return Ok(());
        }
        if let Some(class) = newest(at.cached("networking.k8s.io", "ingressclasses", None), &[DEFAULT]) {
            Ingress::edit(ingress).spec().ingress_class_name().set(class);
        }
        Ok(())
    }
}
