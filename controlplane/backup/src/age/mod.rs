//! Encryption of a file in the format age-encryption.org/v1, which the program `age` reads and writes too: to X25519 recipients
//! (`age1…`), or with a passphrase (scrypt).

// Recipients and identities.
mod keys;
// The header: the file key, wrapped for each recipient.
mod header;
// The payload: chunks of 64 KiB.
mod stream;
#[cfg(test)]
mod tests;

pub use keys::{Identity, Passphrase, Recipient, identities};
pub use stream::{Decryptor, Encryptor};

use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};

/// The first line of every encrypted file.
pub const INTRO: &[u8] = b"age-encryption.org/v1\n";

/// Why something cannot be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// The text is no recipient.
    #[error("{0:?} is no recipient of age: want age1…")]
    Recipient(String),
    /// The text has no identities.
    #[error("line {0} is no identity of age: want AGE-SECRET-KEY-1…")]
    Identity(usize),
    /// There is none.
    #[error("there is no identity in it: want a line AGE-SECRET-KEY-1…")]
    NoIdentity,
    /// A passphrase encrypts alone.
    #[error("a passphrase cannot be combined with other recipients")]
    Combined,
    /// Nobody could decrypt it.
    #[error("there is no recipient")]
    NoRecipient,
    /// The header is not one.
    #[error("the header of age cannot be read: {0}")]
    Header(&'static str),
    /// It is for others.
    #[error("wrong key: the file is encrypted for other recipients, or with another passphrase")]
    WrongKey,
    /// It was changed.
    #[error("the header of age was changed")]
    HeaderChanged,
    /// It would take too much memory.
    #[error("the passphrase was hashed with work factor {0}, which is more than {max}", max = header::MAX_WORK)]
    Work(u8),
    /// The payload ends early.
    #[error("the encrypted file is truncated")]
    Truncated,
    /// The payload is not what was encrypted.
    #[error(
        "the encrypted file is truncated, damaged or was changed, in the 64 KiB from byte {0} of its content"
    )]
    Changed(u64),
    /// It cannot be read.
    #[error("the encrypted file cannot be read")]
    Read(#[source] std::io::Error),
    /// The system has no random numbers.
    #[error("there are no random numbers")]
    Random,
}

/// A key of 32 bytes from other key material.
fn derive(material: &[u8], salt: &[u8], info: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let info = [info];
    let pseudorandom = Salt::new(HKDF_SHA256, salt).extract(material);
    let derived = pseudorandom.expand(&info, HKDF_SHA256).and_then(|okm| okm.fill(&mut key));
    derived.expect("32 bytes are what SHA-256 gives");
    key
}

fn random<const N: usize>() -> Result<[u8; N], AgeError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| AgeError::Random)?;
    Ok(bytes)
}
