//! The form of a change that is passed to admission: the object, a projection of it, or none if the request was
//! admitted already.

use super::admission::reinvocation::Reinvocation;
use super::admission::{Admitted, Attributes, Mutated, Operation};
use super::api::Api;
use super::hook::Projection;
use coracle_client::pipeline::Target;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::borrow::Cow;

/// The form of a change that is passed to admission.
#[derive(Clone, Copy)]
pub(super) enum AdmissionInput<'a> {
    /// The object itself.
    Object,
    /// The form of a subresource, such as Scale.
    Projection(&'a dyn Projection),
    /// None: the request was admitted as another object, such as a Binding.
    Admitted(Admitted),
}

impl AdmissionInput<'_> {
    /// An object in this form.
    pub(super) fn of<'v>(&self, object: &'v Value) -> Cow<'v, Value> {
        match self {
            Self::Projection(projection) => Cow::Owned(projection.project(object)),
            Self::Object | Self::Admitted(_) => Cow::Borrowed(object),
        }
    }
}

/// Progress of admission before validation.
pub(super) enum AdmissionProgress<'c> {
    /// The mutating plugins have run.
    Mutated(Mutated<'c>),
    /// All plugins have run.
    Admitted(Admitted),
}

impl AdmissionProgress<'_> {
    /// Runs the remaining plugins.
    pub(super) async fn finish(self, at: &mut Attributes<'_>, shown: &Value) -> Result<Admitted, ApiError> {
        match self {
            Self::Mutated(mutated) => mutated.validate(at, shown).await,
            Self::Admitted(admitted) => Ok(admitted),
        }
    }
}

impl Api {
    /// A request as admission sees it.
    pub fn attributes<'a>(
        &'a self,
        target: &Target<'a>,
        operation: Operation,
        old: Option<&'a Value>,
    ) -> Attributes<'a> {
        Attributes {
            api: self,
            user: target.user,
            operation,
            kind: target.kind,
            namespace: target.namespace,
            name: target.name,
            subresource: target.subresource,
            old,
            initializes: false,
            dry_run: target.options.dry_run,
            warnings: Vec::new(),
            called: String::new(),
            audit_annotations: target.options.audit_annotations.clone(),
            trace_state: &target.options.trace.state,
            reservations: Vec::new(),
            reinvocation: Reinvocation::default(),
        }
    }
}
