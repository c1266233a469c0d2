//! Writes a backup to its place. It is verified while it is written, and it appears there as a whole or not at all.

use crate::age::{AgeError, Encryptor, Recipient};
use crate::files::ENCRYPTION;
use crate::format::{Counts, FormatError, Header, Part, Reader};
use crate::name::Name;
use crate::s3::{S3, S3Error, S3Location, S3Options};
use crate::target::{Place, prefix};
use bytes::{Buf, Bytes};
use coracle_store::encryption::provider::is_encrypted;
use futures::{Stream, StreamExt};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use tokio::sync::mpsc;

/// Pieces that wait to be written.
const AHEAD: usize = 4;

/// Where and how a backup is written.
#[derive(Debug, Clone)]
pub struct Options {
    /// A file, a directory, or a prefix in a bucket.
    pub place: Place,
    /// How S3 is reached.
    pub s3: S3Options,
    /// Who can decrypt it; it is not encrypted if there are none.
    pub recipients: Vec<Recipient>,
}

/// A backup that was written.
#[derive(Debug, Clone)]
pub struct Saved {
    /// What it is about.
    pub header: Header,
    /// What it has.
    pub counts: Counts,
    /// Where it is.
    pub place: Place,
    /// Its size there.
    pub bytes: u64,
}

/// Why a backup was not written. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The file is not overwritten.
    #[error("{0} exists already")]
    Exists(PathBuf),
    /// A file or directory cannot be written.
    #[error("{0}")]
    File(PathBuf, #[source] io::Error),
    /// The bytes that came are no backup.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It cannot be encrypted.
    #[error(transparent)]
    Encryption(#[from] AgeError),
    /// A restored cluster could not read its objects.
    #[error(
        "{0} is encrypted at rest, and the server that makes the backup does not have the keys: \
         start it with its --encryption-provider-config"
    )]
    KeysMissing(String),
    /// S3 failed.
    #[error(transparent)]
    S3(#[from] S3Error),
    /// The thread that writes has panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

/// Where the file is written before it is whole, and its name if it is given.
fn directory(place: &Place) -> Result<(PathBuf, Option<PathBuf>), SaveError> {
    let Place::Path(path) = place else { return Ok((std::env::temp_dir(), None)) };
    if path.is_dir() {
        return Ok((path.clone(), None));
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        coracle_cli::private_files::directory(path).map_err(|error| SaveError::File(path.clone(), error))?;
        return Ok((path.clone(), None));
    }
    if path.symlink_metadata().is_ok() {
        return Err(SaveError::Exists(path.clone()));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), Some(path.clone())))
}

/// Writes the pieces of a backup to a place.
pub async fn save<E>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send,
    options: &Options,
) -> Result<Saved, SaveError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let (directory, file) = directory(&options.place)?;
    let failed = |error| SaveError::File(directory.clone(), error);
    let mut temporary = tempfile::Builder::new();
    let spooled = temporary.prefix(".coracle-backup-").suffix(".partial").tempfile_in(&directory);
    let spooled = spooled.map_err(failed)?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let recipients = options.recipients.clone();
    let written = tokio::task::spawn_blocking(move || spool(receiver, spooled, &recipients));
    let mut pieces = Box::pin(pieces);
    while let Some(piece) = pieces.next().await {
        // Whoever writes has failed if nobody receives; its result says why.
        if sender.send(piece.map_err(io::Error::other)).await.is_err() {
            break;
        }
    }
    drop(sender);
    let (header, counts, spooled) = written.await??;
    let bytes = spooled.as_file().metadata().map_err(failed)?.len();
    let name = Name::of(&header, !options.recipients.is_empty()).to_string();
    let place = match &options.place {
        Place::Path(_) => {
            let path = file.unwrap_or_else(|| directory.join(name));
            tokio::task::spawn_blocking(move || persist(spooled, path)).await??
        }
        Place::S3(place) => {
            let path = format!("{}{name}", prefix(&place.path));
            let object = S3Location { path, ..place.clone() };
            let mut file = spooled.into_file();
            S3::new(&options.s3)?.put(&object, &mut file).await?;
            Place::S3(object)
        }
    };
    Ok(Saved { header, counts, place, bytes })
}

/// Gives the file its name when its bytes are on disk.
fn persist(spooled: NamedTempFile, path: PathBuf) -> Result<Place, SaveError> {
    let failed = |error| SaveError::File(path.clone(), error);
    spooled.as_file().sync_all().map_err(failed)?;
    spooled.persist_noclobber(&path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => SaveError::Exists(path.clone()),
        _ => failed(error.error),
    })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)?;
    Ok(Place::Path(path))
}

/// Pieces that come through a channel.
struct Received {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Writes everything that is read through it.
struct Copied {
    source: Received,
    encryptor: Option<Encryptor>,
    buffer: Vec<u8>,
    file: io::BufWriter<File>,
}

impl Read for Copied {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        match &mut self.encryptor {
            Some(encryptor) => {
                encryptor.push(&buffer[..count], &mut self.buffer);
                self.file.write_all(&self.buffer)?;
                self.buffer.clear();
            }
            None => self.file.write_all(&buffer[..count])?,
        }
        Ok(count)
    }
}

/// Verifies a backup and writes it to a file, encrypted if there are recipients.
fn spool(
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    spooled: NamedTempFile,
    recipients: &[Recipient],
) -> Result<(Header, Counts, NamedTempFile), SaveError> {
    let failed = |error| SaveError::File(spooled.path().into(), error);
    let mut file = io::BufWriter::with_capacity(1 << 18, spooled.reopen().map_err(failed)?);
    let mut encryptor = None;
    if !recipients.is_empty() {
        let (begun, first) = Encryptor::new(recipients)?;
        file.write_all(&first).map_err(failed)?;
        encryptor = Some(begun);
    }
    let source = Received { receiver, piece: Bytes::new() };
    let mut copied = Copied { source, encryptor, buffer: Vec::new(), file };
    let mut reader = Reader::open(&mut copied)?;
    let mut encrypted = None;
    while let Some(part) = reader.next_part()? {
        if let Part::Keys(keys) = part
            && encrypted.is_none()
        {
            encrypted = keys.into_iter().find(|one| is_encrypted(&one.value)).map(|one| one.key);
        }
    }
    if let Some(key) = encrypted.filter(|_| !reader.counts().files.iter().any(|name| name == ENCRYPTION)) {
        return Err(SaveError::KeysMissing(key));
    }
    let (header, counts) = (reader.header().clone(), reader.counts().clone());
    if let Some(encryptor) = copied.encryptor {
        encryptor.finish(&mut copied.buffer);
        copied.file.write_all(&copied.buffer).map_err(failed)?;
    }
    copied.file.flush().map_err(failed)?;
    Ok((header, counts, spooled))
}
