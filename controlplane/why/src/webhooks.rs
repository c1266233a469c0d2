//! Admission webhooks whose Service cannot answer.

use crate::certificates;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::trouble::{Severity, Trouble};
use crate::world::{Found, World};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_fields::View;
use coracle_fields::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use coracle_fields::core::v1::Service;

/// What is wrong with the webhooks of a configuration.
pub fn explain_mutating(
    world: &World,
    configuration: View<'_, MutatingWebhookConfiguration>,
    trail: &[ObjectRef],
) -> Vec<Finding> {
    let object = ObjectRef::to(configuration);
    let webhooks = configuration.webhooks().items();
    let found = webhooks.flat_map(|webhook| {
        let fails = webhook.failure_policy().or("Fail") == "Fail";
        explain(world, &object, webhook.name().text(), fails, webhook.client_config(), trail)
    });
    found.collect()
}

/// What is wrong with the webhooks of a configuration.
pub fn explain_validating(
    world: &World,
    configuration: View<'_, ValidatingWebhookConfiguration>,
    trail: &[ObjectRef],
) -> Vec<Finding> {
    let object = ObjectRef::to(configuration);
    let webhooks = configuration.webhooks().items();
    let found = webhooks.flat_map(|webhook| {
        let fails = webhook.failure_policy().or("Fail") == "Fail";
        explain(world, &object, webhook.name().text(), fails, webhook.client_config(), trail)
    });
    found.collect()
}

fn explain(
    world: &World,
    object: &ObjectRef,
    name: &str,
    fails: bool,
    client: View<'_, WebhookClientConfig>,
    trail: &[ObjectRef],
) -> Vec<Finding> {
    let effect = if fails { "requests that it should see fail" } else { "it is skipped" };
    let bundle = STANDARD.decode(client.ca_bundle().text()).unwrap_or_default();
    if let Some((text, since)) = certificates::trouble_of(&bundle, world.now()) {
        let cause = format!("the authority in caBundle of the webhook {name} {text}, so {effect}");
        let finding = Finding::new(object.clone(), Trouble::CertificateEnded, cause)
            .since(&since)
            .evidence("clock of this analysis", world.now().to_string());
        return vec![finding.remedy("renew the certificates of the webhook, and caBundle with them")];
    }
    let service = client.service();
    if !service.is_set() {
        return Vec::new();
    }
    let (namespace, target) = (service.namespace().text(), service.name().text());
    let reference = ObjectRef::new::<Service>(namespace, target);
    let down = |why: &str| {
        let remedy = remedy(world, object, &reference);
        let cause =
            format!("the webhook {name} cannot be called, so {effect}: Service {namespace}/{target} {why}");
        let finding = Finding::new(object.clone(), Trouble::WebhookDown, cause);
        finding.evidence("field failurePolicy", if fails { "Fail" } else { "Ignore" }).remedy(remedy)
    };
    match world.get::<Service>(namespace, target) {
        Found::No => vec![down("does not exist")],
        Found::Yes(found) => {
            let wanted = service.port().or(443);
            if !found.spec().ports().items().any(|port| port.port() == wanted) {
                return vec![down(&format!("has no port {wanted}"))];
            }
            let causes = follow(world, trail, reference.clone());
            let serious: Vec<Finding> =
                causes.into_iter().filter(|cause| cause.severity > Severity::Notice).collect();
            match serious.first() {
                Some(first) => {
                    vec![down(&format!("has no ready endpoints: {}: {}", first.object, first.cause))]
                }
                None => Vec::new(),
            }
        }
        Found::Unknown => Vec::new(),
    }
}

/// What makes a webhook answer again, or removes it.
fn remedy(world: &World, object: &ObjectRef, service: &ObjectRef) -> String {
    let delete = format!("delete the configuration: kubectl delete {object}");
    let (namespace, name) = (&service.namespace, &service.name);
    match world.get::<Service>(namespace, name) {
        Found::No => format!("create the Service {name} in namespace {namespace}, or {delete}"),
        _ => format!("start the pods of {}, or {delete}", service.arguments()),
    }
}

/// State of the Service of a webhook, and a remedy, by the name of the webhook.
pub fn named(world: &World, name: &str) -> Option<(String, String)> {
    let validating = world.list::<ValidatingWebhookConfiguration>(None).items;
    let mutating = world.list::<MutatingWebhookConfiguration>(None).items;
    let validating = validating.iter().flat_map(move |found| {
        let own = found.webhooks().items().filter(move |webhook| webhook.name() == name);
        own.map(move |webhook| (ObjectRef::to(*found), webhook.client_config()))
    });
    let mutating = mutating.iter().flat_map(move |found| {
        let own = found.webhooks().items().filter(move |webhook| webhook.name() == name);
        own.map(move |webhook| (ObjectRef::to(*found), webhook.client_config()))
    });
    let (object, client) = validating.chain(mutating).next()?;
    let service = client.service();
    if !service.is_set() {
        let url = client.url().text();
        let remedy =
            format!("start what answers at {url}, or delete the configuration: kubectl delete {object}");
        return Some((String::new(), remedy));
    }
    let (namespace, target) = (service.namespace().text(), service.name().text());
    let state = match world.get::<Service>(namespace, target) {
        Found::No => format!(": its Service {target} does not exist in namespace {namespace}"),
        _ => String::new(),
    };
    Some((state, remedy(world, &object, &ObjectRef::new::<Service>(namespace, target))))
}
