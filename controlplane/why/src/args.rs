//! Options of `coracle why` and `kubectl why`.

use crate::connect::KubeconfigArgs;
use clap::{Args, Parser};
use coracle_cli::output::Output;

/// Options of `coracle why`.
#[derive(Debug, Clone, Args)]
pub struct WhyArgs {
    /// Objects as KIND/NAME, or KIND and NAME; without any, everything that is not well.
    #[arg(value_name = "KIND/NAME", conflicts_with_all = ["from", "to", "protocol"])]
    pub(crate) objects: Vec<String>,
    /// Namespace of the objects; that of the context by default.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Look at all namespaces, which is the default without an object and without --namespace.
    #[arg(short = 'A', long, conflicts_with = "objects")]
    pub(crate) all_namespaces: bool,
    /// Pod from which a connection does not work, such as pod/web; pod/web.shop or shop/pod/web in another namespace.
    #[arg(long, value_name = "POD", requires = "to")]
    pub(crate) from: Option<String>,
    /// Where the connection should go: service/NAME:PORT, pod/NAME:PORT, both with .NAMESPACE after the name if wanted, a DNS
    /// name or an address with a port.
    #[arg(long, value_name = "DESTINATION", requires = "from")]
    pub(crate) to: Option<String>,
    /// Protocol of the connection: TCP, UDP or SCTP.
    #[arg(long, value_name = "NAME", default_value = "TCP", requires = "to")]
    pub(crate) protocol: String,
    /// Format of the output.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connect: KubeconfigArgs,
}

/// Find the root cause of what is not well in a cluster.
#[derive(Debug, Clone, Parser)]
#[command(name = "kubectl-why", bin_name = "kubectl why", version)]
pub struct KubectlWhy {
    /// Options.
    #[command(flatten)]
    pub args: WhyArgs,
}

/// The name of the program as a plugin of kubectl.
pub const PLUGIN: &str = "kubectl-why";

/// Whether the program was called by its name as a plugin of kubectl.
pub fn is_plugin(program: &std::ffi::OsStr) -> bool {
    std::path::Path::new(program).file_name().is_some_and(|name| name == PLUGIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kubectl_flags() {
        let parse = |words: &str| KubectlWhy::try_parse_from(words.split(' '));
        let found =
            parse("kubectl-why pod/a -n shop -o json --context x --as bob --request-timeout 5s -s https://h")
                .unwrap();
        assert_eq!((found.args.namespace.as_deref(), found.args.output), (Some("shop"), Output::Json));
        let flags = "--client-certificate c --client-key k --tls-server-name n --as bob --as-uid 1";
        assert!(parse(&format!("kubectl-why pod/a {flags}")).is_ok());
        assert!(parse("kubectl-why -A").unwrap().args.all_namespaces);
        assert!(parse("kubectl-why --from pod/a --to svc/b:80").is_ok());
        assert!(parse("kubectl-why --from pod/a --to svc/b:80 --protocol UDP").is_ok());
        for bad in [
            "kubectl-why --from pod/a",
            "kubectl-why pod/a -A",
            "kubectl-why pod/a --protocol UDP",
            "kubectl-why --protocol UDP",
            "kubectl-why -o xml",
            "kubectl-why pod/a --from x --to y",
            "kubectl-why pod/a --as-uid 1",
        ] {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad}");
        }
    }

    #[test]
    fn called_by_kubectl() {
        assert!(is_plugin("/usr/local/bin/kubectl-why".as_ref()) && is_plugin("kubectl-why".as_ref()));
        assert!(!is_plugin("/usr/local/bin/coracle".as_ref()));
    }
}
