//! ServiceAccount: every pod runs as an account of its namespace and gets a token for the API.

use super::{Attributes, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Edit, Schema as _, View, make};
use coracle_proto::status::ApiError;
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and a little: what a token lives that the node renews in time.
const TOKEN_LIFE: i64 = 3607;

/// The plugin.
pub struct ServiceAccount;

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, at: &Attributes<'_>, _: Phase) -> bool {
        at.is_new() && at.is("", "pods")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if !at.is_new() || !at.is("", "pods") || is_mirror(pod) {
            return Ok(());
        }
        let mut pod = v1::Pod::edit(pod);
        let mut spec = pod.spec();
        let (new, old) = (spec.view().service_account_name().get(), spec.view().service_account().get());
        let name = new.or(old).filter(|name| !name.is_empty()).unwrap_or("default").to_owned();
        spec.service_account_name().set(&name);
        spec.service_account().set(&name);
        let kind = at
            .api
            .objects()
            .registry
            .resource("", "v1", "serviceaccounts")
            .ok_or_else(ApiError::no_such_path)?;
        let Ok(account) = at.api.objects().get(&kind, at.namespace, &name).await else {
            return Err(at.forbidden(format!(
                "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
                at.namespace
            )));
        };
        let doc = account.doc();
        let account = doc.view::<v1::ServiceAccount>();
        let own = spec.view().automount_service_account_token().get();
        if own.or(account.automount_service_account_token().get()).unwrap_or(true) {
            mount_token(&mut spec);
        }
        if spec.view().image_pull_secrets().is_empty() && !account.image_pull_secrets().is_empty() {
            spec.image_pull_secrets().set(account.image_pull_secrets());
        }
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        if !at.is_new() || !at.is("", "pods") || !is_mirror(pod) {
            return Ok(());
        }
        if v1::Pod::of(pod).spec().service_account_name().filled().is_some() {
            return Err(at.forbidden("a mirror pod may not reference service accounts"));
        }
        Ok(())
    }
}

fn is_mirror(pod: &Value) -> bool {
    v1::Pod::of(pod).metadata().annotations().has_key(MIRROR)
}

fn mount_token(spec: &mut Edit<'_, v1::PodSpec>) {
    let lacks = |container: View<'_, v1::Container>| {
        !container.volume_mounts().items().any(|mount| mount.mount_path() == MOUNT)
    };
    let pod = spec.view();
    if !pod.init_containers().items().chain(pod.containers().items()).any(lacks) {
        return;
    }
    let name = volume_name(pod);
    let mount = |mut container: Edit<'_, v1::Container>| {
        if lacks(container.view()) {
            let mount = make!(part v1::VolumeMount { name: &name, mount_path: MOUNT, read_only: true });
            container.volume_mounts().push(mount);
        }
    };
    spec.init_containers().each(mount);
    spec.containers().each(mount);
    if spec.view().volumes().items().any(|volume| volume.name() == name) {
        return;
    }
    let volume = make!(part v1::Volume {
        name,
        projected: {
            default_mode: 0o644,
            sources: [
                { service_account_token: { expiration_seconds: TOKEN_LIFE, path: "token" } },
                { config_map: { name: "kube-root-ca.crt", items: [{ key: "ca.crt", path: "ca.crt" }] } },
                {
                    downward_api: {
                        items: [{
                            path: "namespace",
                            field_ref: { api_version: "v1", field_path: "metadata.namespace" },
                        }],
                    },
                },
            ],
        },
    });
    spec.volumes().push(volume);
}

/// The name of a volume that is there already, or a new one that no volume has.
fn volume_name(spec: View<'_, v1::PodSpec>) -> String {
    let mut names = spec.volumes().items().filter_map(|volume| volume.name().get());
    if let Some(there) = names.find(|name| name.starts_with("kube-api-access-")) {
        return there.to_owned();
    }
    let drawn = make!(part PartialObjectMetadata { metadata: { generate_name: "kube-api-access-" } });
    let mut drawn = drawn.into_value();
    crate::metadata::redraw_name(&mut drawn);
    PartialObjectMetadata::of(&drawn).metadata().name().text().to_owned()
}
