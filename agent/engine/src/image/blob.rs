//! Downloads a blob: resumes an earlier attempt and verifies the digest.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::{
    Error, ImageStore, RegistryError, Result, Unsupported,
    manifest::{Descriptor, format_digest, hex_of},
    registry::{Incoming, Registry, RequestFailure},
};

const ATTEMPTS: u32 = 5;
/// Minimum bytes per period: a registry that sends a byte now and then must not block a pull forever.
const MIN_PROGRESS: u64 = 64 << 10;
const PERIOD: Duration = Duration::from_secs(60);

/// A verified download. The file is removed when this is dropped; until then it may be read.
pub(super) struct Blob {
    file: File,
    path: PathBuf,
}

impl Blob {
    /// The file, at its start.
    pub(super) fn rewound(&self) -> Result<&File> {
        (&self.file).seek(SeekFrom::Start(0)).map_err(Error::io("reading", &self.path))?;
        Ok(&self.file)
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Downloads a blob into `ingest/`. `progress` is called with the number of bytes so far, including resumed ones.
///
/// A closed connection is retried from the current offset. On a digest mismatch the bytes are deleted and the error is
/// returned at once.
pub(super) async fn fetch(
    store: &ImageStore,
    registry: &Registry,
    descriptor: &Descriptor,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Blob> {
    let hex = hex_of(&descriptor.digest)?;
    let path = store.ingest_dir().join(hex);
    let failed = |source: io::Error| Error::Io { action: "downloading to", path: path.clone(), source };
    // Another process, or a pull from another registry, may download the same blob: uses a file of its own.
    let file = std::fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let file = file.map_err(failed)?;
    let (path, file) = match file.try_lock() {
        Ok(()) => (path.clone(), file),
        Err(_) => {
            let path = store.ingest_dir().join(format!("{hex}.{}", uuid::Uuid::new_v4()));
            let file =
                std::fs::OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path);
            (path.clone(), file.map_err(failed)?)
        }
    };
    let mut file = tokio::fs::File::from_std(file);
    let (mut hash, mut have) = hash_existing(&mut file).await.map_err(failed)?;
    if have > descriptor.size {
        (hash, have) = restart(&mut file).await.map_err(failed)?;
    }
    let mut attempt = 0;
    while have < descriptor.size || attempt == 0 {
        attempt += 1;
        let before = have;
        let outcome = append(registry, descriptor, &mut file, &mut hash, &mut have, progress).await;
        match outcome {
            Ok(()) if have >= descriptor.size => break,
            Err(Attempt::Disk(source)) => return Err(failed(source)),
            Err(Attempt::Final(error)) => return Err(error),
            // Progress resets the number of attempts, for slow connections.
            _ if have - before.min(have) >= MIN_PROGRESS => attempt = 1,
            Ok(()) | Err(Attempt::Again(_)) if attempt < ATTEMPTS => {}
            Err(Attempt::Again(error)) => return Err(error),
            Ok(()) => break,
        }
        tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
    }
    file.flush().await.map_err(failed)?;
    let actual = format_digest(hash.finalize());
    let blob = Blob { file: file.into_std().await, path: path.clone() };
    if actual != descriptor.digest {
        return Err(Error::Digest { what: "blob".into(), actual, expected: descriptor.digest.clone() });
    }
    Ok(blob)
}

enum Attempt {
    Again(Error),
    Final(Error),
    Disk(io::Error),
}

async fn append(
    registry: &Registry,
    descriptor: &Descriptor,
    file: &mut tokio::fs::File,
    hash: &mut Sha256,
    have: &mut u64,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<(), Attempt> {
    let name = || format!("{} ({})", registry.image().whole(), descriptor.digest);
    let broken = |reason: RegistryError| Attempt::Again(Error::Registry { name: name(), reason });
    if *have >= descriptor.size && descriptor.size > 0 {
        return Ok(());
    }
    let Incoming { mut response, resumed } = match registry.blob(&descriptor.digest, *have).await {
        Ok(incoming) => incoming,
        Err(RequestFailure::Again(error)) => return Err(Attempt::Again(error)),
        Err(RequestFailure::Final(error)) => return Err(Attempt::Final(error)),
    };
    if !resumed && *have > 0 {
        // The registry cannot resume.
        (*hash, *have) = restart(file).await.map_err(Attempt::Disk)?;
    }
    let (mut since, mut from) = (Instant::now(), *have);
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(()),
            // The blob is complete.
            Err(_) if *have >= descriptor.size => return Ok(()),
            Err(error) => return Err(broken(error.into())),
        };
        if *have + chunk.len() as u64 > descriptor.size {
            let reason = Unsupported::LongBlob { bytes: descriptor.size };
            return Err(Attempt::Final(Error::unsupported(name(), reason)));
        }
        hash.update(&chunk);
        *have += chunk.len() as u64;
        file.write_all(&chunk).await.map_err(Attempt::Disk)?;
        progress(*have);
        if since.elapsed() >= PERIOD {
            if *have - from < MIN_PROGRESS {
                return Err(broken(RegistryError::Stalled { bytes: MIN_PROGRESS, period: PERIOD }));
            }
            (since, from) = (Instant::now(), *have);
        }
    }
}

async fn restart(file: &mut tokio::fs::File) -> io::Result<(Sha256, u64)> {
    use tokio::io::AsyncSeekExt;
    file.set_len(0).await?;
    file.seek(SeekFrom::Start(0)).await?;
    Ok((Sha256::new(), 0))
}

/// Hashes the bytes of an earlier attempt and seeks to the end.
async fn hash_existing(file: &mut tokio::fs::File) -> io::Result<(Sha256, u64)> {
    let mut std = file.try_clone().await?.into_std().await;
    tokio::task::spawn_blocking(move || {
        let (mut hash, mut have) = (Sha256::new(), 0);
        std.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; 128 << 10];
        loop {
            match std.read(&mut buffer) {
                Ok(0) => return Ok((hash, have)),
                Ok(read) => {
                    hash.update(&buffer[..read]);
                    have += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    })
    .await
    .map_err(io::Error::other)?
}
