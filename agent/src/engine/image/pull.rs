//! Fetching an image: manifest, config, then every missing layer at once.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use oci_client::Reference;

use super::{
    Credentials, Error, Hosts, ImageRecord, ImageStore, Result, blob,
    hosts::Endpoint,
    layer::{self, Limits, StagedLayer},
    manifest::{self, ConfigBlob, Descriptor, Manifest, Platform},
    record::{ImageConfig, LayerRef},
    reference,
    registry::{self, Registry},
    store::NewImage,
};

/// Layers fetched and unpacked at the same time.
const PARALLEL: usize = 3;

/// Told as a pull goes on; called from many threads.
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
        hosts: &Hosts,
        progress: Option<Progress>,
    ) -> Result<ImageRecord> {
        let image = reference::parse(name)?;
        let progress = progress.unwrap_or_else(|| Arc::new(|_| {}));
        let mut last = None;
        let mut said = Vec::new();
        for endpoint in hosts.endpoints(image.registry()) {
            match self.pull_from(&image, &endpoint, credentials, hosts, &progress).await {
                Ok(record) => return Ok(record),
                Err(error) if endpoint.mirror => {
                    tracing::warn!(image = %image, mirror = endpoint.host, %error, "mirror failed, trying the next place");
                    said.push(format!("{}: {error}", endpoint.host));
                    last = Some(error);
                }
                // Nobody is there to ask: what mirrors said is all that is known.
                Err(Error::Registry { name, reason }) if !said.is_empty() => {
                    let reason = format!("{reason}; its mirrors: {}", said.join("; "));
                    last = Some(Error::Registry { name, reason });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(Error::NotFound { name: name.to_owned() }))
    }

    async fn pull_from(
        &self,
        image: &Reference,
        endpoint: &Endpoint,
        credentials: &Credentials,
        hosts: &Hosts,
        progress: &Progress,
    ) -> Result<ImageRecord> {
        let source = Source::connect(image, endpoint, credentials, hosts).await?;
        let _once = self.busy.lock(&image.whole()).await;
        let resolved = source.resolve().await?;
        let config_bytes = source.small_blob(&resolved.config).await?;
        let config: ConfigBlob = serde_json::from_slice(&config_bytes)
            .map_err(|e| source.unsupported(format!("invalid image config: {e}")))?;
        if config.rootfs.diff_ids.len() != resolved.layers.len() {
            return Err(source.unsupported("the config and the manifest disagree about the layers".into()));
        }
        self.has_room(resolved.layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.size)))?;
        let layers: Vec<(String, Descriptor)> =
            config.rootfs.diff_ids.iter().cloned().zip(resolved.layers.iter().cloned()).collect();

        let mut names = vec![reference::digest_name(image, &resolved.top)];
        names.extend(reference::tag_name(image));
        let mut new = NewImage {
            record: record_of(&resolved.config.digest, &resolved.manifest, &config),
            names,
            config: config_bytes,
            staged: Vec::new(),
        };
        // Layers found in the store may be removed while the others come.
        let mut wanted: Vec<_> = layers.iter().filter(|(id, _)| !self.has_layer(id)).cloned().collect();
        progress(ProgressEvent::Resolved {
            digest: resolved.manifest.clone(),
            layers: wanted.len(),
            bytes: wanted.iter().fold(0, |sum: u64, (_, d)| sum.saturating_add(d.size)),
        });
        loop {
            new.staged.extend(self.fetch_layers(&source, std::mem::take(&mut wanted), progress).await?);
            let store = self.clone();
            let missing;
            (new, missing) = blocking(move || {
                store.flush(&new.staged)?;
                let missing = store.commit(&mut new)?;
                Ok((new, missing))
            })
            .await?;
            if missing.is_empty() {
                return self.get(&new.record.id);
            }
            wanted = layers.iter().filter(|(id, _)| missing.contains(id)).cloned().collect();
        }
    }

    async fn fetch_layers(
        &self,
        source: &Source,
        mut wanted: Vec<(String, Descriptor)>,
        progress: &Progress,
    ) -> Result<Vec<StagedLayer>> {
        wanted.sort_by(|a, b| a.0.cmp(&b.0));
        wanted.dedup_by(|a, b| a.0 == b.0);
        // The biggest first: the rest fits beside it.
        wanted.sort_by_key(|(_, descriptor)| std::cmp::Reverse(descriptor.size));
        let fetches = wanted.into_iter().map(|(diff_id, descriptor)| async move {
            // Another pull may be at the same layer: then it is in the store when we get the lock.
            let _once = self.busy.lock(&diff_id).await;
            if self.has_layer(&diff_id) {
                return Ok(None);
            }
            let report = |have| {
                let size = descriptor.size;
                progress(ProgressEvent::Downloading { digest: descriptor.digest.clone(), have, size });
            };
            let blob = blob::fetch(self, &source.registry, &descriptor, &report).await?;
            let (store, size) = (self.clone(), descriptor.size);
            let staged =
                blocking(move || layer::stage(&store, &diff_id, &blob.file, Limits::for_compressed(size)))
                    .await?;
            progress(ProgressEvent::Unpacked { digest: descriptor.digest.clone() });
            Ok::<_, Error>(Some(staged))
        });
        let staged = stream::iter(fetches).buffer_unordered(PARALLEL).try_collect::<Vec<_>>().await?;
        Ok(staged.into_iter().flatten().collect())
    }

    /// Layer contents reach the disk before anything refers to them.
    pub(super) fn flush(&self, staged: &[StagedLayer]) -> Result<()> {
        if staged.is_empty() {
            return Ok(());
        }
        let root = std::fs::File::open(&self.root).map_err(Error::io("opening", &self.root))?;
        nix::unistd::syncfs(&root).map_err(|e| Error::io("flushing", &self.root)(e.into()))
    }
}

