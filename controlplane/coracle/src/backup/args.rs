//! Options that several commands have: keys of encryption, S3, the form of the output.

use crate::output::Output;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use coracle_backup::age::{Identity, Passphrase, Recipient, identities};
use coracle_backup::s3::{Addressing, S3Options};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The form of the output.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct OutputArgs {
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl OutputArgs {
    /// Prints one of both.
    pub(super) fn print(self, text: &str, answer: &serde_json::Value) -> anyhow::Result<()> {
        Ok(self.output.print(answer, || text.to_owned())?)
    }
}

/// Who can decrypt a backup.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct RecipientArgs {
    /// Encrypt for this recipient of age (age1…); may be repeated.
    #[arg(long)]
    recipient: Vec<String>,
    /// Encrypt with the passphrase in the first line of this file.
    #[arg(long, conflicts_with = "recipient")]
    passphrase_file: Option<PathBuf>,
}

/// What decrypts a backup.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct IdentityArgs {
    /// File with identities of age (AGE-SECRET-KEY-1…), as age-keygen writes it.
    #[arg(long)]
    identity: Option<PathBuf>,
    /// File with the passphrase in its first line.
    #[arg(long, conflicts_with = "identity")]
    passphrase_file: Option<PathBuf>,
}

fn passphrase(path: &Path) -> anyhow::Result<Passphrase> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("--passphrase-file {}", path.display()))?;
    let found = Passphrase::of_file(&text);
    found.with_context(|| format!("--passphrase-file {}: the first line is empty", path.display()))
}

/// Reads recipients as options name them.
pub(super) fn recipients(list: &[String]) -> Result<Vec<Recipient>, coracle_backup::age::AgeError> {
    list.iter().map(|one| one.parse()).collect()
}

impl RecipientArgs {
    pub(super) fn read(&self) -> anyhow::Result<Vec<Recipient>> {
        match &self.passphrase_file {
            Some(path) => Ok(vec![Recipient::Passphrase(passphrase(path)?)]),
            None => Ok(recipients(&self.recipient).context("--recipient")?),
        }
    }
}

impl IdentityArgs {
    pub(super) fn read(&self) -> anyhow::Result<Vec<Identity>> {
        if let Some(path) = &self.passphrase_file {
            return Ok(vec![Identity::Passphrase(passphrase(path)?)]);
        }
        let Some(path) = &self.identity else { return Ok(Vec::new()) };
        let context = || format!("--identity {}", path.display());
        let text = std::fs::read_to_string(path).with_context(context)?;
        identities(&text).with_context(context)
    }
}

/// How S3 is reached. Credentials come from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or from a file.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct S3Args {
    /// Endpoint of S3, https://host[:port]; AWS_ENDPOINT_URL_S3, or that of Amazon, by default.
    #[arg(long)]
    pub(super) s3_endpoint: Option<String>,
    /// Region of the bucket; AWS_REGION, or us-east-1, by default.
    #[arg(long)]
    pub(super) s3_region: Option<String>,
    /// Where the bucket is named: path (default with an endpoint) or virtual (host name).
    #[arg(long)]
    pub(super) s3_addressing: Option<AddressingArg>,
    /// File with credentials in the form of ~/.aws/credentials.
    #[arg(long)]
    pub(super) s3_credentials_file: Option<PathBuf>,
    /// CA certificates of the endpoint, PEM; AWS_CA_BUNDLE, or those of the system, by default.
    #[arg(long)]
    pub(super) s3_ca_file: Option<PathBuf>,
}

/// Where the bucket is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AddressingArg {
    /// In the path of the URL.
    Path,
    /// In the host name.
    Virtual,
}

impl S3Args {
    pub(super) fn has(key: &str) -> bool {
        matches!(key, "s3Endpoint" | "s3Region" | "s3Addressing" | "s3CredentialsFile" | "s3CaFile")
    }

    pub(super) fn over(self, file: Self) -> Self {
        Self {
            s3_endpoint: self.s3_endpoint.or(file.s3_endpoint),
            s3_region: self.s3_region.or(file.s3_region),
            s3_addressing: self.s3_addressing.or(file.s3_addressing),
            s3_credentials_file: self.s3_credentials_file.or(file.s3_credentials_file),
            s3_ca_file: self.s3_ca_file.or(file.s3_ca_file),
        }
    }

    pub(super) fn options(&self) -> S3Options {
        S3Options {
            endpoint: self.s3_endpoint.clone(),
            region: self.s3_region.clone(),
            addressing: self.s3_addressing.map(|given| match given {
                AddressingArg::Path => Addressing::Path,
                AddressingArg::Virtual => Addressing::Virtual,
            }),
            credentials_file: self.s3_credentials_file.clone(),
            ca_file: self.s3_ca_file.clone(),
        }
    }
}

/// A place for many backups, not a file.
pub(super) fn directory(text: &str) -> anyhow::Result<coracle_backup::target::Place> {
    let place: coracle_backup::target::Place = text.parse()?;
    if let coracle_backup::target::Place::Path(path) = &place
        && !path.is_dir()
    {
        bail!("{} is no directory", path.display());
    }
    Ok(place)
}
