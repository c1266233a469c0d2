//! Opens a backup, decrypts it if need be, and verifies all of it.

use crate::age::{AgeError, Decryptor, INTRO, Identity};
use crate::files::FilesError;
use crate::format::{Counts, File as PkiFile, FormatError, Header, Part, Reader};
use coracle_pki::bootstrap_token::{self, PREFIX};
use coracle_pki::revoked::REVOKED;
use coracle_pki::server_token::{SERVER_TOKENS, TokenRecord};
use coracle_store::KeyValue;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek};

/// Why a backup cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read without a key.
    #[error("the backup is encrypted: --identity FILE or --passphrase-file FILE decrypts it")]
    Encrypted,
    /// It cannot be decrypted.
    #[error(transparent)]
    Decrypt(#[from] AgeError),
    /// It is no backup, or not a whole one.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Files of the cluster's identity are missing.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The file cannot be read.
    #[error("the backup cannot be read")]
    Read(#[from] std::io::Error),
}

/// A backup that was read to its end, and found whole.
#[derive(Debug)]
pub struct Verified {
    /// What it is about.
    pub header: Header,
    /// What it has.
    pub counts: Counts,
    /// Files of the cluster's identity.
    pub files: Vec<PkiFile>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// What was valid then.
    pub review: Review,
}

/// What was valid when the backup was made, and is valid again after a restore.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// Ids of bootstrap tokens, and when they expire; `None` if they do not, or if it is encrypted.
    pub tokens: BTreeMap<String, Option<String>>,
    /// Number of tokens that cannot be read, because they are encrypted in the store.
    pub encrypted_tokens: usize,
    /// Ids of tokens that servers join with, and when they end; `None` if they do not.
    pub server_tokens: BTreeMap<String, Option<String>>,
    /// Nodes that were revoked by then, and since when; `None` if the list is encrypted in the store.
    pub revoked_nodes: Option<BTreeMap<String, String>>,
}

impl Review {
    fn look_at(&mut self, one: &KeyValue) {
        if let Some(name) = one.key.strip_prefix("/registry/secrets/kube-system/")
            && let Some(id) = name.strip_prefix(PREFIX)
        {
            let secret: Option<Value> = serde_json::from_slice(&one.value).ok();
            self.encrypted_tokens += usize::from(secret.is_none());
            let expiration = secret.map(|secret| bootstrap_token::field(&secret, "expiration"));
            self.tokens.insert(id.to_owned(), expiration.filter(|time| !time.is_empty()));
        }
        if let Some(id) = one.key.strip_prefix(SERVER_TOKENS) {
            let record = TokenRecord::read(&one.value).ok();
            let expires = record.and_then(|record| record.expires).map(|time| time.to_string());
            self.server_tokens.insert(id.to_owned(), expires);
        }
        if one.key.strip_prefix("/registry/configmaps/kube-system/") == Some(REVOKED) {
            let map: Option<Value> = serde_json::from_slice(&one.value).ok();
            self.revoked_nodes = map.map(|map| {
                let nodes = map.get("data").and_then(Value::as_object).into_iter().flatten();
                nodes
                    .map(|(node, since)| (node.clone(), since.as_str().unwrap_or_default().to_owned()))
                    .collect()
            });
        }
    }
}

/// Opens a backup at its beginning.
pub fn open(file: &File, identities: &[Identity]) -> Result<(Reader<Box<dyn Read + Send>>, bool), OpenError> {
    let mut file = file.try_clone()?;
    file.rewind()?;
    let mut first = Vec::new();
    (&file).take(INTRO.len() as u64).read_to_end(&mut first)?;
    file.rewind()?;
    let source = BufReader::with_capacity(1 << 18, file);
    let encrypted = first == INTRO;
    let source: Box<dyn Read + Send> = match encrypted {
        false => Box::new(source),
        true if identities.is_empty() => return Err(OpenError::Encrypted),
        true => Box::new(Decryptor::open(source, identities)?),
    };
    Ok((Reader::open(source)?, encrypted))
}

/// Reads a whole backup. It takes as long as reading, decrypting and decompressing take.
pub fn verify(file: &File, identities: &[Identity]) -> Result<Verified, OpenError> {
    let (mut reader, encrypted) = open(file, identities)?;
    let (mut files, mut review) = (Vec::new(), Review::default());
    review.revoked_nodes = Some(BTreeMap::new());
    while let Some(part) = reader.next_part()? {
        match part {
            Part::Files(more) => files.extend(more),
            Part::Keys(keys) => keys.iter().for_each(|one| review.look_at(one)),
        }
    }
    crate::files::check(&files)?;
    let (header, counts) = (reader.header().clone(), reader.counts().clone());
    Ok(Verified { header, counts, files, encrypted, review })
}
