//! Tokens of servers, made and kept by the running server: it has the key that they wrap.

use super::Row;
use super::trusted::Trusted;
use crate::admin::{ask, refusal};
use crate::join::{CreateToken, CreatedToken, TOKENS, TokenList, TokenView};
use anyhow::{Context as _, bail};
use coracle_apiserver::https_client::HttpsClient;
use http::Method;
use jiff::Timestamp;

/// The tokens of the servers of a cluster.
pub(super) struct ServerTokens<'a>(pub(super) &'a HttpsClient);

impl ServerTokens<'_> {
    /// Makes a token and returns its text.
    pub(super) async fn create(&self, ttl_seconds: i64, description: &str) -> anyhow::Result<String> {
        let wanted = CreateToken { ttl_seconds, description: description.to_owned() };
        let body = serde_json::to_value(wanted)?;
        let made = ask(self.0, Method::POST, TOKENS, Some(&body)).await?;
        let made: CreatedToken = serde_json::from_value(made).context("the answer of the server")?;
        Ok(made.token)
    }

    /// All of them, for the list. Who may not see them is told so, and sees the others.
    pub(super) async fn rows(&self, trusted: &Trusted) -> anyhow::Result<Vec<Row>> {
        let (code, answer) = self.0.send(Method::GET, TOKENS, None).await?;
        match code {
            200 => {}
            403 | 404 => {
                eprintln!("tokens of servers are not listed: {}", refusal(&answer, "the server refused"));
                return Ok(Vec::new());
            }
            _ => bail!("{}", refusal(&answer, "the server refused")),
        }
        let list: TokenList = serde_json::from_value(answer).context("the answer of the server")?;
        let now = Timestamp::now();
        Ok(list.items.into_iter().map(|token| row(token, trusted, now)).collect())
    }

    /// Deletes one.
    pub(super) async fn delete(&self, id: &str) -> anyhow::Result<()> {
        ask(self.0, Method::DELETE, &format!("{TOKENS}/{id}"), None).await.map(drop)
    }
}

fn row(token: TokenView, trusted: &Trusted, now: Timestamp) -> Row {
    let is_expired = token.expires.is_some_and(|at| at <= now);
    Row {
        status: trusted.status(&token.ca_hash, is_expired),
        ca_hash: token.ca_hash,
        id: token.id,
        kind: "server",
        expires: token.expires.map(|at| at.to_string()).unwrap_or_default(),
        usages: vec!["join"],
        description: token.description,
    }
}
