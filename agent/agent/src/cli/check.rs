//! What is checked before anything is made. An agent that ends later leaves a keeper and directories behind.

use anyhow::Context as _;
use coracle_host_dir::private;
use tokio::runtime::{Builder, Runtime};

use super::options::RunArgs;
use crate::api::tls::{self, Pair};
use crate::identity::client::Identity;
use crate::identity::join::check_name;
use crate::node::machine;

impl RunArgs {
    /// Whether options contradict each other or name files that cannot be used. Neither the API server nor this machine is asked.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.check_options()?;
        self.check_files()?;
        let kubeconfig = || format!("--kubeconfig {}", self.kubeconfig.display());
        runtime()?.block_on(Identity::check(&self.kubeconfig)).with_context(kubeconfig)
    }

    /// As [`RunArgs::check`], and whether the node can be started on this machine. No thread is left: a mount namespace is entered
    /// next.
    pub(super) fn check_start(&self) -> anyhow::Result<()> {
        self.check()?;
        // With credentials of a program that the kubeconfig names, which is run for them.
        runtime()?.block_on(Identity::read(&self.kubeconfig)).context("--kubeconfig")?;
        if self.node_name.is_none() {
            check_name(&machine::hostname().to_lowercase()).context("name of the host")?;
        }
        self.check_swap()?;
        private::check(&self.root_dir).context("--root-dir")?;
        private::check(&self.memory_dir).context("--memory-dir")?;
        private::check(&self.pod_log_dir).context("--pod-log-dir")?;
        match &self.container_runtime_endpoint {
            Some(_) => Ok(()),
            None => self.engine.check_machine(),
        }
    }

    fn check_files(&self) -> anyhow::Result<()> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            let pair = Pair { certificate: certificate.clone(), key: key.clone() };
            pair.check().context("--tls-cert-file, --tls-private-key-file")?;
        }
        if let Some(path) = &self.client_ca_file {
            let option = || format!("--client-ca-file {}", path.display());
            let authority = std::fs::read(path).with_context(option)?;
            tls::client_verifier(&authority).with_context(option)?;
        }
        match &self.container_runtime_endpoint {
            Some(_) => Ok(()),
            None => self.engine.check_files(),
        }
    }
}

/// For clients that are made and not used.
fn runtime() -> anyhow::Result<Runtime> {
    // An error means that a crypto provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(Builder::new_current_thread().enable_all().build()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Cli, Command};
    use clap::Parser as _;
    use std::fs;
    use std::path::Path;

    fn kubeconfig(dir: &Path, cluster: &str, user: &str, context: &str) -> String {
        let text = format!(
            "{{clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', {cluster}}}}}],
               users: [{{name: u, user: {{{user}}}}}],
               contexts: [{{name: x, context: {{{context}}}}}], current-context: x}}"
        );
        fs::write(dir.join("kubeconfig"), text).unwrap();
        dir.join("kubeconfig").display().to_string()
    }

    /// Why `run` with these options ends, below a directory in which it makes nothing.
    fn refused(dir: &Path, kubeconfig: &str, options: &[(&str, &str)]) -> String {
        let below = |name: &str| dir.join("made").join(name).display().to_string();
        let mut words: Vec<String> = ["coracle-agent", "run", "--kubeconfig", kubeconfig, "--node-name", "n"]
            .map(str::to_owned)
            .into();
        for name in ["root", "state", "root-dir", "memory-dir", "pod-log-dir"] {
            if !options.iter().any(|(option, _)| *option == name) {
                words.extend([format!("--{name}"), below(name)]);
            }
        }
        words.extend(options.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]));
        let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else { panic!("not run") };
        let error = format!("{:#}", run.run().unwrap_err());
        assert!(!dir.join("made").exists(), "{error}");
        error
    }

    #[test]
    fn files_that_cannot_be_used_end_the_agent_before_anything_is_made() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        let file = |name: &str, text: &str| {
            fs::write(dir.join(name), text).unwrap();
            dir.join(name).display().to_string()
        };
        let made = rcgen::generate_simple_self_signed(["n".to_owned()]).unwrap();
        let (certificate, key) =
            (file("tls.crt", &made.cert.pem()), file("tls.key", &made.signing_key.serialize_pem()));
        let (empty, no_yaml) = (file("empty", ""), file("registries", "mirrors: ["));
        let none = dir.join("none").display().to_string();
        let good = kubeconfig(dir, "insecure-skip-tls-verify: true", "token: t", "cluster: c, user: u");
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
        let cases: &[Case<'_>] = &[
            (&[("client-ca-file", &none)], &none, "No such file"),
            (&[("client-ca-file", &empty)], &empty, "client certificate authority"),
            (&[("tls-cert-file", &none), ("tls-private-key-file", &key)], &none, "No such file"),
            (&[("tls-cert-file", &certificate), ("tls-private-key-file", &none)], &none, "No such file"),
            (&[("tls-cert-file", &empty), ("tls-private-key-file", &key)], &empty, "there is no certificate"),
            (&[("registries", &none)], &none, "No such file"),
            (&[("registries", &no_yaml)], &no_yaml, "line"),
            (&[("keeper", &none)], &none, "there is no such program"),
            (&[("root-dir", &empty)], &empty, "Not a directory"),
            (&[("state", &empty)], &empty, "Not a directory"),
            (&[("dns-upstream", "dns.example")], "dns.example", "not an address"),
            (&[("cluster-dns", "x")], "--cluster-dns x", "invalid IP address"),
            (&[("cluster-domain", "a..b")], "a..b", "not a domain"),
        ];
        for (options, file, reason) in cases {
            let error = refused(dir, &good, options);
            let option = format!("--{}", options[0].0);
            assert!(
                error.contains(&option) && error.contains(file) && error.contains(reason),
                "{options:?}: {error}"
            );
        }
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_used_ends_the_agent_before_anything_is_made() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        let (both, user) = ("cluster: c, user: u", "token: t");
        for (cluster, user, context, reason) in [
            ("certificate-authority-data: bm9uZQ==", user, both, "there is no certificate in it"),
            ("certificate-authority: none.crt", user, both, "none.crt"),
            (
                "insecure-skip-tls-verify: true",
                "client-certificate: none.pem, client-key: none.pem",
                both,
                "none.pem",
            ),
            (
                "insecure-skip-tls-verify: true",
                user,
                "cluster: c, user: v",
                "user \"v\" was not found for context \"x\"",
            ),
            (
                "insecure-skip-tls-verify: true",
                user,
                "cluster: d, user: u",
                "cluster \"d\" was not found for context \"x\"",
            ),
        ] {
            let path = kubeconfig(dir, cluster, user, context);
            let error = refused(dir, &path, &[]);
            let option = format!("--kubeconfig {path}");
            assert!(error.contains(&option) && error.contains(reason), "{error}");
        }
    }
}
