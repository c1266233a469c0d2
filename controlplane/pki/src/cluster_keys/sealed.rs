//! The envelope: keys of the cluster, encrypted and authenticated with AES-256-GCM. Its version, the id of the sealing key and
//! the hash of the cluster CA are readable and authenticated.

use super::{ClusterKeys, ClusterKeysError, PENDING_SEALING_KEY, SEALING_KEY, read};
use crate::PkiError;
use crate::files::{sync_directory, write_private};
use crate::hex;
use base64::{Engine, engine::general_purpose::STANDARD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const VERSION: u32 = 1;
const CIPHER: &str = "AES-256-GCM";
/// More is no envelope.
const MAX_ENVELOPE: usize = 1 << 20;
/// Bytes of a sealing key.
pub(crate) const KEY: usize = 32;

/// Why an envelope cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// It is no envelope.
    #[error("the sealed keys of the cluster are not an envelope")]
    Unreadable(#[source] serde_json::Error),
    /// It is too large.
    #[error("the sealed keys of the cluster have {0} bytes, more than {MAX_ENVELOPE}")]
    TooLarge(usize),
    /// A newer server has written it.
    #[error("the sealed keys of the cluster have version {found}; this server reads version {VERSION}")]
    Version {
        /// The version of the envelope.
        found: u32,
    },
    /// Another sealing key is needed.
    #[error("the keys of the cluster are sealed with the key {found}, this server has {own}")]
    OtherKey {
        /// The id of the key of the envelope.
        found: String,
        /// The id of our key.
        own: String,
    },
    /// It is damaged or forged, or the key is another one.
    #[error("the sealed keys of the cluster are damaged")]
    Damaged,
    /// What is in it are no keys of a cluster.
    #[error(transparent)]
    Keys(#[from] ClusterKeysError),
    /// The file of the sealing key does not hold one.
    #[error("{0} does not hold a sealing key: want 64 hexadecimal digits")]
    SealingKey(String),
    /// There is no sealing key.
    #[error("{SEALING_KEY} is missing")]
    NoSealingKey,
    /// No random numbers.
    #[error("the system has no random numbers")]
    Random,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    version: u32,
    cipher: String,
    key_id: String,
    ca_hash: String,
    nonce: String,
    sealed: String,
}

/// What an envelope says to those who cannot open it. Nobody vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedInfo {
    /// The id of the sealing key.
    pub key_id: String,
    /// The hash of the cluster CA.
    pub ca_hash: String,
}

impl SealedInfo {
    /// Reads it.
    pub fn of(envelope: &[u8]) -> Result<Self, SealedError> {
        let Envelope { key_id, ca_hash, .. } = Envelope::read(envelope)?;
        Ok(Self { key_id, ca_hash })
    }
}

impl Envelope {
    fn read(bytes: &[u8]) -> Result<Self, SealedError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if bytes.len() > MAX_ENVELOPE {
            return Err(SealedError::TooLarge(bytes.len()));
        }
        // The other fields may be different in another version.
        let Versioned { version } = serde_json::from_slice(bytes).map_err(SealedError::Unreadable)?;
        if version != VERSION {
            return Err(SealedError::Version { found: version });
        }
        serde_json::from_slice(bytes).map_err(SealedError::Unreadable)
    }

    fn aad(&self) -> Vec<u8> {
        let Self { version, cipher, key_id, ca_hash, .. } = self;
        format!("coracle cluster keys\n{version}\n{cipher}\n{key_id}\n{ca_hash}").into_bytes()
    }
}

/// The key that seals the keys of the cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey([u8; KEY]);

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "SealingKey({})", self.id())
    }
}

impl SealingKey {
    /// A new one.
    pub fn generate() -> Result<Self, SealedError> {
        Ok(Self(random()?))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }

    /// Reads the key in a pki directory; `None` if there is none.
    pub fn read(dir: &Path) -> Result<Option<Self>, SealedError> {
        Self::read_file(&dir.join(SEALING_KEY))
    }

    /// Reads the key of a server that has not finished founding its cluster; `None` if there is none.
    pub fn read_pending(dir: &Path) -> Result<Option<Self>, SealedError> {
        Self::read_file(&dir.join(PENDING_SEALING_KEY))
    }

    fn read_file(path: &Path) -> Result<Option<Self>, SealedError> {
        let Some(text) = read(path, 1024)? else { return Ok(None) };
        let key = std::str::from_utf8(&text).ok().and_then(|text| hex::decode(text.trim()));
        let key = key.and_then(|bytes| Self::from_bytes(&bytes));
        key.map(Some).ok_or_else(|| SealedError::SealingKey(path.display().to_string()))
    }

    /// Writes the key to a pki directory.
    pub fn write(&self, dir: &Path) -> Result<(), PkiError> {
        write_private(&dir.join(SEALING_KEY), self.text().as_bytes())
    }

