//! The program `coracle`. `server` builds the control plane from the crates below it: store, caches, API server,
//! controllers, scheduler. The other modules are options and commands.
//!
//! May depend on every crate of the control plane; on `coracle-testing` only in unit tests. No crate depends on this one.

// Options of the server.
pub mod config;
// Options as `/flagz` shows them.
mod flags;
// Options that name a store.
pub mod datastore_args;
// Options for evictions from failed nodes.
pub mod node_eviction;
// Older API versions.
pub mod runtime_config;
// The etcd member that a server runs.
pub mod etcd_member;
// Options for authentication, authorization and encryption.
pub mod security;
// Builds authenticators from the options and their file.
pub mod authentication;
// Builds filters and authorizers from the options.
pub mod access_control;
// Drops the capabilities that the server does not need.
pub mod privileges;
// Listening sockets, handed over to the next process on an upgrade.
pub mod listeners;
// Bodies of requests to the server's own paths.
mod json_body;
// Several servers of one cluster: their keys, and how a server joins.
pub mod join;
// Timelines: options, answers, deliveries of agents, export, and the commands that ask.
pub mod explain;
// Manifests that the server applies.
pub mod manifests;
// What operators ask a running server for: status, copies of the store, keys of encryption at rest, the CA.
pub mod operations;
// `coracle server`: builds all parts and runs them.
pub mod server;
// Programs in PATH.
pub mod executables;
// Which cluster of this machine a command is about.
pub mod cluster_args;
// The user who ran a command through sudo.
mod sudo;
// `coracle up` and `coracle down`: a whole cluster on this machine.
pub mod up;
// `coracle doctor`: checks what this machine lacks.
pub mod doctor;
// `coracle reset`: the end of an installed server and node, and of their state.
pub mod reset;
// `coracle kubeconfig`: kubeconfigs of users.
pub mod kubeconfig;
// `coracle kubectl`: kubectl with such a kubeconfig.
pub mod kubectl;
// `coracle logs`: logs of the programs.
pub mod logs;
// `coracle image`: images of this machine, into nodes.
pub mod image;
// `coracle config`: checks of configuration files.
pub mod config_command;
// `coracle hollow`: simulated nodes without containers.
pub mod hollow;
// The format of what commands print.
mod output;
// Requests of commands to the API server.
mod admin;
// The other servers of a cluster.
mod other_servers;
// `coracle token`: bootstrap tokens.
pub mod token;
// `coracle member`: members of a managed etcd.
pub mod member;
// `coracle backup` and `coracle restore`, and backups that the server makes.
pub mod backup;
// `coracle revoke-node`: revocation of nodes.
pub mod revoke_node;
// `coracle status`: what is well in a cluster, and what is not.
pub mod status;
// `coracle certificate`: expiry and rotation of certificates.
pub mod certificate;
// `coracle store`: copies of the store.
pub mod store_command;
// `coracle secrets-encrypt`: keys of encryption at rest.
pub mod secrets_encrypt;
