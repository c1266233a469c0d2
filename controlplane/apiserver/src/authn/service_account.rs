//! Service-account tokens: JWTs signed by the server's own key, bound to an account and possibly a pod, secret or node.

use super::authenticated::Authenticated;
use crate::objects::Objects;
use coracle_client::user::User;
use coracle_fields::core::v1::Secret;
use coracle_pki::service_account::{self, Bound, Keys, LEGACY_ISSUER};
use std::sync::Arc;

/// Why a service-account token does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ServiceAccountError {
    /// Not signed by this server, expired, or for others.
    #[error(transparent)]
    Token(#[from] service_account::TokenError),
    /// Its Secret is gone.
    #[error("Token has been invalidated")]
    Invalidated,
    /// Its Secret has another token now.
    #[error("Token does not match server's copy")]
    Replaced,
    /// The account or what the token is bound to is gone.
    #[error("{plural} \"{namespace}/{name}\" of the token is gone")]
    Gone {
        /// The resource.
        plural: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Knows service-account tokens.
pub struct ServiceAccounts {
    /// The keys.
    pub keys: Arc<Keys>,
    /// Where accounts and pods are looked up.
    pub objects: Arc<Objects>,
}

impl ServiceAccounts {
    /// The owner of a token; `None` if the token is of another kind.
    pub(super) fn known(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<Authenticated>, ServiceAccountError> {
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
        Ok(Some(Authenticated { user, audiences: claims.aud }))
    }

    /// A token from a secret holds while the secret has it and the account is the same.
    fn by_secret(&self, token: &str) -> Result<Authenticated, ServiceAccountError> {
        use base64::Engine;
        let claims = self.keys.verify_legacy(token)?;
        let gone = ServiceAccountError::Invalidated;
        let Some(kind) = self.objects.registry.resource("", "v1", "secrets") else { return Err(gone) };
        let Ok(secret) = self.objects.cached(&kind, &claims.namespace, &claims.secret) else {
            return Err(gone);
        };
        if secret.meta.deletion_timestamp.is_some() {
            return Err(gone);
        }
        let doc = secret.doc();
        let kept = doc.view::<Secret>().data().key("token").text();
        let kept = base64::engine::general_purpose::STANDARD.decode(kept).unwrap_or_default();
        if kept != token.as_bytes() {
            return Err(ServiceAccountError::Replaced);
        }
        let account = Bound { name: claims.account, uid: claims.uid };
        self.still_there("serviceaccounts", &claims.namespace, &account)?;
        let mut user = User::service_account(&claims.namespace, &account.name);
        user.uid = account.uid;
        Ok(Authenticated::for_this_server(user))
    }

    fn still_there(
        &self,
        plural: &'static str,
        namespace: &str,
        bound: &Bound,
    ) -> Result<(), ServiceAccountError> {
        let gone = || ServiceAccountError::Gone {
            plural,
            namespace: namespace.to_owned(),
            name: bound.name.clone(),
        };
        let kind = self.objects.registry.resource("", "v1", plural).ok_or_else(gone)?;
        let object = self.objects.cached(&kind, namespace, &bound.name).map_err(|_| gone())?;
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
pub(super) fn issuer(payload: &str) -> Option<String> {
    use base64::Engine;
    #[derive(serde::Deserialize)]
    struct Claims {
        iss: String,
    }
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice(&bytes).ok().map(|Claims { iss }| iss)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_pki::service_account::{Claims, ISSUER, Kubernetes, LegacyClaims, TokenError};

    #[test]
    fn a_token_of_a_secret_needs_no_end_and_no_audience_and_issuers_can_change() {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let keys = Keys::from_pem(&pem).unwrap();
        let claims = LegacyClaims::new("d", "bot", "u", "s");
        let token = keys.sign(&claims).unwrap();
        assert_eq!(issuer(token.split('.').nth(1).unwrap()).as_deref(), Some(LEGACY_ISSUER));
        assert_eq!(keys.verify_legacy(&token).ok(), Some(claims.clone()));
        assert!(keys.verify(&token, &[]).is_err(), "it is no token of the other kind");
        let forged = keys.sign(&LegacyClaims { account: "admin".into(), ..claims.clone() }).unwrap();
        assert!(matches!(keys.verify_legacy(&forged), Err(TokenError::Subject)));
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
