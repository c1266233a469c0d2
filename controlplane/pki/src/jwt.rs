//! Signatures of JSON Web Tokens: ring behind the traits of jsonwebtoken.
//!
//! Verifies everything that an OpenID Connect provider may sign with; signs with ECDSA on P-256 only, as this server does.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error as SignatureError, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::error::Unspecified;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED, ED25519, EcdsaKeyPair,
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA384, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    // Only for making JSON Web Keys from private keys.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes jsonwebtoken use ring in this process. It must be called before the first token is signed or verified; further
/// calls do nothing.
pub fn install() {
    // An error means that a provider is installed already.
    let _ = PROVIDER.install_default();
}

/// `key` is a PKCS#8 document.
fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    if *algorithm != Algorithm::ES256 {
        return Err(ErrorKind::UnsupportedAlgorithm.into());
    }
    if key.family() != AlgorithmFamily::Ec {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_bytes(), &random)
        .map_err(|_| ErrorKind::InvalidEcdsaKey)?;
    Ok(Box::new(Es256Signer { pair, random }))
}

struct Es256Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer<Vec<u8>> for Es256Signer {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, SignatureError> {
        let signature = self.pair.sign(&self.random, message).map_err(|_| SignatureError::new())?;
        Ok(signature.as_ref().to_vec())
    }
}

impl JwtSigner for Es256Signer {
    fn algorithm(&self) -> Algorithm {
        Algorithm::ES256
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, method: Method::of(*algorithm)?, key: key.clone() }))
}

struct RingVerifier {
    algorithm: Algorithm,
    method: Method,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), SignatureError> {
        self.method.verify(self.key.kind(), message, signature).map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

enum Method {
    Hmac(hmac::Algorithm),
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

impl Method {
    fn of(algorithm: Algorithm) -> Result<Self> {
        Ok(match algorithm {
            Algorithm::HS256 => Self::Hmac(hmac::HMAC_SHA256),
            Algorithm::HS384 => Self::Hmac(hmac::HMAC_SHA384),
            Algorithm::HS512 => Self::Hmac(hmac::HMAC_SHA512),
            // RFC 7518 wants keys of 2048 bits; shorter ones are accepted where ring can, for old providers.
            Algorithm::RS256 => Self::Rsa(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
            Algorithm::RS384 => Self::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Self::Rsa(&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
            Algorithm::PS256 => Self::Rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Self::Rsa(&RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Self::Rsa(&RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Self::Curve(&ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Self::Curve(&ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Self::Curve(&ED25519),
            _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
        })
    }

    fn verify(
        &self,
        key: &DecodingKeyKind,
        message: &[u8],
        signature: &[u8],
    ) -> std::result::Result<(), Unspecified> {
        match (self, key) {
            (Self::Hmac(hash), DecodingKeyKind::SecretOrDer(secret)) => {
                hmac::verify(&hmac::Key::new(*hash, secret), message, signature)
            }
            (Self::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n: without_zeros(n), e: without_zeros(e) };
                key.verify(parameters, message, signature)
            }
            (Self::Rsa(parameters), DecodingKeyKind::SecretOrDer(der)) => {
                UnparsedPublicKey::new(*parameters, der).verify(message, signature)
            }
            (Self::Curve(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(*algorithm, point).verify(message, signature)
            }
            (Self::Hmac(_) | Self::Curve(_), DecodingKeyKind::RsaModulusExponent { .. }) => Err(Unspecified),
        }
    }
}

/// A number without leading zeros: some providers publish them, ring rejects them.
fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use jsonwebtoken::jwk::Jwk;
    use jsonwebtoken::{Header, Validation};
    use serde_json::{Value, json};

    fn decoded(algorithm: Algorithm, key: &DecodingKey, token: &str) -> Result<Value> {
        install();
        let mut validation = Validation::new(algorithm);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        jsonwebtoken::decode::<Value>(token, key, &validation).map(|token| token.claims)
    }

    /// Tokens that another library signed; the keys are those of a provider, one with leading zeros, one of 1024 bits.
    #[test]
    fn every_algorithm_is_verified() {
        let vectors: Value = serde_json::from_str(include_str!("jwt_vectors.json")).unwrap();
        let tokens = vectors["tokens"].as_array().unwrap();
        for vector in tokens {
            let name = vector["key"].as_str().unwrap();
            let jwk: Jwk = serde_json::from_value(vectors["keys"][name].clone()).unwrap();
            let key = DecodingKey::from_jwk(&jwk).unwrap();
            let algorithm: Algorithm = vector["alg"].as_str().unwrap().parse().unwrap();
            let token = vector["token"].as_str().unwrap();
            assert_eq!(
                decoded(algorithm, &key, token).unwrap(),
                json!({"sub": "ann"}),
                "{algorithm:?} {name}"
            );
            // The first character of the claims, then of the signature.
            for part in [1, 2] {
                let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
                let other = if parts[part].starts_with('f') { "g" } else { "f" };
                parts[part].replace_range(..1, other);
                assert!(decoded(algorithm, &key, &parts.join(".")).is_err(), "{algorithm:?} {name} {part}");
            }
        }
        let algorithms: Vec<&str> = tokens.iter().filter_map(|vector| vector["alg"].as_str()).collect();
        for algorithm in "HS256 HS384 HS512 RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA".split(' ')
        {
            assert!(algorithms.contains(&algorithm), "{algorithm}");
        }
    }

    #[test]
    fn keys_of_another_kind_are_refused() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let key = EncodingKey::from_ec_der(pair.serialized_der());
        install();
        let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &json!({}), &key).unwrap();
        let point = pair.public_key_raw();
        assert_eq!(decoded(Algorithm::ES256, &DecodingKey::from_ec_der(point), &token).unwrap(), json!({}));
        for other in [
            DecodingKey::from_secret(point),
            DecodingKey::from_ed_der(point),
            DecodingKey::from_rsa_der(point),
        ] {
            assert!(decoded(Algorithm::ES256, &other, &token).is_err());
        }
        for algorithm in [Algorithm::RS256, Algorithm::HS256, Algorithm::ES384] {
            assert!(jsonwebtoken::encode(&Header::new(algorithm), &json!({}), &key).is_err());
        }
    }
}
