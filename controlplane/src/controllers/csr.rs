//! Certificate signing requests: those of nodes are approved, approved ones are signed, old ones are forgotten.

use super::conditions::{self, Condition};
use super::informer::Name;
use super::resource::Resource;
use super::runner::{Again, Controller, Failure};
use super::setup::Setup;
use super::time;
use crate::apiserver::authn::x509;
use crate::apiserver::user::MASTERS;
use crate::client::Client;
use crate::pki::authority::Authority;
use crate::validation::names;
use crate::watch::cache::Cache;
use async_trait::async_trait;
use base64::Engine;
use coracle_proto::node_identity::{API_CLIENTS, inner_name};
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use rcgen::ExtendedKeyUsagePurpose;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

const NAME: &str = "certificate-controller";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The label that ties an EndpointSlice to its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The Service of the API servers, in the namespace `default`.
const API_SERVICE: &str = "kubernetes";
/// How long requests are kept, in seconds: approved or issued, denied or failed, undecided.
const KEEP_ISSUED: i64 = 3600;
const KEEP_DENIED: i64 = 3600;
const KEEP_PENDING: i64 = 86_400;

/// How long after its creation a request waits for its node to register, in seconds between looks.
const WAIT_FOR_NODE: i64 = 1;

/// What signs, and within which limits.
#[derive(Clone)]
pub struct Signer {
    /// The cluster's authority.
    pub authority: Arc<Authority>,
    /// The longest life of a certificate.
    pub life: Duration,
    /// Names and addresses that no node may serve under: those of this API server.
    pub reserved: Vec<String>,
}

struct Requests {
    requests: Resource,
    nodes: Arc<Cache>,
    /// The list of revoked nodes is one of these.
    lists: Arc<Cache>,
    /// Where API servers are, in the newer and in the older form.
    slices: Arc<Cache>,
    endpoints: Arc<Cache>,
    client: Client,
    signer: Signer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    creation_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    request: String,
    signer_name: String,
    usages: Vec<String>,
    expiration_seconds: Option<u64>,
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    certificate: String,
    conditions: Vec<Condition>,
}

/// What a request asks to be certified.
#[derive(Debug, Default, PartialEq, Eq)]
struct Subject {
    common_name: String,
    organizations: Vec<String>,
    /// Names and addresses that it serves under, in the form that they are compared in: lower case, IPv4 as IPv4.
    names: Vec<String>,
    /// Why nobody gets it certified, whoever approves: somebody else could read it as another one.
    wrong: Option<&'static str>,
    /// Why no server gets these names certified, whoever approves.
    unserved: Option<&'static str>,
}

impl Subject {
    /// The node that it is, with a name that a Node can have: any other could be neither looked up nor revoked.
    fn node(&self) -> Option<&str> {
        let name = self.common_name.strip_prefix("system:node:")?;
        names::subdomain(name, false).is_empty().then_some(name)
    }
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>, signer: Signer) {
    let requests = setup.resource(NAME, "certificates.k8s.io", "certificatesigningrequests");
    let client = setup.client(NAME);
    let nodes = client.cache(&client.kind("", "nodes"));
    let lists = client.cache(&client.kind("", "configmaps"));
    let slices = client.cache(&client.kind("discovery.k8s.io", "endpointslices"));
    let endpoints = client.cache(&client.kind("", "endpoints"));
    let queue = setup.feed(&requests).queue.clone();
    setup.run(Requests { requests, nodes, lists, slices, endpoints, client, signer }, &queue, 1);
}

fn subject(pem: &str) -> Option<Subject> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let info = &request.certification_request_info;
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
    let mut said = info.subject.iter_common_name().chain(info.subject.iter_organization());
    let wrong = if info.subject.iter_common_name().count() > 1 {
        Some("the subject has more than one common name")
    } else if said.any(|value| value.as_str().is_err()) {
        Some("the subject is not written as text")
    } else {
        None
    };
    let (mut names, mut unserved) = (Vec::new(), None);
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(san) = extension else { continue };
        for name in &san.general_names {
            match served_name(name) {
                Ok(name) => names.push(name),
                Err(why) => unserved = unserved.or(Some(why)),
            }
        }
    }
    Some(Subject {
        common_name: info.subject.iter_common_name().next().and_then(text).unwrap_or_default(),
        organizations: info.subject.iter_organization().filter_map(text).collect(),
        names,
        wrong,
        unserved,
    })
}

