//! Mounts volumes of drivers: attach, stage, publish.

use coracle_csi::Capabilities;
use coracle_csi::v1::{NodePublishVolumeRequest, NodeStageVolumeRequest};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccountTokenProjection};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, VolumeAttachment};
use kube::Api;
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::attachments::Attachments;
use super::device;
use super::drivers::{Drivers, Registered};
use super::error::CsiError;
use super::limits;
use super::names::{Paths, ensure_dir};
use super::node_object::NodeObject;
use super::records::{Record, Records, State};
use super::request;
use super::sizes::Sizes;
use super::volume::CsiVolume;
use crate::events::Recorder;
use crate::locks::Locks;
use crate::pod::spec;
use crate::volume::metrics::VolumeMetrics;
use crate::volume::token::Tokens;

/// How often volumes are published again whose drivers want that, and claims are read that may have grown.
const REPUBLISH: i64 = 60;

/// A mounted volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Mounted {
    /// Where.
    pub path: PathBuf,
    /// Whether a pod's group gets its files.
    pub takes_group: bool,
    /// When it is to be looked at again, seconds since the epoch: to publish it again, or because it may have grown.
    pub renew_at: Option<i64>,
}

/// What a pod's volumes are mounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Its containers are about to start.
    First,
    /// Its containers run: only what drivers want to see again is published.
    Again,
}

/// Volumes of drivers.
#[derive(Clone)]
pub struct CsiVolumes(pub(super) Arc<Parts>);

pub(super) struct Parts {
    pub(super) node: String,
    pub(super) paths: Paths,
    pub(super) client: kube::Client,
    pub(super) object: NodeObject,
    pub(super) events: Recorder,
    pub(super) drivers: Drivers,
    pub(super) records: Records,
    pub(super) attachments: Arc<Attachments>,
    pub(super) tokens: Arc<Tokens>,
    /// By uid; before those of volumes.
    pub(super) pods: Locks,
    pub(super) volumes: Locks,
    pub(super) sizes: Sizes,
}

/// What is known of a volume before its driver is called.
struct Context {
    registered: Registered,
    driver: CSIDriverSpec,
    publish: HashMap<String, String>,
    group: Option<u32>,
    attachment: String,
}

impl CsiVolumes {
    /// Volumes that were mounted before are known from `records`.
    pub fn new(
        object: NodeObject,
        (paths, records): (Paths, Records),
        events: Recorder,
        drivers: Drivers,
        attachments: Arc<Attachments>,
        tokens: Arc<Tokens>,
    ) -> Self {
        for (uid, record) in records.all() {
            if !record.attachment.is_empty() {
                attachments.want(&record.key().unique(), &uid);
            }
        }
        let (pods, volumes) = (Locks::default(), Locks::default());
        let (node, client, sizes) = (object.node().to_owned(), object.client(), Sizes::default());
        Self(Arc::new(Parts {
            node,
            paths,
            client,
            object,
            events,
            drivers,
            records,
            attachments,
            tokens,
            pods,
            volumes,
            sizes,
        }))
    }

    /// Mounts a volume for a pod. Once a driver is called, the call is waited for even if the caller is not there any more:
    /// [`Self::release`] must not overtake it.
    pub async fn mount(
        &self,
        pod: &Arc<Pod>,
        volume: CsiVolume,
        group: Option<u32>,
        pass: Pass,
    ) -> Result<Mounted, CsiError> {
        let parts = &self.0;
        let registered = parts.drivers.get(&volume.key.driver);
        let registered = registered.ok_or_else(|| no_driver(&volume.key.driver))?;
        let driver = parts.driver(&volume.key.driver).await?;
        check_lifecycle(&volume, &driver)?;
        let uid = spec::uid(pod);
        let capabilities = registered.capabilities;
        let republishes = driver.requires_republish == Some(true);
        let may_grow = capabilities.expand && !volume.is_ephemeral && !volume.read_only;
        let mounted = Mounted {
            path: parts.paths.target_of(uid, &volume.name, volume.is_block),
            takes_group: request::takes_group(&volume, &driver, capabilities),
            renew_at: (republishes || may_grow).then(|| Timestamp::now().as_second() + REPUBLISH),
        };
        let is_published = parts.records.published(uid, &volume.name) == Some(State::Done);
        if is_published && (pass == Pass::First || !republishes) {
            return Ok(mounted);
        }
        let (publish, attachment) = if volume.is_ephemeral || driver.attach_required == Some(false) {
            Default::default()
        } else {
            match parts.attached(&volume, uid).await {
                Ok(attached) => attached,
                Err(error) => return Err(parts.exhausted(&volume, &driver).await.unwrap_or(error)),
            }
        };
        let context = Context { registered, driver, publish, group, attachment };
        let held = parts.pods.lock(uid).await;
        let (parts, pod) = (parts.clone(), pod.clone());
        let call = tokio::spawn(async move {
            let _held = held;
            let _volume = parts.volumes.lock(&volume.key.unique()).await;
            parts.stage_and_publish(&pod, &volume, &context).await
        });
        call.await??;
        Ok(mounted)
    }

