//! Who gets in and what they may do, over TLS with real certificates and tokens, without root: every authenticator and
//! authorizer, joining and its refusals, renewal of certificates under load, a flood, and attacks.

#![allow(missing_docs, clippy::unwrap_used)]

// Some two hundred pairs of identity and request.
mod pairs;
// Authenticators one by one.
mod authenticators;
// CAs of the operator.
mod operator_cas;
// An identity provider.
mod provider;
// Tokens of an identity provider.
mod oidc;
// Tokens of several identity providers, configured by a file.
mod issuers;
// Machines that join, and those that must not.
mod joining;
// Servers that join, and those that must not.
mod servers;
// A node agent that is not ours.
mod kubelet;
// Drivers and the devices of others.
mod devices;
// Audit, impersonation, encryption, other authorizers.
mod guards;
// Certificates that end soon.
mod rotation;
// A CA that is replaced.
mod rotate_ca;
// One user against all others.
mod flood;
// What strangers try.
mod attacks;

use coracle_tests::caller;

/// Tests that load the machine on purpose or have deadlines of their own run one after the other.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
