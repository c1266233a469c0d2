//! Logs, exec, attach and port-forward of pods.

use super::websocket;
use crate::authorize::authorize;
use crate::authz::Authorizer;
use crate::connector::Connector;
use crate::context::Context;
use crate::nodes::agent::Nodes;
use crate::nodes::forward;
use crate::request_body::RequestBody;
use crate::request_info::RequestInfo;
use crate::respond::Body;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_fields::core::v1::{Pod, PodExecOptions, PodPortForwardOptions};
use coracle_fields::{Schema as _, View, make};
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::{ApiError, FieldError};
use form_urlencoded::Serializer;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How much of an agent's reason for a refusal is passed on, in bytes.
const REASON: usize = 64 * 1024;
/// How long an agent may take to give it.
const REASON_TIME: Duration = Duration::from_secs(5);

/// Which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// `/log`.
    Log,
    /// `/exec`.
    Exec,
    /// `/attach`.
    Attach,
    /// `/portforward`.
    PortForward,
}

impl Stream {
    /// The subresource.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
        }
    }

    /// What is asked for, as the object that admission sees and may change.
    fn options(self, query: &[(String, String)]) -> Result<Value, ApiError> {
        let all = |key: &str| -> Vec<&str> {
            query.iter().filter(|(k, _)| k == key).map(|(_, value)| value.as_str()).collect()
        };
        if self == Self::PortForward {
            let ports = all("ports").into_iter().flat_map(|ports| ports.split(','));
            let ports: Result<Vec<i32>, ApiError> = ports.map(number).collect();
            let ports = Some(ports?).filter(|ports| !ports.is_empty());
            return Ok(make!(PodPortForwardOptions { ports }).into_value());
        }
        let kind = match self {
            Self::Log => "PodLogOptions",
            Self::Attach => "PodAttachOptions",
            _ => "PodExecOptions",
        };
        // Output is on when nobody says otherwise.
        let usual = ["stdin", "stdout", "stderr"].iter().all(|key| all(key).is_empty());
        let on = |key: &str| all(key).first().is_some_and(|value| matches!(*value, "true" | "1"));
        // Those of attach have the same fields but for the command.
        let made = make!(part PodExecOptions {
            kind,
            api_version: "v1",
            stdin: on("stdin").then_some(true),
            stdout: (usual || on("stdout")).then_some(true),
            stderr: (usual || on("stderr")).then_some(true),
            tty: on("tty").then_some(true),
            container: all("container").first().copied().filter(|name| !name.is_empty()),
            command: (self == Self::Exec).then(|| all("command")),
        });
        Ok(made.into_value())
    }
}

/// A port as clients write it in a query.
fn number(port: &str) -> Result<i32, ApiError> {
    let invalid = || ApiError::bad_request(format!("strconv.ParseInt: parsing {port:?}: invalid syntax"));
    port.trim().parse().map_err(|_| invalid())
}

/// The connector.
pub struct Pods {
    /// Which stream it serves.
    pub what: Stream,
    /// Where the agents are.
    pub nodes: Arc<Nodes>,
    /// Decides about requests that run something and begin with a GET.
    pub authz: Arc<dyn Authorizer>,
    /// Whether a request for a log may name a stream.
    pub split_log_streams: bool,
}

#[async_trait]
impl Connector for Pods {
    async fn options(
        &self,
        context: &Context,
        _kind: &Kind,
        method: &Method,
    ) -> Result<Option<Value>, ApiError> {
        if !forward::is_stream_method(method) || (self.what == Stream::Log && method == Method::POST) {
            return Err(ApiError::method_not_allowed());
        }
        if self.what == Stream::Log {
            return Ok(None);
        }
        if method == Method::GET {
            // WebSockets begin with a GET, and who may only read must not run anything.
            let create = RequestInfo { verb: Verb::Create, ..context.info.clone() };
            authorize(self.authz.as_ref(), &context.user, &create).await?;
        }
        self.what.options(&context.query).map(Some)
    }

