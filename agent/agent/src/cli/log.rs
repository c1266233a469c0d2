//! Logs of the commands.

/// Without what kube's client says of every connection, and without dumps of netlink notifications that cannot be decoded.
const DEFAULT_FILTER: &str = "info,kube_client::client::builder=off,netlink_proto=off";

/// Logs to stderr, filtered by `RUST_LOG`.
pub fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(DEFAULT_FILTER));
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
}
