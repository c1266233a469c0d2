//! Which audiences a node may request tokens for: those that the volumes of a pod name, themselves or through their CSI
//! driver.

use super::Attributes;
use coracle_fields::View;
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use coracle_fields::storage::v1::CSIDriver;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use std::sync::Arc;

/// Whether a volume of the pod asks for a token of this audience. Fails only if none is found and a claim, volume or driver
/// could not be read.
pub fn names_audience(at: &Attributes<'_>, pod: View<'_, Pod>, wanted: &str) -> Result<bool, ApiError> {
    let mut unread = None;
    for volume in pod.spec().volumes().items() {
        let sources = volume.projected().sources().items();
        let mut tokens =
            sources.map(|source| source.service_account_token()).filter(|token| token.is_object());
        if tokens.any(|token| token.audience() == wanted) {
            return Ok(true);
        }
        match driver_names_audience(at, pod, volume, wanted) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => unread = unread.or(Some(error)),
        }
    }
    unread.map_or(Ok(false), Err)
}

fn driver_names_audience(
    at: &Attributes<'_>,
    pod: View<'_, Pod>,
    volume: View<'_, Volume>,
    wanted: &str,
) -> Result<bool, ApiError> {
    let Some(driver) = driver_of(at, pod, volume)? else { return Ok(false) };
    let driver = object(at, "storage.k8s.io", "csidrivers", ("", &driver))?;
    let doc = driver.doc();
    let mut requests = doc.view::<CSIDriver>().spec().token_requests().items();
    Ok(requests.any(|request| request.audience() == wanted))
}

/// The CSI driver of a volume: named by it, or by the persistent volume that its claim is bound to.
fn driver_of(
    at: &Attributes<'_>,
    pod: View<'_, Pod>,
    volume: View<'_, Volume>,
) -> Result<Option<String>, ApiError> {
    let claim = if volume.ephemeral().volume_claim_template().is_object() {
        format!("{}-{}", pod.metadata().name().text(), volume.name().text())
    } else if volume.persistent_volume_claim().is_object() {
        volume.persistent_volume_claim().claim_name().text().to_owned()
    } else {
        return Ok(volume.csi().driver().get().map(str::to_owned));
    };
    let found = object(at, "", "persistentvolumeclaims", (at.namespace, &claim))?;
    let claim = found.doc();
    let bound_to = claim.view::<PersistentVolumeClaim>().spec().volume_name().text();
    let found = object(at, "", "persistentvolumes", ("", bound_to))?;
    let volume = found.doc();
    Ok(volume.view::<PersistentVolume>().spec().csi().driver().get().map(str::to_owned))
}

fn object(
    at: &Attributes<'_>,
    group: &str,
    plural: &str,
    (namespace, name): (&str, &str),
) -> Result<Arc<Object>, ApiError> {
    let objects = at.api.objects();
    let kind = objects.registry.preferred(group, plural).ok_or_else(ApiError::no_such_path)?;
    objects.cached(&kind, namespace, name)
}
