//! Client of the registry API for pulls. Responses are limited in size and time, and credentials are never sent over a
//! less secure connection than the registry's.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use oci_spec::distribution::Reference;
use reqwest::{
    Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RANGE, WWW_AUTHENTICATE},
    redirect,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::RwLock;

// Errors.
mod error;

pub use self::error::{DeniedError, RegistryError};
use super::{
    Credentials, Error, RegistryConfig, Result, Unsupported,
    manifest::{self, MAX_DOCUMENT},
    registry_config::Endpoint,
};

/// The longest token, and the longest explanation of an error.
const ANSWER: u64 = 64 << 10;
/// Timeout of responses other than layers.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of redirects.
const REDIRECTS: usize = 5;
/// Letters of a registry's own words that an error has.
const WORDS: usize = 300;

/// One repository at one endpoint.
pub(super) struct Registry {
    http: reqwest::Client,
    /// `https://host/v2/repository`.
    base: String,
    /// `ns` query parameter: the registry that a mirror stands for.
    query: String,
    image: Reference,
    plain_http: bool,
    credentials: Credentials,
    authorization: RwLock<Option<HeaderValue>>,
}

/// A failed request.
pub(super) enum RequestFailure {
    /// Another attempt may succeed.
    Again(Error),
    /// It will not.
    Final(Error),
}

impl From<RequestFailure> for Error {
    fn from(failure: RequestFailure) -> Self {
        let (RequestFailure::Again(error) | RequestFailure::Final(error)) = failure;
        error
    }
}

/// The answer of a token server; those of OAuth 2.0 only have `access_token`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenAnswer {
    token: Value,
    access_token: Value,
}

/// A blob that comes in.
pub(super) struct Incoming {
    /// Its bytes.
    pub response: Response,
    /// Whether it begins where it was asked to.
    pub resumed: bool,
}

impl Registry {
    /// Connects and authenticates.
    pub(super) async fn connect(
        image: &Reference,
        endpoint: &Endpoint,
        given: &Credentials,
        hosts: &RegistryConfig,
    ) -> Result<Self> {
        // An error means that a crypto provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |error: reqwest::Error| Error::Registry { name: image.whole(), reason: error.into() };
        let tls = hosts.tls(&endpoint.host);
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("coracle/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(RESPONSE_TIMEOUT)
            .redirect(redirect_policy())
            .tls_danger_accept_invalid_certs(tls.insecure_skip_verify);
        if !tls.ca_file.is_empty() {
            let path = std::path::Path::new(&tls.ca_file);
            let pem = std::fs::read(path).map_err(Error::io("reading", path))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem).map_err(failed)?;
            builder = builder.tls_certs_merge(roots);
        }
        let scheme = if endpoint.plain_http { "http" } else { "https" };
        let host = format!("{scheme}://{}/v2/", image.resolve_registry());
        let registry = Registry {
            http: builder.build().map_err(failed)?,
            base: format!("{host}{}", image.repository()),
            query: image.namespace().map(|of| format!("?ns={of}")).unwrap_or_default(),
            image: image.clone(),
            plain_http: endpoint.plain_http,
            credentials: hosts.credentials(endpoint, given),
            authorization: RwLock::default(),
        };
        match &registry.credentials {
            Credentials::Bearer(token) => {
                *registry.authorization.write().await = header(&format!("Bearer {token}")).map(sensitive);
            }
            _ => {
                let answer = registry.http.get(&host).send().await.map_err(failed)?;
                registry.authorize(answer.headers()).await?;
            }
        }
        Ok(registry)
    }

    /// The image that is asked for, by the name that it has here.
    pub(super) fn image(&self) -> &Reference {
        &self.image
    }

    /// A manifest or an index by digest, or by what the image's name says.
    pub(super) async fn manifest(&self, digest: Option<&str>) -> Result<Vec<u8>> {
        let named = digest.or_else(|| self.image.digest()).or_else(|| self.image.tag()).unwrap_or("latest");
        let url = format!("{}/manifests/{named}{}", self.base, self.query);
        let accept = HeaderValue::from_str(&manifest::ACCEPTED.join(", ")).ok();
        let headers: HeaderMap = accept.map(|accept| (ACCEPT, accept)).into_iter().collect();
        let response = self.get(&url, headers, self.image.whole()).await?;
        read(response, MAX_DOCUMENT, &self.image.whole()).await
    }

