//! The CA certificates that are published to pods. They change while the cluster CA is rotated.

use coracle_pki::authority::Authority;
use std::sync::Arc;
use tokio::sync::watch;

/// Where the certificates are from.
#[derive(Clone)]
pub enum RootCa {
    /// They do not change.
    Fixed(String),
    /// The cluster's authority, now and after every change.
    Live(watch::Receiver<Arc<Authority>>),
}

impl Default for RootCa {
    fn default() -> Self {
        Self::Fixed(String::new())
    }
}

impl From<&str> for RootCa {
    fn from(pem: &str) -> Self {
        Self::Fixed(pem.to_owned())
    }
}

impl RootCa {
    /// The certificates now, in PEM.
    pub fn pem(&self) -> String {
        match self {
            Self::Fixed(pem) => pem.clone(),
            Self::Live(authority) => authority.borrow().certificate.clone(),
        }
    }

    /// Calls a function after every change; does not return.
    pub async fn on_change(mut self, mut then: impl FnMut()) {
        if let Self::Live(authority) = &mut self {
            while authority.changed().await.is_ok() {
                then();
            }
        }
        std::future::pending().await
    }
}
