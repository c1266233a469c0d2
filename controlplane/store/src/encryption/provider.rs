//! Ciphers, in upstream's stored forms: `k8s:enc:<cipher>:v1:<key name>:` and then nonce and ciphertext. The key of the
//! store is authenticated with AES-GCM, so that a value cannot be moved to another place.

use super::kms::Kms;
use super::random::random;
use super::{EncryptionError, KeyError};
use bytes::Bytes;
use crypto_secretbox::aead::{Aead, KeyInit};
use crypto_secretbox::{Nonce, XSalsa20Poly1305};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, UnboundKey};

/// Prefix of encrypted values.
const MARK: &[u8] = b"k8s:enc:";
const GCM_NONCE: usize = 12;
const BOX_NONCE: usize = 24;

/// A named key of a cipher.
pub enum Provider {
    /// As it is.
    Identity,
    /// AES-GCM with keys of 16 or 32 bytes. Nonces are random: rotate the key before some billions of writes.
    AesGcm(String, Box<LessSafeKey>),
    /// XSalsa20 and Poly1305 with a key of 32 bytes and nonces long enough to be random.
    SecretBox(String, Box<XSalsa20Poly1305>),
    /// A key management service.
    Kms(Box<Kms>),
}

/// Whether a stored value is encrypted, with whatever key.
pub fn is_encrypted(value: &[u8]) -> bool {
    value.starts_with(MARK)
}

/// Longer names of keys are cut.
const MAX_NAME: usize = 256;

/// The provider that encrypted a value, as its prefix names it: `aesgcm:key1`, `kms:name`, or `identity` for plain ones.
pub fn name_of(value: &[u8]) -> String {
    let Some(rest) = value.strip_prefix(MARK) else { return "identity".to_owned() };
    // Cipher, version and name end with a colon each.
    let head = &rest[..rest.len().min(MAX_NAME)];
    let mut parts = head.split(|byte| *byte == b':').map(String::from_utf8_lossy);
    let (cipher, _version, name) = (parts.next(), parts.next(), parts.next());
    format!("{}:{}", cipher.unwrap_or_default(), name.unwrap_or_default())
}

/// An decrypted value.
pub struct Decrypted {
    /// The plain bytes.
    pub value: Bytes,
    /// Whether another than the first provider encrypted it, or an older key of its service.
    pub stale: bool,
}

impl Provider {
    /// AES-GCM with a key.
    pub fn aes_gcm(name: &str, key: &[u8]) -> Result<Self, KeyError> {
        let cipher = match key.len() {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            other => return Err(KeyError::Aes(other)),
        };
        let key = UnboundKey::new(cipher, key).map_err(|_| KeyError::Refused)?;
        Ok(Self::AesGcm(name.into(), Box::new(LessSafeKey::new(key))))
    }

    /// Secretbox with a key.
    pub fn secret_box(name: &str, key: &[u8]) -> Result<Self, KeyError> {
        let cipher = XSalsa20Poly1305::new_from_slice(key);
        let cipher = cipher.map_err(|_| KeyError::SecretBox(key.len()))?;
        Ok(Self::SecretBox(name.into(), Box::new(cipher)))
    }

    fn prefix(&self) -> String {
        match self {
            Self::Identity => String::new(),
            Self::AesGcm(name, _) => format!("k8s:enc:aesgcm:v1:{name}:"),
            Self::SecretBox(name, _) => format!("k8s:enc:secretbox:v1:{name}:"),
            Self::Kms(kms) => kms.prefix(),
        }
    }

    /// How people know it: `aesgcm:key1`, `kms:name` or `identity`.
    pub fn name(&self) -> String {
        name_of(self.prefix().as_bytes())
    }

    /// Whether it encrypted a value, or would have stored it as it is.
    pub(super) fn made(&self, value: &[u8]) -> bool {
        match self {
            Self::Identity => !is_encrypted(value),
            _ => value.starts_with(self.prefix().as_bytes()),
        }
    }

