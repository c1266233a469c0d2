//! Errors of encryption and decryption.

/// Why a value cannot be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The operating system gives no random numbers.
    #[error("no random numbers")]
    Random,
    /// The cipher refuses the value.
    #[error("cannot be encrypted")]
    Encrypt,
    /// The key of a value has the wrong length.
    #[error("the key cannot be used")]
    Key,
    /// The key of a value does not come out of its seed.
    #[error("no key can be derived")]
    Derive,
    /// The value is not what was stored under this key.
    #[error("the value was changed or belongs to another key")]
    Broken,
    /// The provider that encrypted it is not in the configuration.
    #[error("the stored value is encrypted with a key that is not configured")]
    NotConfigured,
    /// The configuration has no identity provider.
    #[error("the stored value is not encrypted")]
    NotEncrypted,
    /// The key management service failed.
    #[error("KMS {name:?}: {why}")]
    Kms {
        /// The name that the service has in the configuration.
        name: String,
        /// What it did or did not answer.
        why: KmsError,
    },
}

/// Failure of a key management service.
#[derive(Debug, thiserror::Error)]
pub enum KmsError {
    /// A call failed.
    #[error("{method}: {why}")]
    Call {
        /// The method of the service.
        method: &'static str,
        /// The cause.
        why: CallError,
    },
    /// It is not healthy, or speaks another version.
    #[error("version {version:?}, healthz {healthz:?}")]
    Status {
        /// Its version of the protocol.
        version: String,
        /// Its health.
        healthz: String,
    },
    /// Its answer holds no ciphertext.
    #[error("the service returned no ciphertext")]
    Nothing,
    /// The stored value is no `EncryptedObject`.
    #[error(transparent)]
    Decode(prost::DecodeError),
    /// The stored value has a key in a form that is not known.
    #[error("a source of type {0} is not known")]
    SourceType(i32),
}

/// Why a call of a key management service failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The method makes no path.
    #[error(transparent)]
    Path(http::uri::InvalidUri),
    /// Connection refused.
    #[error("{0:?}")]
    Connect(tonic::transport::Error),
    /// The service answered with an error.
    #[error("{}", .0.message())]
    Refused(tonic::Status),
    /// The timeout of the configuration passed.
    #[error("no answer in time")]
    Timeout,
}

/// Why the secret of a configured key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is no base64.
    #[error("the secret of key {0:?} is not base64")]
    Base64(String),
    /// The length is none of AES-GCM.
    #[error("an AES key has 16 or 32 bytes, not {0}")]
    Aes(usize),
    /// The length is not that of secretbox.
    #[error("a secretbox key has 32 bytes, not {0}")]
    SecretBox(usize),
    /// The cipher refuses it.
    #[error("the key cannot be used")]
    Refused,
}

/// Why a configured key management service cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Another version than v2.
    #[error("KMS {name:?}: want apiVersion v2, not {version:?}")]
    Version {
        /// The name of the service.
        name: String,
        /// The version that is wanted.
        version: String,
    },
    /// The name is empty or has a colon.
    #[error("KMS {0:?}: want a name without colons")]
    Name(String),
    /// The timeout of this service is no duration, or zero.
    #[error("KMS {0:?}: the timeout is no positive duration")]
    Timeout(String),
    /// It is not at a socket.
    #[error("the endpoint {endpoint:?} of KMS {name:?} is not unix:///path")]
    Endpoint {
        /// The name of the service.
        name: String,
        /// The configured endpoint.
        endpoint: String,
    },
}