/// A name that a server can have, in the form that names are compared in. Clients compare DNS names without regard to case,
/// and some of them know wildcards, trailing dots and addresses written as names: what is not compared here as they do it
/// would be certified under another name.
fn served_name(name: &GeneralName<'_>) -> Result<String, &'static str> {
    match name {
        GeneralName::DNSName(name) => {
            let name = name.to_ascii_lowercase();
            if !names::subdomain(&name, false).is_empty() {
                return Err("a DNS subjectAltName is no DNS subdomain");
            }
            // A name whose last part is a number is an address to many.
            let last = name.rsplit('.').next().unwrap_or_default();
            if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
                return Err("a DNS subjectAltName looks like an IP address");
            }
            Ok(name)
        }
        GeneralName::IPAddress(raw) => address(raw).ok_or("an IP subjectAltName is no IP address"),
        GeneralName::RFC822Name(_) => Err("email subjectAltNames are not allowed"),
        GeneralName::URI(_) => Err("URI subjectAltNames are not allowed"),
        _ => Err("subjectAltNames other than DNS and IP are not allowed"),
    }
}

/// The node that a request, base64 of PEM, asks to be; empty when it asks for something else.
pub fn node_of(request: &str) -> String {
    let decoded = base64::engine::general_purpose::STANDARD.decode(request).unwrap_or_default();
    let subject = subject(&String::from_utf8(decoded).unwrap_or_default()).unwrap_or_default();
    subject.common_name.strip_prefix("system:node:").unwrap_or_default().to_owned()
}

fn address(raw: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(raw).map(IpAddr::from);
    let ip = four.or_else(|_| <[u8; 16]>::try_from(raw).map(IpAddr::from)).ok()?;
    Some(ip.to_canonical().to_string())
}

/// An address or name of a Node in the form that names of certificates are compared in.
fn compared(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) => text.to_ascii_lowercase(),
    }
}

/// The addresses in an EndpointSlice or in an Endpoints object, ready or not.
fn endpoint_addresses(object: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let slice = list(&object["endpoints"]).into_iter().flat_map(|endpoint| list(&endpoint["addresses"]));
    let subsets = list(&object["subsets"]).into_iter().flat_map(|subset| {
        let both = [list(&subset["addresses"]), list(&subset["notReadyAddresses"])].concat();
        both.into_iter().map(|address| address["ip"].clone())
    });
    slice.chain(subsets).filter_map(|address| address.as_str().map(str::to_owned)).collect()
}

/// What the certificate may be used for, or why the signer refuses.
fn permitted(spec: &Spec, subject: &Subject) -> Result<Vec<ExtendedKeyUsagePurpose>, String> {
    let common = ["digital signature", "key encipherment"];
    let only = |auth: &str| spec.usages.iter().all(|u| u == auth || common.contains(&u.as_str()));
    let has = |auth: &str| spec.usages.iter().any(|u| u == auth);
    let of_node = subject.node().is_some() && subject.organizations == ["system:nodes"];
    if let Some(why) = subject.wrong {
        return Err(why.into());
    }
    match spec.signer_name.as_str() {
        CLIENT if !has("client auth") || !only("client auth") => Err("usages did not match".into()),
        CLIENT if subject.organizations.iter().any(|o| o == MASTERS || o == API_CLIENTS) => {
            Err(format!("organizations {MASTERS} and {API_CLIENTS} are not allowed"))
        }
        CLIENT => Ok(vec![ExtendedKeyUsagePurpose::ClientAuth]),
        NODE_CLIENT if !of_node => {
            Err("subject is not that of a node in the organization system:nodes".into())
        }
        NODE_CLIENT if !subject.names.is_empty() || subject.unserved.is_some() => {
            Err("subjectAltNames are not allowed".into())
        }
        NODE_CLIENT if !has("client auth") || !only("client auth") => Err("usages did not match".into()),
        NODE_CLIENT => Ok(vec![ExtendedKeyUsagePurpose::ClientAuth]),
        NODE_SERVING if !of_node => {
            Err("subject is not that of a node in the organization system:nodes".into())
        }
        NODE_SERVING if subject.unserved.is_some() => Err(subject.unserved.unwrap_or_default().into()),
        NODE_SERVING if subject.names.is_empty() => {
            Err("at least one DNS or IP subjectAltName is required".into())
        }
        NODE_SERVING if !has("server auth") || !only("server auth") => Err("usages did not match".into()),
        NODE_SERVING => Ok(vec![ExtendedKeyUsagePurpose::ServerAuth]),
        other => Err(format!("signer {other} is not known")),
    }
}

