//! Errors of the registry client.

use std::{str::FromStr, time::Duration};

use coracle_cli::causes;
use reqwest::{StatusCode, Url};

use super::RESPONSE_TIMEOUT;

/// Reasons of [`Error::Registry`](crate::image::Error::Registry).
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The request failed.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// The response took too long.
    #[error("the registry's answer takes longer than {RESPONSE_TIMEOUT:?}")]
    Slow,
    /// The download is too slow.
    #[error("less than {bytes} bytes in {period:?}")]
    Stalled {
        /// What should have come.
        bytes: u64,
        /// In this time.
        period: Duration,
    },
    /// An answer that is an error.
    #[error("{url}: {status}: {words}")]
    Status {
        /// Without its query.
        url: String,
        /// Of the answer.
        status: StatusCode,
        /// The registry's error message.
        words: String,
    },
    /// The registry and all mirrors failed.
    #[error("{}; its mirrors: {}", causes::chain(registry), mirrors.join("; "))]
    WithMirrors {
        /// The registry's own.
        registry: Box<RegistryError>,
        /// What went wrong at each mirror.
        mirrors: Vec<String>,
    },
}

/// Reasons of [`Error::Unauthorized`](crate::image::Error::Unauthorized).
#[derive(Debug, thiserror::Error)]
pub enum DeniedError {
    /// The registry names a token server that is no URL.
    #[error("the token server {realm:?}")]
    TokenServer {
        /// As the registry names it.
        realm: String,
        /// What is wrong with it.
        #[source]
        source: <Url as FromStr>::Err,
    },
    /// The token server does not use TLS.
    #[error("the token server {url} is not asked without TLS")]
    NoTls {
        /// Of the token server.
        url: String,
    },
    /// The token server refuses.
    #[error("{words}")]
    Refused {
        /// Its error message.
        words: String,
    },
    /// The token server answers with something else.
    #[error("the token server gave no token")]
    NoToken,
    /// The registry refuses.
    #[error("authorization failed for {url}: {words}")]
    Forbidden {
        /// Without its query.
        url: String,
        /// The registry's error message.
        words: String,
    },
}
