//! A client of S3 and of what speaks like it: puts, lists, gets and deletes objects, large ones in parts.

// Endpoint, region, credentials.
mod options;
// Signatures, version 4.
mod sign;
// Requests and answers.
mod client;
// Answers in XML.
mod xml;
// Uploads.
mod upload;
#[cfg(test)]
mod tests;

pub use client::{Object, S3};
pub use options::{Addressing, Credentials, S3Options};

use std::path::PathBuf;
use std::str::FromStr;

/// A place in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Location {
    /// The bucket.
    pub bucket: String,
    /// A key, or what keys begin with; without a slash at the beginning.
    pub path: String,
}

impl FromStr for S3Location {
    type Err = S3Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || S3Error::Location(text.to_owned());
        let rest = text.strip_prefix("s3://").ok_or_else(wrong)?;
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let usual =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(usual) || path.len() > 900 {
            return Err(wrong());
        }
        if path.split('/').any(|part| part == "." || part == "..") {
            return Err(wrong());
        }
        Ok(Self { bucket: bucket.to_owned(), path: path.trim_start_matches('/').to_owned() })
    }
}

impl std::fmt::Display for S3Location {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "s3://{}/{}", self.bucket, self.path)
    }
}

/// Why S3 cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum S3Error {
    /// The text is no place.
    #[error("{0:?} is no place in S3: want s3://bucket/prefix")]
    Location(String),
    /// The endpoint is no URL.
    #[error("the endpoint {0:?} of S3 is no URL: want https://host[:port]")]
    Endpoint(String),
    /// There are no credentials.
    #[error(
        "there are no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file"
    )]
    NoCredentials,
    /// A file has no credentials.
    #[error("{0} has no aws_access_key_id and aws_secret_access_key")]
    CredentialsFile(PathBuf),
    /// A file cannot be read.
    #[error("{0}")]
    File(PathBuf, #[source] std::io::Error),
    /// The certificates to be trusted cannot be used.
    #[error("the certificates for S3 cannot be used")]
    Certificates(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is no connection, or it broke.
    #[error("{url}")]
    Connection {
        /// Where to.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// S3 refused.
    #[error("{method} {url}: {status} {code}: {message}")]
    Refused {
        /// The method.
        method: http::Method,
        /// Where.
        url: String,
        /// The status.
        status: u16,
        /// The code of S3, such as `AccessDenied`.
        code: String,
        /// What S3 says.
        message: String,
    },
    /// The answer is not what it should be.
    #[error("{url}: the answer cannot be read: {what}")]
    Answer {
        /// Where.
        url: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The place has more objects than are listed.
    #[error("there are more than {0} objects")]
    TooMany(usize),
    /// What is to be uploaded cannot be read.
    #[error("the backup cannot be read")]
    Source(#[source] std::io::Error),
    /// The object is too large for the upload.
    #[error("{0} bytes are too many for an object of S3")]
    TooLarge(u64),
}
