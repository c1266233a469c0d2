//! Seccomp profiles of the OCI configuration: the default one, and the BPF programs of all.

#![forbid(unsafe_code)]

// The default profile.
pub mod default;
// Compiles a profile to BPF.
pub mod bpf;
