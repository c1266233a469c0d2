//! Random bytes for nonces and seeds.

use super::error::EncryptionError;
use ring::rand::SecureRandom;

/// Fills with random bytes.
pub(super) fn random(bytes: &mut [u8]) -> Result<(), EncryptionError> {
    ring::rand::SystemRandom::new().fill(bytes).map_err(|_| EncryptionError::Random)
}
