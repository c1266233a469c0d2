//! Authentication and authorization of the node API: client certificates or bearer tokens (TokenReview), then
//! SubjectAccessReview; results are cached for seconds. `/healthz` is open to anyone.

use coracle_cli::causes;
use http::header::AUTHORIZATION;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::response::{ApiResponse, text};
use super::review_limit::{ReviewLimiter, is_token};

const MASTERS: &str = "system:masters";
/// Cache lifetime of valid tokens, of allowed and of denied requests.
const TOKEN_TTL: Duration = Duration::from_secs(30);
const ALLOWED_TTL: Duration = Duration::from_secs(30);
const DENIED_TTL: Duration = Duration::from_secs(5);
/// Cache lifetime of invalid tokens.
const UNKNOWN_TOKEN_TTL: Duration = Duration::from_secs(10);
/// How long a health check waits for authentication.
const HEALTH_AUTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of entries per cache.
const CACHE_SIZE: usize = 1024;

/// The client of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Peer {
    /// User name; none if not authenticated.
    pub user: Option<String>,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Extra attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
    /// Expiry of the certificate, in seconds since 1970.
    pub until: Option<i64>,
}

impl Peer {
    /// Subject of a verified certificate.
    pub(super) fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let user = subject.iter_common_name().next().and_then(|name| name.as_str().ok()).map(str::to_owned);
        let groups = subject.iter_organization().filter_map(|name| name.as_str().ok());
        let mut groups: Vec<String> = groups.map(str::to_owned).collect();
        groups.push("system:authenticated".into());
        let until = Some(certificate.validity().not_after.timestamp());
        Some(Self { user, groups, until, ..Self::default() })
    }

    fn holds(&self) -> bool {
        self.until.is_none_or(|until| until > jiff::Timestamp::now().as_second())
    }
}

/// Cache with expiry.
struct ReviewCache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for ReviewCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> ReviewCache<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock();
        known.get(key).filter(|(until, _)| *until > Instant::now()).map(|(_, value)| value.clone())
    }

    fn insert(&self, key: K, value: V, life: Duration) {
        let mut known = self.0.lock();
        let now = Instant::now();
        if known.len() >= CACHE_SIZE {
            known.retain(|_, (until, _)| *until > now);
        }
        if known.len() < CACHE_SIZE {
            known.insert(key, (now + life, value));
        }
    }
}

/// Verb and subresource of the node.
type Permission = (&'static str, &'static str);

fn required_permissions(method: &Method, path: &str) -> Vec<Permission> {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    };
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    // These run something or open a connection: they need `create`, even if a WebSocket starts with GET.
    let verb = match first {
        "exec" | "attach" | "portForward" | "run" | "dial" if verb == "get" => "create",
        _ => verb,
    };
    let subresources: &[&str] = match first {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "configz" => &["configz", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "pods" | "runningpods" => &["pods", "proxy"],
        _ => &["proxy"],
    };
    subresources.iter().map(|sub| (verb, *sub)).collect()
}

/// Why a request is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The client is authenticated and authorized.
    Authorized,
    /// Open to anyone; the response must not contain details.
    Public,
}

/// Authenticates and authorizes requests.
#[derive(Default)]
pub struct NodeAuth {
    client: Option<kube::Client>,
    node: String,
    tokens: ReviewCache<[u8; 32], Peer>,
    /// Invalid tokens, in a cache of their own so that they cannot evict valid ones.
    unknown: ReviewCache<[u8; 32], ()>,
    review_limit: ReviewLimiter,
    decisions: ReviewCache<(Peer, Permission), bool>,
}

impl NodeAuth {
    /// Uses TokenReview and SubjectAccessReview of the API server.
    pub fn new(client: kube::Client, node: &str) -> Self {
        Self { client: Some(client), node: node.into(), ..Self::default() }
    }

    /// Admits a request, or returns the error response; `source` is the remote address.
    pub async fn authorize<B>(
        &self,
        peer: &Peer,
        source: Option<IpAddr>,
        request: &Request<B>,
    ) -> Result<Admission, ApiResponse> {
        if request.uri().path() != "/healthz" {
            return self.check(peer, source, request).await.map(|()| Admission::Authorized);
        }
        // Health must be available even if the API server does not respond.
        let checked = tokio::time::timeout(HEALTH_AUTH_TIMEOUT, self.check(peer, source, request)).await;
        Ok(if matches!(checked, Ok(Ok(()))) { Admission::Authorized } else { Admission::Public })
    }

    async fn check<B>(
        &self,
        peer: &Peer,
        source: Option<IpAddr>,
        request: &Request<B>,
    ) -> Result<(), ApiResponse> {
        let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer =
            bearer.and_then(|value| value.strip_prefix("Bearer ")).map(|token| token.trim().to_owned());
        let peer = match (&peer.user, bearer) {
            (Some(_), _) if peer.holds() => peer.clone(),
            (_, Some(token)) => self.owner(&token, source).await?,
            _ => return Err(text(StatusCode::UNAUTHORIZED, "Unauthorized")),
        };
        if peer.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let permissions = required_permissions(request.method(), request.uri().path());
        for one in &permissions {
            if self.may(&peer, *one).await? {
                return Ok(());
            }
        }
        let subresources: Vec<&str> = permissions.iter().map(|(_, sub)| *sub).collect();
        Err(text(
            StatusCode::FORBIDDEN,
            format!(
                "Forbidden (user={}, verb={}, resource=nodes, subresource(s)=[{}])",
                peer.user.unwrap_or_default(),
                permissions.first().map_or("get", |(verb, _)| verb),
                subresources.join(" ")
            ),
        ))
    }

