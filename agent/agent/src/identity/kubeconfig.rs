//! The kubeconfig of the node: the cluster and the user of its current context.

use super::IdentityError;
use base64::Engine as _;
use coracle_cli::kubeconfig::{ContextError, check_context};
use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};
use std::path::{Path, PathBuf};

/// A kubeconfig, and what its current context names.
#[derive(Debug, Clone)]
pub struct Selected {
    /// All of it.
    pub file: Kubeconfig,
    cluster: Cluster,
    user: AuthInfo,
}

impl Selected {
    /// Reads a kubeconfig. A context that names a cluster or user which is not there is an error.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        Self::new(Kubeconfig::read_from(path)?)
    }

    fn new(file: Kubeconfig) -> Result<Self, IdentityError> {
        let name = file.current_context.as_ref().ok_or(KubeconfigError::CurrentContextNotSet)?;
        let context = file.contexts.iter().find(|context| context.name == *name);
        let context = context.and_then(|context| context.context.as_ref());
        let context = context.ok_or_else(|| ContextError::NoContext(name.clone()))?;
        let (cluster_name, user) = (context.cluster.as_str(), context.user.as_deref().unwrap_or_default());
        let clusters = file.clusters.iter().map(|cluster| cluster.name.as_str());
        let users = file.auth_infos.iter().map(|user| user.name.as_str());
        check_context(name, (cluster_name, clusters), (user, users))?;
        let cluster = file.clusters.iter().find(|entry| entry.name == cluster_name);
        let user = file.auth_infos.iter().find(|entry| entry.name == user);
        let cluster = cluster.and_then(|entry| entry.cluster.clone()).unwrap_or_default();
        let user = user.and_then(|entry| entry.auth_info.clone()).unwrap_or_default();
        let server = cluster.server.clone().unwrap_or_default();
        if !is_url(&server) {
            return Err(IdentityError::Address { cluster: cluster_name.to_owned(), server });
        }
        Ok(Self { file, cluster, user })
    }

    /// URL of the server.
    pub fn server(&self) -> Option<&str> {
        self.cluster.server.as_deref()
    }

    /// The CA certificates of the cluster, PEM.
    pub fn authority(&self) -> Option<Vec<u8>> {
        match (&self.cluster.certificate_authority_data, &self.cluster.certificate_authority) {
            (Some(data), _) => base64::engine::general_purpose::STANDARD.decode(data).ok(),
            (None, Some(path)) => std::fs::read(path).ok(),
            (None, None) => None,
        }
    }

    /// The field that the CA certificates come from, or the file that it names.
    pub fn authority_source(&self) -> String {
        match (&self.cluster.certificate_authority_data, &self.cluster.certificate_authority) {
            (None, Some(path)) => path.clone(),
            _ => "certificate-authority-data".to_owned(),
        }
    }

    /// The file with the CA certificates of the cluster, if the kubeconfig names one.
    pub fn authority_file(&self) -> Option<PathBuf> {
        let file = self.cluster.certificate_authority.as_ref();
        file.filter(|_| self.cluster.certificate_authority_data.is_none()).map(PathBuf::from)
    }

    /// The file with the client certificate and key, when both are in one file that can be replaced.
    pub fn renewable(&self) -> Option<PathBuf> {
        let (certificate, key) = (self.user.client_certificate.as_ref()?, self.user.client_key.as_ref()?);
        (certificate == key).then(|| PathBuf::from(certificate))
    }
}

/// Whether a text is the address of an API server.
fn is_url(server: &str) -> bool {
    server
        .parse::<http::Uri>()
        .is_ok_and(|url| url.authority().is_some() && matches!(url.scheme_str(), Some("https" | "http")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn selected(context: &str) -> Result<Selected, String> {
        let text = format!(
            "{{clusters: [{{name: other, cluster: {{server: 'https://other'}}}}, {{name: e, cluster: {{server: nonsense}}}},
               {{name: c, cluster: {{server: 'https://c', certificate-authority: /ca.crt}}}}],
             users: [{{name: other, user: {{}}}}, {{name: u, user: {{client-certificate: /u.pem, client-key: /u.pem}}}}],
             contexts: [{{name: x, context: {{{context}}}}}], current-context: x}}"
        );
        Selected::new(Kubeconfig::from_yaml(&text).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_current_context_decides() {
        let found = selected("cluster: c, user: u").unwrap();
        assert_eq!(found.server(), Some("https://c"));
        assert_eq!(found.authority_file(), Some("/ca.crt".into()));
        assert_eq!(found.renewable(), Some("/u.pem".into()));
        assert_eq!(selected("cluster: other").unwrap().renewable(), None);
        let refused = |context: &str| selected(context).unwrap_err();
        assert_eq!(refused("cluster: c, user: v"), "user \"v\" was not found for context \"x\"");
        assert_eq!(refused("cluster: d, user: u"), "cluster \"d\" was not found for context \"x\"");
        let why = "cluster \"e\": server \"nonsense\" is not a URL such as https://10.0.0.1:6443";
        assert_eq!(refused("cluster: e, user: u"), why);
        assert!(!is_url("") && !is_url("/a") && !is_url("ftp://c") && is_url("http://[::1]:8080/prefix"));
    }
}