    async fn connect(
        &self,
        context: &Context,
        kind: &Kind,
        options: Option<Value>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let info = &context.info;
        let pod = self.nodes.objects().get(kind, &info.namespace, &info.name).await?;
        let doc = pod.doc();
        let pod = doc.view::<Pod>();
        let node = pod.spec().node_name().text();
        let path = self.path(pod, context, &options.unwrap_or_default())?;
        if node.is_empty() {
            // A pod that is nowhere has no logs yet; for the other streams it does not exist.
            if self.what == Stream::Log {
                return Ok(crate::respond::text(200, ""));
            }
            return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", info.name)));
        }
        if self.what != Stream::Log && !forward::wants_upgrade(request.headers()) {
            return Err(ApiError::bad_request("Upgrade request required"));
        }
        let socket = if self.what == Stream::Log && websocket::is_requested(request.headers()) {
            match websocket::accept(&mut request) {
                Ok(socket) => Some(socket),
                Err((code, why)) => return Ok(crate::respond::text(code, why)),
            }
        } else {
            None
        };
        let client = forward::client_side(&mut request);
        let (request, _) = forward::rewritten(request, node, &path)?;
        let mut response = forward::answer(client, self.nodes.send(node, request).await?);
        if self.what == Stream::Log && !response.status().is_success() {
            response = refused(response, &info.name).await;
        } else if self.what == Stream::Log
            && context
                .query
                .iter()
                .any(|(key, value)| key == "follow" && matches!(value.as_str(), "true" | "1"))
        {
            response = response.map(forward::until_failure);
        }
        Ok(match socket {
            Some(socket) if response.status().is_success() => socket.send_body(response.into_body()),
            _ => response,
        })
    }
}

/// What an agent says of a log it does not have becomes a Status.
async fn refused(response: Response<Body>, pod: &str) -> Response<Body> {
    let code = response.status().as_u16();
    let text = reason(response.into_body()).await;
    let error = match code {
        404 => ApiError::new(
            404,
            "NotFound",
            format!("the server could not find the requested resource ( pods/log {pod}): {text}"),
        ),
        400 => ApiError::bad_request(text),
        _ => ApiError::new(500, "InternalError", text),
    };
    crate::respond::error(&error)
}

/// The beginning of an agent's reason for a refusal: as much as the server keeps, and as arrives in time.
async fn reason(mut body: Body) -> String {
    let mut said: Vec<u8> = Vec::new();
    let read = async {
        while said.len() < REASON {
            match body.frame().await {
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    said.extend_from_slice(&data[..data.len().min(REASON - said.len())]);
                }
                Some(Err(error)) => return Some(error),
                None => return None,
            }
        }
        None
    };
    let broken = tokio::time::timeout(REASON_TIME, read).await.unwrap_or_default();
    match broken {
        Some(error) if said.is_empty() => error.to_string(),
        _ => String::from_utf8_lossy(&said).trim().to_owned(),
    }
}

impl Pods {
    /// Path and query of the agent's own API: those of a log from the request, those of a stream from its admitted options.
    fn path(&self, pod: View<'_, Pod>, context: &Context, options: &Value) -> Result<String, ApiError> {
        let info = &context.info;
        let first = |key: &str| context.query.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        let mut query = Serializer::new(String::new());
        let place = format!("{}/{}", info.namespace, info.name);
        // The agent finds this pod or none: another may have its name by then.
        let (uid, exact) = (uid_on_node(pod), format!("{place}/{}", uid_on_node(pod)));
        let path = match self.what {
            Stream::PortForward => {
                let ports = PodPortForwardOptions::of(options).ports();
                for port in ports.items().filter_map(|port| port.int()) {
                    query.append_pair("port", &port.to_string());
                }
                format!("/portForward/{exact}")
            }
            Stream::Log => {
                check_log_options(&info.name, &first, self.split_log_streams)?;
                query.append_pair("uid", uid);
                for key in [
                    "follow",
                    "previous",
                    "sinceSeconds",
                    "sinceTime",
                    "timestamps",
                    "tailLines",
                    "limitBytes",
                    "stream",
                ] {
                    if let Some(value) = first(key) {
                        query.append_pair(key, value);
                    }
                }
                format!("/containerLogs/{place}/{}", container(pod, &info.name, first("container"))?)
            }
            Stream::Exec | Stream::Attach => {
                let options = PodExecOptions::of(options);
                for (on, name) in [
                    (options.stdin(), "input"),
                    (options.stdout(), "output"),
                    (options.stderr(), "error"),
                    (options.tty(), "tty"),
                ] {
                    if on.flag() {
                        query.append_pair(name, "1");
                    }
                }
                let commands: Vec<&str> = options.command().texts().collect();
                if self.what == Stream::Exec {
                    if commands.is_empty() {
                        return Err(ApiError::bad_request(
                            "you must specify at least one command for the container",
                        ));
                    }
                    for command in commands {
                        query.append_pair("command", command);
                    }
                }
                let name = container(pod, &info.name, options.container().get())?;
                format!("/{}/{exact}/{name}", if self.what == Stream::Exec { "exec" } else { "attach" })
            }
        };
        let query = query.finish();
        Ok(if query.is_empty() { path } else { format!("{path}?{query}") })
    }
}

