//! Who may ask the node's API: the seam for authentication and authorization.
//!
//! A client certificate of the cluster's authority in the group `system:masters` may do everything (the API server's own is
//! one); anyone may ask whether the node is healthy.

use http::{Request, StatusCode};
use rustls::ServerConnection;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::answer::{Answer, text};

const MASTERS: &str = "system:masters";

/// Who is at the other end of a connection, by a certificate that was verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// The certificate's common name; none without a certificate.
    pub user: Option<String>,
    /// Its organizations.
    pub groups: Vec<String>,
}

impl Peer {
    /// Who shook hands.
    pub fn of(connection: &ServerConnection) -> Self {
        let certificate = connection.peer_certificates().and_then(|chain| chain.first());
        certificate.and_then(|der| Self::from_der(der)).unwrap_or_default()
    }

    fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let user = subject.iter_common_name().next().and_then(|name| name.as_str().ok()).map(str::to_owned);
        let groups = subject.iter_organization().filter_map(|name| name.as_str().ok());
        Some(Self { user, groups: groups.map(str::to_owned).collect() })
    }
}

/// Decides on requests.
#[derive(Debug, Default)]
pub struct Access {}

impl Access {
    /// Lets a request through, or gives the answer that refuses it.
    pub async fn authorize<B>(&self, peer: &Peer, request: &Request<B>) -> Result<(), Answer> {
        if request.uri().path() == "/healthz" || peer.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let Some(user) = &peer.user else { return Err(text(StatusCode::UNAUTHORIZED, "Unauthorized")) };
        let verb = request.method().as_str().to_ascii_lowercase();
        Err(text(
            StatusCode::FORBIDDEN,
            format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[proxy])"),
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn only_masters_get_in() {
        let certificate = {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::OrganizationName, MASTERS);
            params.distinguished_name.push(rcgen::DnType::CommonName, "server");
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
        };
        let server = Peer::from_der(certificate.der()).unwrap();
        assert_eq!(
            (server.user.as_deref(), server.groups.as_slice()),
            (Some("server"), &[MASTERS.to_owned()][..])
        );
        let (access, nobody) = (Access::default(), Peer::default());
        let someone = Peer { user: Some("someone".into()), groups: vec!["people".into()] };
        let status = async |peer: &Peer, path: &str| {
            let request = Request::get(path).body(()).unwrap();
            access.authorize(peer, &request).await.map_or_else(|answer| answer.status().as_u16(), |()| 200)
        };
        assert_eq!(status(&server, "/pods").await, 200);
        assert_eq!(status(&someone, "/pods").await, 403);
        assert_eq!(status(&nobody, "/pods").await, 401);
        assert_eq!(status(&nobody, "/healthz").await, 200);
    }
}