    /// Series about volumes.
    pub fn metrics(&self) -> &VolumeMetrics {
        self.0.drivers.metrics()
    }

    /// Where a volume was mounted for a pod that runs, without asking its driver.
    pub fn mounted(&self, uid: &str, name: &str) -> Option<PathBuf> {
        let record = self.0.records.of_volume(uid, name)?;
        Some(self.0.paths.target_of(uid, name, record.is_block))
    }
}

pub(super) fn no_driver(driver: &str) -> CsiError {
    CsiError::NoDriver { driver: driver.to_owned() }
}

fn check_lifecycle(volume: &CsiVolume, driver: &CSIDriverSpec) -> Result<(), CsiError> {
    let mode = volume.lifecycle();
    let modes = driver.volume_lifecycle_modes.clone().filter(|modes| !modes.is_empty());
    let supported = modes.unwrap_or_else(|| vec!["Persistent".to_owned()]);
    if supported.iter().any(|one| one == mode) {
        return Ok(());
    }
    Err(CsiError::Lifecycle { driver: volume.key.driver.clone(), mode, supported })
}

impl Parts {
    /// What the cluster says of a driver; nothing if it says nothing.
    async fn driver(&self, name: &str) -> Result<CSIDriverSpec, CsiError> {
        let api: Api<CSIDriver> = Api::all(self.client.clone());
        let found = api.get_opt(name).await.map_err(|source| CsiError::Api {
            object: format!("CSIDriver {name}"),
            source: Box::new(source),
        })?;
        Ok(found.map(|driver| driver.spec).unwrap_or_default())
    }

    /// Waits until the control plane has attached a volume; the attachment's metadata and name.
    async fn attached(
        &self,
        volume: &CsiVolume,
        uid: &str,
    ) -> Result<(HashMap<String, String>, String), CsiError> {
        let unique = volume.key.unique();
        self.attachments.want(&unique, uid);
        self.attachments.attached(&unique).await?;
        let name = volume.key.attachment(&self.node);
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let found = api.get_opt(&name).await.map_err(|source| CsiError::Api {
            object: format!("VolumeAttachment {name}"),
            source: Box::new(source),
        })?;
        let problem = |problem: &str| CsiError::Attachment {
            name: name.clone(),
            volume: volume.name.clone(),
            problem: problem.to_owned(),
        };
        let found = found.ok_or_else(|| problem("not found"))?;
        if found.metadata.deletion_timestamp.is_some() {
            return Err(problem("is being deleted"));
        }
        let status = found.status.unwrap_or_default();
        if !status.attached {
            let error = status.attach_error.and_then(|error| error.message);
            return Err(problem(&error.unwrap_or_else(|| "not attached".to_owned())));
        }
        Ok((status.attachment_metadata.unwrap_or_default().into_iter().collect(), name))
    }

    /// The error of a volume that is not attached because no more fit on the node. Its driver is asked how many do first, so that
    /// the scheduler knows when the pod is replaced. Drivers that are never asked again say nothing about the node.
    async fn exhausted(&self, volume: &CsiVolume, driver: &CSIDriverSpec) -> Option<CsiError> {
        limits::period(driver)?;
        let name = volume.key.attachment(&self.node);
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        // If it cannot be read, that the volume is not attached is told.
        let problem = limits::exhaustion(&api.get_opt(&name).await.ok()??)?;
        limits::update(&volume.key.driver, &self.drivers, &self.object).await;
        Some(CsiError::Exhausted { name, volume: volume.name.clone(), problem })
    }

    async fn stage_and_publish(&self, pod: &Pod, volume: &CsiVolume, of: &Context) -> Result<(), CsiError> {
        let uid = spec::uid(pod);
        let capabilities = of.registered.capabilities;
        let is_staged = capabilities.stage && !volume.is_ephemeral;
        let record = Record {
            driver_name: volume.key.driver.clone(),
            volume_handle: volume.key.handle.clone(),
            name: volume.name.clone(),
            volume_lifecycle_mode: volume.lifecycle().to_owned(),
            node_name: self.node.clone(),
            attachment: of.attachment.clone(),
            is_staged,
            is_block: volume.is_block,
            state: State::Planned,
            boot: String::new(),
        };
        let before = self.records.published(uid, &volume.name);
        let is_taken = || self.records.is_mounted_elsewhere(&volume.key, uid);
        if before != Some(State::Done) && volume.is_single_pod() && is_taken() {
            return Err(CsiError::SinglePod);
        }
        // First of all: whatever happens from here on, the end of the pod undoes it.
        if before.is_none() {
            self.records.note_published(uid, &record, State::Planned)?;
        }
        if is_staged && self.records.staged(&volume.key) != Some(State::Done) {
            self.stage(volume, &record, of).await?;
        }
        let request = self.publish_request(pod, volume, is_staged, of).await?;
        let is_published = before == Some(State::Done);
        if !is_published {
            self.records.note_published(uid, &record, State::Called)?;
        }
        if volume.is_block {
            device::prepare(&self.paths.device_target(uid, &volume.name))?;
        }
        of.registered.driver.publish(request).await.map_err(|source| call(volume, source))?;
        if volume.is_block {
            device::published(&self.paths, uid, &volume.name)?;
        }
        if !is_published {
            self.records.note_published(uid, &record, State::Done)?;
            tracing::info!(uid, driver = volume.key.driver, volume = volume.name, "volume published");
        }
        Ok(())
    }