/// The uid that a pod has on its node: that of the manifest for a static pod, which its mirror tells.
fn uid_on_node(pod: View<'_, Pod>) -> &str {
    let mirrored = pod.metadata().annotations().key("kubernetes.io/config.mirror").get();
    let plain =
        |uid: &&str| uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') && !uid.is_empty();
    mirrored.filter(plain).or_else(|| pod.metadata().uid().get()).unwrap_or_default()
}

/// The container that was named, or the only one; 400 with the choices otherwise.
fn container(pod: View<'_, Pod>, name: &str, asked: Option<&str>) -> Result<String, ApiError> {
    let spec = pod.spec();
    let main: Vec<&str> = spec.containers().items().map(|c| c.name().text()).collect();
    let init: Vec<&str> = spec.init_containers().items().map(|c| c.name().text()).collect();
    let ephemeral: Vec<&str> = spec.ephemeral_containers().items().map(|c| c.name().text()).collect();
    match asked.filter(|c| !c.is_empty()) {
        Some(wanted) => {
            let known = main.iter().chain(&init).chain(&ephemeral).any(|c| *c == wanted);
            known.then(|| wanted.to_owned()).ok_or_else(|| {
                ApiError::bad_request(format!("container {wanted} is not valid for pod {name}"))
            })
        }
        None => match main.as_slice() {
            [only] => Ok((*only).to_owned()),
            [] => Err(ApiError::bad_request(format!("a container name must be specified for pod {name}"))),
            _ => {
                let all = [&*init, &*main, &*ephemeral].concat();
                Err(ApiError::bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    all.join(" ")
                )))
            }
        },
    }
}

