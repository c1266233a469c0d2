//! `/proxy` of pods, services and nodes: HTTP to something inside the cluster. The server need not be on the pod network:
//! the connection goes through the agent of the node where the backend runs.

use super::rewrite::LinkRewriter;
use crate::authorize::authorize;
use crate::authz::Authorizer;
use crate::connector::Connector;
use crate::context::Context;
use crate::nodes::address::special;
use crate::nodes::agent::Nodes;
use crate::nodes::connection::{Io, exchange};
use crate::nodes::forward;
use crate::objects::Objects;
use crate::request_body::RequestBody;
use crate::request_info::RequestInfo;
use crate::respond::{self, Body};
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_cli::server_cert;
use coracle_fields::core::v1::{ContainerPort, Pod, PodProxyOptions, Service};
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::{Schema as _, View, make};
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use http::header::LOCATION;
use http::{HeaderValue, Method, Request, Response};
use percent_encoding::percent_decode_str;
use rand::seq::IndexedRandom;
use rustls_pki_types::ServerName;
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Endpoints of agents that run something or open a connection.
const STREAMS: [&str; 4] = ["exec", "attach", "portForward", "run"];
/// Endpoints of agents that only the API server itself calls.
const INTERNAL: [&str; 2] = ["dial", "volumes"];

/// The connector.
pub struct Proxy {
    /// Where the agents are.
    pub nodes: Arc<Nodes>,
    /// Decides about requests that run something and begin with a GET.
    pub authz: Arc<dyn Authorizer>,
}

/// `[scheme:]name[:port]`.
struct Address<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> Address<'a> {
    fn parse(text: &'a str) -> Result<Self, ApiError> {
        let parts: Vec<&str> = text.split(':').collect();
        let address = match parts.as_slice() {
            [name] => Self { scheme: "", name, port: "" },
            [name, port] => Self { scheme: "", name, port },
            [scheme, name, port] => Self { scheme, name, port },
            _ => return Err(ApiError::bad_request(format!("invalid request {text:?}"))),
        };
        if !matches!(address.scheme, "" | "http" | "https") {
            return Err(ApiError::bad_request(format!("invalid scheme {:?}", address.scheme)));
        }
        Ok(address)
    }
}

