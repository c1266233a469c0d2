//! A small OpenID Connect provider with discovery and keys, over TLS.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use coracle_tests::https::Https;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// A key of the provider.
pub struct Key {
    pub id: &'static str,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What is signed of a token.
fn message(algorithm: &str, id: &str, claims: &Value) -> String {
    let header = json!({"typ": "JWT", "alg": algorithm, "kid": id});
    format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()))
}

/// A private key in PKCS#8, which `genpkey` does not write as DER in every version.
fn generate(options: &[&str]) -> Vec<u8> {
    let script = format!(
        "openssl genpkey -algorithm {} | openssl pkcs8 -topk8 -nocrypt -outform DER",
        options.join(" ")
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

impl Key {
    pub fn rsa(id: &'static str) -> Self {
        let der = generate(&["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
        Self { id, pair: Pair::Rsa(RsaKeyPair::from_pkcs8(&der).unwrap()) }
    }

    pub fn ec(id: &'static str) -> Self {
        let der = generate(&["EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new());
        Self { id, pair: Pair::Ec(pair.unwrap()) }
    }

    pub fn published(&self) -> Value {
        match &self.pair {
            Pair::Rsa(pair) => {
                let public: RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({"kty": "RSA", "alg": "RS256", "n": encoded(public.n), "e": encoded(public.e), "kid": self.id,
                    "use": "sig"})
            }
            Pair::Ec(pair) => {
                // An uncompressed point: 04, then x and y of 32 bytes each.
                let point: &[u8] = pair.public_key().as_ref();
                let (x, y) = point[1..].split_at(32);
                json!({"kty": "EC", "alg": "ES256", "crv": "P-256", "x": encoded(x), "y": encoded(y), "kid": self.id,
                    "use": "sig"})
            }
        }
    }

    pub fn sign(&self, claims: &Value) -> String {
        let random = SystemRandom::new();
        let (message, signature) = match &self.pair {
            Pair::Rsa(pair) => {
                let message = message("RS256", self.id, claims);
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
                (message, signature)
            }
            Pair::Ec(pair) => {
                let message = message("ES256", self.id, claims);
                let signature = pair.sign(&random, message.as_bytes()).unwrap();
                (message, signature.as_ref().to_vec())
            }
        };
        format!("{message}.{}", encoded(signature))
    }

    /// Tokens that nobody signed: one without a signature, and one with the public key as a shared secret.
    pub fn forged(&self, claims: &Value) -> [(&'static str, String); 2] {
        let none = format!("{}.", message("none", self.id, claims));
        let shared = message("HS256", self.id, claims);
        let public = self.published()["n"].as_str().unwrap_or_default().to_owned();
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public.as_bytes()), shared.as_bytes());
        [("no signature", none), ("the public key as a shared one", format!("{shared}.{}", encoded(tag)))]
    }
}

pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The provider, below a path as some have it, and the keys that it publishes.
pub fn provider(first: Vec<Value>) -> (Arc<Https>, Arc<Mutex<Vec<Value>>>) {
    let keys = Arc::new(Mutex::new(first));
    let published = keys.clone();
    let address = Arc::new(Mutex::new(String::new()));
    let own = address.clone();
    let https = Https::start(move |asked| {
        let issuer = format!("https://{}/tenant", own.lock().unwrap());
        match asked.path.as_str() {
            "/tenant/.well-known/openid-configuration" => {
                (200, json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}))
            }
            "/tenant/keys" => (200, json!({"keys": *published.lock().unwrap()})),
            _ => (404, Value::Null),
        }
    });
    address.lock().unwrap().clone_from(&https.address);
    (Arc::new(https), keys)
}
