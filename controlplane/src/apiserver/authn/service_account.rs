//! Service-account tokens: JWTs signed by the server's own key, bound to an account and possibly a pod, secret or node.

use super::{Known, TokenAuthenticator};
use crate::apiserver::api::Api;
use crate::apiserver::user::User;
use async_trait::async_trait;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The issuer and default audience of our tokens, unless somebody says otherwise.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

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
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

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
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let pair = rcgen::KeyPair::from_pem(pem).map_err(|e| e.to_string())?;
        let public = pair.public_key_pem();
        let id = {
            use base64::Engine;
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(public.as_bytes()))
        };
        let encoding = EncodingKey::from_ec_pem(pem.as_bytes()).map_err(|e| e.to_string())?;
        let decoding = DecodingKey::from_ec_pem(public.as_bytes()).map_err(|e| e.to_string())?;
        let point = pair.public_key_raw().to_vec();
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
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, String> {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.id.clone());
        jsonwebtoken::encode(&header, claims, &self.encoding).map_err(|e| e.to_string())
    }

    /// Verifies signature, time and audience.
    pub fn verify(&self, token: &str, audiences: &[String]) -> Result<Claims, String> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&self.issuers);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        if audiences.is_empty() {
            validation.set_audience(&self.issuers);
        } else {
            validation.set_audience(audiences);
        }
        jsonwebtoken::decode::<Claims>(token, &self.decoding, &validation)
            .map(|data| data.claims)
            .map_err(|e| e.to_string())
    }
}

impl Keys {
    /// Verifies the signature of a token in a secret.
    pub fn verify_legacy(&self, token: &str) -> Result<LegacyClaims, String> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&[LEGACY_ISSUER]);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        let claims = jsonwebtoken::decode::<LegacyClaims>(token, &self.decoding, &validation)
            .map_err(|e| e.to_string())?
            .claims;
        if claims.sub != format!("system:serviceaccount:{}:{}", claims.namespace, claims.account) {
            return Err("sub claim is invalid".into());
        }
        Ok(claims)
    }
}

/// Knows service-account tokens.
pub struct ServiceAccounts {
    /// The keys.
    pub keys: Arc<Keys>,
    /// Where accounts and pods are looked up.
    pub api: Arc<Api>,
}

#[async_trait]
impl TokenAuthenticator for ServiceAccounts {
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Result<Option<Known>, String> {
        let parts: Vec<&str> = token.split('.').collect();
        if parts.len() != 3 {
            return Ok(None);
        }
        match issuer(parts[1]).as_deref() {
            Some(LEGACY_ISSUER) => return self.by_secret(token).map(Some),
            Some(issuer) if self.keys.issuers.iter().any(|own| own == issuer) => {}
            _ => return Ok(None),
        }
        let claims = self.keys.verify(token, audiences)?;
        let bound = &claims.kubernetes;
        self.still_there("serviceaccounts", &bound.namespace, &bound.serviceaccount)?;
        let mut user = User::service_account(&bound.namespace, &bound.serviceaccount.name);
        user.uid = bound.serviceaccount.uid.clone();
        user.extra
            .insert("authentication.kubernetes.io/credential-id".into(), vec![format!("JTI={}", claims.jti)]);
        for (what, object) in [("pod", &bound.pod), ("node", &bound.node)] {
            let Some(object) = object else { continue };
            // A token of a pod names the pod's node only for information: the pod decides.
            if what == "pod" {
                self.still_there("pods", &bound.namespace, object)?;
            } else if bound.pod.is_none() {
                self.still_there("nodes", "", object)?;
            }
            user.extra.insert(format!("authentication.kubernetes.io/{what}-name"), vec![object.name.clone()]);
            user.extra.insert(format!("authentication.kubernetes.io/{what}-uid"), vec![object.uid.clone()]);
        }
        if let Some(secret) = &bound.secret {
            self.still_there("secrets", &bound.namespace, secret)?;
        }
        Ok(Some(Known { user, audiences: claims.aud }))
    }
}

