//! Images on a real disk and from a real registry: unpacked, refused, killed, collected.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

// Images and archives made by hand.
mod build;
// What a layer becomes, and what it must not.
mod layers;
// Names, holds, removal, collection.
mod store;
// Pulls from Debian's docker-registry.
mod pulls;
