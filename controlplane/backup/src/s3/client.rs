//! Requests and answers. What failed for a moment is tried again.

use super::options::{Addressing, Resolved};
use super::sign::{Scope, Unsigned, escaped_path, escaped_query, sha256};
use super::{S3Error, S3Location, S3Options, xml};
use bytes::Bytes;
use http::Method;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// For one request, a part of 8 MiB among them.
const TIMEOUT: Duration = Duration::from_secs(300);
const MAX_ANSWER: usize = 4 << 20;
const MAX_OBJECTS: usize = 100_000;

/// An object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Where it is.
    pub location: S3Location,
    /// Its size.
    pub size: u64,
    /// When it was written, if S3 says so.
    pub modified: Option<jiff::Timestamp>,
}

/// A client of one endpoint.
pub struct S3 {
    options: Resolved,
    client: reqwest::Client,
}

/// One request, which can be sent again.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) bucket: &'a str,
    pub(super) key: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) body: Bytes,
}

impl S3 {
    /// A client with these options, and the environment's for those that are not set.
    pub fn new(options: &S3Options) -> Result<Self, S3Error> {
        let options = options.resolve(&|name| std::env::var(name).ok())?;
        let client = http_client(options.ca_file.as_deref())?;
        Ok(Self { options, client })
    }

    /// Host and path of a request, not escaped.
    fn place(&self, bucket: &str, key: &str) -> (String, String) {
        let host = self.options.endpoint.split_once("://").map_or("", |(_, host)| host);
        match self.options.addressing {
            Addressing::Path => (host.to_owned(), format!("/{bucket}/{key}")),
            Addressing::Virtual => (format!("{bucket}.{host}"), format!("/{key}")),
        }
    }

