//! What the two programs `coracle` and `coracle-agent` share besides the contracts in `coracle-proto`.

// Options from a YAML file, and a file that documents every option.
pub mod file;
// Man pages, completions and the documented files.
pub mod manual;
// Files that only their owner reads.
pub mod private;
// The client configuration files that kubectl and agents read.
pub mod kubeconfig;
// Clients who prove that they hold a key, before anybody says who they are.
pub mod clients;
// Servers whose certificate is judged in another way than the usual.
pub mod judge;
// Memory that goes back to the machine.
pub mod memory;
// Listings.
pub mod print;
// Tasks that are started again, and objects that made them panic.
pub mod supervise;
// Health checks.
pub mod health;
