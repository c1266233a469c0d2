//! What operators ask a running server for, at `/coracle/v1/`: its status, copies of its store, keys of encryption at
//! rest, rotation of the cluster CA. By
//! default only `system:masters` may; roles with `nonResourceURLs` allow others to read, and nobody else to change anything.

// The status of a server.
pub mod status;
// Why a configuration of encryption at rest is not used.
pub mod reload_error;
// Encryption at rest: status, reload, rewrite.
pub mod encryption;
// The configuration of encryption at rest that all servers have.
pub mod distribution;
// Where a server keeps that configuration.
pub(crate) mod shared_files;
// Copies of the store.
pub mod copy;
// Rotation of the cluster CA.
pub mod ca;

use crate::json_body;
use crate::operations::ca::{CaRotation, Step};
use crate::operations::copy::{CopyJob, Target};
use crate::operations::encryption::Encryption;
use crate::operations::status::StatusSource;
use async_trait::async_trait;
use coracle_apiserver::context::Context;
use coracle_apiserver::non_resource::NonResource;
use coracle_apiserver::request_body::RequestBody;
use coracle_apiserver::respond::{self, Body};
use coracle_cli::causes;
use coracle_client::user::MASTERS;
use coracle_proto::status::ApiError;
use http::{Method, Request, Response};
use serde::Serialize;
use std::sync::Arc;

/// Status of this server.
pub const STATUS: &str = "/coracle/v1/status";
/// Status of encryption at rest.
pub const ENCRYPTION: &str = "/coracle/v1/encryption";
/// Reads the configuration of encryption at rest again.
pub const ENCRYPTION_RELOAD: &str = "/coracle/v1/encryption/reload";
/// Encrypts stored values again.
pub const ENCRYPTION_REWRITE: &str = "/coracle/v1/encryption/rewrite";
/// Copies the store.
pub const STORE_COPY: &str = "/coracle/v1/store/copy";
/// Takes writes again.
pub const STORE_RESUME: &str = "/coracle/v1/store/resume";
/// Status of the rotation of the cluster CA.
pub const CA: &str = "/coracle/v1/ca";
/// Makes a new CA and trusts it.
pub const CA_PREPARE: &str = "/coracle/v1/ca/prepare";
/// Signs with the new CA.
pub const CA_SWITCH: &str = "/coracle/v1/ca/switch";
/// Drops the old CA.
pub const CA_FINISH: &str = "/coracle/v1/ca/finish";
/// Forgets a new CA that was prepared.
pub const CA_CANCEL: &str = "/coracle/v1/ca/cancel";
/// All of them.
const PATHS: [&str; 11] = [
    STATUS,
    ENCRYPTION,
    ENCRYPTION_RELOAD,
    ENCRYPTION_REWRITE,
    STORE_COPY,
    STORE_RESUME,
    CA,
    CA_PREPARE,
    CA_SWITCH,
    CA_FINISH,
    CA_CANCEL,
];
/// The largest body of a request.
const BODY: usize = 64 * 1024;

/// Answers operators.
pub struct Operations {
    /// What is known of this server.
    pub status: StatusSource,
    /// Encryption at rest; `None` without `--encryption-provider-config`.
    pub encryption: Option<Arc<Encryption>>,
    /// The copy of the store.
    pub copy: Arc<CopyJob>,
    /// The cluster CA.
    pub ca: Arc<CaRotation>,
}

#[async_trait]
impl NonResource for Operations {
    fn takes(&self, path: &str) -> bool {
        PATHS.contains(&path.trim_end_matches('/'))
    }

    async fn serve(
        &self,
        context: &Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let path = context.info.path.trim_end_matches('/');
        // A copy takes all Secrets to wherever the caller says.
        if request.method() == Method::POST && !context.user.in_group(MASTERS) {
            let why = format!(
                "User {:?} is not in the group {MASTERS}: {path} is not given by roles",
                context.user.name
            );
            return Err(ApiError::new(403, "Forbidden", why));
        }
        match (request.method(), path) {
            (&Method::GET, STATUS) => json(&self.status.read().await),
            (&Method::GET, ENCRYPTION) => match &self.encryption {
                Some(encryption) => json(&encryption.status().await.map_err(failed)?),
                None => json(&encryption::EncryptionStatus::disabled()),
            },
            (&Method::POST, ENCRYPTION_RELOAD) => {
                let encryption = self.encryption()?;
                encryption.reload().await.map_err(|error| ApiError::bad_request(causes::chain(&error)))?;
                json(&encryption.status().await.map_err(failed)?)
            }
            (&Method::POST, ENCRYPTION_REWRITE) => {
                let encryption = self.encryption()?;
                encryption.start_rewrite();
                json(&encryption.status().await.map_err(failed)?)
            }
            (&Method::GET, STORE_COPY) => json(&self.copy.state()),
            (&Method::POST, STORE_COPY) => {
                let target: Target = json_body::read(request.into_body(), BODY).await?;
                self.copy.start(target).map_err(|error| match error {
                    copy::StartError::Running => ApiError::new(409, "Conflict", error.to_string()),
                    _ => ApiError::bad_request(causes::chain(&error)),
                })?;
                json(&self.copy.state())
            }
            (&Method::POST, STORE_RESUME) => {
                if !self.copy.resume().await {
                    return Err(ApiError::new(409, "Conflict", copy::StartError::Running.to_string()));
                }
                json(&self.copy.state())
            }
            (&Method::GET, CA) => json(&self.ca.status().await?),
            (&Method::POST, CA_PREPARE) => self.step(Step::Prepare, request).await,
            (&Method::POST, CA_SWITCH) => self.step(Step::Switch, request).await,
            (&Method::POST, CA_FINISH) => self.step(Step::Finish, request).await,
            (&Method::POST, CA_CANCEL) => self.step(Step::Cancel, request).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

impl Operations {
    async fn step(&self, step: Step, request: Request<RequestBody>) -> Result<Response<Body>, ApiError> {
        let wanted = json_body::read(request.into_body(), BODY).await?;
        json(&self.ca.step(step, &wanted).await?)
    }

    fn encryption(&self) -> Result<&Arc<Encryption>, ApiError> {
        let missing =
            || ApiError::bad_request("nothing is encrypted: the server has no --encryption-provider-config");
        self.encryption.as_ref().ok_or_else(missing)
    }
}

fn failed(error: coracle_store::StoreError) -> ApiError {
    coracle_apiserver::objects::store_failed(error)
}

fn json(value: &impl Serialize) -> Result<Response<Body>, ApiError> {
    let bytes = serde_json::to_vec(value).map_err(ApiError::internal)?;
    Ok(respond::bytes(200, respond::JSON, bytes))
}
