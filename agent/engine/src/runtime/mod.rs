//! The interface between pod workers and a container runtime, in CRI's terms.
//!
//! Two runtimes implement it: the in-process [`crate::Engine`] and [`CriRuntime`], which
//! speaks gRPC to any CRI runtime on a unix socket.

// Errors, and their gRPC status codes.
mod error;
// Streams of exec, attach and port-forward.
mod session;
// The verbs, by what they are about.
mod sandboxes;
mod containers;
mod execs;
mod images;
mod stats;
// Another CRI runtime over a unix socket.
pub mod client;
// Exec, attach and port-forward to another CRI runtime, over WebSocket.
pub mod streaming_client;
// Counts and times operations of a runtime.
pub mod instrumented;

pub use client::CriRuntime;
pub use containers::Containers;
pub use error::{Result, RuntimeError};
pub use execs::Execs;
pub use images::{ASK_REGISTRY, IMPORTED, Images};
pub use sandboxes::{FirstConfig, FirstContainer, Sandboxes};
pub use session::{Duplex, Input, Output, Session, TerminalSize};
pub use stats::Stats;

use async_trait::async_trait;
use coracle_proto::cri;
use futures::stream::BoxStream;

/// A container runtime. Callers that need a part of it take the trait of that part.
#[async_trait]
pub trait Runtime: Sandboxes + Containers + Execs + Images + Stats {
    /// Name and version of the runtime.
    async fn version(&self) -> Result<cri::VersionResponse>;
    /// Conditions RuntimeReady and NetworkReady, handlers and features.
    async fn status(&self, verbose: bool) -> Result<cri::StatusResponse>;
    /// Sets the node's pod CIDR.
    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()>;
    /// Created, started, stopped and deleted containers from now on; the stream ends when the runtime goes away.
    async fn events(&self) -> Result<BoxStream<'static, cri::ContainerEventResponse>>;
}