/// What becomes of a request that nobody has decided on.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Approved if the requestor may do this to certificate signing requests.
    Approve(&'static str),
    /// Refused, with a reason and a sentence.
    Deny(&'static str, String),
    /// To be looked at again when the node has registered.
    Wait,
    /// A person decides.
    Leave,
}

/// Judges a request; `node` is the Node object of its subject, `claimed` says whether another Node has a name.
fn judge(
    spec: &Spec,
    subject: &Subject,
    node: Option<&Value>,
    reserved: &[String],
    claimed: &dyn Fn(&str) -> bool,
) -> Verdict {
    if permitted(spec, subject).is_err() {
        return Verdict::Leave;
    }
    let for_itself = spec.username == subject.common_name;
    let name = subject.node().unwrap_or_default();
    match spec.signer_name.as_str() {
        NODE_CLIENT if for_itself => Verdict::Approve("selfnodeclient"),
        NODE_CLIENT if spec.username.starts_with("system:node:") => Verdict::Deny(
            "NotForItself",
            format!("{} asks for a certificate of node {name:?}", spec.username),
        ),
        NODE_CLIENT if node.is_some() => Verdict::Deny(
            "NodeExists",
            format!(
                "node {name:?} is a member already; delete its Node object to let a machine join under this name"
            ),
        ),
        NODE_CLIENT => Verdict::Approve("nodeclient"),
        // An agent that runs with an administrator's credentials may ask for what an administrator could approve.
        NODE_SERVING if for_itself || spec.groups.iter().any(|group| group == MASTERS) => {
            serving(subject, name, node, reserved, claimed)
        }
        _ => Verdict::Leave,
    }
}

/// A node serves under its own name and the addresses it registered with, and never under those of the API server, of
/// Services or of other nodes.
fn serving(
    subject: &Subject,
    name: &str,
    node: Option<&Value>,
    reserved: &[String],
    claimed: &dyn Fn(&str) -> bool,
) -> Verdict {
    let is_reserved = |name: &&String| reserved.iter().any(|taken| compared(taken) == **name);
    if let Some(taken) = subject.names.iter().find(is_reserved) {
        return Verdict::Deny("ReservedName", format!("{taken:?} is a name of the API server"));
    }
    // A node says itself what its addresses are: webhooks and other Services are not to be had so, whatever the domain of
    // the cluster is.
    let service = |name: &&String| name.ends_with(".svc") || name.contains(".svc.");
    if let Some(taken) = subject.names.iter().find(service) {
        return Verdict::Deny("ReservedName", format!("{taken:?} is a name of a Service"));
    }
    let Some(node) = node else { return Verdict::Wait };
    let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let registered = |wanted: &str| {
        addresses.iter().any(|a| a["address"].as_str().map(compared).as_deref() == Some(wanted))
    };
    let inner = inner_name(name);
    let own = |wanted: &str| wanted == name || wanted == inner;
    // The other node may keep the address in its status for good: a denial lets the agent ask for its inner name instead,
    // while a request that waits would leave the node without a certificate.
    if let Some(taken) = subject.names.iter().find(|wanted| !own(wanted.as_str()) && claimed(wanted.as_str()))
    {
        return Verdict::Deny("ClaimedName", format!("{taken:?} is a name or an address of another node"));
    }
    let known = |wanted: &String| own(wanted.as_str()) || registered(wanted.as_str());
    if subject.names.iter().all(known) { Verdict::Approve("") } else { Verdict::Wait }
}

impl Requests {
    /// Whether the requestor may have such certificates without a person looking.
    async fn may(&self, spec: &Spec, subresource: &str) -> Result<bool, ApiError> {
        let mut subject = json!({"user": spec.username, "uid": spec.uid, "groups": spec.groups,
            "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests",
                "verb": "create", "subresource": subresource, "version": "*"}});
        if spec.extra.is_object() {
            subject["extra"] = spec.extra.clone();
        }
        let kind = self.client.kind("authorization.k8s.io", "subjectaccessreviews");
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": subject});
        let answer = self.client.call(&kind, "", "", "", review).await?.value();
        Ok(answer["status"]["allowed"] == true)
    }

    /// Since when certificates of the subject's node count, in seconds since 1970, when it was revoked.
    fn revoked(&self, subject: &Subject) -> Option<i64> {
        let node = subject.common_name.strip_prefix("system:node:")?;
        x509::revoked(&self.lists.get("kube-system", x509::REVOKED)?.value(), node)
    }

    /// Names and addresses that no node may serve under: this API server's, and those behind the Service of all API servers.
    fn reserved(&self) -> Vec<String> {
        let mut all = self.signer.reserved.clone();
        for slice in self.slices.list(Some("default")) {
            if slice.meta.labels.get(SERVICE_NAME).map(String::as_str) == Some(API_SERVICE) {
                all.extend(endpoint_addresses(&slice.value()));
            }
        }
        if let Some(endpoints) = self.endpoints.get("default", API_SERVICE) {
            all.extend(endpoint_addresses(&endpoints.value()));
        }
        all
    }

    /// Whether another Node than `own` is called so or says that it has this address.
    fn claimed(&self, own: &str, wanted: &str) -> bool {
        self.nodes.list(None).iter().filter(|node| node.meta.name != own).any(|node| {
            let value = node.value();
            let mut addresses = value["status"]["addresses"].as_array().into_iter().flatten();
            node.meta.name == wanted
                || addresses.any(|a| a["address"].as_str().map(compared).as_deref() == Some(wanted))
        })
    }

    /// Decides on a request; the new condition, if there is one.
    async fn decide(&self, spec: &Spec, subject: &Subject, now: Timestamp) -> Result<Decided, Failure> {
        let node = subject.node().and_then(|name| self.nodes.get("", name)).map(|node| node.value());
        let own = subject.node().unwrap_or_default();
        let claimed = |wanted: &str| self.claimed(own, wanted);
        let verdict = judge(spec, subject, node.as_ref(), &self.reserved(), &claimed);
        let (kind, reason, message) = match verdict {
            Verdict::Leave => return Ok(Decided::Not),
            Verdict::Wait => return Ok(Decided::Later),
            Verdict::Approve(sub) if !sub.is_empty() && !self.may(spec, sub).await? => {
                return Ok(Decided::Not);
            }
            Verdict::Approve(_) => {
                let message = "Auto approving kubelet certificate after its identity was checked.".to_owned();
                ("Approved", "AutoApproved", message)
            }
            Verdict::Deny(reason, message) => ("Denied", reason, message),
        };
        let mut condition = Condition::new(kind, true, reason, message, now);
        condition.last_update_time = Some(time::seconds(now));
        Ok(Decided::Now(Box::new(condition)))
    }
}

