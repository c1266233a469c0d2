//! The two phases of admission. Types enforce the order: the validating phase needs the result of the mutating phase,
//! and storing an object needs the result of both.

use super::{Attributes, Plugin};
use coracle_proto::status::ApiError;
use serde_json::Value;

/// The plugins that are on, in order.
#[derive(Default)]
pub struct Chain(pub(super) Vec<Box<dyn Plugin>>);

/// A request that the mutating plugins let through; the validating ones are still to be asked.
#[must_use = "the validating plugins have not been asked"]
pub struct Mutated<'c>(&'c Chain);

/// Proof that both phases let a request through. Only this module makes one.
#[derive(Debug, Clone, Copy)]
pub struct Admitted(());

impl Chain {
    /// These plugins, in this order.
    pub(super) fn new(plugins: Vec<Box<dyn Plugin>>) -> Self {
        Self(plugins)
    }

    /// Asks the mutating plugins, which may change the object, for writes that default and check it before the validating
    /// plugins see it. Everything else calls [`Chain::admit`].
    pub async fn mutate<'c>(
        &'c self,
        at: &mut Attributes<'_>,
        object: &mut Value,
    ) -> Result<Mutated<'c>, ApiError> {
        for plugin in &self.0 {
            plugin.mutate(at, object).await?;
        }
        Ok(Mutated(self))
    }

    /// Asks the mutating plugins, then the validating ones. `object` is null for deletes.
    pub async fn admit(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<Admitted, ApiError> {
        self.mutate(at, object).await?.validate(at, object).await
    }
}

impl Mutated<'_> {
    /// Asks the validating plugins about the object as it will be stored.
    pub async fn validate(self, at: &mut Attributes<'_>, object: &Value) -> Result<Admitted, ApiError> {
        for plugin in &self.0.0 {
            plugin.validate(at, object).await?;
        }
        Ok(Admitted(()))
    }
}
