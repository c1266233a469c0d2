//! The keys of service-account tokens, and what such tokens say.

use jsonwebtoken::errors::{ErrorKind, new_error};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Default issuer and audience of service-account tokens.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// How many seconds before it is made a token begins to hold: clocks of the servers that verify it may be behind by that.
pub const CLOCK_SKEW: i64 = 3600;

/// An object a token is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The `kubernetes.io` claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// Namespace of the account.
    pub namespace: String,
    /// The account.
    pub serviceaccount: Bound,
    /// The pod it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Bound>,
    /// The secret it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Bound>,
    /// The node of that pod, or the node it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Bound>,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Who it may be shown to.
    pub aud: Vec<String>,
    /// Until when it holds.
    pub exp: i64,
    /// When it was made.
    pub iat: i64,
    /// Who made it.
    pub iss: String,
    /// Its own id.
    pub jti: String,
    /// Since when it holds.
    pub nbf: i64,
    /// `system:serviceaccount:<namespace>:<name>`.
    pub sub: String,
    /// What it is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Kubernetes,
}

/// The type of secrets that hold a token.
pub const TOKEN_SECRET: &str = "kubernetes.io/service-account-token";

/// The issuer of tokens in secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// What a token in a secret says. It has no end: it holds while the secret does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyClaims {
    /// Who made it.
    pub iss: String,
    /// Namespace of account and secret.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub namespace: String,
    /// The secret.
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub secret: String,
    /// The account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub account: String,
    /// The account's uid.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub uid: String,
    /// `system:serviceaccount:<namespace>:<name>`.
    pub sub: String,
}

impl LegacyClaims {
    /// Of an account, for a secret in its namespace.
    pub fn new(namespace: &str, account: &str, uid: &str, secret: &str) -> Self {
        Self {
            iss: LEGACY_ISSUER.into(),
            namespace: namespace.into(),
            secret: secret.into(),
            account: account.into(),
            uid: uid.into(),
            sub: format!("system:serviceaccount:{namespace}:{account}"),
        }
    }
}

/// Why keys cannot be read, or a token is not made or not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The key is no PKCS#8 PEM.
    #[error(transparent)]
    Key(#[from] rcgen::Error),
    /// The key does not sign tokens, or a token does not hold.
    #[error(transparent)]
    Token(#[from] jsonwebtoken::errors::Error),
    /// The subject is not the account that the other claims name.
    #[error("sub claim is invalid")]
    Subject,
}

/// The key pair behind the tokens.
pub struct Keys {
    encoding: EncodingKey,
    decoding: DecodingKey,
    /// Key id in the JWT header.
    pub id: String,
    /// The public key, PEM.
    pub public: String,
    /// Who makes tokens, the first of these, and whose are accepted; all are audiences of this server.
    pub issuers: Vec<String>,
    point: Vec<u8>,
}

impl Keys {
    /// From a PKCS#8 PEM of a P-256 key.
    pub fn from_pem(pem: &str) -> Result<Self, TokenError> {
        let pair = rcgen::KeyPair::from_pem(pem)?;
        if !pair.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
            return Err(new_error(ErrorKind::InvalidKeyFormat).into());
        }
        let public = pair.public_key_pem();
        let id = {
            use base64::Engine;
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(public.as_bytes()))
        };
        crate::jwt::install();
        let encoding = EncodingKey::from_ec_der(pair.serialized_der());
        let point = pair.public_key_raw().to_vec();
        let decoding = DecodingKey::from_ec_der(&point);
        Ok(Self { encoding, decoding, id, public, issuers: vec![ISSUER.into()], point })
    }

    /// The same keys under other names; the usual one when none is given.
    #[must_use]
    pub fn of_issuers(mut self, issuers: &[String]) -> Self {
        if !issuers.is_empty() {
            self.issuers = issuers.to_vec();
        }
        self
    }

    /// Who makes tokens.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or(ISSUER, String::as_str)
    }

    /// The public key as a JSON Web Key.
    pub fn jwk(&self) -> serde_json::Value {
        use base64::Engine;
        let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        // An uncompressed P-256 point: 04, then x and y of 32 bytes each.
        let (x, y) = self.point.get(1..).unwrap_or_default().split_at_checked(32).unwrap_or_default();
        serde_json::json!({
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.id, "x": encode(x), "y": encode(y),
        })
    }

    /// Signs claims.
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, TokenError> {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.id.clone());
        Ok(jsonwebtoken::encode(&header, claims, &self.encoding)?)
    }

    /// Verifies signature, time and audience.
    pub fn verify(&self, token: &str, audiences: &[String]) -> Result<Claims, TokenError> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&self.issuers);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        if audiences.is_empty() {
            validation.set_audience(&self.issuers);
        } else {
            validation.set_audience(audiences);
        }
        Ok(jsonwebtoken::decode::<Claims>(token, &self.decoding, &validation)?.claims)
    }
}

impl Keys {
    /// Verifies the signature of a token in a secret.
    pub fn verify_legacy(&self, token: &str) -> Result<LegacyClaims, TokenError> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&[LEGACY_ISSUER]);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        let claims = jsonwebtoken::decode::<LegacyClaims>(token, &self.decoding, &validation)?.claims;
        if claims.sub != format!("system:serviceaccount:{}:{}", claims.namespace, claims.account) {
            return Err(TokenError::Subject);
        }
        Ok(claims)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tokens_hold_where_the_clock_is_behind() {
        let keys = Keys::from_pem(&rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let account = Bound { name: "bot".into(), uid: "u".into() };
        let now = jiff::Timestamp::now().as_second();
        // Made at a time by a clock that is ahead of the one of this server.
        let made = |at: i64| {
            let kubernetes = Kubernetes {
                namespace: "d".into(),
                serviceaccount: account.clone(),
                pod: None,
                secret: None,
                node: None,
            };
            let claims = Claims {
                aud: vec![ISSUER.into()],
                exp: at + 3600,
                iat: at,
                iss: ISSUER.into(),
                jti: String::new(),
                nbf: at - CLOCK_SKEW,
                sub: "system:serviceaccount:d:bot".into(),
                kubernetes,
            };
            keys.verify(&keys.sign(&claims).unwrap(), &[])
        };
        for apart in [0, 600, -600, 3500] {
            made(now + apart).unwrap();
        }
        assert!(made(now + 2 * CLOCK_SKEW).is_err() && made(now - 2 * CLOCK_SKEW).is_err());
    }
}