    /// A blob from an offset on.
    pub(super) async fn blob(&self, digest: &str, from: u64) -> Result<Incoming, RequestFailure> {
        let url = format!("{}/blobs/{digest}{}", self.base, self.query);
        let range = (from > 0).then(|| HeaderValue::from_str(&format!("bytes={from}-")).ok()).flatten();
        let headers: HeaderMap = range.map(|range| (RANGE, range)).into_iter().collect();
        let response = self.get(&url, headers, format!("{} ({digest})", self.image.whole())).await?;
        let resumed = response.status() == StatusCode::PARTIAL_CONTENT;
        Ok(Incoming { response, resumed })
    }

    /// A successful response. Renews an expired token once.
    async fn get(&self, url: &str, headers: HeaderMap, name: String) -> Result<Response, RequestFailure> {
        let mut renewed = false;
        loop {
            let mut request = self.http.get(url).headers(headers.clone());
            if let Some(authorization) = self.authorization.read().await.clone() {
                request = request.header(AUTHORIZATION, authorization);
            }
            let response = request.send().await.map_err(|error| {
                RequestFailure::Again(Error::Registry { name: name.clone(), reason: error.into() })
            })?;
            if response.status().is_success() {
                return Ok(response);
            }
            let renewable = !matches!(self.credentials, Credentials::Bearer(_));
            if response.status() == StatusCode::UNAUTHORIZED && renewable && !renewed {
                renewed = true;
                self.authorize(response.headers()).await.map_err(RequestFailure::Final)?;
                continue;
            }
            return Err(refused(response, name).await);
        }
    }

    /// Authenticates according to the challenge.
    async fn authorize(&self, headers: &HeaderMap) -> Result<()> {
        let challenges: Vec<&str> =
            headers.get_all(WWW_AUTHENTICATE).into_iter().filter_map(|value| value.to_str().ok()).collect();
        let bearer = challenges.iter().find_map(|challenge| Challenge::parse(challenge));
        let found = match (bearer, &self.credentials) {
            (Some(challenge), _) => Some(self.token(&challenge).await?),
            (None, Credentials::Basic { .. }) if !challenges.is_empty() => self.basic(),
            _ => None,
        };
        *self.authorization.write().await = found.map(sensitive);
        Ok(())
    }

    fn basic(&self) -> Option<HeaderValue> {
        let Credentials::Basic { username, password } = &self.credentials else { return None };
        header(&format!("Basic {}", BASE64_STANDARD.encode(format!("{username}:{password}"))))
    }

    /// A token of the server that the registry names.
    async fn token(&self, challenge: &Challenge) -> Result<HeaderValue> {
        let name = || self.image.whole();
        let denied = |reason: DeniedError| Error::Unauthorized { name: name(), reason };
        let mut url = Url::parse(&challenge.realm)
            .map_err(|source| denied(DeniedError::TokenServer { realm: challenge.realm.clone(), source }))?;
        if !matches!(url.scheme(), "https" | "http") || (url.scheme() == "http" && !self.plain_http) {
            return Err(denied(DeniedError::NoTls { url: url.into() }));
        }
        let scope = format!("repository:{}:pull", self.image.repository());
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = &challenge.service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let mut request = self.http.get(url);
        if let Some(basic) = self.basic() {
            request = request.header(AUTHORIZATION, sensitive(basic));
        }
        let response =
            request.send().await.map_err(|error| Error::Registry { name: name(), reason: error.into() })?;
        if !response.status().is_success() {
            return Err(denied(DeniedError::Refused { words: text(response).await }));
        }
        let bytes = read(response, ANSWER, &name()).await?;
        let answer: TokenAnswer = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = answer.token.as_str().or_else(|| answer.access_token.as_str());
        token.and_then(|token| header(&format!("Bearer {token}"))).ok_or_else(|| denied(DeniedError::NoToken))
    }
}

fn header(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

/// Not shown in logs.
fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Limits the number of redirects and rejects redirects from https to http. Credentials are not sent to other hosts.
fn redirect_policy() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let from = attempt.previous().last().map(|url| url.scheme().to_owned());
        if attempt.previous().len() > REDIRECTS {
            attempt.error("too many redirects")
        } else if from.as_deref() == Some("https") && attempt.url().scheme() != "https" {
            attempt.error("redirected to a connection without TLS")
        } else {
            attempt.follow()
        }
    })
}

