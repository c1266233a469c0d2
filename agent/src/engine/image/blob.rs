//! One blob, from a registry onto disk: resumed where an earlier attempt stopped, verified before it is used.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use futures::StreamExt;
use oci_client::{Client, Reference, client::BlobResponse, errors::OciDistributionError};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::{
    Error, ImageStore, Result,
    manifest::{Descriptor, format_digest, hex_of},
    pull::explain,
};

const ATTEMPTS: u32 = 5;

/// A verified download, at its start. The file is removed when this is dropped; until then it may be read.
pub(super) struct Blob {
    pub file: File,
    path: PathBuf,
}

impl Drop for Blob {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Fetches a blob into `ingest/`. `progress` is told how many bytes came, the resumed ones included.
///
/// A cut connection is retried from where it broke; bytes that are not what the digest says are thrown away and are
/// an error at once.
pub(super) async fn fetch(
    store: &ImageStore,
    client: &Client,
    image: &Reference,
    descriptor: &Descriptor,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Blob> {
    let hex = hex_of(&descriptor.digest)?;
    let path = store.path("ingest", hex);
    let failed = |source: io::Error| Error::Io { action: "downloading to", path: path.clone(), source };
    // Another process may be at the same blob: it gets a file of its own.
    let file = std::fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let file = file.map_err(failed)?;
    let (path, file) = match file.try_lock() {
        Ok(()) => (path.clone(), file),
        Err(_) => {
            let path = store.path("ingest", &format!("{hex}.{}", std::process::id()));
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
        let outcome = append(client, image, descriptor, &mut file, &mut hash, &mut have, progress).await;
        match outcome {
            Ok(()) if have >= descriptor.size => break,
            Err(Attempt::Disk(source)) => return Err(failed(source)),
            Err(Attempt::Final(error)) => return Err(error),
            // Progress earns new attempts: a poor line still gets there.
            _ if have > before => attempt = 1,
            Ok(()) | Err(Attempt::Again(_)) if attempt < ATTEMPTS => {}
            Err(Attempt::Again(error)) => return Err(error),
            Ok(()) => break,
        }
        tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
    }
    file.flush().await.map_err(failed)?;
    let actual = format_digest(hash.finalize());
    let mut blob = Blob { file: file.into_std().await, path: path.clone() };
    if actual != descriptor.digest {
        return Err(Error::Digest { what: "blob".into(), actual, expected: descriptor.digest.clone() });
    }
    blob.file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(blob)
}

enum Attempt {
    Again(Error),
    Final(Error),
    Disk(io::Error),
}

async fn append(
    client: &Client,
    image: &Reference,
    descriptor: &Descriptor,
    file: &mut tokio::fs::File,
    hash: &mut Sha256,
    have: &mut u64,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<(), Attempt> {
    let name = || format!("{} ({})", image.whole(), descriptor.digest);
    if *have >= descriptor.size && descriptor.size > 0 {
        return Ok(());
    }
    let digest = descriptor.digest.as_str();
    let response = if *have > 0 {
        client.pull_blob_stream_partial(image, digest, *have, None).await
    } else {
        client.pull_blob_stream(image, digest).await.map(BlobResponse::Full)
    };
    let stream = match response {
        Ok(BlobResponse::Partial(stream)) => stream,
        Ok(BlobResponse::Full(stream)) => {
            // The registry cannot resume.
            (*hash, *have) = restart(file).await.map_err(Attempt::Disk)?;
            stream
        }
        Err(
            e @ (OciDistributionError::RequestError(_)
            | OciDistributionError::ServerError { code: 500.., .. }),
        ) => {
            return Err(Attempt::Again(explain(name(), e)));
        }
        Err(e) => return Err(Attempt::Final(explain(name(), e))),
    };
    let mut stream = stream.stream;
    while let Some(chunk) = stream.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            // The client checks the digest as the last chunk passes; ours says the same with both digests.
            Err(e) if *have >= descriptor.size => {
                tracing::debug!(error = %e, "after the last byte of a blob");
                return Ok(());
            }
            Err(e) => return Err(Attempt::Again(Error::Registry { name: name(), reason: e.to_string() })),
        };
        hash.update(&chunk);
        *have += chunk.len() as u64;
        if *have > descriptor.size {
            let reason = format!("longer than its {} bytes", descriptor.size);
            return Err(Attempt::Final(Error::Unsupported { what: name(), reason }));
        }
        file.write_all(&chunk).await.map_err(Attempt::Disk)?;
        progress(*have);
    }
    Ok(())
}

async fn restart(file: &mut tokio::fs::File) -> io::Result<(Sha256, u64)> {
    use tokio::io::AsyncSeekExt;
    file.set_len(0).await?;
    file.seek(SeekFrom::Start(0)).await?;
    Ok((Sha256::new(), 0))
}

/// Hashes what an earlier attempt left, and stands at its end.
async fn hash_existing(file: &mut tokio::fs::File) -> io::Result<(Sha256, u64)> {
    let mut std = file.try_clone().await?.into_std().await;
    tokio::task::spawn_blocking(move || {
        let mut hash = Sha256::new();
        std.seek(SeekFrom::Start(0))?;
        let have = io::copy(&mut std, &mut hash)?;
        Ok((hash, have))
    })
    .await
    .map_err(io::Error::other)?
}
