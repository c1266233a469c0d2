//! `/volumes`: removes volumes of the built-in provisioner from this node.

use coracle_proto::names::dns1123_subdomain;
use http::StatusCode;
use std::path::PathBuf;

use super::response::{ApiResponse, text};
use crate::volume::local_path;

/// Removes a volume's directory below `roots`; responds when nothing is left, or with the error.
pub async fn remove(roots: Vec<PathBuf>, volume: &str) -> ApiResponse {
    if let Some(why) = dns1123_subdomain(volume).first() {
        return text(StatusCode::BAD_REQUEST, why.clone());
    }
    let name = volume.to_owned();
    match tokio::task::spawn_blocking(move || local_path::remove(&roots, &name)).await {
        Ok(Ok(())) => text(StatusCode::OK, "ok"),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
