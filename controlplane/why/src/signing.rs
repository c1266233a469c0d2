//! Certificate signing requests.

use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::certificates::v1::CertificateSigningRequest;

/// Seconds that approval and signature may take.
const PATIENCE: i64 = 30;

/// Why a request has no certificate.
pub fn explain(
    world: &World,
    request: View<'_, CertificateSigningRequest>,
    _trail: &[ObjectRef],
) -> Vec<Finding> {
    let status = request.status();
    if !status.certificate().text().is_empty() {
        return Vec::new();
    }
    let condition = |name: &str| status.conditions().items().find(|found| found.type_() == name);
    let object = ObjectRef::to(request);
    let (name, signer) = (object.name.clone(), request.spec().signer_name().text());
    if let Some(found) = condition("Denied").or_else(|| condition("Failed")) {
        let message = found.message().text();
        let verdict = if found.type_() == "Denied" { "the request was denied" } else { "the signer failed" };
        let cause = format!("{verdict}: {} {message}", found.reason().text());
        let finding = Finding::new(object, Trouble::SigningRequestDenied, cause.trim_end())
            .since(found.last_update_time().text())
            .evidence(format!("condition {}", found.type_().text()), message)
            .remedy("delete the request; whoever made it may ask again with what the signer accepts");
        return vec![finding];
    }
    let created = request.metadata().creation_timestamp().text();
    if !world.older(created, PATIENCE) {
        return Vec::new();
    }
    let (cause, remedy) = match condition("Approved") {
        Some(_) => (
            format!("the request is approved, and the signer {signer} has not signed it"),
            format!("start the signer {signer}"),
        ),
        None => (
            format!(
                "the request of {} to the signer {signer} waits for approval",
                request.spec().username().text()
            ),
            format!("check who asks for what, then: kubectl certificate approve {name}"),
        ),
    };
    let usages: Vec<&str> = request.spec().usages().texts().collect();
    let finding = Finding::new(object, Trouble::SigningRequestPending, cause)
        .since(created)
        .evidence("usages", usages.join(", "))
        .remedy(remedy);
    vec![finding]
}
