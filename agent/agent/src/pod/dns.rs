//! Names: resolver configuration, host names and `/etc/hosts` of a pod. Pure.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::spec;
use crate::config::ClusterDns;

/// A resolver configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Addresses of name servers.
    pub servers: Vec<String>,
    /// Domains tried in turn.
    pub searches: Vec<String>,
    /// Options such as `ndots:5`.
    pub options: Vec<String>,
}

impl Resolver {
    /// Reads a `resolv.conf`; a later `search` line replaces an earlier one.
    pub fn parse(text: &str) -> Resolver {
        let mut resolver = Resolver::default();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => resolver.servers.extend(words.next().map(str::to_owned)),
                Some("search") => {
                    resolver.searches = words.map(|word| word.trim_end_matches('.').to_owned()).collect();
                }
                Some("options") => resolver.options = words.map(str::to_owned).collect(),
                _ => {}
            }
        }
        resolver.searches.retain(|search| !search.is_empty());
        resolver
    }

    /// Cuts what resolvers do not take; says what is left where something was cut.
    pub fn apply_limits(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        if self.servers.len() > MAX_SERVERS {
            self.servers.truncate(MAX_SERVERS);
            messages.push(format!(
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
                self.servers.join(" ")
            ));
        }
        let asked = self.searches.len();
        self.searches.truncate(MAX_SEARCHES);
        self.searches.retain(|search| search.len() <= MAX_SEARCH_LENGTH);
        while self.searches.iter().map(|search| search.len() + 1).sum::<usize>() > MAX_SEARCH_LINE + 1 {
            self.searches.pop();
        }
        if self.searches.len() < asked {
            messages.push(format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
                self.searches.join(" ")
            ));
        }
        messages
    }
}

/// Name servers that glibc takes.
const MAX_SERVERS: usize = 3;
/// Search domains of a pod.
const MAX_SEARCHES: usize = 32;
/// Characters of one search domain; some resolvers abort on longer ones.
const MAX_SEARCH_LENGTH: usize = 253;
/// Characters of all search domains, with the spaces between them.
const MAX_SEARCH_LINE: usize = 2048;

/// The resolver configuration of a pod, by its `dnsPolicy` and `dnsConfig`.
pub fn resolver(pod: &Pod, cluster: &ClusterDns, host: &Resolver) -> Resolver {
    let spec = spec::spec(pod);
    let host_network = spec.host_network == Some(true);
    let mut resolver = match spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "None" => Resolver::default(),
        "ClusterFirst" if !host_network => cluster_first(pod, cluster, host),
        "ClusterFirstWithHostNet" => cluster_first(pod, cluster, host),
        _ => host.clone(),
    };
    if let Some(config) = &spec.dns_config {
        append(&mut resolver.servers, config.nameservers.iter().flatten());
        append(&mut resolver.searches, config.searches.iter().flatten());
        for option in config.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            resolver.options.retain(|old| old.split(':').next() != Some(name));
            resolver.options.push(match option.value.as_deref() {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name.clone(),
            });
        }
    }
    resolver
}

fn cluster_first(pod: &Pod, cluster: &ClusterDns, host: &Resolver) -> Resolver {
    if cluster.servers.is_empty() {
        return host.clone();
    }
    let mut searches = Vec::new();
    if !cluster.domain.is_empty() {
        let (namespace, domain) = (spec::namespace(pod), &cluster.domain);
        searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
    }
    append(&mut searches, host.searches.iter());
    Resolver { servers: cluster.servers.clone(), searches, options: vec!["ndots:5".into()] }
}

