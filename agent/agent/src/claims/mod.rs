//! ResourceClaims of pods (dynamic resource allocation): drivers prepare them before containers start, and undo that after the
//! last pod.
//!
//! What a driver is about to be asked is on disk before the call ([`records`]), so that an agent that was killed in between
//! knows what to undo.
#![allow(
    clippy::disallowed_methods,
    reason = "no pod can write to these directories, and an administrator may have linked them"
)]

// Drivers by name.
pub mod drivers;
// What drivers were asked to prepare.
pub mod records;
// Why claims cannot be prepared.
mod error;
// Claims of a pod, as the API has them.
pub mod allocated;
// Preparing and undoing it.
pub mod prepare;
// ResourceSlices of drivers that are gone.
pub mod slices;

pub use drivers::Drivers;
pub use error::ClaimError;
pub use prepare::Claims;
