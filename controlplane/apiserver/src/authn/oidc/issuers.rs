//! The issuers whose tokens are accepted. They can be replaced while requests are served.

use super::metrics::{self, IssuerMetrics};
use super::provider::Provider;
use super::{Oidc, OidcError, Settings};
use crate::authn::authenticated::Authenticated;
use crate::authn::service_account;
use arc_swap::ArcSwap;
use coracle_client::diagnostics::MetricsSource;
use coracle_proto::exposition::Page;
use std::sync::Arc;
use std::time::Instant;

/// The longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 64 << 10;

/// All issuers.
pub struct Issuers {
    all: ArcSwap<Vec<Arc<Oidc>>>,
    /// The hash of this server's name, for metrics.
    server: String,
}

impl Issuers {
    /// Issuers of different URLs; `server` is the name of this API server.
    pub fn new(server: &str, all: Vec<Settings>) -> Self {
        coracle_pki::jwt::install();
        let issuers = Self { all: ArcSwap::default(), server: metrics::hash(server.as_bytes()) };
        issuers.replace(all);
        issuers
    }

    /// Accepts tokens of these issuers from now on, and of no others. Keys of issuers that stay are kept.
    pub fn replace(&self, all: Vec<Settings>) {
        let before = self.all.load_full();
        let with_state = |settings: Settings| {
            let known = before.iter().find(|known| known.settings.issuer.url == settings.issuer.url);
            let metrics = match known {
                Some(known) => known.metrics.clone(),
                None => Arc::new(IssuerMetrics::new(&settings.issuer.url)),
            };
            let provider = match known.filter(|known| known.provider.is_of(&settings.issuer)) {
                Some(known) => known.provider.clone(),
                None => Arc::new(Provider::new(&settings.issuer, metrics.clone())),
            };
            Arc::new(Oidc { settings, provider, metrics })
        };
        self.all.store(Arc::new(all.into_iter().map(with_state).collect()));
    }

    /// The owner of a token; `None` if no issuer here made it.
    pub(in crate::authn) async fn known(&self, token: &str) -> Result<Option<Authenticated>, OidcError> {
        let all = self.all.load_full();
        let mut parts = token.split('.');
        let (Some(_), Some(payload), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Ok(None);
        };
        if all.is_empty() {
            return Ok(None);
        }
        if token.len() > MAX_TOKEN {
            return Err(OidcError::TooLong(MAX_TOKEN));
        }
        let claimed = service_account::issuer(payload);
        let Some(issuer) = all.iter().find(|one| claimed.as_ref() == Some(&one.settings.issuer.url)) else {
            return Ok(None);
        };
        let begun = Instant::now();
        let user = issuer.user(token).await;
        issuer.metrics.authenticated(user.is_ok(), begun.elapsed());
        user.map(|user| Some(Authenticated::for_this_server(user)))
    }
}

impl MetricsSource for Issuers {
    fn render(&self, page: &mut Page) {
        let all: Vec<_> = self.all.load().iter().map(|issuer| issuer.metrics.clone()).collect();
        metrics::render(page, &all, &self.server);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Issuer;
    use super::super::mapping::Mapping;
    use super::*;
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

    fn settings(url: &str, authority: Option<&str>) -> Settings {
        let authority = authority.map(str::to_owned);
        let issuer = Issuer { url: url.into(), authority, ..Issuer::default() };
        Settings { issuer, mapping: Mapping::of_username("sub", "") }
    }

    #[tokio::test]
    async fn tokens_of_others_are_not_looked_at() {
        let token = |issuer: &str, length: usize| {
            let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
            let header = encode(r#"{"alg":"RS256"}"#.into());
            format!("{header}.{}.{}", encode(format!(r#"{{"iss":"{issuer}"}}"#)), "a".repeat(length))
        };
        let issuers = Issuers::new("s", vec![settings("https://a", None)]);
        for other in ["a", "a.b", "a.b.c", "a.b.c.d", &token("https://b", 9), &token("https://a/", 9)] {
            assert!(matches!(issuers.known(other).await, Ok(None)), "{other}");
        }
        // No algorithm is allowed.
        assert!(matches!(issuers.known(&token("https://a", 9)).await, Err(OidcError::Algorithm(_))));
        assert!(matches!(issuers.known(&token("https://a", MAX_TOKEN)).await, Err(OidcError::TooLong(_))));
        issuers.replace(Vec::new());
        assert!(matches!(issuers.known(&token("https://a", 9)).await, Ok(None)));
    }

    #[test]
    fn keys_are_kept_while_their_place_stays() {
        let issuers = Issuers::new("s", vec![settings("https://a", None), settings("https://b", None)]);
        let providers = || issuers.all.load().iter().map(|one| one.provider.clone()).collect::<Vec<_>>();
        let before = providers();
        issuers.replace(vec![settings("https://b", None), settings("https://a", Some("ca"))]);
        let after = providers();
        assert!(Arc::ptr_eq(&before[1], &after[0]), "the same place");
        assert!(!Arc::ptr_eq(&before[0], &after[1]), "another authority");
    }
}
