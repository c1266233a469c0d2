//! A copy that the running server makes: it answers reads throughout, and refuses writes at the end.

use super::{Copied, CopyArgs, place};
use crate::admin::ask;
use crate::operations::STORE_COPY;
use crate::operations::copy::{CopyState, Phase};
use anyhow::{Context as _, bail};
use http::Method;
use std::time::Duration;

/// How often the server is asked how far it is.
const PERIOD: Duration = Duration::from_millis(200);

/// Asks the server to copy its store, and waits until it has.
pub(super) async fn copy(args: &CopyArgs) -> anyhow::Result<Copied> {
    let target = place::read(&args.to, &args.etcd)?;
    let remote = args.server.remote()?;
    let body = serde_json::to_value(&target)?;
    ask(&remote, Method::POST, STORE_COPY, Some(&body)).await?;
    let state = loop {
        tokio::time::sleep(PERIOD).await;
        let state = ask(&remote, Method::GET, STORE_COPY, None).await;
        let state: CopyState = serde_json::from_value(state?).context("the server's answer")?;
        if !matches!(state.phase, Phase::Copying | Phase::Paused) {
            break state;
        }
    };
    if state.phase != Phase::Complete {
        let why = state.error.unwrap_or_else(|| "the copy was given up".to_owned());
        bail!("the store was not copied, and the server goes on with it: {why}");
    }
    Ok(Copied {
        from: "server".to_owned(),
        to: state.target,
        keys: state.keys,
        corrected: state.corrected,
        revision: state.revision,
        paused_milliseconds: state.paused_milliseconds,
        options: place::options(&target),
    })
}