    fn text(&self) -> String {
        format!("{}\n", hex::encode(&self.0))
    }

    /// The pending key of a pki directory; a new one if there is none. It is on disk when this returns, with the other files of
    /// the directory, so that what it seals afterwards can be opened whenever the server ends.
    pub fn ensure_pending(dir: &Path) -> Result<Self, SealedError> {
        if let Some(pending) = Self::read_pending(dir)? {
            return Ok(pending);
        }
        let new = Self::generate()?;
        new.write_pending(dir).map_err(ClusterKeysError::Files)?;
        Ok(new)
    }

    fn write_pending(&self, dir: &Path) -> Result<(), PkiError> {
        write_private(&dir.join(PENDING_SEALING_KEY), self.text().as_bytes())?;
        // The other keys of a new cluster are in the same directory, which may be new, too.
        sync_directory(dir)?;
        sync_directory(dir.parent().unwrap_or(Path::new("/")))
    }

    /// Makes the pending key that of the server, once the keys that it seals are stored. Does nothing if the server has a key.
    pub fn confirm(dir: &Path) -> Result<(), PkiError> {
        let (pending, path) = (dir.join(PENDING_SEALING_KEY), dir.join(SEALING_KEY));
        if path.exists() {
            return Ok(());
        }
        std::fs::rename(&pending, &path).map_err(|source| PkiError::File { path: pending, source })?;
        sync_directory(dir)
    }

    /// What the key is called: nothing of it can be computed from that.
    pub fn id(&self) -> String {
        hex::encode(&self.derived("id")[..8])
    }

    /// A key for another purpose.
    pub fn derived(&self, purpose: &str) -> [u8; KEY] {
        derive(b"coracle sealing key", &self.0, &[purpose.as_bytes()])
    }

    /// Seals keys of a cluster.
    pub fn seal(&self, keys: &ClusterKeys) -> Result<Vec<u8>, SealedError> {
        let files: BTreeMap<_, _> =
            keys.files().map(|(name, bytes)| (name.to_owned(), STANDARD.encode(bytes))).collect();
        let plain = serde_json::to_vec(&files).map_err(SealedError::Unreadable)?;
        let mut envelope = Envelope {
            version: VERSION,
            cipher: CIPHER.to_owned(),
            key_id: self.id(),
            ca_hash: keys.ca_hash(),
            nonce: String::new(),
            sealed: String::new(),
        };
        let (nonce, sealed) = encrypt(&self.0, &envelope.aad(), plain)?;
        (envelope.nonce, envelope.sealed) = (STANDARD.encode(nonce), STANDARD.encode(sealed));
        serde_json::to_vec(&envelope).map_err(SealedError::Unreadable)
    }

    /// Opens an envelope.
    pub fn open(&self, envelope: &[u8]) -> Result<ClusterKeys, SealedError> {
        let envelope = Envelope::read(envelope)?;
        if envelope.key_id != self.id() {
            return Err(SealedError::OtherKey { found: envelope.key_id, own: self.id() });
        }
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| SealedError::Damaged);
        let (nonce, sealed) = (decode(&envelope.nonce)?, decode(&envelope.sealed)?);
        let plain = decrypt(&self.0, &envelope.aad(), &nonce, sealed).ok_or(SealedError::Damaged)?;
        let files: BTreeMap<String, String> =
            serde_json::from_slice(&plain).map_err(SealedError::Unreadable)?;
        let files = files.into_iter().map(|(name, text)| Ok((name, decode(&text)?)));
        let keys = ClusterKeys::new(files.collect::<Result<_, SealedError>>()?)?;
        match keys.ca_hash() == envelope.ca_hash {
            true => Ok(keys),
            false => Err(SealedError::Damaged),
        }
    }
}

struct Length;

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        KEY
    }
}

/// HKDF with SHA-256.
pub(crate) fn derive(salt: &[u8], secret: &[u8], info: &[&[u8]]) -> [u8; KEY] {
    let mut key = [0; KEY];
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    extracted
        .expand(info, Length)
        .and_then(|expanded| expanded.fill(&mut key))
        .expect("32 bytes are no more than HKDF gives");
    key
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], SealedError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SealedError::Random)?;
    Ok(bytes)
}

fn cipher(key: &[u8; KEY]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("a key of AES-256 has 32 bytes"))
}

/// Encrypts with a random nonce, which is returned too. A key seals few messages: nonces of 96 bits do not repeat.
pub(crate) fn encrypt(
    key: &[u8; KEY],
    aad: &[u8],
    mut plain: Vec<u8>,
) -> Result<([u8; NONCE_LEN], Vec<u8>), SealedError> {
    let nonce = random()?;
    cipher(key)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut plain)
        .map_err(|_| SealedError::TooLarge(plain.len()))?;
    Ok((nonce, plain))
}

