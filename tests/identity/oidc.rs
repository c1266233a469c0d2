//! Tokens of an OpenID Connect provider: a small one with discovery and keys, over TLS.

use crate::caller::Caller;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use coracle_tests::https::Https;
use coracle_tests::server::Server;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A key of the provider.
struct Key {
    id: &'static str,
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
    fn rsa(id: &'static str) -> Self {
        let der = generate(&["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
        Self { id, pair: Pair::Rsa(RsaKeyPair::from_pkcs8(&der).unwrap()) }
    }

    fn ec(id: &'static str) -> Self {
        let der = generate(&["EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new());
        Self { id, pair: Pair::Ec(pair.unwrap()) }
    }

    fn published(&self) -> Value {
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

    fn sign(&self, claims: &Value) -> String {
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
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The provider, below a path as some have it, and the keys that it publishes.
fn provider(first: Vec<Value>) -> (Arc<Https>, Arc<Mutex<Vec<Value>>>) {
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

fn start(https: &Https, authority: &str) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("oidc.crt");
    std::fs::write(&ca, authority).unwrap();
    let server = Server::with(&[
        "--api-only",
        "--oidc-issuer-url",
        &https.url("/tenant"),
        "--oidc-client-id",
        "coracle",
        "--oidc-ca-file",
        &ca.display().to_string(),
        "--oidc-signing-algs",
        "RS256,ES256",
        "--oidc-username-claim",
        "email",
        "--oidc-username-prefix",
        "oidc:",
        "--oidc-groups-claim",
        "roles",
        "--oidc-groups-prefix",
        "team:",
        "--oidc-required-claim",
        "hd=example.com",
    ]);
    (server, dir)
}

#[test]
fn tokens_of_a_provider_are_verified_and_their_claims_are_users() {
    let (rsa, ec, later) = (Key::rsa("rsa"), Key::ec("ec"), Key::rsa("later"));
    let (https, keys) = provider(vec![rsa.published(), ec.published()]);
    let (server, _dir) = start(&https, https.authority());
    let claims = |change: Value| {
        let mut claims = json!({"iss": https.url("/tenant"), "aud": "coracle", "sub": "7", "exp": now() + 600,
            "iat": now(), "email": "ann@example.com", "email_verified": true, "hd": "example.com",
            "roles": ["dev", "ops"]});
        for (key, value) in change.as_object().unwrap() {
            claims[key] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    };
    let who = |token: &str| Caller::bearer(&server, token).whoami();
    let ann = |groups: &[&str]| {
        let groups = groups.iter().chain(&["system:authenticated"]).map(|g| (*g).to_owned()).collect();
        Ok(("oidc:ann@example.com".to_owned(), groups))
    };
    for key in [&rsa, &ec] {
        assert_eq!(who(&key.sign(&claims(json!({})))), ann(&["team:dev", "team:ops"]), "{}", key.id);
    }
    let accepted = [
        ("several audiences", json!({"aud": ["other", "coracle"]}), ann(&["team:dev", "team:ops"])),
        ("one group", json!({"roles": "dev"}), ann(&["team:dev"])),
        ("no group", json!({"roles": null}), ann(&[])),
    ];
    for (what, change, expected) in accepted {
        assert_eq!(who(&rsa.sign(&claims(change))), expected, "{what}");
    }
    let refused = [
        ("another audience", json!({"aud": "vault"})),
        ("no audience", json!({"aud": null})),
        ("expired", json!({"exp": now() - 60})),
        ("no end", json!({"exp": null})),
        ("not valid yet", json!({"nbf": now() + 600})),
        ("another issuer", json!({"iss": "https://elsewhere.example.com"})),
        ("the issuer without its path", json!({"iss": https.url("")})),
        ("an unverified address", json!({"email_verified": false})),
        ("no name", json!({"email": null})),
        ("another domain", json!({"hd": "evil.example.com"})),
        ("no domain", json!({"hd": null})),
    ];
    for (what, change) in refused {
        assert_eq!(who(&rsa.sign(&claims(change))), Err(401), "{what}");
    }
    // Keys: one that only says it is the provider's, one that nobody published, none, and the public one as a password.
    let wrong = Key::rsa("rsa");
    assert_eq!(who(&wrong.sign(&claims(json!({})))), Err(401), "another key under a known name");
    assert_eq!(who(&later.sign(&claims(json!({})))), Err(401), "a key that is not published");
    let body = rsa.sign(&claims(json!({}))).split('.').nth(1).unwrap().to_owned();
    assert_eq!(who(&format!("eyJhbGciOiJub25lIn0.{body}.")), Err(401), "no signature");
    let public = rsa.published()["n"].as_str().unwrap().to_owned();
    let symmetric = message("HS256", "rsa", &claims(json!({})));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public.as_bytes()), symmetric.as_bytes());
    assert_eq!(who(&format!("{symmetric}.{}", encoded(tag))), Err(401), "the public key as a shared one");
    assert!(server.log().contains("oidc: "), "the log says why");
    // The provider changes its keys: the new one counts as soon as somebody comes with it, the old one no longer.
    *keys.lock().unwrap() = vec![later.published()];
    let token = later.sign(&claims(json!({})));
    coracle_tests::eventually("the new key counts", Duration::from_secs(60), || who(&token).is_ok());
    assert_eq!(who(&rsa.sign(&claims(json!({})))), Err(401), "the old key");
}

#[test]
fn a_provider_whose_certificate_is_not_known_is_not_believed() {
    let key = Key::ec("ec");
    let (https, _) = provider(vec![key.published()]);
    let other = Https::start(|_| (404, Value::Null));
    let (server, _dir) = start(&https, other.authority());
    let claims = json!({"iss": https.url("/tenant"), "aud": "coracle", "exp": now() + 600, "email": "ann@example.com",
        "hd": "example.com"});
    assert_eq!(Caller::bearer(&server, &key.sign(&claims)).whoami(), Err(401));
    assert!(server.log().contains("invalid peer certificate"), "{}", server.log());
}
