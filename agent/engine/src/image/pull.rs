//! Pulls an image: manifest, config, then all missing layers in parallel.

use std::{collections::BTreeMap, sync::Arc};

use coracle_cli::causes;
use coracle_trace::{Span, Stage, carry, stage_named, tracked};
use futures::{StreamExt, TryStreamExt, stream};
use oci_spec::distribution::Reference;

use super::{
    Credentials, Error, ImageRecord, ImageStore, RegistryConfig, RegistryError, Result, Unsupported, blob,
    chain::{check_layers, layers_of},
    commit::NewImage,
    layer::{self, Limits, StagedLayer},
    manifest::{self, ConfigBlob, Descriptor, Manifest, Platform},
    record::{ImageConfig, LayerRef},
    reference,
    registry::{self, Registry},
    registry_config::Endpoint,
};

/// Layers fetched and unpacked at the same time.
const PARALLEL: usize = 3;

/// Length of `sha256:` and the digits that identify a layer for people.
const SHORT_DIGEST: usize = 19;

/// Progress callback; called from many threads.
pub type Progress = Arc<dyn Fn(ProgressEvent) + Send + Sync>;

/// A step of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgressEvent {
    /// The manifest is known: so many layers are to be fetched, of so many compressed bytes.
    Resolved {
        /// Digest of the image's manifest.
        digest: String,
        /// Layers not yet in the store.
        layers: usize,
        /// Their compressed size.
        bytes: u64,
    },
    /// So much of a layer is here.
    Downloading {
        /// Digest of the compressed layer.
        digest: String,
        /// Bytes so far.
        have: u64,
        /// Bytes in all.
        size: u64,
    },
    /// A layer is unpacked.
    Unpacked {
        /// Digest of the compressed layer.
        digest: String,
    },
}

