//! Recipients and identities.

use super::AgeError;
use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32, Hrp};
use std::fmt;
use std::str::FromStr;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

/// What recipients begin with.
const RECIPIENT: &str = "age";
/// What identities begin with.
const IDENTITY: &str = "age-secret-key-";

/// Who can decrypt a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    /// The owner of a private key.
    X25519([u8; 32]),
    /// Everybody who knows a passphrase.
    Passphrase(Passphrase),
}

/// What decrypts a file.
#[derive(Clone)]
pub enum Identity {
    /// A private key.
    X25519([u8; 32]),
    /// A passphrase.
    Passphrase(Passphrase),
}

/// A secret text.
#[derive(Clone, PartialEq, Eq)]
pub struct Passphrase(String);

impl Passphrase {
    /// The first line of a file.
    pub fn of_file(text: &str) -> Option<Self> {
        let line = text.lines().next().unwrap_or_default();
        (!line.is_empty()).then(|| Self(line.to_owned()))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Passphrase")
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Identity")
    }
}

/// The 32 bytes in a text of Bech32 with this prefix.
fn decode(text: &str, prefix: &str) -> Option<[u8; 32]> {
    let checked = CheckedHrpstring::new::<Bech32>(text).ok()?;
    let bytes: Vec<u8> = checked.byte_iter().take(33).collect();
    (checked.hrp() == Hrp::parse(prefix).ok()?).then(|| bytes.try_into().ok())?
}

impl FromStr for Recipient {
    type Err = AgeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let key = decode(text, RECIPIENT).filter(|_| text.starts_with("age1"));
        key.map(Self::X25519).ok_or_else(|| AgeError::Recipient(text.chars().take(80).collect()))
    }
}

impl Identity {
    /// The public key of a private key.
    pub(super) fn public(secret: [u8; 32]) -> [u8; 32] {
        x25519(secret, X25519_BASEPOINT_BYTES)
    }

    /// The recipient that this identity decrypts for.
    pub fn recipient(&self) -> Recipient {
        match self {
            Self::X25519(secret) => Recipient::X25519(Self::public(*secret)),
            Self::Passphrase(passphrase) => Recipient::Passphrase(passphrase.clone()),
        }
    }
}

/// The identities of a file as `age-keygen` writes it: one in a line, comments begin with `#`.
pub fn identities(text: &str) -> Result<Vec<Identity>, AgeError> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = decode(line, IDENTITY).filter(|_| line.starts_with("AGE-SECRET-KEY-1"));
        found.push(Identity::X25519(key.ok_or(AgeError::Identity(at + 1))?));
    }
    if found.is_empty() { Err(AgeError::NoIdentity) } else { Ok(found) }
}
