//! Options of a server that joins a cluster.

use clap::Args;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// How long to try, in seconds, unless options say so.
const TIMEOUT: u64 = 60;

/// How to join the servers of a cluster.
#[derive(Clone, Default, Args, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JoinArgs {
    /// URL of a server of the cluster to join, https://host:port. A server that has joined already does not join again.
    #[arg(long, value_name = "URL")]
    join: Option<String>,
    /// Token of `coracle token create --server`.
    #[arg(long, env = "CORACLE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// File with the token.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// How long to try to reach the server to join, in seconds; 60 by default.
    #[arg(long)]
    join_timeout: Option<u64>,
}

impl std::fmt::Debug for JoinArgs {
    /// Without the token.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("JoinArgs").field("join", &self.join).finish_non_exhaustive()
    }
}

/// Where a token is.
#[derive(Clone)]
pub enum TokenSource {
    /// In the options.
    Text(String),
    /// In a file.
    File(PathBuf),
}

impl std::fmt::Debug for TokenSource {
    /// Without the token.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => out.write_str("Text"),
            Self::File(path) => write!(out, "File({})", path.display()),
        }
    }
}

/// How to join, if this server is to join.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// A server of the cluster.
    pub server: http::Uri,
    /// Its token.
    pub token: Option<TokenSource>,
    /// How long to try.
    pub timeout: Duration,
}

/// Why the options make no sense.
#[derive(Debug, thiserror::Error)]
pub enum JoinOptionsError {
    /// The URL of the server.
    #[error("--join {0:?}: want https://host:port")]
    Url(String),
    /// Two tokens.
    #[error("--token (or CORACLE_TOKEN) and --token-file are both given")]
    TwoTokens,
}

impl JoinArgs {
    /// Whether an option of the file is one of these.
    pub fn has(key: &str) -> bool {
        matches!(key, "join" | "token" | "tokenFile" | "joinTimeout")
    }

    /// These options, with those of `file` for options that are not set. A token here replaces a token file there, and the
    /// other way round.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        let (token, token_file) = match (self.token, self.token_file) {
            (None, None) => (file.token, file.token_file),
            given => given,
        };
        Self {
            join: self.join.or(file.join),
            token,
            token_file,
            join_timeout: self.join_timeout.or(file.join_timeout),
        }
    }

    /// What they mean; `None` without `--join`. The environment may have a token for something else.
    pub fn resolve(self) -> Result<Option<JoinOptions>, JoinOptionsError> {
        let Some(url) = self.join.filter(|url| !url.is_empty()) else { return Ok(None) };
        let server = url.parse::<http::Uri>().ok().filter(|uri| {
            let plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
            uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty()) && plain
        });
        let server = server.ok_or(JoinOptionsError::Url(url))?;
        let token = match (self.token.filter(|token| !token.is_empty()), self.token_file) {
            (Some(_), Some(_)) => return Err(JoinOptionsError::TwoTokens),
            (Some(token), None) => Some(TokenSource::Text(token)),
            (None, file) => file.map(TokenSource::File),
        };
        let timeout = Duration::from_secs(self.join_timeout.unwrap_or(TIMEOUT));
        Ok(Some(JoinOptions { server, token, timeout }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn args(join: &str) -> JoinArgs {
        JoinArgs { join: Some(join.to_owned()), ..JoinArgs::default() }
    }

    #[test]
    fn a_token_alone_joins_nothing() {
        let token = JoinArgs { token: Some("x".into()), ..JoinArgs::default() };
        assert!(token.clone().resolve().unwrap().is_none());
        let both = JoinArgs { token_file: Some("/t".into()), ..token }.over(args("https://a:6443"));
        assert!(matches!(both.resolve(), Err(JoinOptionsError::TwoTokens)));
        assert!(!format!("{:?}", JoinArgs { token: Some("geheim".into()), ..args("x") }).contains("geheim"));
    }

    #[test]
    fn a_flag_replaces_the_token_of_the_file() {
        let file = JoinArgs { token: Some("of the file".into()), ..args("https://a:6443") };
        let flag = JoinArgs { token_file: Some("/t".into()), ..JoinArgs::default() };
        let options = flag.over(file).resolve().unwrap().unwrap();
        assert!(matches!(options.token, Some(TokenSource::File(_))));
        assert_eq!((options.server.to_string().as_str(), options.timeout.as_secs()), ("https://a:6443/", 60));
    }

    #[test]
    fn servers_are_named_by_their_url() {
        for good in ["https://a:6443", "https://[::1]:6443/", "https://a.example"] {
            assert!(args(good).resolve().unwrap().is_some(), "{good}");
        }
        for bad in ["a:6443", "http://a:6443", "https://", "https://a:6443/path", "https://a?b", "ä"] {
            assert!(matches!(args(bad).resolve(), Err(JoinOptionsError::Url(_))), "{bad}");
        }
    }
}