enum Decided {
    Now(Box<Condition>),
    Later,
    Not,
}

#[async_trait]
impl Controller for Requests {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Again, Failure> {
        let Some(request) = self.requests.get(name) else { return Ok(Again::No) };
        let Wire { metadata, spec, mut status } = request.typed()?;
        if ![CLIENT, NODE_CLIENT, NODE_SERVING].contains(&spec.signer_name.as_str()) {
            return Ok(Again::No);
        }
        let decided = |kind: &str| conditions::is_true(&status.conditions, kind);
        let keep = if decided("Denied") || decided("Failed") {
            KEEP_DENIED
        } else if decided("Approved") {
            KEEP_ISSUED
        } else {
            KEEP_PENDING
        };
        let due = time::after(time::parse(metadata.creation_timestamp.as_deref()).unwrap_or(now), keep);
        if due <= now {
            self.requests.delete(&request).await?;
            return Ok(Again::No);
        }
        if decided("Denied") || decided("Failed") || !status.certificate.is_empty() {
            return Ok(Again::At(due));
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(&spec.request).unwrap_or_default();
        let pem = String::from_utf8(decoded).unwrap_or_default();
        let Some(subject) = subject(&pem) else { return Ok(Again::At(due)) };
        let mut body = request.value();
        let approved = decided("Approved");
        // Asked for before its node was shut out: approved or not, nothing comes of it any more.
        let revoked = self.revoked(&subject);
        let asked = time::parse(metadata.creation_timestamp.as_deref()).unwrap_or(now).as_second();
        if revoked.is_some_and(|since| asked < since) {
            let kind = if approved { "Failed" } else { "Denied" };
            let why = "the node was revoked after this was asked for".to_owned();
            let mut condition = Condition::new(kind, true, "NodeRevoked", why, now);
            condition.last_update_time = Some(time::seconds(now));
            status.conditions.push(condition);
            body["status"]["conditions"] = json!(status.conditions);
            self.requests.write(if approved { "status" } else { "approval" }, body).await?;
            return Ok(Again::At(due));
        }
        if !approved {
            match self.decide(&spec, &subject, now).await? {
                Decided::Now(condition) => {
                    status.conditions.push(*condition);
                    body["status"]["conditions"] = json!(status.conditions);
                    self.requests.write("approval", body).await?;
                }
                Decided::Later => return Ok(Again::At(time::after(now, WAIT_FOR_NODE))),
                Decided::Not => {}
            }
            return Ok(Again::At(due));
        }
        let asked = spec.expiration_seconds.map_or(self.signer.life, |s| Duration::from_secs(s.max(600)));
        let life = asked.min(self.signer.life);
        let signed = permitted(&spec, &subject).and_then(|usages| {
            self.signer.authority.sign_request(&pem, &usages, life, revoked).map_err(|e| e.to_string())
        });
        match signed {
            Ok(certificate) => {
                let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
                body["status"]["certificate"] = json!(encoded);
            }
            Err(why) => {
                let mut condition = Condition::new("Failed", true, "SignerValidationFailure", why, now);
                condition.last_update_time = Some(time::seconds(now));
                status.conditions.push(condition);
                body["status"]["conditions"] = json!(status.conditions);
            }
        }
        self.requests.write("status", body).await?;
        Ok(Again::At(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_clients_compare_them() {
        let dns = |name: &'static str| served_name(&GeneralName::DNSName(name));
        assert_eq!(dns("Kubernetes.Default.SVC"), Ok("kubernetes.default.svc".into()));
        for odd in
            ["", "a.", "*", "*.a", "a*.b", "10.0.0.1", "1", "a.0x7f", "a b", "b\u{fc}cher.a", "a..b", "a_b"]
        {
            assert!(dns(odd).is_err(), "{odd:?}");
        }
        let ip = |raw: &'static [u8]| served_name(&GeneralName::IPAddress(raw));
        let mapped = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 96, 0, 1];
        assert_eq!((ip(&[10, 96, 0, 1]), ip(mapped)), (Ok("10.96.0.1".into()), Ok("10.96.0.1".into())));
        assert!(ip(&[10, 0, 0, 0, 255, 0, 0, 0]).is_err(), "a range");
        assert!(served_name(&GeneralName::URI("https://a")).is_err());
        assert!(served_name(&GeneralName::RFC822Name("a@b")).is_err());
    }

    #[test]
    fn addresses_of_api_servers_are_found_in_both_forms() {
        let slice = json!({"endpoints": [{"addresses": ["192.0.2.1"]}, {},
            {"addresses": ["192.0.2.2", "2001:db8::1"]}]});
        assert_eq!(endpoint_addresses(&slice), ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "192.0.2.3"}]},
            {"notReadyAddresses": [{"ip": "192.0.2.4"}, {}]}]});
        assert_eq!(endpoint_addresses(&endpoints), ["192.0.2.3", "192.0.2.4"]);
        assert_eq!(endpoint_addresses(&json!({})), Vec::<String>::new());
    }

    #[test]
    fn nodes_are_approved_for_themselves_only() {
        let mut node = Subject {
            common_name: "system:node:a".into(),
            organizations: vec!["system:nodes".into()],
            ..Subject::default()
        };
        let spec = |signer: &str, user: &str, usage: &str| Spec {
            signer_name: signer.into(),
            usages: vec!["digital signature".into(), usage.into()],
            username: user.into(),
            ..Spec::default()
        };
        let (client, server) = ("client auth", "server auth");
        let token = spec(NODE_CLIENT, "system:bootstrap:x", client);
        let object = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"},
            {"type": "InternalIP", "address": "10.0.0.9"}, {"type": "InternalDNS", "address": "Kubernetes"}]}});
        let reserved = ["10.96.0.1".to_owned(), "Kubernetes".to_owned()];
        let judged = |spec: &Spec, subject: &Subject, known: bool| {
            judge(spec, subject, known.then_some(&object), &reserved, &|name| name == "10.0.0.9")
        };
        let denied = |verdict: Verdict| match verdict {
            Verdict::Deny(reason, _) => reason,
            other => panic!("{other:?}"),
        };
        let own = spec(NODE_CLIENT, "system:node:a", client);
        assert_eq!(judged(&own, &node, true), Verdict::Approve("selfnodeclient"));
        assert_eq!(judged(&token, &node, false), Verdict::Approve("nodeclient"));
        assert_eq!(denied(judged(&token, &node, true)), "NodeExists");
        assert_eq!(denied(judged(&spec(NODE_CLIENT, "system:node:b", client), &node, true)), "NotForItself");
        assert_eq!(
            judged(&spec(CLIENT, "system:node:a", client), &node, true),
            Verdict::Leave,
            "a person decides"
        );
        let serving = spec(NODE_SERVING, "system:node:a", server);
        assert_eq!(judged(&serving, &node, true), Verdict::Leave, "no name to serve");
        node.names = vec!["a".into(), "10.0.0.7".into()];
        assert_eq!(judged(&serving, &node, true), Verdict::Approve(""));
        assert_eq!(judged(&serving, &node, false), Verdict::Wait);
        assert_eq!(judged(&spec(NODE_SERVING, "system:node:b", server), &node, true), Verdict::Leave);
        node.names = vec!["10.96.0.1".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ReservedName");
        for name in ["hook.default.svc", "hook.default.svc.cluster.local"] {
            node.names = vec![name.into()];
            assert_eq!(denied(judged(&serving, &node, true)), "ReservedName", "{name}");
        }
        node.names = vec!["kubernetes".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ReservedName", "case does not matter");
        node.names = vec!["10.0.0.8".into()];
        assert_eq!(judged(&serving, &node, true), Verdict::Wait, "an address that is not its own");
        node.names = vec!["10.0.0.9".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ClaimedName", "an address that is another's, too");
        node.names = vec![inner_name("a")];
        assert_eq!(judged(&serving, &node, true), Verdict::Approve(""));
        let mut by_admin = spec(NODE_SERVING, "kubernetes-admin", server);
        assert_eq!(judged(&by_admin, &node, true), Verdict::Leave);
        by_admin.groups = vec![MASTERS.into()];
        assert_eq!(judged(&by_admin, &node, true), Verdict::Approve(""));
        let odd = Subject { unserved: Some("odd"), ..node };
        assert_eq!(judged(&serving, &odd, true), Verdict::Leave);
        let mut node = Subject { unserved: None, ..odd };
        node.names = Vec::new();
        for name in ["", "../x", "Bad_X", "system:node:a"] {
            let common_name = format!("system:node:{name}");
            let organizations = vec!["system:nodes".into()];
            let odd = Subject { common_name, organizations, ..Subject::default() };
            assert_eq!(judged(&token, &odd, false), Verdict::Leave, "{name:?} is no name of a node");
            assert!(permitted(&token, &odd).is_err(), "{name:?}: not for a person, either");
        }
        let admin = Subject {
            common_name: "root".into(),
            organizations: vec!["system:masters".into()],
            ..Subject::default()
        };
        assert!(permitted(&spec(CLIENT, "x", client), &admin).is_err());
        let wrong = Subject { common_name: "ann".into(), wrong: Some("odd"), ..Subject::default() };
        assert_eq!(permitted(&spec(CLIENT, "x", client), &wrong), Err("odd".into()));
    }
}
