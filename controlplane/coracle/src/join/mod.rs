//! Several servers of one cluster: they share keys, which a server that joins gets from one that is there.
//!
//! ```text
//! first server:  claim ─► keys, sealed, in the shared store
//! administrator: coracle token create --server ─► serve/tokens ─► record in the store, token on the terminal
//! next server:   ensure ─► pin (CA by the hash in the token) ─► client: challenge, proof ─► serve
//!                ◄─ sealed keys, wrapped sealing key, datastore ─ install ─► <data-dir>/pki
//! ```

// Options of a server that joins.
mod options;
// Errors of a server that joins.
mod error;
// Which versions can be in one cluster.
mod version;
// Where keys are.
pub(crate) mod keys;
// Bodies of requests and answers.
mod wire;
// The cluster CA, by the hash in a token.
mod pin;
// The requests of a server that joins.
mod client;
// Joins once.
mod ensure;
// Keys of the cluster in the store.
pub(crate) mod claim;
// Answers to servers that join, and tokens.
pub(crate) mod serve;

pub use ensure::{ensure, joined};
pub use error::JoinError;
pub(crate) use keys::has_keys;
pub use options::{JoinArgs, JoinOptions, JoinOptionsError};
pub use wire::{Joined, JoinedDatastore};

pub(crate) use wire::{CreateToken, CreatedToken, TOKENS, TokenList, TokenView};
