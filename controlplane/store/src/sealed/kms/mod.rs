//! A key management service behind a socket, in upstream's KMS v2 form: the service seals a seed once, and every value is
//! sealed here with a key derived from the seed and random bytes of its own. What is stored can be read by upstream and the
//! other way round.

use super::provider::random;
use bytes::Bytes;
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
/// Seeds that are kept open; one per start of a server and key of the service.
const KEPT: usize = 1000;
const INFO: usize = 32;
const NONCE: usize = 12;
/// `EncryptedDEKSourceType`: the source is the key itself, or a seed.
const KEY: i32 = 0;
const SEED: i32 = 1;

/// A seed and how the service sealed it.
struct Seed {
    plain: Vec<u8>,
    sealed: Vec<u8>,
    key_id: String,
    annotations: BTreeMap<String, Vec<u8>>,
}

/// What seals now, and when the service was asked last.
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
    opened: Mutex<HashMap<Vec<u8>, Arc<Vec<u8>>>>,
}

impl Kms {
    /// The service of this name on `unix:///path`; it is connected to when it is needed, and again after it was away.
    pub fn new(name: &str, endpoint: &str, timeout: Duration) -> Result<Self, String> {
        let path = endpoint.strip_prefix("unix://").filter(|path| path.starts_with(['/', '@']));
        let path =
            path.ok_or_else(|| format!("the endpoint {endpoint:?} of KMS {name:?} is not unix:///path"))?;
        let path = PathBuf::from(path);
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
            opened: Mutex::default(),
        })
    }

    /// What every value of this service begins with.
    pub fn prefix(&self) -> String {
        format!("k8s:enc:kms:v2:{}:", self.name)
    }

    async fn call<Q, A>(&self, method: &'static str, message: Q) -> Result<A, String>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let failed = |why: String| format!("KMS {:?}: {method}: {why}", self.name);
        let path = http::uri::PathAndQuery::try_from(format!("/v2.KeyManagementService/{method}"));
        let path = path.map_err(|e| failed(e.to_string()))?;
        let exchange = async {
            let mut grpc = tonic::client::Grpc::new(self.channel.clone());
            grpc.ready().await.map_err(|e| failed(format!("{e:?}")))?;
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let answer = grpc.unary(tonic::Request::new(message), path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| failed(status.message().to_owned()))
        };
        tokio::time::timeout(self.timeout, exchange).await.map_err(|_| failed("no answer in time".into()))?
    }

    /// The seed that seals now: a new one when the service says that its key is another. While the service is away the
    /// last one goes on; without any, nothing can be sealed.
    async fn seed(&self) -> Result<Arc<Seed>, String> {
        let mut current = self.current.lock().await;
        if let Some(known) = current.as_ref().filter(|known| known.asked.elapsed() < ASK_AGAIN) {
            return Ok(known.seed.clone());
        }
        let renewed = self.renew(current.as_ref().map(|known| &known.seed)).await;
        let seed = match (renewed, current.as_ref()) {
            (Ok(seed), _) => seed,
            (Err(why), Some(known)) => {
                tracing::warn!(why, "the last seed goes on sealing");
                known.seed.clone()
            }
            (Err(why), None) => return Err(why),
        };
        *current = Some(Current { seed: seed.clone(), asked: Instant::now() });
        Ok(seed)
    }

    async fn renew(&self, known: Option<&Arc<Seed>>) -> Result<Arc<Seed>, String> {
        let status: StatusResponse = self.call("Status", StatusRequest {}).await?;
        if status.healthz != "ok" || !matches!(status.version.as_str(), "v2" | "v2beta1") {
            let StatusResponse { version, healthz, .. } = status;
            return Err(format!("KMS {:?}: version {version:?}, healthz {healthz:?}", self.name));
        }
        if let Some(known) = known.filter(|known| known.key_id == status.key_id) {
            return Ok(known.clone());
        }
        let mut plain = vec![0; 32];
        random(&mut plain)?;
        let request = EncryptRequest { plaintext: plain.clone(), uid: uuid::Uuid::new_v4().to_string() };
        let sealed: EncryptResponse = self.call("Encrypt", request).await?;
        if sealed.key_id.is_empty() || sealed.ciphertext.is_empty() || sealed.ciphertext == plain {
            return Err(format!("KMS {:?}: it sealed nothing", self.name));
        }
        tracing::info!(kms = self.name, key = sealed.key_id, "a new seed seals");
        let EncryptResponse { ciphertext, key_id, annotations } = sealed;
        Ok(Arc::new(Seed { plain, sealed: ciphertext, key_id, annotations }))
    }

    /// Seals a value.
    pub async fn seal(&self, key: &str, plain: &Bytes) -> Result<Bytes, String> {
        let seed = self.seed().await?;
        let (mut info, mut nonce) = ([0; INFO], [0; NONCE]);
        random(&mut info)?;
        random(&mut nonce)?;
        let mut body = plain.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        derived(&seed.plain, &info)?
            .seal_in_place_append_tag(nonce_used, Aad::from(key.as_bytes()), &mut body)
            .map_err(|_| "cannot be sealed".to_owned())?;
        let object = EncryptedObject {
            encrypted_data: [&info[..], &nonce[..], &body[..]].concat(),
            key_id: seed.key_id.clone(),
            source: seed.sealed.clone(),
            annotations: seed.annotations.clone(),
            source_type: SEED,
        };
        Ok([self.prefix().into_bytes(), object.encode_to_vec()].concat().into())
    }

    /// Opens what follows the prefix; whether the service has another key by now.
    pub async fn open(&self, key: &str, sealed: &[u8]) -> Result<(Bytes, bool), String> {
        let object = EncryptedObject::decode(sealed).map_err(|e| format!("KMS {:?}: {e}", self.name))?;
        let source = self.source(&object).await?;
        let broken = || "the value was changed or belongs to another key".to_owned();
        let (cipher, data) = match object.source_type {
            KEY => (aes(&source)?, object.encrypted_data.as_slice()),
            SEED => {
                let (info, data) = object.encrypted_data.split_at_checked(INFO).ok_or_else(broken)?;
                (derived(&source, info)?, data)
            }
            other => return Err(format!("KMS {:?}: a source of type {other} is not known", self.name)),
        };
        let (nonce, body) = data.split_at_checked(NONCE).ok_or_else(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let mut body = body.to_vec();
        let plain =
            cipher.open_in_place(nonce, Aad::from(key.as_bytes()), &mut body).map_err(|_| broken())?;
        let plain = Bytes::copy_from_slice(plain);
        let now = self.current.lock().await.as_ref().map(|known| known.seed.key_id.clone());
        let stale = now.is_some_and(|now| now != object.key_id) || object.source_type != SEED;
        Ok((plain, stale))
    }

    /// The key or seed of a stored value: as it was opened before, or opened by the service.
    async fn source(&self, object: &EncryptedObject) -> Result<Arc<Vec<u8>>, String> {
        // All that the service needs to open it, and nothing of the value.
        let place = EncryptedObject { encrypted_data: Vec::new(), ..object.clone() }.encode_to_vec();
        if let Some(known) = self.opened.lock().get(&place) {
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
        let mut opened = self.opened.lock();
        if opened.len() >= KEPT {
            opened.clear();
        }
        opened.insert(place, plain.clone());
        Ok(plain)
    }

    /// Asks the service for its key, so that values of an older one are known as such.
    pub async fn prepare(&self) -> Result<(), String> {
        self.seed().await.map(|_| ())
    }
}

fn aes(key: &[u8]) -> Result<LessSafeKey, String> {
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| "the key cannot be used".to_owned())?;
    Ok(LessSafeKey::new(key))
}

/// A value's own key: HKDF-Expand of the seed with the value's random bytes.
fn derived(seed: &[u8], info: &[u8]) -> Result<LessSafeKey, String> {
    let prk = Prk::new_less_safe(HKDF_SHA256, seed);
    let info = [info];
    let key = prk.expand(&info, &AES_256_GCM).map_err(|_| "no key can be derived".to_owned())?;
    Ok(LessSafeKey::new(UnboundKey::from(key)))
}
