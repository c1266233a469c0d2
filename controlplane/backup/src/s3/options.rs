//! Endpoint, region and credentials, from options and the variables that other programs for S3 use.

use super::S3Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where the name of the bucket is in a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Addressing {
    /// `https://endpoint/bucket/key`.
    Path,
    /// `https://bucket.endpoint/key`.
    Virtual,
}

/// How S3 is reached. What is not set comes from the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Options {
    /// `https://host[:port]`; `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, then that of Amazon.
    pub endpoint: Option<String>,
    /// `AWS_REGION` or `AWS_DEFAULT_REGION`, then `us-east-1`.
    pub region: Option<String>,
    /// In the path if there is an endpoint, otherwise in the host.
    pub addressing: Option<Addressing>,
    /// File with credentials, as in `~/.aws/credentials`.
    pub credentials_file: Option<PathBuf>,
    /// Certificates of the endpoint's CA; `AWS_CA_BUNDLE`, then those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
    /// The session token of temporary credentials.
    pub token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Credentials({})", self.access_key)
    }
}

/// The options in force.
pub(super) struct Resolved {
    pub(super) endpoint: String,
    pub(super) region: String,
    pub(super) addressing: Addressing,
    pub(super) credentials: Credentials,
    pub(super) ca_file: Option<PathBuf>,
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl S3Options {
    pub(super) fn resolve(&self, variable: Variables<'_>) -> Result<Resolved, S3Error> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let region = self.region.clone().or_else(|| set("AWS_REGION")).or_else(|| set("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = self.endpoint.clone();
        let endpoint = endpoint.or_else(|| set("AWS_ENDPOINT_URL_S3")).or_else(|| set("AWS_ENDPOINT_URL"));
        let usual = if endpoint.is_some() { Addressing::Path } else { Addressing::Virtual };
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
        let authority = host.map(str::parse::<http::uri::Authority>);
        if !matches!(&authority, Some(Ok(authority)) if !authority.as_str().contains('@')) {
            return Err(S3Error::Endpoint(endpoint));
        }
        Ok(Resolved {
            endpoint,
            region,
            addressing: self.addressing.unwrap_or(usual),
            credentials: self.credentials(&set)?,
            ca_file: self.ca_file.clone().or_else(|| set("AWS_CA_BUNDLE").map(PathBuf::from)),
        })
    }

    fn credentials(&self, set: Variables<'_>) -> Result<Credentials, S3Error> {
        if let Some(path) = &self.credentials_file {
            return of_file(path);
        }
        match (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) {
            (Some(access_key), Some(secret_key)) => {
                Ok(Credentials { access_key, secret_key, token: set("AWS_SESSION_TOKEN") })
            }
            _ => Err(S3Error::NoCredentials),
        }
    }
}

/// The first credentials of a file in the form of `~/.aws/credentials`.
fn of_file(path: &Path) -> Result<Credentials, S3Error> {
    let text = std::fs::read_to_string(path).map_err(|error| S3Error::File(path.into(), error))?;
    let value = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once('='));
        let found = fields.find(|(key, _)| key.trim() == name);
        found.map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let keys = value("aws_access_key_id").zip(value("aws_secret_access_key"));
    let (access_key, secret_key) = keys.ok_or_else(|| S3Error::CredentialsFile(path.into()))?;
    Ok(Credentials { access_key, secret_key, token: value("aws_session_token") })
}
