//! Authentication: an ordered union of authenticators. The first one that accepts the credentials decides. If all
//! reject them, the reasons are logged and the client gets 401 without details.

// The owner of a token.
mod authenticated;
// Authorities of the operator.
pub mod ca_files;
// Client certificates.
pub mod x509;
// Requestheader authentication.
pub mod front_proxy;
// Static tokens and passwords.
pub mod files;
// Bootstrap tokens.
pub mod bootstrap_token;
// Service-account tokens.
pub mod service_account;
// Tokens of OpenID Connect providers.
pub mod oidc;
// Requests without credentials.
pub mod anonymous;
// The file of OpenID Connect providers and of anonymous requests.
pub mod configuration;
// Token webhook.
pub mod webhook;
// The token authenticators as one trait.
mod token;

pub use authenticated::Authenticated;
pub use token::{TokenAuthenticator, TokenError};

use base64::{Engine, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use coracle_client::user::User;
use coracle_proto::status::ApiError;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};

/// How browsers send a token with a WebSocket: as a subprotocol, base64url without padding.
const WEBSOCKET_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

/// The bearer token of a request: from the header, or from the WebSocket subprotocol that browsers use.
pub fn bearer(headers: &HeaderMap) -> Option<String> {
    if let Some(header) = headers.get(AUTHORIZATION) {
        let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
        let is_token = scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty();
        return is_token.then(|| token.trim().to_owned());
    }
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let encoded = offered.flat_map(|v| v.split(',')).find_map(|p| p.trim().strip_prefix(WEBSOCKET_TOKEN))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

/// User name and password of HTTP basic authentication.
fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(encoded.trim()).ok())??;
    let text = String::from_utf8(decoded).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// The audit message of a rejected request: which kinds of credentials it presented.
pub fn attempted(presented: &x509::PresentedCertificate, headers: &HeaderMap) -> String {
    let tried = [
        (basic(headers).is_some(), "basic"),
        (bearer(headers).is_some(), "bearer"),
        (!matches!(presented, x509::PresentedCertificate::Absent), "x509"),
    ];
    let tried: Vec<&str> = tried.into_iter().filter_map(|(so, what)| so.then_some(what)).collect();
    match tried.is_empty() {
        true => "Authentication failed, no credentials provided".into(),
        false => format!("Authentication failed, attempted: {}", tried.join(", ")),
    }
}

/// Removes the token from a request, so that backends do not see it.
fn strip_token(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    let offered: Vec<String> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|protocol| protocol.trim().to_owned())
        .collect();
    if !offered.iter().any(|protocol| protocol.starts_with(WEBSOCKET_TOKEN)) {
        return;
    }
    let kept: Vec<String> = offered.into_iter().filter(|p| !p.starts_with(WEBSOCKET_TOKEN)).collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Ok(value) = kept.join(", ").parse()
        && !kept.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
}

/// The ordered union of all authenticators.
#[derive(Default)]
pub struct Union {
    /// Checks expiry and revocation of client certificates.
    pub certificates: Option<x509::CertificateAuthenticator>,
    /// Which clients may set `X-Remote-*` headers.
    pub front_proxy: front_proxy::FrontProxy,
    /// Token authenticators, in order.
    pub tokens: Vec<Box<dyn TokenAuthenticator>>,
    /// Audiences of this server.
    pub audiences: Vec<String>,
    /// Static passwords, if enabled.
    pub passwords: Option<files::Credentials>,
    /// Which requests without credentials are let through as `system:anonymous`.
    pub anonymous: anonymous::Anonymous,
}

impl Union {
    /// Removes the credentials from a request, so that backends do not see them.
    pub fn strip(&self, headers: &mut HeaderMap) {
        strip_token(headers);
        self.front_proxy.strip(headers);
    }

    /// Authenticates a request by requestheader, client certificate, token, password, in this order. Without credentials
    /// it is anonymous if it may be. Invalid credentials are rejected even then.
    pub async fn authenticate(
        &self,
        presented: &x509::PresentedCertificate,
        headers: &HeaderMap,
        may_be_anonymous: bool,
    ) -> Result<User, ApiError> {
        let mut reasons = Vec::new();
        let certificate = match presented {
            x509::PresentedCertificate::Absent => None,
            x509::PresentedCertificate::Verified(certificate) => Some(certificate.as_ref()),
            x509::PresentedCertificate::Refused(why) => {
                reasons.push(why.to_string());
                None
            }
        };
        if let Some(user) = self.front_proxy.user(certificate, headers) {
            return Ok(user);
        }
        if let (Some(certificates), Some(certificate)) = (&self.certificates, certificate) {
            match certificates.user(certificate) {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(why) => reasons.push(why.to_string()),
            }
        }
        if let Some(token) = bearer(headers) {
            match self.token(&token, &[]).await {
                Ok(known) => return Ok(known.user),
                Err(why) => reasons.push(why.to_string()),
            }
        }
        if let (Some(passwords), Some((name, password))) = (&self.passwords, basic(headers)) {
            match passwords.password(&name, &password) {
                Some(user) => return Ok(user),
                None => reasons.push(format!("password of {name:?} refused")),
            }
        }
        if may_be_anonymous && reasons.is_empty() {
            return Ok(User::anonymous());
        }
        if !reasons.is_empty() {
            tracing::info!(why = %reasons.join(", "), "credentials rejected");
        }
        Err(ApiError::unauthorized())
    }

    /// Authenticates a token; the error lists the reasons of all authenticators.
    pub async fn token(&self, token: &str, audiences: &[String]) -> Result<Authenticated, TokenError> {
        let mut reasons = Vec::new();
        for authenticator in &self.tokens {
            match authenticator.authenticate(token, audiences).await {
                Ok(Some(known)) if !known.audiences.is_empty() => return Ok(known),
                Ok(Some(known))
                    if audiences.is_empty() || audiences.iter().any(|a| self.audiences.contains(a)) =>
                {
                    return Ok(Authenticated { audiences: self.audiences.clone(), ..known });
                }
                Ok(Some(_)) => reasons
                    .push(TokenError::Audience { own: self.audiences.clone(), wanted: audiences.to_vec() }),
                Ok(None) => {}
                Err(why) => reasons.push(why),
            }
        }
        Err(if reasons.is_empty() { TokenError::Unknown } else { TokenError::Refused(reasons) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_browser_sends_its_token_as_a_protocol_and_nobody_behind_sees_it() {
        let mut headers = HeaderMap::new();
        let offer = format!("v5.channel.k8s.io, {WEBSOCKET_TOKEN}{}", URL_SAFE_NO_PAD.encode("t0ken"));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, offer.parse().unwrap());
        headers.insert("x-remote-user", "root".parse().unwrap());
        assert_eq!(bearer(&headers).as_deref(), Some("t0ken"));
        Union::default().strip(&mut headers);
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn schemes_are_told_apart() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            (bearer(&headers), basic(&headers))
        };
        assert_eq!(of("bearer  a.b "), (Some("a.b".into()), None));
        assert_eq!(of("Basic YW5uOnB3").1, Some(("ann".into(), "pw".into())));
        assert_eq!(of("Bearer "), (None, None));
        assert_eq!(of("Basic %%%"), (None, None));
    }
}