/// Readers of a page without a path are sent to the one that ends in `/`: relative links of the page would lead astray.
fn redirect<B>(request: &Request<B>, rest: &str) -> Option<Response<Body>> {
    let uri = request.uri();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let has_path = !rest.is_empty() || uri.path().ends_with('/');
    if !reads || has_path || forward::wants_upgrade(request.headers()) {
        return None;
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let to = HeaderValue::try_from(format!("{}/{query}", uri.path())).ok()?;
    let mut response = respond::text(301, "");
    response.headers_mut().insert(LOCATION, to);
    Some(response)
}

/// The endpoint of a node's API that a path leads to. It is decoded: whether nodes do so is up to them.
fn endpoint(rest: &str) -> String {
    let path = percent_decode_str(rest).decode_utf8_lossy();
    path.split('/').find(|segment| !segment.is_empty()).unwrap_or_default().to_owned()
}

/// Checks what a request for a node's API asks for. Nodes trust the server, so they do not check its requests again.
async fn check_endpoint(authz: &dyn Authorizer, context: &Context, rest: &str) -> Result<(), ApiError> {
    let (info, endpoint) = (&context.info, endpoint(rest));
    if INTERNAL.contains(&endpoint.as_str()) {
        return Err(ApiError::no_such_path());
    }
    if STREAMS.contains(&endpoint.as_str()) && info.verb != Verb::Create {
        // WebSockets begin with a GET, and who may only read must not run anything.
        authorize(authz, &context.user, &RequestInfo { verb: Verb::Create, ..info.clone() }).await?;
    }
    Ok(())
}

/// Where a request goes: an address, reached from a node.
struct Backend {
    node: String,
    address: String,
    tls: bool,
}

#[async_trait]
impl Connector for Proxy {
    async fn options(
        &self,
        context: &Context,
        kind: &Kind,
        _method: &Method,
    ) -> Result<Option<Value>, ApiError> {
        let info = &context.info;
        Address::parse(&info.name)?;
        if info.resource == "nodes" {
            check_endpoint(self.authz.as_ref(), context, &info.rest).await?;
        }
        // Those of pods, services and nodes have the same fields.
        let made = make!(part PodProxyOptions {
            kind: format!("{}ProxyOptions", kind.kind),
            api_version: "v1",
            path: format!("/{}", info.rest),
        });
        Ok(Some(made.into_value()))
    }

    async fn connect(
        &self,
        context: &Context,
        kind: &Kind,
        options: Option<Value>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let (info, objects) = (&context.info, self.nodes.objects());
        let address = Address::parse(&info.name)?;
        let options = options.unwrap_or_default();
        let rest = PodProxyOptions::of(&options).path().text();
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        // A webhook may have led it elsewhere, which the user may not be allowed.
        if info.resource == "nodes" && rest != info.rest {
            check_endpoint(self.authz.as_ref(), context, rest).await?;
        }
        let query = request.uri().query().map(|q| format!("?{q}")).unwrap_or_default();
        let path = format!("/{rest}{query}");
        let elsewhere = redirect(&request, rest);
        let client = forward::client_side(&mut request);
        if info.resource == "nodes" {
            if let Some(elsewhere) = elsewhere {
                objects.get(kind, "", address.name).await?;
                return Ok(elsewhere);
            }
            let (request, _) = forward::rewritten(request, address.name, &path)?;
            return Ok(forward::answer(client, self.nodes.send(address.name, request).await?));
        }
        let backend = match info.resource.as_str() {
            "pods" => {
                let pod = objects.get(kind, &info.namespace, address.name).await?;
                pod_backend(pod.doc().view(), &address)?
            }
            _ => service_backend(objects, &info.namespace, &address).await?,
        };
        if let Some(elsewhere) = elsewhere {
            return Ok(elsewhere);
        }
        let called = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        let rewriter = LinkRewriter {
            prefix: format!("/api/v1/namespaces/{}/{}/{}/proxy", info.namespace, info.resource, info.name),
            hosts: called.map(str::to_owned).into_iter().chain([backend.address.clone()]).collect(),
        };
        let (request, _) = forward::rewritten(request, &backend.address, &path)?;
        let stream = backend.connect(&self.nodes).await?;
        Ok(rewriter.answer(forward::answer(client, exchange(stream, request).await?)).await)
    }
}

impl Backend {
    /// The connection, inside TLS when the address says so; like upstream, whoever answers is believed.
    async fn connect(&self, nodes: &Nodes) -> Result<Box<dyn Io>, ApiError> {
        let stream = nodes.dial_via_agent(&self.node, &self.address).await?;
        if !self.tls {
            return Ok(stream);
        }
        let failed = |why: &dyn std::fmt::Display| {
            ApiError::new(503, "ServiceUnavailable", format!("error trying to reach service: tls: {why}"))
        };
        let config =
            server_cert::client_config(Arc::new(server_cert::SkipVerify)).map_err(|error| failed(&error))?;
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|error| failed(&error))?;
        let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
        Ok(Box::new(connector.connect(name, stream).await.map_err(|error| failed(&error))?))
    }
}

fn pod_backend(pod: View<'_, Pod>, address: &Address<'_>) -> Result<Backend, ApiError> {
    let ip = pod.status().pod_ip().filled();
    let node = pod.spec().node_name().text();
    let Some(ip) = ip.filter(|ip| is_proxyable(ip)) else {
        return Err(ApiError::bad_request("address not allowed"));
    };
    let mut ports = pod.spec().containers().items().flat_map(|container| container.ports().items());
    let number = |port: View<'_, ContainerPort>| port.container_port().int();
    let port = match address.port {
        "" => ports.find_map(number).unwrap_or(80).to_string(),
        named if named.parse::<u16>().is_err() => ports
            .find(|port| port.name() == named)
            .and_then(number)
            .ok_or_else(|| ApiError::bad_request(format!("no port {named:?} on the pod")))?
            .to_string(),
        number => number.to_owned(),
    };
    Ok(Backend { node: node.into(), address: join(ip, &port), tls: address.scheme == "https" })
}

/// Whether an address is one that a pod can have: nodes and users say what they are.
fn is_proxyable(ip: &str) -> bool {
    ip.parse::<IpAddr>().is_ok_and(|ip| special(ip).is_none())
}

