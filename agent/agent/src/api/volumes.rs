//! `/volumes`: what this node keeps for volumes of the cluster.

use coracle_proto::names::dns1123_subdomain;
use http::StatusCode;

use super::answer::{Answer, text};
use crate::context::Context;
use crate::volume::local_path;

/// Removes what the node has of a volume; answers when nothing is left, or why something is.
pub async fn remove(context: &Context, volume: &str) -> Answer {
    if let Some(why) = dns1123_subdomain(volume).first() {
        return text(StatusCode::BAD_REQUEST, why.clone());
    }
    let (roots, name) = (context.config.storage_dirs.clone(), volume.to_owned());
    match tokio::task::spawn_blocking(move || local_path::remove(&roots, &name)).await {
        Ok(Ok(())) => text(StatusCode::OK, "ok"),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
