//! Code that the programs `coracle` and `coracle-agent` share, besides the wire formats in `coracle-proto`.

// YAML files.
pub mod yaml;
// Options from a YAML file, and a template of that file.
pub mod config_file;
// Similar names.
pub mod closest;
// Environment variables for options.
pub mod environment;
// Feature gates of Kubernetes.
pub mod feature_gates;
// Logs on standard error.
pub mod log;
// Man pages, shell completions and file templates.
pub mod manual;
// Versions of programs.
pub mod version;
// Directories with mode 0700 and files with mode 0600.
pub mod private_files;
// Kubeconfigs for kubectl and agents.
pub mod kubeconfig;
// Verification of client certificates.
pub mod client_cert;
// Custom verification of server certificates.
pub mod server_cert;
// Readiness notification on an inherited file descriptor.
pub mod ready;
// Notifications to the service manager.
pub mod service;
// Returning unused memory to the kernel.
pub mod memory;
// Listings on standard output.
pub mod print;
// Text, JSON or YAML.
pub mod output;
// Restarting tasks after panics; quarantine for objects that cause them.
pub mod supervise;
// Health checks.
pub mod health;
// Errors with their sources, for logs.
pub mod causes;