/// Reads the whole body; fails if it is longer than `most`.
pub(super) async fn read(mut response: Response, most: u64, name: &str) -> Result<Vec<u8>> {
    let failed = |reason: RegistryError| Error::Registry { name: name.to_owned(), reason };
    let too_long = || Error::unsupported(name, Unsupported::LongAnswer { most });
    if response.content_length().is_some_and(|length| length > most) {
        return Err(too_long());
    }
    let whole = async {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(error.into()))? {
            if (bytes.len() + chunk.len()) as u64 > most {
                return Err(too_long());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    };
    match tokio::time::timeout(RESPONSE_TIMEOUT, whole).await {
        Ok(outcome) => outcome,
        Err(_) => Err(failed(RegistryError::Slow)),
    }
}

async fn text(response: Response) -> String {
    let status = response.status();
    let bytes = read(response, ANSWER, "").await.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if text.is_empty() { status.to_string() } else { text }
}

/// Converts an error response.
async fn refused(response: Response, name: String) -> RequestFailure {
    #[derive(Deserialize, Default)]
    struct Envelope {
        #[serde(default)]
        errors: Vec<Said>,
    }
    #[derive(Deserialize)]
    struct Said {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let (status, url) = (response.status(), response.url().clone());
    let said = text(response).await;
    let errors = serde_json::from_str::<Envelope>(&said).unwrap_or_default().errors;
    let words: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.code, e.message)).collect();
    let words = if words.is_empty() { said } else { words.join("; ") };
    let is = |codes: &[&str]| errors.iter().any(|error| codes.contains(&error.code.as_str()));
    if status == StatusCode::UNAUTHORIZED
        || status == StatusCode::FORBIDDEN
        || is(&["UNAUTHORIZED", "DENIED"])
    {
        let reason = DeniedError::Forbidden { url: shown(&url), words };
        return RequestFailure::Final(Error::Unauthorized { name, reason });
    }
    if status == StatusCode::NOT_FOUND
        || is(&["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "BLOB_UNKNOWN", "NOT_FOUND"])
    {
        // An answer without codes is a page for people.
        return RequestFailure::Final(match errors.is_empty() {
            true => Error::NotFound { name },
            false => Error::Unknown { name, words: words.chars().take(WORDS).collect() },
        });
    }
    let reason = RegistryError::Status { url: shown(&url), status, words };
    let error = Error::Registry { name, reason };
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        RequestFailure::Again(error)
    } else {
        RequestFailure::Final(error)
    }
}

/// The URL without its query, which may contain a signature.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

/// `Bearer realm="…",service="…"`.
#[derive(Debug, PartialEq)]
struct Challenge {
    realm: String,
    service: Option<String>,
}

impl Challenge {
    fn parse(header: &str) -> Option<Self> {
        let (scheme, mut rest) = header.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        while let Some((key, after)) = rest.trim_start_matches([' ', ',']).split_once('=') {
            let value;
            (value, rest) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_once(',').unwrap_or((after, "")),
            };
            match key.trim().to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value.to_owned()),
                "service" => service = Some(value.to_owned()),
                _ => {}
            }
        }
        Some(Challenge { realm: realm?, service })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let of = |realm: &str, service: Option<&str>| {
            Some(Challenge { realm: realm.into(), service: service.map(str::to_owned) })
        };
        for (header, expected) in [
            (
                "Bearer realm=\"https://auth.io/token\",service=\"reg.io\",scope=\"a:b:pull,push\"",
                of("https://auth.io/token", Some("reg.io")),
            ),
            ("bearer scope=\"x=y\", realm=\"https://a\"", of("https://a", None)),
            ("Bearer realm=https://a,service=s", of("https://a", Some("s"))),
            ("Bearer service=\"s\"", None),
            ("Bearer realm=\"https://a", None),
            ("Basic realm=\"r\"", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(header), expected, "{header}");
        }
    }

    /// Whoever answers for a registry chooses the token server; that one gets the password.
    #[tokio::test]
    async fn passwords_are_not_sent_without_tls() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = |plain_http| Registry {
            http: reqwest::Client::new(),
            base: String::new(),
            query: String::new(),
            image: Reference::with_tag("reg.io".into(), "x".into(), "1".into()),
            plain_http,
            credentials: Credentials::from_parts("user", "secret", "", "", ""),
            authorization: RwLock::default(),
        };
        for (realm, plain_http, asked) in [
            // Nobody listens there: whoever is asked cannot be reached.
            ("http://127.0.0.1:1/token", false, false),
            ("http://127.0.0.1:1/token", true, true),
            ("file:///etc/passwd", true, false),
            ("token", true, false),
        ] {
            let challenge = Challenge { realm: realm.into(), service: None };
            let refused =
                matches!(registry(plain_http).token(&challenge).await, Err(Error::Unauthorized { .. }));
            assert_eq!(!refused, asked, "{realm} {plain_http}");
        }
    }
}