impl ServiceAccounts {
    /// A token from a secret holds while the secret has it and the account is the same.
    fn by_secret(&self, token: &str) -> Result<Known, String> {
        use base64::Engine;
        let claims = self.keys.verify_legacy(token)?;
        let gone = || "Token has been invalidated".to_owned();
        let kind = self.api.registry.resource("", "v1", "secrets").ok_or_else(gone)?;
        let secret = self.api.cached(&kind, &claims.namespace, &claims.secret).map_err(|_| gone())?;
        if secret.meta.deletion_timestamp.is_some() {
            return Err(gone());
        }
        let kept = secret.value()["data"]["token"].as_str().map(str::to_owned).unwrap_or_default();
        let kept = base64::engine::general_purpose::STANDARD.decode(kept).unwrap_or_default();
        if kept != token.as_bytes() {
            return Err("Token does not match server's copy".into());
        }
        let account = Bound { name: claims.account, uid: claims.uid };
        self.still_there("serviceaccounts", &claims.namespace, &account)?;
        let mut user = User::service_account(&claims.namespace, &account.name);
        user.uid = account.uid;
        Ok(Known::here(user))
    }

    fn still_there(&self, plural: &str, namespace: &str, bound: &Bound) -> Result<(), String> {
        let gone = || format!("{plural} \"{namespace}/{}\" of the token is gone", bound.name);
        let kind = self.api.registry.resource("", "v1", plural).ok_or_else(gone)?;
        let object = self.api.cached(&kind, namespace, &bound.name).map_err(|_| gone())?;
        if object.meta.uid != bound.uid {
            return Err(gone());
        }
        // A pod that was told to go keeps its token for a minute, to say goodbye.
        let leaving =
            object.meta.deletion_timestamp.as_deref().and_then(|t| t.parse::<jiff::Timestamp>().ok());
        match leaving {
            Some(since) if jiff::Timestamp::now().as_second() > since.as_second() + 60 => Err(gone()),
            _ => Ok(()),
        }
    }
}

/// Who says to have made a token; not verified yet.
fn issuer(payload: &str) -> Option<String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    claims["iss"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_of_a_secret_needs_no_end_and_no_audience_and_issuers_can_change() {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let keys = Keys::from_pem(&pem).unwrap();
        let claims = LegacyClaims::new("d", "bot", "u", "s");
        let token = keys.sign(&claims).unwrap();
        assert_eq!(issuer(token.split('.').nth(1).unwrap()).as_deref(), Some(LEGACY_ISSUER));
        assert_eq!(keys.verify_legacy(&token), Ok(claims.clone()));
        assert!(keys.verify(&token, &[]).is_err(), "it is no token of the other kind");
        let forged = keys.sign(&LegacyClaims { account: "admin".into(), ..claims.clone() }).unwrap();
        assert_eq!(keys.verify_legacy(&forged), Err("sub claim is invalid".into()));
        let moved = Keys::from_pem(&pem).unwrap().of_issuers(&["https://new".into(), ISSUER.into()]);
        let issued = |iss: &str, aud: &str| {
            let here = Bound { name: "bot".into(), uid: "u".into() };
            let kubernetes = Kubernetes {
                namespace: "d".into(),
                serviceaccount: here,
                pod: None,
                secret: None,
                node: None,
            };
            let (aud, now) = (vec![aud.to_owned()], jiff::Timestamp::now().as_second());
            let (iss, sub) = (iss.to_owned(), "system:serviceaccount:d:bot".to_owned());
            Claims { aud, exp: now + 60, iat: now, iss, jti: String::new(), nbf: now, sub, kubernetes }
        };
        for (iss, aud, holds) in [
            (ISSUER, ISSUER, true),
            ("https://new", "https://new", true),
            ("https://new", ISSUER, true),
            ("https://new", "vault", false),
            ("https://old", "https://new", false),
        ] {
            let token = moved.sign(&issued(iss, aud)).unwrap();
            assert_eq!(moved.verify(&token, &[]).is_ok(), holds, "{iss} for {aud}");
        }
        assert_eq!(moved.issuer(), "https://new");
        let stranger = Keys::from_pem(&rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(stranger.verify_legacy(&token).is_err());
    }
}