impl ImageStore {
    /// Fetches an image and gives it its name; returns its record.
    ///
    /// Mirrors are tried in order, then the registry itself. Killed or failed in the middle, nothing of the image is
    /// visible; the next pull resumes its downloads.
    pub async fn pull(
        &self,
        name: &str,
        credentials: &Credentials,
        hosts: &RegistryConfig,
        progress: Option<Progress>,
    ) -> Result<ImageRecord> {
        let image = reference::parse(name)?;
        let progress = progress.unwrap_or_else(|| Arc::new(|_| {}));
        let mut last = None;
        let mut said = Vec::new();
        for endpoint in hosts.endpoints(image.registry()) {
            let mut resolving = stage_named(Stage::ImageResolve, &endpoint.host);
            let pulled = match Source::connect(&image, &endpoint, credentials, hosts).await {
                Ok(source) => Pull { store: self, source, progress: &progress }.run(&image, resolving).await,
                Err(error) => {
                    resolving.failed();
                    Err(error)
                }
            };
            match pulled {
                Ok(record) => return Ok(record),
                Err(error) if endpoint.mirror => {
                    let words = causes::chain(&error);
                    tracing::warn!(image = %image, mirror = endpoint.host, error = words, "mirror failed, trying the next endpoint");
                    said.push(format!("{}: {words}", endpoint.host));
                    last = Some(error);
                }
                // The registry cannot be reached: the mirrors' errors are added.
                Err(Error::Registry { name, reason }) if !said.is_empty() => {
                    let reason =
                        RegistryError::WithMirrors { registry: Box::new(reason), mirrors: said.clone() };
                    last = Some(Error::Registry { name, reason });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(Error::NotFound { name: name.to_owned() }))
    }
}

/// A pull from one endpoint.
struct Pull<'a> {
    store: &'a ImageStore,
    source: Source,
    progress: &'a Progress,
}

impl Pull<'_> {
    /// `resolving` is the span of the connection and of what is read before the layers.
    async fn run(&self, image: &Reference, mut resolving: Span) -> Result<ImageRecord> {
        let (store, source) = (self.store, &self.source);
        let _once = store.busy.lock(&image.whole()).await;
        let found = source.manifest_and_config().await;
        if found.is_err() {
            resolving.failed();
        }
        resolving.finish();
        let (resolved, config_bytes) = found?;
        let config: ConfigBlob =
            serde_json::from_slice(&config_bytes).map_err(|e| source.unsupported(Unsupported::Config(e)))?;
        check_layers(&source.name(), config.rootfs.diff_ids.len(), resolved.layers.len())?;
        store.check_free_space(
            resolved.layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.size)),
        )?;
        let record = record_of(&resolved.config.digest, &resolved.manifest, &config);
        let layers: Vec<(LayerRef, Descriptor)> =
            record.layers.iter().cloned().zip(resolved.layers.iter().cloned()).collect();

        let mut names = vec![reference::digest_name(image, &resolved.top)];
        names.extend(reference::tag_name(image));
        let mut new = NewImage { record, names, config: config_bytes, staged: Vec::new() };
        // Layers in the store may be removed while the others are downloaded.
        let mut wanted: Vec<_> =
            layers.iter().filter(|(layer, _)| !store.layers.has(layer)).cloned().collect();
        (self.progress)(ProgressEvent::Resolved {
            digest: resolved.manifest.clone(),
            layers: wanted.len(),
            bytes: wanted.iter().fold(0, |sum: u64, (_, d)| sum.saturating_add(d.size)),
        });
        loop {
            new.staged.extend(self.fetch_layers(std::mem::take(&mut wanted)).await?);
            let store = store.clone();
            let commit = blocking(move || {
                store.flush(&new.staged)?;
                let missing = store.commit(&mut new)?;
                Ok((new, missing))
            });
            let missing;
            (new, missing) = tracked(Stage::ImageCommit, "", commit).await?;
            if missing.is_empty() {
                return self.store.get(&new.record.id);
            }
            wanted = layers.iter().filter(|(layer, _)| missing.contains(layer)).cloned().collect();
        }
    }

    async fn fetch_layers(&self, wanted: Vec<(LayerRef, Descriptor)>) -> Result<Vec<StagedLayer>> {
        let (store, source, progress) = (self.store, &self.source, self.progress);
        // The same contents at several places of an image are downloaded once and unpacked for each place.
        let mut blobs: BTreeMap<String, (Descriptor, Vec<LayerRef>)> = BTreeMap::new();
        for (layer, descriptor) in wanted {
            let blob = blobs.entry(layer.diff_id.clone()).or_insert_with(|| (descriptor, Vec::new()));
            blob.1.push(layer);
        }
        // Largest first, so that small layers download in parallel.
        let mut blobs: Vec<_> = blobs.into_iter().collect();
        blobs.sort_by_key(|(_, (descriptor, _))| std::cmp::Reverse(descriptor.size));
        let fetches = blobs.into_iter().map(|(diff_id, (descriptor, mut layers))| async move {
            // Another pull may be at the same blob: then the layer may be in the store when we get the lock. A registry
            // that is slow holds up only pulls from itself, whatever it says that its layers are.
            let key = format!("{} {diff_id}", source.registry.image().resolve_registry());
            let _once = store.busy.lock(&key).await;
            layers.retain(|layer| !store.layers.has(layer));
            if layers.is_empty() {
                return Ok(Vec::new());
            }
            let report = |have| {
                let size = descriptor.size;
                progress(ProgressEvent::Downloading { digest: descriptor.digest.clone(), have, size });
            };
            let short = descriptor.digest.get(..SHORT_DIGEST).unwrap_or(&descriptor.digest);
            let label = format!("{short}\n{} bytes", descriptor.size);
            let fetch = blob::fetch(store, &source.registry, &descriptor, &report);
            let blob = tracked(Stage::ImageLayer, &label, fetch).await?;
            let (store, limits) = (store.clone(), Limits::for_compressed(descriptor.size));
            let unpack = blocking(move || {
                let stage = |layer| layer::stage(&store, layer, blob.rewound()?, limits);
                layers.into_iter().map(stage).collect::<Result<Vec<_>>>()
            });
            let staged = tracked(Stage::ImageUnpack, short, unpack).await?;
            progress(ProgressEvent::Unpacked { digest: descriptor.digest.clone() });
            Ok::<_, Error>(staged)
        });
        let staged = stream::iter(fetches).buffer_unordered(PARALLEL).try_collect::<Vec<_>>().await?;
        Ok(staged.into_iter().flatten().collect())
    }
}