pub(super) fn record_of(id: &str, manifest: &str, config: &ConfigBlob) -> ImageRecord {
    let layer = |diff_id: &String| LayerRef { diff_id: diff_id.clone(), size: 0 };
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
        layers: config.rootfs.diff_ids.iter().map(layer).collect(),
        config: ImageConfig::of(config),
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// What a mirror calls an image.
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
        hosts: &Hosts,
    ) -> Result<Self> {
        let image = if endpoint.mirror { at_mirror(image, endpoint) } else { image.clone() };
        Ok(Source { registry: Registry::connect(&image, endpoint, credentials, hosts).await? })
    }

    fn name(&self) -> String {
        self.registry.image().whole()
    }

    fn unsupported(&self, reason: String) -> Error {
        Error::Unsupported { what: self.name(), reason }
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
            Manifest::Index(_) => Err(self.unsupported("an index inside an index".into())),
        }
    }

    async fn small_blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        manifest::hex_of(&descriptor.digest)?;
        if descriptor.size > manifest::LARGEST {
            return Err(self.unsupported(format!("a config of {} bytes", descriptor.size)));
        }
        let incoming = self.registry.blob(&descriptor.digest, 0).await?;
        let name = format!("{} ({})", self.name(), descriptor.digest);
        let most = if descriptor.size == 0 { manifest::LARGEST } else { descriptor.size };
        let bytes = registry::read(incoming.response, most, &name).await?;
        verified("config", &bytes, Some(&descriptor.digest))?;
        self.of_size("config", &bytes, descriptor)?;
        Ok(bytes)
    }

    /// What says nothing about its length may have any.
    fn of_size(&self, what: &str, bytes: &[u8], descriptor: &Descriptor) -> Result<()> {
        match descriptor.size {
            0 => Ok(()),
            size if size == bytes.len() as u64 => Ok(()),
            size => {
                Err(self
                    .unsupported(format!("a {what} of {} bytes that is said to have {size}", bytes.len())))
            }
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
