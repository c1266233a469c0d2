//! A key management service behind a socket, in upstream's KMS v2 form: the service encrypts a seed once, and every value is
//! encrypted here with a key derived from the seed and random bytes of its own. What is stored can be read by upstream and the
//! other way round.

use super::random::random;
use super::{CallError, EncryptionError, KmsError, ServiceError};
use bytes::Bytes;
use coracle_cli::causes;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use wire::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject, StatusRequest,
    StatusResponse,
};

// What goes over the socket, and what is stored.
pub mod wire;

/// How often the service is asked whether it has another key now.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Decrypted seeds in memory; one per start of a server and key of the service.
const KEPT: usize = 1000;
const INFO: usize = 32;
const NONCE: usize = 12;
/// `EncryptedDEKSourceType`: the source is the key itself, or a seed.
const KEY: i32 = 0;
const SEED: i32 = 1;

/// A seed and how the service encrypted it.
struct Seed {
    plain: Vec<u8>,
    encrypted: Vec<u8>,
    key_id: String,
    annotations: BTreeMap<String, Vec<u8>>,
}

/// What encrypts now, and when the service was asked last.
struct Current {
    seed: Arc<Seed>,
    asked: Instant,
}

/// The service.
pub struct Kms {
    name: String,
    channel: Channel,
    timeout: Duration,
    current: tokio::sync::Mutex<Option<Current>>,
    decrypted: Mutex<HashMap<Vec<u8>, Arc<Vec<u8>>>>,
}

impl Kms {
    /// The service of this name on `unix:///path`; it is connected to when it is needed, and again after it was away.
    pub fn new(name: &str, endpoint: &str, timeout: Duration) -> Result<Self, ServiceError> {
        let path = endpoint.strip_prefix("unix://").filter(|path| path.starts_with(['/', '@']));
        let Some(path) = path.map(PathBuf::from) else {
            return Err(ServiceError::Endpoint { name: name.to_owned(), endpoint: endpoint.to_owned() });
        };
        let channel = Endpoint::from_static("http://kms.invalid").connect_with_connector_lazy(
            tower::service_fn(move |_| {
                let path = path.clone();
                async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
            }),
        );
        Ok(Self {
            name: name.into(),
            channel,
            timeout,
            current: Default::default(),
            decrypted: Mutex::default(),
        })
    }

    /// What every value of this service begins with.
    pub fn prefix(&self) -> String {
        format!("k8s:enc:kms:v2:{}:", self.name)
    }

    fn failed(&self, why: KmsError) -> EncryptionError {
        EncryptionError::Kms { name: self.name.clone(), why }
    }

    async fn call<Q, A>(&self, method: &'static str, message: Q) -> Result<A, EncryptionError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let exchange = async {
            let path = http::uri::PathAndQuery::try_from(format!("/v2.KeyManagementService/{method}"));
            let path = path.map_err(CallError::Path)?;
            let mut grpc = tonic::client::Grpc::new(self.channel.clone());
            grpc.ready().await.map_err(CallError::Connect)?;
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let answer = grpc.unary(tonic::Request::new(message), path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(CallError::Refused)
        };
        let answer = tokio::time::timeout(self.timeout, exchange).await;
        answer.unwrap_or(Err(CallError::Timeout)).map_err(|why| self.failed(KmsError::Call { method, why }))
    }

    /// The seed that encrypts now: a new one when the service says that its key is another. While the service is away the
    /// last one goes on; without any, nothing can be encrypted.
    async fn seed(&self) -> Result<Arc<Seed>, EncryptionError> {
        let mut current = self.current.lock().await;
        if let Some(known) = current.as_ref().filter(|known| known.asked.elapsed() < ASK_AGAIN) {
            return Ok(known.seed.clone());
        }
        let renewed = self.renew(current.as_ref().map(|known| &known.seed)).await;
        let seed = match (renewed, current.as_ref()) {
            (Ok(seed), _) => seed,
            (Err(error), Some(known)) => {
                tracing::warn!(error = %causes::chain(&error), "cannot check the KMS, the last seed is still used");
                known.seed.clone()
            }
            (Err(error), None) => return Err(error),
        };
        *current = Some(Current { seed: seed.clone(), asked: Instant::now() });
        Ok(seed)
    }