fn check_log_options<'a>(
    pod: &str,
    first: &impl Fn(&str) -> Option<&'a str>,
    split_streams: bool,
) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let number = |key: &str| first(key).filter(|v| !v.is_empty()).map(|v| (v.to_owned(), v.parse::<i64>()));
    for (key, least, why) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        match number(key) {
            Some((_, Ok(n))) if n < least => causes.push(FieldError::invalid(key, &json!(n), why)),
            Some((text, Err(_))) => {
                return Err(ApiError::bad_request(format!(
                    "strconv.ParseInt: parsing \"{text}\": invalid syntax"
                )));
            }
            _ => {}
        }
    }
    if let Some(text) = first("sinceTime").filter(|text| text.parse::<jiff::Timestamp>().is_err()) {
        return Err(ApiError::bad_request(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        )));
    }
    if first("sinceSeconds").is_some() && first("sinceTime").is_some() {
        causes
            .push(FieldError::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    if !split_streams && first("stream").is_some() {
        causes.push(FieldError::forbidden("stream", "may not be specified"));
    } else if let Some(stream) = first("stream") {
        let streams = ["All", "Stderr", "Stdout"];
        if !streams.contains(&stream) {
            causes.push(FieldError::unsupported("stream", &json!(stream), &streams));
        }
        if stream != "All" && first("tailLines").is_some() {
            let why = "`tailLines` and specific `stream` are mutually exclusive for now";
            causes.push(FieldError::forbidden("", why));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("", "PodLogOptions", pod, causes)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_node_cannot_make_the_server_keep_an_endless_refusal() {
        let answer = |text: String| crate::respond::text(500, text).into_body();
        assert_eq!(reason(answer("x".repeat(2 * REASON))).await.len(), REASON);
        assert_eq!(reason(answer(" gone\n".into())).await, "gone");
    }

    #[test]
    fn log_options_that_contradict_are_refused() {
        let refused_with = |query: &[(&'static str, &'static str)], split: bool| {
            let first = |key: &str| query.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
            check_log_options("p", &first, split).err().map(|error| error.message).unwrap_or_default()
        };
        let refused = |query: &[(&'static str, &'static str)]| refused_with(query, true);
        let invalid = "PodLogOptions \"p\" is invalid: ";
        for (query, said) in [
            (&[("tailLines", "5"), ("stream", "All"), ("limitBytes", "1")][..], ""),
            (&[("sinceTime", "2026-01-01T00:00:00Z")], ""),
            (&[("tailLines", "-1")], "tailLines: Invalid value: -1: must be greater than or equal to 0"),
            (&[("limitBytes", "0")], "limitBytes: Invalid value: 0: must be greater than 0"),
            (
                &[("sinceSeconds", "1"), ("sinceTime", "2026-01-01T00:00:00Z")],
                "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
            (
                &[("stream", "Both")],
                "stream: Unsupported value: \"Both\": supported values: \"All\", \"Stderr\", \"Stdout\"",
            ),
            (
                &[("stream", "Stderr"), ("tailLines", "1")],
                "Forbidden: `tailLines` and specific `stream` are mutually exclusive for now",
            ),
        ] {
            let wanted = if said.is_empty() { String::new() } else { format!("{invalid}{said}") };
            assert_eq!(refused(query), wanted);
        }
        assert_eq!(refused(&[("tailLines", "x")]), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert!(refused(&[("sinceTime", "yesterday")]).starts_with("parsing time \"yesterday\" as"));
        assert_eq!(
            refused_with(&[("stream", "All")], false),
            format!("{invalid}stream: Forbidden: may not be specified")
        );
        assert_eq!(refused_with(&[("tailLines", "1")], false), "");
    }

    #[test]
    fn admission_sees_what_is_asked_for() {
        let query: Vec<(String, String)> =
            [("stdin", "true"), ("tty", "false"), ("container", "c"), ("command", "ls"), ("command", "-l")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        let exec = json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "container": "c", "command": ["ls", "-l"]});
        assert_eq!(Stream::Exec.options(&query).unwrap(), exec);
        let attach = json!({"kind": "PodAttachOptions", "apiVersion": "v1", "stdin": true, "container": "c"});
        assert_eq!(Stream::Attach.options(&query).unwrap(), attach);
        let one = |key: &str, value: &str| [(key.to_owned(), value.to_owned())];
        let quiet = Stream::Attach.options(&one("container", "c")).unwrap();
        assert_eq!((&quiet["stdout"], &quiet["stderr"]), (&json!(true), &json!(true)), "on by default");
        let none = Stream::Attach.options(&one("stdout", "false")).unwrap();
        assert_eq!((&none["stdout"], &none["stderr"]), (&Value::Null, &Value::Null));
        let ports = Stream::PortForward.options(&one("ports", "80,443")).unwrap();
        assert_eq!(ports["ports"], json!([80, 443]));
        let refused = Stream::PortForward.options(&one("ports", "80,x")).unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (400, "strconv.ParseInt: parsing \"x\": invalid syntax")
        );
    }

    #[test]
    fn a_static_pod_has_the_uid_of_its_manifest() {
        let mirror = |value: &str| json!({"metadata": {"uid": "u", "annotations": {"kubernetes.io/config.mirror": value}}});
        assert_eq!(uid_on_node(Pod::of(&json!({"metadata": {"uid": "u"}}))), "u");
        assert_eq!(uid_on_node(Pod::of(&mirror("0a1b-2c"))), "0a1b-2c");
        assert_eq!(uid_on_node(Pod::of(&mirror("a/b?c"))), "u", "no part of another path");
    }

    #[test]
    fn a_container_must_be_named_when_there_are_two() {
        let one = json!({"spec": {"containers": [{"name": "a"}]}});
        assert_eq!(container(Pod::of(&one), "p", None).unwrap(), "a");
        let two = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        let error = container(Pod::of(&two), "p", None).unwrap_err().message;
        assert_eq!(error, "a container name must be specified for pod p, choose one of: [i a b]");
        assert_eq!(container(Pod::of(&two), "p", Some("i")).unwrap(), "i");
        assert_eq!(
            container(Pod::of(&two), "p", Some("x")).unwrap_err().message,
            "container x is not valid for pod p"
        );
    }
}