pub(super) fn record_of(id: &str, manifest: &str, config: &ConfigBlob) -> ImageRecord {
    ImageRecord {
        id: id.to_owned(),
        manifest: manifest.to_owned(),
        repo_tags: Vec::new(),
        repo_digests: Vec::new(),
        size: 0,
        created: config.created.clone(),
        last_used: 0,
        pinned: false,
        imported: false,
        layers: layers_of(&config.rootfs.diff_ids),
        former_layers: Vec::new(),
        config: ImageConfig::of(config),
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(carry(work))
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Name of an image at a mirror.
fn at_mirror(image: &Reference, endpoint: &Endpoint) -> Reference {
    let registry = image.registry().to_owned();
    let repository = match &*endpoint.prefix {
        "" => image.repository().to_owned(),
        prefix => format!("{prefix}/{}", image.repository()),
    };
    let owned = |part: Option<&str>| part.map(str::to_owned);
    let mut there = match (owned(image.tag()), owned(image.digest())) {
        (Some(tag), Some(digest)) => Reference::with_tag_and_digest(registry, repository, tag, digest),
        (None, Some(digest)) => Reference::with_digest(registry, repository, digest),
        (tag, None) => Reference::with_tag(registry, repository, tag.unwrap_or_else(|| "latest".into())),
    };
    there.set_mirror_registry(endpoint.host.clone());
    there
}

/// An image at one endpoint.
struct Source {
    registry: Registry,
}

struct Resolved {
    /// Digest of what the name points to: an index or a manifest.
    top: String,
    manifest: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl Source {
    async fn connect(
        image: &Reference,
        endpoint: &Endpoint,
        credentials: &Credentials,
        hosts: &RegistryConfig,
    ) -> Result<Self> {
        let image = if endpoint.mirror { at_mirror(image, endpoint) } else { image.clone() };
        Ok(Source { registry: Registry::connect(&image, endpoint, credentials, hosts).await? })
    }

    fn name(&self) -> String {
        self.registry.image().whole()
    }

    fn unsupported(&self, reason: Unsupported) -> Error {
        Error::unsupported(self.name(), reason)
    }

    async fn manifest_and_config(&self) -> Result<(Resolved, Vec<u8>)> {
        let resolved = self.resolve().await?;
        let config = self.small_blob(&resolved.config).await?;
        Ok((resolved, config))
    }

    async fn resolve(&self) -> Result<Resolved> {
        let name = self.name();
        let bytes = self.registry.manifest(None).await?;
        let top = verified("manifest", &bytes, self.registry.image().digest())?;
        let (manifest, digest) = match Manifest::parse(&name, &bytes)? {
            found @ Manifest::Image { .. } => (found, top.clone()),
            Manifest::Index(entries) => {
                let entry = manifest::for_platform(&name, &entries, &Platform::host())?;
                manifest::hex_of(&entry.digest)?;
                let bytes = self.registry.manifest(Some(&entry.digest)).await?;
                self.of_size("manifest", &bytes, entry)?;
                let digest = verified("manifest", &bytes, Some(&entry.digest))?;
                (Manifest::parse(&name, &bytes)?, digest)
            }
        };
        match manifest {
            Manifest::Image { config, layers } => Ok(Resolved { top, manifest: digest, config, layers }),
            Manifest::Index(_) => Err(self.unsupported(Unsupported::NestedIndex)),
        }
    }

    async fn small_blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        manifest::hex_of(&descriptor.digest)?;
        if descriptor.size > manifest::MAX_DOCUMENT {
            return Err(self.unsupported(Unsupported::LongConfig { bytes: descriptor.size }));
        }
        let incoming = self.registry.blob(&descriptor.digest, 0).await?;
        let name = format!("{} ({})", self.name(), descriptor.digest);
        let most = if descriptor.size == 0 { manifest::MAX_DOCUMENT } else { descriptor.size };
        let bytes = registry::read(incoming.response, most, &name).await?;
        verified("config", &bytes, Some(&descriptor.digest))?;
        self.of_size("config", &bytes, descriptor)?;
        Ok(bytes)
    }

    /// Checks the length of a document; a descriptor without a size allows any.
    fn of_size(&self, document: &'static str, bytes: &[u8], descriptor: &Descriptor) -> Result<()> {
        match descriptor.size {
            0 => Ok(()),
            size if size == bytes.len() as u64 => Ok(()),
            described => Err(self.unsupported(Unsupported::Size { document, bytes: bytes.len(), described })),
        }
    }
}

fn verified(what: &str, bytes: &[u8], expected: Option<&str>) -> Result<String> {
    let actual = manifest::digest_of(bytes);
    match expected {
        Some(expected) if expected != actual => {
            Err(Error::Digest { what: what.into(), actual, expected: expected.into() })
        }
        _ => Ok(actual),
    }
}
