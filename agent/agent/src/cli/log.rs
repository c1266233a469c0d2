//! Logs of the commands.

use coracle_cli::log::LogArgs;

/// Without what kube's client says of every connection, and without dumps of netlink notifications that cannot be decoded.
const QUIET: &str = "kube_client::client::builder=off,netlink_proto=off";

/// Logs to stderr as the options say.
pub fn start(args: &LogArgs) {
    // What earlier versions read.
    let usual = std::env::var("RUST_LOG").ok().filter(|level| !level.is_empty());
    match usual {
        Some(directives) => args.start(&directives, ""),
        None => args.start("info", QUIET),
    }
}

/// Logs to stderr as the environment says, for commands without options of the log.
pub fn log_to_stderr() {
    start(&LogArgs::of_environment());
}
