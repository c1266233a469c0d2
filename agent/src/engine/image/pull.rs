//! Fetching an image: manifest, config, then every missing layer at once.

use std::sync::Arc;

use coracle_proto::causes::chain;
use futures::{StreamExt, TryStreamExt, stream};
use oci_client::{
    Client, Reference, RegistryOperation,
    client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol},
    errors::{OciDistributionError, OciErrorCode},
};

use super::{
    Credentials, Error, Hosts, ImageRecord, ImageStore, Result, blob,
    hosts::Endpoint,
    layer::{self, Limits, StagedLayer},
    manifest::{self, ConfigBlob, Descriptor, Manifest, Platform},
    record::{ImageConfig, LayerRef},
    reference,
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
            bytes: wanted.iter().map(|(_, d)| d.size).sum(),
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
            let blob = blob::fetch(self, &source.client, &source.image, &descriptor, &report).await?;
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
    client: Client,
    image: Reference,
    auth: oci_client::secrets::RegistryAuth,
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
        // The client has no cryptography of its own; an error only says that one was chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = hosts.tls(&endpoint.host);
        let mut extra_root_certificates = Vec::new();
        if !tls.ca_file.is_empty() {
            let path = std::path::Path::new(&tls.ca_file);
            let data = std::fs::read(path).map_err(Error::io("reading", path))?;
            extra_root_certificates.push(Certificate { encoding: CertificateEncoding::Pem, data });
        }
        let config = ClientConfig {
            protocol: if endpoint.plain_http { ClientProtocol::Http } else { ClientProtocol::Https },
            accept_invalid_certificates: tls.insecure_skip_verify,
            extra_root_certificates,
            connect_timeout: Some(std::time::Duration::from_secs(10)),
            read_timeout: Some(std::time::Duration::from_secs(60)),
            user_agent: concat!("coracle/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(|e| explain(image.whole(), e))?;
        let image = if endpoint.mirror { at_mirror(image, endpoint) } else { image.clone() };
        let auth = hosts.credentials(endpoint, credentials).to_client();
        client.auth(&image, &auth, RegistryOperation::Pull).await.map_err(|e| explain(image.whole(), e))?;
        Ok(Source { client, image, auth })
    }

    fn unsupported(&self, reason: String) -> Error {
        Error::Unsupported { what: self.image.whole(), reason }
    }

    async fn resolve(&self) -> Result<Resolved> {
        let name = self.image.whole();
        let (bytes, top) = self.document(&self.image, self.image.digest()).await?;
        let (manifest, digest) = match Manifest::parse(&name, &bytes)? {
            found @ Manifest::Image { .. } => (found, top.clone()),
            Manifest::Index(entries) => {
                let entry = manifest::for_platform(&name, &entries, &Platform::host())?;
                let image = self.image.clone_with_digest(entry.digest.clone());
                let (bytes, digest) = self.document(&image, Some(&entry.digest)).await?;
                (Manifest::parse(&name, &bytes)?, digest)
            }
        };
        match manifest {
            Manifest::Image { config, layers } => Ok(Resolved { top, manifest: digest, config, layers }),
            Manifest::Index(_) => Err(self.unsupported("an index inside an index".into())),
        }
    }

    async fn document(&self, image: &Reference, expected: Option<&str>) -> Result<(Vec<u8>, String)> {
        let (bytes, _) = self
            .client
            .pull_manifest_raw(image, &self.auth, manifest::ACCEPTED)
            .await
            .map_err(|e| explain(image.whole(), e))?;
        let actual = manifest::digest_of(&bytes);
        match expected {
            Some(expected) if expected != actual => {
                Err(Error::Digest { what: "manifest".into(), actual, expected: expected.into() })
            }
            _ => Ok((bytes.to_vec(), actual)),
        }
    }

    async fn small_blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        const MOST: u64 = 8 << 20;
        if descriptor.size > MOST {
            return Err(self.unsupported(format!("a config of {} bytes", descriptor.size)));
        }
        let name = || format!("{} ({})", self.image.whole(), descriptor.digest);
        let stream = self.client.pull_blob_stream(&self.image, descriptor.digest.as_str()).await;
        let mut stream = stream.map_err(|e| explain(name(), e))?.stream;
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                // A wrong digest is told below, with both digests.
                Err(_) if bytes.len() as u64 >= descriptor.size => break,
                Err(e) => return Err(Error::Registry { name: name(), reason: e.to_string() }),
            }
            if bytes.len() as u64 > MOST {
                return Err(self.unsupported("the config does not end".into()));
            }
        }
        let actual = manifest::digest_of(&bytes);
        if actual != descriptor.digest {
            return Err(Error::Digest { what: "config".into(), actual, expected: descriptor.digest.clone() });
        }
        Ok(bytes)
    }
}

/// A client's error in our words.
pub(super) fn explain(name: String, error: OciDistributionError) -> Error {
    match error {
        OciDistributionError::UnauthorizedError { url } => {
            Error::Unauthorized { name, reason: format!("authorization failed for {url}") }
        }
        OciDistributionError::AuthenticationFailure(reason) => Error::Unauthorized { name, reason },
        OciDistributionError::ImageManifestNotFoundError(_) => Error::NotFound { name },
        OciDistributionError::ServerError { code: 404, .. } => Error::NotFound { name },
        OciDistributionError::ServerError { code: 401 | 403, message, .. } => {
            Error::Unauthorized { name, reason: message }
        }
        OciDistributionError::RegistryError { envelope, url } => {
            let is = |codes: &[OciErrorCode]| envelope.errors.iter().any(|e| codes.contains(&e.code));
            if is(&[
                OciErrorCode::ManifestUnknown,
                OciErrorCode::NameUnknown,
                OciErrorCode::BlobUnknown,
                OciErrorCode::NotFound,
            ]) {
                Error::NotFound { name }
            } else if is(&[OciErrorCode::Unauthorized, OciErrorCode::Denied]) {
                Error::Unauthorized { name, reason: envelope.to_string() }
            } else {
                Error::Registry { name, reason: format!("{url}: {envelope}") }
            }
        }
        OciDistributionError::RequestError(error) => Error::Registry { name, reason: chain(&error) },
        other => Error::Registry { name, reason: other.to_string() },
    }
}
