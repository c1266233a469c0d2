//! Makes every volume of a pod, or brings it up to date. Safe to repeat at any time.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Pod, ProjectedVolumeSource, Volume, VolumeProjection};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::content::{self, File, Keyed, Keys, Payload, mode};
use super::mounts::Source;
use super::token::Tokens;
use super::{VolumeError, atomic, empty_dir, host_path, nested, ownership, persistent};
use crate::config::NodeConfig;
use crate::objects::{ObjectError, Objects};
use crate::pod::downward::Downward;
use crate::pod::spec;

/// What volumes are made with.
pub struct Maker<'a> {
    /// The node's settings.
    pub config: &'a NodeConfig,
    /// The API.
    pub client: &'a kube::Client,
    /// ConfigMaps and Secrets.
    pub objects: &'a Objects,
    /// Tokens.
    pub tokens: &'a Tokens,
    /// What the downward API tells.
    pub facts: Downward<'a>,
    /// The node's labels.
    pub node_labels: &'a BTreeMap<String, String>,
}

/// The volumes of a pod.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// Where each volume is.
    pub sources: HashMap<String, Source>,
    /// When a token has to be renewed, seconds since the epoch.
    pub renew_at: Option<i64>,
}

impl Maker<'_> {
    /// Makes all volumes; the first that fails ends it, and what was made stays.
    pub async fn prepare(&self, pod: &Pod) -> Result<Prepared, VolumeError> {
        let mut prepared = Prepared::default();
        for volume in spec::spec(pod).volumes.iter().flatten() {
            let source = self
                .volume(pod, volume, &mut prepared.renew_at)
                .await
                .map_err(|reason| VolumeError::Setup { volume: volume.name.clone(), reason })?;
            prepared.sources.insert(volume.name.clone(), source);
        }
        Ok(prepared)
    }

    async fn volume(&self, pod: &Pod, volume: &Volume, renew_at: &mut Option<i64>) -> Result<Source, String> {
        let uid = spec::uid(pod);
        let spec = spec::spec(pod);
        let group = fs_group(pod);
        if let Some(source) = &volume.empty_dir {
            let dir = self.config.volume_dir(uid, "empty-dir", &volume.name);
            let limit = spec::totals(&spec, true).get("memory").copied().unwrap_or(0);
            empty_dir::ensure(&dir, source, limit).map_err(|error| error.to_string())?;
            if let Some(group) = group {
                give(&dir, group, pod)?;
            }
            return Ok(Source::Path { path: dir, read_only: false });
        }
        if let Some(source) = &volume.host_path {
            host_path::check(&source.path, source.type_.as_deref().unwrap_or_default())?;
            return Ok(Source::Path { path: source.path.clone().into(), read_only: false });
        }
        if let Some(source) = &volume.persistent_volume_claim {
            return self.claim(pod, &source.claim_name, source.read_only == Some(true), group).await;
        }
        if volume.ephemeral.is_some() {
            let claim = format!("{}-{}", spec::name(pod), volume.name);
            return self.claim(pod, &claim, false, group).await;
        }
        if let Some(source) = &volume.image {
            let image = source.reference.clone().unwrap_or_default();
            let image =
                cri::ImageSpec { user_specified_image: image.clone(), image, ..cri::ImageSpec::default() };
            return Ok(Source::Image(image));
        }
        let (payload, dir) = if let Some(source) = &volume.config_map {
            let bits = mode(source.default_mode, 0o644);
            let keys = Keys::new(&source.name, source.items.as_ref(), source.optional, bits);
            (self.config_map(pod, &keys).await?, self.config.volume_dir(uid, "configmap", &volume.name))
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let bits = mode(source.default_mode, 0o644);
            let keys = Keys::new(name, source.items.as_ref(), source.optional, bits);
            (self.secret(pod, &keys).await?, self.config.memory_volume_dir(uid, &volume.name))
        } else if let Some(source) = &volume.downward_api {
            let items = source.items.as_deref().unwrap_or_default();
            let payload = content::downward_api(pod, items, mode(source.default_mode, 0o644), &self.facts)?;
            (payload, self.config.memory_volume_dir(uid, &volume.name))
        } else if let Some(source) = &volume.projected {
            let payload = self.projected(pod, source, renew_at).await?;
            (payload, self.config.memory_volume_dir(uid, &volume.name))
        } else {
            return Err("no volume plugin matched".to_owned());
        };
        let target = dir.clone();
        let nested = nested::mount_points(pod, &volume.name);
        tokio::task::block_in_place(|| atomic::write(&target, &payload, group, &nested))
            .map_err(|error| error.to_string())?;
        // Whatever the pod's mounts say: only the API writes these.
        Ok(Source::Path { path: dir, read_only: true })
    }

    async fn config_map(&self, pod: &Pod, keys: &Keys<'_>) -> Result<Payload, String> {
        files(self.objects.config_map(spec::uid(pod), spec::namespace(pod), keys.of).await, keys)
    }

    async fn secret(&self, pod: &Pod, keys: &Keys<'_>) -> Result<Payload, String> {
        files(self.objects.secret(spec::uid(pod), spec::namespace(pod), keys.of).await, keys)
    }

    async fn claim(
        &self,
        pod: &Pod,
        claim: &str,
        read_only: bool,
        group: Option<u32>,
    ) -> Result<Source, String> {
        let found =
            persistent::resolve(self.client, spec::namespace(pod), claim, self.node_labels, self.config)
                .await?;
        let read_only = read_only || found.read_only;
        if let Some(group) = group.filter(|_| found.takes_group && !read_only) {
            give(&found.path, group, pod)?;
        }
        Ok(Source::Path { path: found.path, read_only })
    }

    /// All sources at once; a later one wins where two have the same path.
    async fn projected(
        &self,
        pod: &Pod,
        source: &ProjectedVolumeSource,
        renew_at: &mut Option<i64>,
    ) -> Result<Payload, String> {
        let bits = mode(source.default_mode, 0o644);
        let parts = source.sources.iter().flatten().map(|part| self.projection(pod, part, bits));
        let mut payload = Payload::new();
        for (files, renew) in futures::future::try_join_all(parts).await? {
            payload.extend(files);
            *renew_at = renew_at.iter().copied().chain(renew).min();
        }
        Ok(payload)
    }

    /// One source's files, and when its token has to be renewed.
    async fn projection(
        &self,
        pod: &Pod,
        part: &VolumeProjection,
        bits: u32,
    ) -> Result<(Payload, Option<i64>), String> {
        let files = if let Some(of) = &part.config_map {
            self.config_map(pod, &Keys::new(&of.name, of.items.as_ref(), of.optional, bits)).await?
        } else if let Some(of) = &part.secret {
            self.secret(pod, &Keys::new(&of.name, of.items.as_ref(), of.optional, bits)).await?
        } else if let Some(of) = &part.downward_api {
            content::downward_api(pod, of.items.as_deref().unwrap_or_default(), bits, &self.facts)?
        } else if let Some(of) = &part.service_account_token {
            let token = self.tokens.token(pod, of).await?;
            let owner = common_user(pod);
            let bits = if owner.is_some() || fs_group(pod).is_some() { 0o600 } else { bits };
            let file = File { data: token.text.into_bytes(), mode: bits, owner };
            return Ok(([(of.path.clone(), file)].into_iter().collect(), Some(token.renew_at)));
        } else {
            return Err("projected source is not supported by this node".to_owned());
        };
        Ok((files, None))
    }
}

fn files<T: Keyed>(found: Result<Option<Arc<T>>, ObjectError>, keys: &Keys<'_>) -> Result<Payload, String> {
    content::files(keys, found.map_err(|error| error.to_string())?.as_deref())
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let group = spec::spec(pod).security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

fn give(dir: &Path, group: u32, pod: &Pod) -> Result<(), String> {
    let spec = spec::spec(pod);
    let policy = spec.security_context.as_ref().and_then(|context| context.fs_group_change_policy.as_deref());
    let only_mismatch = policy == Some("OnRootMismatch");
    tokio::task::block_in_place(|| ownership::give_to_group(dir, group, only_mismatch))
        .map_err(|error| error.to_string())
}

/// The user all containers run as, when there is one: it may read its token although others may not.
fn common_user(pod: &Pod) -> Option<u32> {
    let spec = spec::spec(pod);
    let default = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let mut users = spec::containers(&spec)
        .map(|(_, c)| c.security_context.as_ref().and_then(|context| context.run_as_user).or(default));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok())?
}