fn join(ip: &str, port: &str) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// A ready endpoint of a Service, from its EndpointSlices.
async fn service_backend(
    objects: &Objects,
    namespace: &str,
    address: &Address<'_>,
) -> Result<Backend, ApiError> {
    let services = objects.registry.resource("", "v1", "services").ok_or_else(ApiError::no_such_path)?;
    let service = objects.get(&services, namespace, address.name).await?;
    let doc = service.doc();
    let wanted = doc.view::<Service>().spec().ports().items().find(|p| {
        address.port.is_empty()
            || p.name() == address.port
            || p.port().int().is_some_and(|port| address.port.parse() == Ok(port))
    });
    let Some(wanted) = wanted else {
        return Err(ApiError::new(
            503,
            "ServiceUnavailable",
            format!("no service port {:?} found for service {:?}", address.port, address.name),
        ));
    };
    let port_name = wanted.name().text();
    let slices = objects
        .registry
        .resource("discovery.k8s.io", "v1", "endpointslices")
        .ok_or_else(ApiError::no_such_path)?;
    let mut backends = Vec::new();
    for slice in objects.cache(&slices)?.list(Some(namespace)) {
        if slice.meta.labels.get("kubernetes.io/service-name").map(String::as_str) != Some(address.name) {
            continue;
        }
        let doc = slice.doc();
        let slice = doc.view::<EndpointSlice>();
        let port = slice.ports().items().find(|p| p.name() == port_name);
        let Some(port) = port.and_then(|p| p.port().int()) else { continue };
        for endpoint in slice.endpoints() {
            if endpoint.conditions().ready().get() == Some(false) {
                continue;
            }
            let node = endpoint.node_name().text();
            for ip in endpoint.addresses().texts().filter(|ip| is_proxyable(ip)) {
                backends.push((node.to_owned(), join(ip, &port.to_string())));
            }
        }
    }
    let Some((node, chosen)) = backends.choose(&mut rand::rng()).cloned() else {
        return Err(ApiError::new(
            503,
            "ServiceUnavailable",
            format!("no endpoints available for service {:?}", address.name),
        ));
    };
    Ok(Backend { node, address: chosen, tls: address.scheme == "https" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_where_pods_can_be() {
        let address = Address::parse("p:80").unwrap();
        let at = |ip: &str| {
            let pod = json!({"spec": {"nodeName": "n"}, "status": {"podIP": ip}});
            pod_backend(Pod::of(&pod), &address).map(|backend| backend.address).map_err(|error| error.message)
        };
        assert_eq!(at("10.244.0.7"), Ok("10.244.0.7:80".into()));
        assert_eq!(at("fd00::7"), Ok("[fd00::7]:80".into()));
        for odd in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "localhost",
            "",
            "224.0.0.1",
        ] {
            assert_eq!(at(odd), Err("address not allowed".into()), "{odd}");
        }
    }

    #[test]
    fn endpoints_of_nodes_are_found_in_every_spelling() {
        for rest in ["exec/ns/p/c", "/exec/ns/p/c", "%65xec/ns/p/c", "%2fexec/ns/p/c", "exec%2fns/p/c"] {
            assert_eq!(endpoint(rest), "exec", "{rest}");
        }
        assert_eq!(endpoint(""), "");
        assert_eq!(endpoint("logs/exec"), "logs");
    }

    #[test]
    fn readers_without_a_path_are_sent_to_the_one_with_a_slash() {
        let page = "/api/v1/namespaces/default/services/site/proxy";
        for (method, path, rest, to) in [
            ("GET", page.to_owned(), "", Some(format!("{page}/"))),
            ("HEAD", format!("{page}?a=b"), "", Some(format!("{page}/?a=b"))),
            ("GET", format!("{page}/"), "", None),
            ("GET", format!("{page}/a/proxy"), "a/proxy", None),
            ("POST", page.to_owned(), "", None),
        ] {
            let request = Request::builder().method(method).uri(&path).body(()).unwrap();
            let answer = redirect(&request, rest);
            let location =
                answer.as_ref().map(|a| (a.status().as_u16(), a.headers()[LOCATION].to_str().unwrap()));
            assert_eq!(location, to.as_deref().map(|to| (301, to)), "{method} {path}");
        }
        let upgrade = Request::get(page).header("connection", "Upgrade").header("upgrade", "websocket");
        assert!(redirect(&upgrade.body(()).unwrap(), "").is_none());
    }
}
