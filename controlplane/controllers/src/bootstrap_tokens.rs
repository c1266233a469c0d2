//! Deletes expired bootstrap tokens.

use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Secret;
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_pki::bootstrap_token::{SECRET_TYPE, expired, field};
use jiff::Timestamp;

const NAME: &str = "token-cleaner";

struct Tokens {
    secrets: Resource,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let secrets = setup.resource(NAME, "", "secrets");
    let queue = setup.enqueue_on_change(&secrets).queue.clone();
    setup.run(Tokens { secrets }, &queue, 1);
}

#[async_trait]
impl Controller for Tokens {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(secret) = self.secrets.get(name).filter(|_| name.namespace == "kube-system") else {
            return Ok(Requeue::No);
        };
        let value = secret.value();
        if Secret::of(&value).type_() != SECRET_TYPE {
            return Ok(Requeue::No);
        }
        if expired(&value, now) {
            self.secrets.delete(&secret).await?;
            return Ok(Requeue::No);
        }
        Ok(field(&value, "expiration").parse().ok().map_or(Requeue::No, Requeue::At))
    }
}