    /// Sends a request until it has an answer that is not about the moment. Returns answers of success only.
    pub(super) async fn send(&self, ask: &Ask<'_>) -> Result<(String, reqwest::Response), S3Error> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let error = match self.attempt(ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_momentary = match &error {
                S3Error::Connection { .. } => true,
                S3Error::Refused { status, .. } => *status >= 500 || *status == 429,
                _ => false,
            };
            if !is_momentary || attempt == ATTEMPTS {
                return Err(error);
            }
            tracing::warn!(error = %coracle_cli::causes::chain(&error), "S3 failed, will retry");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        unreachable!("the last attempt returns")
    }

    async fn attempt(&self, ask: &Ask<'_>) -> Result<(String, reqwest::Response), S3Error> {
        let (host, path) = self.place(ask.bucket, ask.key);
        let scheme = self.options.endpoint.split_once("://").map_or("https", |(scheme, _)| scheme);
        let mut url = format!("{scheme}://{host}{}", escaped_path(&path));
        if !ask.query.is_empty() {
            url = format!("{url}?{}", escaped_query(ask.query));
        }
        let payload = sha256(&ask.body);
        let (method, query) = (ask.method.as_str(), ask.query);
        let unsigned = Unsigned { method, host: &host, path: &path, query, headers: &[], payload: &payload };
        let (credentials, region) = (&self.options.credentials, self.options.region.as_str());
        let signed = unsigned.sign(&Scope { credentials, region, time: jiff::Timestamp::now() });
        let mut request = self.client.request(ask.method.clone(), &url);
        // Objects take as long as they come.
        if ask.method != Method::GET {
            request = request.timeout(TIMEOUT);
        }
        for (name, value) in signed {
            request = request.header(name, value);
        }
        if ask.method != Method::GET && ask.method != Method::DELETE {
            request = request.header("content-length", ask.body.len()).body(ask.body.clone());
        }
        let failed = |source: reqwest::Error| S3Error::Connection {
            url: format!("{scheme}://{host}{path}"),
            source: source.without_url(),
        };
        let answer = request.send().await.map_err(failed)?;
        if answer.status().is_success() {
            return Ok((url, answer));
        }
        let status = answer.status();
        let body = text(&url, answer).await.unwrap_or_default();
        let usual = || (status.canonical_reason().unwrap_or_default().to_owned(), String::new());
        let (code, message) = xml::error(&body).unwrap_or_else(usual);
        let (method, url) = (ask.method.clone(), format!("{scheme}://{host}{path}"));
        Err(S3Error::Refused { method, url, status: status.as_u16(), code, message })
    }

    /// All objects whose keys begin with the path of a place, in order.
    pub async fn list(&self, place: &S3Location) -> Result<Vec<Object>, S3Error> {
        let mut found = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut query = vec![("list-type", "2"), ("prefix", place.path.as_str())];
            query.extend(next.as_deref().map(|next| ("continuation-token", next)));
            let ask = Ask {
                method: Method::GET,
                bucket: &place.bucket,
                key: "",
                query: &query,
                body: Bytes::new(),
            };
            let (url, answer) = self.send(&ask).await?;
            let page = xml::page(&text(&url, answer).await?);
            let page = page.ok_or(S3Error::Answer { url, what: "it is no listing" })?;
            found.extend(page.objects.into_iter().map(|one| Object {
                location: S3Location { bucket: place.bucket.clone(), path: one.key },
                size: one.size,
                modified: one.modified,
            }));
            if found.len() > MAX_OBJECTS {
                return Err(S3Error::TooMany(MAX_OBJECTS));
            }
            match page.next {
                Some(token) => next = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// Copies an object into a file.
    pub async fn get(&self, object: &S3Location, file: &mut std::fs::File) -> Result<u64, S3Error> {
        let ask = Ask {
            method: Method::GET,
            bucket: &object.bucket,
            key: &object.path,
            query: &[],
            body: Bytes::new(),
        };
        let (url, mut answer) = self.send(&ask).await?;
        let mut size = 0;
        let failed =
            |source: reqwest::Error| S3Error::Connection { url: url.clone(), source: source.without_url() };
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            size += piece.len() as u64;
            file.write_all(&piece).map_err(S3Error::Source)?;
        }
        Ok(size)
    }

    /// The first bytes of an object, at most `limit`. The rest is not read.
    pub async fn beginning(&self, object: &S3Location, limit: u64) -> Result<Vec<u8>, S3Error> {
        let ask = Ask {
            method: Method::GET,
            bucket: &object.bucket,
            key: &object.path,
            query: &[],
            body: Bytes::new(),
        };
        let (url, mut answer) = self.send(&ask).await?;
        let failed =
            |source: reqwest::Error| S3Error::Connection { url: url.clone(), source: source.without_url() };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < limit
            && let Some(piece) = answer.chunk().await.map_err(failed)?
        {
            bytes.extend_from_slice(&piece);
        }
        bytes.truncate(limit as usize);
        Ok(bytes)
    }

    /// Deletes an object.
    pub async fn delete(&self, object: &S3Location) -> Result<(), S3Error> {
        let ask = Ask {
            method: Method::DELETE,
            bucket: &object.bucket,
            key: &object.path,
            query: &[],
            body: Bytes::new(),
        };
        self.send(&ask).await.map(drop)
    }
}

/// The body of an answer, of limited size.
pub(super) async fn text(url: &str, mut answer: reqwest::Response) -> Result<String, S3Error> {
    let wrong = |what| S3Error::Answer { url: url.to_owned(), what };
    let failed =
        |source: reqwest::Error| S3Error::Connection { url: url.to_owned(), source: source.without_url() };
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(failed)? {
        body.extend_from_slice(&piece);
        if body.len() > MAX_ANSWER {
            return Err(wrong("it is too long"));
        }
    }
    String::from_utf8(body).map_err(|_| wrong("it is not text"))
}

/// HTTP/1.1 to the endpoint alone: signatures name the host, so there are no redirects.
fn http_client(ca: Option<&Path>) -> Result<reqwest::Client, S3Error> {
    let mut roots = rustls::RootCertStore::empty();
    match ca {
        Some(path) => {
            let pem = std::fs::read(path).map_err(|error| S3Error::File(path.into(), error))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| S3Error::Certificates(error.into()))?;
                roots.add(certificate).map_err(|error| S3Error::Certificates(error.into()))?;
            }
        }
        None => {
            let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| S3Error::Certificates(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(20))
        .read_timeout(Duration::from_secs(60))
        .build()
        .map_err(|error| S3Error::Certificates(error.into()))
}
