//! Messages of the KMS v2 protocol, and the form of a stored value.

use prost::Message;
use std::collections::BTreeMap;

/// Asks how the service is.
#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {}

/// How it is, and which key it encrypts with.
#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    /// `v2`.
    #[prost(string, tag = "1")]
    pub version: String,
    /// `ok`, or anything else.
    #[prost(string, tag = "2")]
    pub healthz: String,
    /// Changes when the service rotates its key.
    #[prost(string, tag = "3")]
    pub key_id: String,
}

/// A seed to be encrypted.
#[derive(Clone, PartialEq, Message)]
pub struct EncryptRequest {
    /// The seed.
    #[prost(bytes = "vec", tag = "1")]
    pub plaintext: Vec<u8>,
    /// Of the request, for logs.
    #[prost(string, tag = "2")]
    pub uid: String,
}

/// The encrypted seed.
#[derive(Clone, PartialEq, Message)]
pub struct EncryptResponse {
    /// The encrypted seed.
    #[prost(bytes = "vec", tag = "1")]
    pub ciphertext: Vec<u8>,
    /// The key that encrypted it.
    #[prost(string, tag = "2")]
    pub key_id: String,
    /// Whatever else the service needs to decrypt it.
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// A seed to be decrypted.
#[derive(Clone, PartialEq, Message)]
pub struct DecryptRequest {
    /// The encrypted seed.
    #[prost(bytes = "vec", tag = "1")]
    pub ciphertext: Vec<u8>,
    /// Of the request, for logs.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// The key that encrypted it.
    #[prost(string, tag = "3")]
    pub key_id: String,
    /// What the service gave along.
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// The seed.
#[derive(Clone, PartialEq, Message)]
pub struct DecryptResponse {
    /// The seed.
    #[prost(bytes = "vec", tag = "1")]
    pub plaintext: Vec<u8>,
}

/// A stored value, after its prefix.
#[derive(Clone, PartialEq, Message)]
pub struct EncryptedObject {
    /// The encrypted value: 32 bytes that its key is derived with, nonce, ciphertext.
    #[prost(bytes = "vec", tag = "1")]
    pub encrypted_data: Vec<u8>,
    /// The service's key.
    #[prost(string, tag = "2")]
    pub key_id: String,
    /// The encrypted seed.
    #[prost(bytes = "vec", tag = "3")]
    pub source: Vec<u8>,
    /// What the service gave along.
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// 0: the source is the value's key; 1: it is a seed.
    #[prost(int32, tag = "5")]
    pub source_type: i32,
}