/// `None` if anything is not as it was encrypted.
pub(crate) fn decrypt(key: &[u8; KEY], aad: &[u8], nonce: &[u8], mut sealed: Vec<u8>) -> Option<Vec<u8>> {
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let length = cipher(key).open_in_place(nonce, Aad::from(aad), &mut sealed).ok()?.len();
    sealed.truncate(length);
    Some(sealed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::cluster;
    use super::*;

    #[test]
    fn keys_are_opened_by_the_key_that_sealed_them_only() {
        let dir = tempfile::tempdir().unwrap();
        let keys = cluster(dir.path());
        let (own, other) = (SealingKey::generate().unwrap(), SealingKey::generate().unwrap());
        let envelope = own.seal(&keys).unwrap();
        assert_eq!(own.open(&envelope).unwrap(), keys);
        assert_ne!(own.seal(&keys).unwrap(), envelope, "every nonce is new");
        assert!(matches!(other.open(&envelope), Err(SealedError::OtherKey { .. })));
        let text = String::from_utf8(envelope.clone()).unwrap();
        // One that claims to be for the other key.
        let forged = text.replace(&own.id(), &other.id());
        assert!(matches!(other.open(forged.as_bytes()), Err(SealedError::Damaged)));
        assert!(!text.contains("BEGIN") && !text.contains(&STANDARD.encode("-----BEGIN")[..12]));
        let info = SealedInfo { key_id: own.id(), ca_hash: keys.ca_hash() };
        assert_eq!(SealedInfo::of(&envelope).unwrap(), info);
    }

    #[test]
    fn what_was_changed_or_cut_off_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let key = SealingKey::generate().unwrap();
        let envelope = key.seal(&cluster(dir.path())).unwrap();
        for length in 0..envelope.len() {
            assert!(key.open(&envelope[..length]).is_err(), "{length} bytes");
        }
        let changed = |change: &dyn Fn(&mut Envelope)| {
            let mut envelope: Envelope = serde_json::from_slice(&envelope).unwrap();
            change(&mut envelope);
            key.open(&serde_json::to_vec(&envelope).unwrap()).unwrap_err()
        };
        let flip = |text: &str, at: usize| {
            let mut bytes = STANDARD.decode(text).unwrap();
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= 1;
            STANDARD.encode(bytes)
        };
        for at in [0, 1, 100, usize::MAX] {
            assert!(matches!(changed(&|e| e.sealed = flip(&e.sealed, at)), SealedError::Damaged), "{at}");
        }
        assert!(matches!(changed(&|e| e.nonce = flip(&e.nonce, 3)), SealedError::Damaged));
        assert!(matches!(changed(&|e| e.nonce.clear()), SealedError::Damaged));
        assert!(matches!(changed(&|e| e.ca_hash = "sha256:00".into()), SealedError::Damaged));
        assert!(matches!(changed(&|e| e.cipher.push('x')), SealedError::Damaged));
        assert!(matches!(changed(&|e| e.version = 2), SealedError::Version { found: 2 }));
        assert!(matches!(key.open(&vec![b' '; 2 << 20]), Err(SealedError::TooLarge(_))));
    }

    #[test]
    fn the_sealing_key_is_private_and_kept() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(SealingKey::read(dir.path()).unwrap(), None);
        let key = SealingKey::generate().unwrap();
        key.write(dir.path()).unwrap();
        assert_eq!(SealingKey::read(dir.path()).unwrap(), Some(key.clone()));
        let path = dir.path().join(SEALING_KEY);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!format!("{key:?}").contains(text.trim()), "it is not printed");
        std::fs::write(&path, &text[..20]).unwrap();
        assert!(matches!(SealingKey::read(dir.path()), Err(SealedError::SealingKey(_))));
    }

    #[test]
    fn a_pending_key_stays_the_same_until_it_is_confirmed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let key = SealingKey::ensure_pending(dir.path()).unwrap();
        assert_eq!(SealingKey::ensure_pending(dir.path()).unwrap(), key, "what it has sealed can be opened");
        assert_eq!(SealingKey::read(dir.path()).unwrap(), None);
        let pending = dir.path().join(PENDING_SEALING_KEY);
        assert_eq!(std::fs::metadata(&pending).unwrap().permissions().mode() & 0o777, 0o600);
        for _ in 0..2 {
            SealingKey::confirm(dir.path()).unwrap();
            assert_eq!(SealingKey::read(dir.path()).unwrap(), Some(key.clone()));
            assert_eq!(SealingKey::read_pending(dir.path()).unwrap(), None);
        }
        SealingKey::ensure_pending(dir.path()).unwrap();
        SealingKey::confirm(dir.path()).unwrap();
        assert_eq!(SealingKey::read(dir.path()).unwrap(), Some(key), "a key is not replaced");
    }
}