fn append<'a>(to: &mut Vec<String>, from: impl Iterator<Item = &'a String>) {
    for item in from {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

impl From<Resolver> for cri::DnsConfig {
    fn from(from: Resolver) -> Self {
        cri::DnsConfig { servers: from.servers, searches: from.searches, options: from.options }
    }
}

/// Host name and domain of a pod: the domain is empty without a subdomain.
pub fn hostname(pod: &Pod, cluster_domain: &str, node: &str) -> (String, String) {
    let spec = spec::spec(pod);
    if let Some(name) = spec.hostname_override.as_ref().filter(|name| !name.is_empty()) {
        return (name.clone(), String::new());
    }
    if spec.host_network == Some(true) {
        return (node.to_owned(), String::new());
    }
    let mut name =
        spec.hostname.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| spec::name(pod).to_owned());
    if name.len() > 63 {
        name.truncate(63);
        name = name.trim_end_matches(['-', '.']).to_owned();
    }
    let domain = match spec.subdomain.as_deref().filter(|subdomain| !subdomain.is_empty()) {
        Some(subdomain) => format!("{subdomain}.{}.svc.{cluster_domain}", spec::namespace(pod)),
        None => String::new(),
    };
    (name, domain)
}

/// The name the kernel is told: the short one, or the full one where the pod asks for it.
pub fn kernel_hostname(spec: &PodSpec, name: &str, domain: &str) -> String {
    if spec.set_hostname_as_fqdn == Some(true) && !domain.is_empty() {
        format!("{name}.{domain}")
    } else {
        name.to_owned()
    }
}

/// The managed `/etc/hosts`. With the host's network it is the host's own file plus the pod's aliases.
pub fn hosts_file(pod: &Pod, ips: &[String], name: &str, domain: &str, host_file: &str) -> String {
    let spec = spec::spec(pod);
    let mut out = if spec.host_network == Some(true) {
        format!("# Kubernetes-managed hosts file (host network).\n{host_file}")
    } else {
        let mut out = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
            fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
            .to_owned();
        for ip in ips {
            out += &if domain.is_empty() {
                format!("{ip}\t{name}\n")
            } else {
                format!("{ip}\t{name}.{domain}\t{name}\n")
            };
        }
        out
    };
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        out += "\n# Entries added by HostAliases.\n";
        for alias in aliases {
            out += &format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})).unwrap()
    }

    #[test]
    fn policies() {
        let host = Resolver::parse("# c\nsearch example.org lan.\nnameserver 192.0.2.53\noptions edns0\n");
        let cluster = ClusterDns { domain: "cluster.local".into(), servers: vec!["10.96.0.10".into()] };
        let first = (
            vec!["10.96.0.10"],
            vec!["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org", "lan"],
            vec!["ndots:5"],
        );
        let of_host = (vec!["192.0.2.53"], vec!["example.org", "lan"], vec!["edns0"]);
        for (spec, (servers, searches, options)) in [
            (json!({}), first.clone()),
            (json!({"hostNetwork": true, "dnsPolicy": "ClusterFirst"}), of_host.clone()),
            (json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}), first),
            (json!({"dnsPolicy": "Default"}), of_host),
            (
                json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a.b"], "options": [{"name": "ndots", "value": "2"}, {"name": "x"}]}}),
                (vec!["1.1.1.1"], vec!["a.b"], vec!["ndots:2", "x"]),
            ),
            (
                json!({"dnsPolicy": "Default", "dnsConfig": {"options": [{"name": "edns0", "value": "1"}]}}),
                (vec!["192.0.2.53"], vec!["example.org", "lan"], vec!["edns0:1"]),
            ),
        ] {
            let got = resolver(&pod(spec.clone()), &cluster, &host);
            let want = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(
                got,
                Resolver { servers: want(servers), searches: want(searches), options: want(options) },
                "{spec}"
            );
        }
    }

    #[test]
    fn resolv_conf_has_limits() {
        let list =
            |prefix: &str, count: usize| (0..count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
        let mut fits = Resolver { servers: list("s", 3), searches: list("d", 32), options: vec![] };
        assert!(fits.clone().apply_limits().is_empty());
        fits.servers.push("s3".into());
        assert_eq!(
            fits.apply_limits(),
            [
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: s0 s1 s2"
            ]
        );
        assert_eq!((fits.servers.len(), fits.searches.len()), (3, 32));
        let long = |letter: &str| letter.repeat(253);
        for (searches, left) in [
            (list("d", 33), 32),
            (vec!["a".into(), "b".repeat(254), "c".into()], 2),
            // Eight of 253 and the spaces between them are 2031 characters.
            (["a", "b", "c", "d", "e", "f", "g", "h"].map(long).to_vec(), 8),
            (["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(long).to_vec(), 8),
        ] {
            let mut resolver = Resolver { searches: searches.clone(), ..Resolver::default() };
            let messages = resolver.apply_limits();
            assert_eq!(resolver.searches.len(), left);
            let want = "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ";
            let want = (left < searches.len()).then(|| format!("{want}{}", resolver.searches.join(" ")));
            assert_eq!(messages, want.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn names_and_hosts() {
        let p = pod(
            json!({"hostname": "h", "subdomain": "sub", "setHostnameAsFQDN": true, "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]}),
        );
        let (name, domain) = hostname(&p, "cluster.local", "node");
        assert_eq!(kernel_hostname(&spec::spec(&p), &name, &domain), "h.sub.ns.svc.cluster.local");
        let file = hosts_file(&p, &["10.0.0.2".to_owned()], &name, &domain, "");
        assert!(file.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(file.contains("10.0.0.2\th.sub.ns.svc.cluster.local\th\n"));
        assert!(file.ends_with("\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"));
        let on_host = pod(json!({"hostNetwork": true}));
        assert_eq!(hostname(&on_host, "cluster.local", "node").0, "node");
        assert_eq!(
            hosts_file(&on_host, &[], "node", "", "127.0.0.1 x\n"),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 x\n"
        );
    }
}