    /// Does what must be done before it is known which values another key encrypted.
    pub async fn prepare(&self) -> Result<(), EncryptionError> {
        match self {
            Self::Kms(kms) => kms.prepare().await,
            _ => Ok(()),
        }
    }

    /// Encrypts a value.
    pub async fn encrypt(&self, key: &str, plain: &Bytes) -> Result<Bytes, EncryptionError> {
        let mut encrypted = self.prefix().into_bytes();
        match self {
            Self::Identity => return Ok(plain.clone()),
            Self::Kms(kms) => return kms.encrypt(key, plain).await,
            Self::AesGcm(_, cipher) => {
                let mut nonce = [0; GCM_NONCE];
                random(&mut nonce)?;
                encrypted.extend_from_slice(&nonce);
                let mut body = plain.to_vec();
                let nonce = ring::aead::Nonce::assume_unique_for_key(nonce);
                cipher
                    .seal_in_place_append_tag(nonce, Aad::from(key.as_bytes()), &mut body)
                    .map_err(|_| EncryptionError::Encrypt)?;
                encrypted.extend_from_slice(&body);
            }
            Self::SecretBox(_, cipher) => {
                let mut nonce = [0; BOX_NONCE];
                random(&mut nonce)?;
                encrypted.extend_from_slice(&nonce);
                let body = cipher.encrypt(&Nonce::from(nonce), plain.as_ref());
                encrypted.extend_from_slice(&body.map_err(|_| EncryptionError::Encrypt)?);
            }
        }
        Ok(encrypted.into())
    }

    /// Decrypts what this provider encrypted, and whether an older key of its own did; `None` when another provider did.
    async fn decrypt(&self, key: &str, encrypted: &Bytes) -> Option<Result<(Bytes, bool), EncryptionError>> {
        if let Self::Identity = self {
            return (!is_encrypted(encrypted)).then(|| Ok((encrypted.clone(), false)));
        }
        let body = encrypted.strip_prefix(self.prefix().as_bytes())?;
        let plain = match self {
            Self::Identity => Ok(encrypted.clone()),
            Self::Kms(kms) => return Some(kms.decrypt(key, body).await),
            Self::AesGcm(_, cipher) => {
                body.split_at_checked(GCM_NONCE).ok_or(EncryptionError::Broken).and_then(|(nonce, body)| {
                    let nonce = ring::aead::Nonce::try_assume_unique_for_key(nonce)
                        .map_err(|_| EncryptionError::Broken)?;
                    let mut body = body.to_vec();
                    let plain = cipher.open_in_place(nonce, Aad::from(key.as_bytes()), &mut body);
                    plain
                        .map(|plain: &mut [u8]| Bytes::copy_from_slice(plain))
                        .map_err(|_| EncryptionError::Broken)
                })
            }
            Self::SecretBox(_, cipher) => body
                .split_first_chunk::<BOX_NONCE>()
                .ok_or(EncryptionError::Broken)
                .and_then(|(nonce, body)| {
                    cipher
                        .decrypt(&Nonce::from(*nonce), body)
                        .map(Bytes::from)
                        .map_err(|_| EncryptionError::Broken)
                }),
        };
        Some(plain.map(|plain| (plain, false)))
    }
}

/// Decrypts a value with whichever provider encrypted it.
pub async fn decrypt(
    providers: &[Provider],
    key: &str,
    encrypted: &Bytes,
) -> Result<Decrypted, EncryptionError> {
    let mut last = None;
    for (index, provider) in providers.iter().enumerate() {
        match provider.decrypt(key, encrypted).await {
            Some(Ok((value, old_key))) => return Ok(Decrypted { value, stale: index > 0 || old_key }),
            Some(Err(why)) => last = Some(why),
            None => {}
        }
    }
    Err(last.unwrap_or(if is_encrypted(encrypted) {
        EncryptionError::NotConfigured
    } else {
        EncryptionError::NotEncrypted
    }))
}
