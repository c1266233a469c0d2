//! `coracle backup save`.

use super::args::{OutputArgs, RecipientArgs, S3Args};
use super::serve::PATH;
use crate::admin::{KubeconfigArgs, ask, refusal};
use anyhow::{Context, bail};
use coracle_apiserver::https_client::{HttpsClient, HttpsClientError, LongAnswer};
use coracle_backup::last::LastBackup;
use coracle_backup::save::{Options, Saved, save};
use coracle_cli::causes;
use futures::{Stream, stream};
use http::Method;
use serde_json::{Value, json};
use std::time::Instant;

/// More is no refusal of a server.
const MAX_REFUSAL: usize = 64 << 10;

/// Asks the server for a backup and writes it to its place.
pub(super) async fn run(
    to: &str,
    server: &KubeconfigArgs,
    recipients: &RecipientArgs,
    s3: &S3Args,
    output: OutputArgs,
) -> anyhow::Result<()> {
    let options = Options { place: to.parse()?, s3: s3.options(), recipients: recipients.read()? };
    let remote = server.remote()?;
    let begun = Instant::now();
    let answer = remote.get_long(PATH).await?;
    if answer.code() != 200 {
        bail!("{}", refused(answer).await);
    }
    let saved = save(pieces(answer), &options).await.context("no backup was made")?;
    let took = begun.elapsed();
    record(&remote, &saved).await;
    let text = format!(
        "{}\nrevision {}, {} keys, {} bytes, {}, in {:.1} s\n",
        saved.place,
        saved.header.revision,
        saved.counts.keys,
        saved.bytes,
        if options.recipients.is_empty() {
            "not encrypted: it has the keys of the cluster"
        } else {
            "encrypted"
        },
        took.as_secs_f64()
    );
    let json = json!({
        "location": saved.place.to_string(),
        "revision": saved.header.revision,
        "time": saved.header.time,
        "keys": saved.counts.keys,
        "bytes": saved.bytes,
        "encrypted": !options.recipients.is_empty(),
        "seconds": took.as_secs_f64(),
    });
    output.print(&text, &json)
}

/// What the server says about why it does not.
async fn refused(mut answer: LongAnswer) -> String {
    let code = answer.code();
    let mut body = Vec::new();
    while let Ok(Some(piece)) = answer.piece().await {
        body.extend_from_slice(&piece);
        if body.len() > MAX_REFUSAL {
            break;
        }
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    format!("the server answers {code}: {}", refusal(&body, "it does not know backups"))
}

fn pieces(answer: LongAnswer) -> impl Stream<Item = Result<bytes::Bytes, HttpsClientError>> + Send {
    stream::try_unfold(answer, |mut answer| async move {
        let piece = answer.piece().await?;
        Ok(piece.map(|piece| (piece, answer)))
    })
}

/// Tells the cluster about its backup. The backup is good without it.
async fn record(remote: &HttpsClient, saved: &Saved) {
    let last = LastBackup {
        time: jiff::Timestamp::now(),
        revision: saved.header.revision,
        location: saved.place.to_string(),
        bytes: saved.bytes,
        error: None,
    };
    let body = serde_json::to_value(last).unwrap_or_default();
    if let Err(error) = ask(remote, Method::POST, PATH, Some(&body)).await {
        tracing::warn!(error = %causes::chain(&*error), "cannot record the backup in the cluster");
    }
}
