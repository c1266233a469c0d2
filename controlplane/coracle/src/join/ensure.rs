//! Joins once: a server that has keys has joined, or is a first server.

use super::client;
use super::error::JoinError;
use super::keys::{has_keys, pki_dir};
use super::options::{JoinOptions, TokenSource};
use super::wire::Joined;
use crate::config::Config;
use coracle_pki::authority::Authority;
use coracle_pki::cluster_keys::{ClusterKeysError, install};
use coracle_pki::server_token::ServerToken;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// How this server joined, beside its keys.
const JOINED: &str = "joined.json";
/// More is no token, no CA and no record.
const MAX_FILE: u64 = 64 << 10;

/// Joins the cluster that the options name, unless this server has its keys already. After an error nothing has changed.
pub async fn ensure(config: &Config) -> Result<(), JoinError> {
    let Some(options) = &config.join else { return Ok(()) };
    let pki = pki_dir(&config.data_dir);
    if has_keys(&pki) {
        return check_cluster(options, &pki);
    }
    if std::fs::read_dir(&pki).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(ClusterKeysError::NotEmpty(pki).into());
    }
    let server = options.server.to_string();
    let token = token(options)?.ok_or_else(|| match &options.token {
        Some(TokenSource::File(path)) => {
            JoinError::File { path: path.clone(), source: ErrorKind::NotFound.into() }
        }
        _ => JoinError::NoToken(server.clone()),
    })?;
    let found = client::fetch(options, &token, &config.datastore).await?;
    let ca_hash = token.ca_hash().to_owned();
    let joined = Joined { server: server.clone(), datastore: found.datastore, ca_hash };
    let path = pki.join(JOINED);
    let record = serde_json::to_vec(&joined).map_err(|source| JoinError::Record { path, source })?;
    let dir = pki.clone();
    let written = move || install(&dir, &found.keys, &found.sealing, (JOINED, &record));
    tokio::task::spawn_blocking(written).await??;
    tracing::info!(server, ca = token.ca_hash(), "joined the cluster");
    Ok(())
}

/// How the server of a data directory joined; `None` if it did not.
pub fn joined(data_dir: &Path) -> Result<Option<Joined>, JoinError> {
    record(&pki_dir(data_dir))
}

fn record(pki: &Path) -> Result<Option<Joined>, JoinError> {
    let path = pki.join(JOINED);
    let Some(text) = read(&path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|source| JoinError::Record { path, source })
}

/// Fails if the keys that are there are of another cluster than the token. A token that is gone, as files of tokens may be, says
/// nothing.
fn check_cluster(options: &JoinOptions, pki: &Path) -> Result<(), JoinError> {
    let Some(token) = token(options)? else { return Ok(()) };
    let own = Authority::hashes_of(&read(&pki.join("ca.crt"))?.unwrap_or_default());
    if own.iter().any(|hash| hash == token.ca_hash()) {
        return Ok(());
    }
    // The CA was rotated since this server joined with the token.
    if record(pki)?.is_some_and(|joined| joined.ca_hash == token.ca_hash()) {
        return Ok(());
    }
    let own = own.into_iter().next().unwrap_or_else(|| "not readable".to_owned());
    Err(JoinError::OtherCluster { dir: pki.into(), own, wanted: token.ca_hash().to_owned() })
}

fn token(options: &JoinOptions) -> Result<Option<ServerToken>, JoinError> {
    let text = match &options.token {
        None => None,
        Some(TokenSource::Text(text)) => Some(text.clone()),
        Some(TokenSource::File(path)) => read(path)?,
    };
    text.map(|text| ServerToken::parse(&text)).transpose().map_err(JoinError::Token)
}

/// The text of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, JoinError> {
    let failed = |source| JoinError::File { path: path.into(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(JoinError::FileSize(path.into()));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::wire::JoinedDatastore;
    use super::*;
    use std::time::Duration;

    #[test]
    fn keys_of_another_cluster_are_named() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = Authority::ensure(dir.path(), "ca", "coracle-ca").unwrap();
        let foreign = Authority::ensure(other.path(), "ca", "coracle-ca").unwrap();
        let options = |token: Option<TokenSource>| JoinOptions {
            server: "https://127.0.0.1:1".parse().unwrap(),
            token,
            timeout: Duration::ZERO,
        };
        let text = |hash: &str| TokenSource::Text(ServerToken::generate(hash).unwrap().text());
        let check = |token| check_cluster(&options(token), dir.path());
        check(None).unwrap();
        check(Some(text(&own.hash()))).unwrap();
        check(Some(TokenSource::File("/nonexistent/token".into()))).unwrap();
        let refused = check(Some(text(&foreign.hash()))).unwrap_err();
        assert!(matches!(&refused, JoinError::OtherCluster { wanted, .. } if *wanted == foreign.hash()));
        assert!(refused.to_string().contains(&own.hash()), "{refused}");
        // The CA was rotated since this server joined.
        let datastore = JoinedDatastore::Managed { members: Vec::new() };
        let record = Joined { server: "https://127.0.0.1:1".into(), datastore, ca_hash: foreign.hash() };
        std::fs::write(dir.path().join(JOINED), serde_json::to_vec(&record).unwrap()).unwrap();
        check(Some(text(&foreign.hash()))).unwrap();
        std::fs::remove_file(dir.path().join(JOINED)).unwrap();
        // While the CA is rotated, the older token is one of this cluster, too.
        let both = format!("{}{}", own.certificate, foreign.certificate);
        std::fs::write(dir.path().join("ca.crt"), both).unwrap();
        check(Some(text(&foreign.hash()))).unwrap();
        assert!(matches!(check(Some(TokenSource::Text("x".into()))), Err(JoinError::Token(_))));
    }
}