    /// User of a token.
    async fn owner(&self, token: &str, source: Option<IpAddr>) -> Result<Peer, ApiResponse> {
        let unauthorized = || text(StatusCode::UNAUTHORIZED, "Unauthorized");
        if !is_token(token) {
            return Err(unauthorized());
        }
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(known);
        }
        if self.unknown.get(&key).is_some() {
            return Err(unauthorized());
        }
        let Some(_turn) = self.review_limit.acquire(source).await else {
            return Err(text(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many unknown tokens, please try again later",
            ));
        };
        let client = self.client.clone().ok_or_else(unauthorized)?;
        let api: Api<TokenReview> = Api::all(client);
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(error = %causes::chain(&error), "token review failed");
            unauthorized()
        })?;
        let status = answer.status.filter(|status| status.authenticated == Some(true));
        let Some(user) = status.and_then(|status| status.user) else {
            self.unknown.insert(key, (), UNKNOWN_TOKEN_TTL);
            return Err(unauthorized());
        };
        let peer = Peer {
            user: user.username,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
            until: None,
        };
        self.tokens.insert(key, peer.clone(), TOKEN_TTL);
        Ok(peer)
    }

    async fn may(&self, peer: &Peer, (verb, subresource): Permission) -> Result<bool, ApiResponse> {
        let key = (peer.clone(), (verb, subresource));
        if let Some(known) = self.decisions.get(&key) {
            return Ok(known);
        }
        let Some(client) = self.client.clone() else { return Ok(false) };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: peer.user.clone(),
                groups: Some(peer.groups.clone()),
                extra: Some(peer.extra.clone()).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.into()),
                    resource: Some("nodes".into()),
                    subresource: Some(subresource.into()),
                    name: Some(self.node.clone()),
                    version: Some("v1".into()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(client);
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(error = %causes::chain(&error), "access review failed");
            // Nothing is readable without a yes.
            text(StatusCode::INTERNAL_SERVER_ERROR, "Authorization error")
        })?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.decisions.insert(key, allowed, if allowed { ALLOWED_TTL } else { DENIED_TTL });
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn without_an_api_server_only_masters_get_in() {
        let certificate = {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::OrganizationName, MASTERS);
            params.distinguished_name.push(rcgen::DnType::CommonName, "server");
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
        };
        let server = Peer::from_der(certificate.der()).unwrap();
        assert_eq!(server.user.as_deref(), Some("server"));
        let (access, nobody) = (NodeAuth::default(), Peer::default());
        let someone = Peer { user: Some("someone".into()), groups: vec!["people".into()], ..Peer::default() };
        let past = Peer { until: Some(1), ..server.clone() };
        let status = async |peer: &Peer, path: &str, token: &str| {
            let request = Request::get(path).header("authorization", token).body(()).unwrap();
            access
                .authorize(peer, None, &request)
                .await
                .map_or_else(|answer| answer.status().as_u16(), |_| 200)
        };
        assert_eq!(status(&server, "/pods", "").await, 200);
        assert_eq!(status(&someone, "/pods", "").await, 403);
        assert_eq!(status(&nobody, "/pods", "").await, 401);
        assert_eq!(status(&nobody, "/pods", "Bearer x").await, 401);
        assert_eq!(status(&past, "/pods", "").await, 401, "its certificate ended");
        assert_eq!(status(&nobody, "/healthz", "").await, 200);
        for (peer, admission) in [
            (&server, Admission::Authorized),
            (&someone, Admission::Public),
            (&past, Admission::Public),
            (&nobody, Admission::Public),
        ] {
            let request = Request::get("/healthz?verbose").body(()).unwrap();
            assert_eq!(access.authorize(peer, None, &request).await.unwrap(), admission, "{peer:?}");
        }
    }

    #[test]
    fn paths_are_subresources_of_the_node() {
        let cases = [
            (Method::GET, "/stats/summary", vec![("get", "stats")]),
            (Method::GET, "/metrics/cadvisor", vec![("get", "metrics")]),
            (Method::POST, "/exec/ns/pod/c", vec![("create", "proxy")]),
            (Method::GET, "/exec/ns/pod/c", vec![("create", "proxy")]),
            (Method::GET, "//exec/ns/pod/c", vec![("create", "proxy")]),
            (Method::GET, "/attach/ns/pod/uid/c", vec![("create", "proxy")]),
            (Method::GET, "/portForward/ns/pod", vec![("create", "proxy")]),
            (Method::GET, "/dial/192.0.2.1:80", vec![("create", "proxy")]),
            (Method::DELETE, "/volumes/v", vec![("delete", "proxy")]),
            (Method::GET, "/pods", vec![("get", "pods"), ("get", "proxy")]),
            (Method::GET, "/containerLogs/ns/p/c", vec![("get", "proxy")]),
        ];
        for (method, path, expected) in cases {
            assert_eq!(required_permissions(&method, path), expected, "{path}");
        }
    }
}