    async fn stage(&self, volume: &CsiVolume, record: &Record, of: &Context) -> Result<(), CsiError> {
        let target = self.paths.staging_of(&volume.key, &volume.name, volume.is_block);
        let request = NodeStageVolumeRequest {
            volume_id: volume.key.handle.clone(),
            publish_context: of.publish.clone(),
            staging_target_path: target.to_string_lossy().into_owned(),
            volume_capability: Some(request::capability(volume, of.registered.capabilities, of.group)),
            secrets: self.secrets(volume, volume.stage_secret.as_ref()).await?,
            volume_context: volume.attributes.clone().into_iter().collect(),
        };
        self.records.note_staged(record, State::Called)?;
        ensure_dir(&target).map_err(|source| CsiError::Directory {
            action: "mkdir",
            path: target,
            source,
        })?;
        of.registered.driver.stage(request).await.map_err(|source| call(volume, source))?;
        self.records.note_staged(record, State::Done)?;
        tracing::info!(driver = volume.key.driver, volume = volume.name, "volume staged");
        Ok(())
    }

    async fn publish_request(
        &self,
        pod: &Pod,
        volume: &CsiVolume,
        is_staged: bool,
        of: &Context,
    ) -> Result<NodePublishVolumeRequest, CsiError> {
        let capabilities: Capabilities = of.registered.capabilities;
        let staging = if is_staged {
            self.paths.staging_of(&volume.key, &volume.name, volume.is_block)
        } else {
            PathBuf::new()
        };
        let target = self.paths.target_of(spec::uid(pod), &volume.name, volume.is_block);
        let mut secrets = self.secrets(volume, volume.publish_secret.as_ref()).await?;
        let mut volume_context = request::context(volume, &of.driver, pod);
        if let Some(tokens) = self.tokens(pod, &of.driver).await? {
            let in_secrets = of.driver.service_account_token_in_secrets == Some(true);
            let place = if in_secrets { &mut secrets } else { &mut volume_context };
            place.insert("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), tokens);
        }
        Ok(NodePublishVolumeRequest {
            volume_id: volume.key.handle.clone(),
            publish_context: of.publish.clone(),
            staging_target_path: staging.to_string_lossy().into_owned(),
            target_path: target.to_string_lossy().into_owned(),
            volume_capability: Some(request::capability(volume, capabilities, of.group)),
            readonly: volume.read_only,
            secrets,
            volume_context,
        })
    }

    /// Tokens of the pod's service account for the audiences that the driver wants, as JSON.
    async fn tokens(&self, pod: &Pod, driver: &CSIDriverSpec) -> Result<Option<String>, CsiError> {
        let mut all = serde_json::Map::new();
        for wanted in driver.token_requests.iter().flatten() {
            let projection = ServiceAccountTokenProjection {
                audience: Some(wanted.audience.clone()),
                expiration_seconds: wanted.expiration_seconds,
                path: String::new(),
            };
            let token = self.tokens.token(pod, &projection).await?;
            let expires = Timestamp::from_second(token.expires_at).unwrap_or_default().to_string();
            all.insert(wanted.audience.clone(), json!({"token": token.text, "expirationTimestamp": expires}));
        }
        Ok((!all.is_empty()).then(|| serde_json::Value::Object(all).to_string()))
    }

    pub(super) async fn secrets(
        &self,
        volume: &CsiVolume,
        of: Option<&(String, String)>,
    ) -> Result<HashMap<String, String>, CsiError> {
        let Some((namespace, name)) = of else { return Ok(HashMap::new()) };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await.map_err(|source| CsiError::Api {
            object: format!("secret {namespace}/{name}"),
            source: Box::new(source),
        })?;
        let found = found.ok_or_else(|| CsiError::NoSecret {
            namespace: namespace.clone(),
            name: name.clone(),
            driver: volume.key.driver.clone(),
        })?;
        let data = found.data.unwrap_or_default().into_iter();
        data.map(|(key, value)| match String::from_utf8(value.0) {
            Ok(text) => Ok((key, text)),
            Err(_) => Err(CsiError::SecretText { namespace: namespace.clone(), name: name.clone(), key }),
        })
        .collect()
    }
}

pub(super) fn call(volume: &CsiVolume, source: coracle_csi::CallError) -> CsiError {
    CsiError::Call { driver: volume.key.driver.clone(), source }
}