    async fn renew(&self, known: Option<&Arc<Seed>>) -> Result<Arc<Seed>, EncryptionError> {
        let status: StatusResponse = self.call("Status", StatusRequest {}).await?;
        if status.healthz != "ok" || !matches!(status.version.as_str(), "v2" | "v2beta1") {
            let StatusResponse { version, healthz, .. } = status;
            return Err(self.failed(KmsError::Status { version, healthz }));
        }
        if let Some(known) = known.filter(|known| known.key_id == status.key_id) {
            return Ok(known.clone());
        }
        let mut plain = vec![0; 32];
        random(&mut plain)?;
        let request = EncryptRequest { plaintext: plain.clone(), uid: uuid::Uuid::new_v4().to_string() };
        let encrypted: EncryptResponse = self.call("Encrypt", request).await?;
        if encrypted.key_id.is_empty() || encrypted.ciphertext.is_empty() || encrypted.ciphertext == plain {
            return Err(self.failed(KmsError::Nothing));
        }
        tracing::info!(kms = self.name, key = encrypted.key_id, "values are encrypted with a new seed");
        let EncryptResponse { ciphertext, key_id, annotations } = encrypted;
        Ok(Arc::new(Seed { plain, encrypted: ciphertext, key_id, annotations }))
    }

    /// Encrypts a value.
    pub async fn encrypt(&self, key: &str, plain: &Bytes) -> Result<Bytes, EncryptionError> {
        let seed = self.seed().await?;
        let (mut info, mut nonce) = ([0; INFO], [0; NONCE]);
        random(&mut info)?;
        random(&mut nonce)?;
        let mut body = plain.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        derived(&seed.plain, &info)?
            .seal_in_place_append_tag(nonce_used, Aad::from(key.as_bytes()), &mut body)
            .map_err(|_| EncryptionError::Encrypt)?;
        let object = EncryptedObject {
            encrypted_data: [&info[..], &nonce[..], &body[..]].concat(),
            key_id: seed.key_id.clone(),
            source: seed.encrypted.clone(),
            annotations: seed.annotations.clone(),
            source_type: SEED,
        };
        Ok([self.prefix().into_bytes(), object.encode_to_vec()].concat().into())
    }

    /// Decrypts what follows the prefix; whether the service has another key by now.
    pub async fn decrypt(&self, key: &str, encrypted: &[u8]) -> Result<(Bytes, bool), EncryptionError> {
        let object = EncryptedObject::decode(encrypted).map_err(|e| self.failed(KmsError::Decode(e)))?;
        let source = self.source(&object).await?;
        let (cipher, data) = match object.source_type {
            KEY => (aes(&source)?, object.encrypted_data.as_slice()),
            SEED => {
                let (info, data) =
                    object.encrypted_data.split_at_checked(INFO).ok_or(EncryptionError::Broken)?;
                (derived(&source, info)?, data)
            }
            other => return Err(self.failed(KmsError::SourceType(other))),
        };
        let (nonce, body) = data.split_at_checked(NONCE).ok_or(EncryptionError::Broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| EncryptionError::Broken)?;
        let mut body = body.to_vec();
        let plain = cipher
            .open_in_place(nonce, Aad::from(key.as_bytes()), &mut body)
            .map_err(|_| EncryptionError::Broken)?;
        let plain = Bytes::copy_from_slice(plain);
        let now = self.current.lock().await.as_ref().map(|known| known.seed.key_id.clone());
        let stale = now.is_some_and(|now| now != object.key_id) || object.source_type != SEED;
        Ok((plain, stale))
    }

    /// The key or seed of a stored value: as it was decrypted before, or decrypted by the service.
    async fn source(&self, object: &EncryptedObject) -> Result<Arc<Vec<u8>>, EncryptionError> {
        // All that the service needs to decrypt it, and nothing of the value.
        let place = EncryptedObject { encrypted_data: Vec::new(), ..object.clone() }.encode_to_vec();
        if let Some(known) = self.decrypted.lock().get(&place) {
            return Ok(known.clone());
        }
        let request = DecryptRequest {
            ciphertext: object.source.clone(),
            uid: uuid::Uuid::new_v4().to_string(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let answer: DecryptResponse = self.call("Decrypt", request).await?;
        let plain = Arc::new(answer.plaintext);
        let mut decrypted = self.decrypted.lock();
        if decrypted.len() >= KEPT {
            decrypted.clear();
        }
        decrypted.insert(place, plain.clone());
        Ok(plain)
    }

    /// Asks the service for its key, so that values of an older one are known as such.
    pub async fn prepare(&self) -> Result<(), EncryptionError> {
        self.seed().await.map(|_| ())
    }
}

fn aes(key: &[u8]) -> Result<LessSafeKey, EncryptionError> {
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| EncryptionError::Key)?;
    Ok(LessSafeKey::new(key))
}

/// A value's own key: HKDF-Expand of the seed with the value's random bytes.
fn derived(seed: &[u8], info: &[u8]) -> Result<LessSafeKey, EncryptionError> {
    let prk = Prk::new_less_safe(HKDF_SHA256, seed);
    let info = [info];
    let key = prk.expand(&info, &AES_256_GCM).map_err(|_| EncryptionError::Derive)?;
    Ok(LessSafeKey::new(UnboundKey::from(key)))
}
