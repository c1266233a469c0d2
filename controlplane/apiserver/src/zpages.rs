//! `/statusz` and `/flagz`: what this server is and which options it has. People get text; programs ask for the structured form with
//! `Accept: application/json;as=Statusz;g=config.k8s.io;v=v1beta1`, or with `application/yaml`. Both paths are authorized as any
//! other path.

use super::context::Context;
use super::discovery::Discovery;
use super::non_resource::NonResource;
use super::request_body::RequestBody;
use super::respond::{self, Body};
use super::version::version;
use async_trait::async_trait;
use coracle_cli::yaml;
use coracle_proto::status::ApiError;
use coracle_proto::time::format_time;
use coracle_proto::version::{KUBERNETES, MINOR};
use http::header::{HeaderValue, WARNING};
use http::{Method, Request, Response};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

const STATUSZ: &str = "/statusz";
const FLAGZ: &str = "/flagz";
const COMPONENT: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
/// Beginnings of paths that are the API, and tell nothing about the server.
const NOT_LISTED: [&str; 5] = ["/apis", "/api", "/openid", "/openapi", "/.well-known"];

/// Serves both pages.
pub struct Zpages {
    started: Timestamp,
    flags: BTreeMap<String, String>,
    discovery: Arc<Discovery>,
}

/// The form of a page.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    Text,
    Structured(Media, &'static str),
}

/// How a structured page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Media {
    Json,
    Yaml,
}

impl Media {
    /// What an offer takes; JSON if it takes both.
    fn of(offer: &str) -> Option<Self> {
        match offer {
            "application/json" | "application/*" | "*/*" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            _ => None,
        }
    }

    fn response(self, page: &Value) -> Response<Body> {
        match self {
            Self::Json => respond::json(200, page),
            Self::Yaml => respond::bytes(200, "application/yaml", yaml::to_string(page)),
        }
    }
}

impl Form {
    /// The first form of an `Accept` header that there is; 406 if there is none.
    fn of(accept: &str, kind: &str) -> Result<Self, ApiError> {
        if accept.trim().is_empty() {
            return Ok(Self::Text);
        }
        for offer in accept.split(',') {
            let mut parts = offer.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let (mut target, mut is_transformed) = (["", "", ""], false);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                if let Some(at) = ["as", "g", "v"].iter().position(|known| *known == name) {
                    (target[at], is_transformed) = (value, true);
                }
            }
            match (Media::of(media), target) {
                (Some(form), [of, GROUP, "v1beta1"]) if of == kind => {
                    return Ok(Self::Structured(form, "v1beta1"));
                }
                (Some(form), [of, GROUP, "v1alpha1"]) if of == kind => {
                    return Ok(Self::Structured(form, "v1alpha1"));
                }
                _ if !is_transformed && matches!(media, "text/plain" | "text/*" | "*/*") => {
                    return Ok(Self::Text);
                }
                _ => {}
            }
        }
        let target = format!("as={kind};g={GROUP};v=v1beta1");
        Err(ApiError::not_acceptable(format!(
            "only the following media types are accepted: application/json;{target}, application/yaml;{target}, text/plain"
        )))
    }
}

impl Zpages {
    /// The pages of a server that starts now. `flags` are shown as they are: secrets must have been taken out.
    pub fn new(flags: BTreeMap<String, String>, discovery: Arc<Discovery>) -> Self {
        Self { started: Timestamp::now(), flags, discovery }
    }

    fn statusz(&self, now: Timestamp) -> Value {
        json!({
            "startTime": format_time(self.started), "uptimeSeconds": self.uptime(now),
            "goVersion": version()["goVersion"], "binaryVersion": number(KUBERNETES),
            "emulationVersion": format!("1.{MINOR}"), "paths": listed(&self.discovery.paths()),
        })
    }

    fn uptime(&self, now: Timestamp) -> i64 {
        now.as_second().saturating_sub(self.started.as_second()).max(0)
    }

    fn statusz_text(&self, now: Timestamp) -> String {
        let up = self.uptime(now);
        format!(
            "{}\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nBinary version: {}\nEmulation version: 1.{MINOR}\nPaths: {}\n",
            heading("statusz"),
            self.started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            up / 3600,
            up / 60 % 60,
            up % 60,
            number(KUBERNETES),
            listed(&self.discovery.paths()).join(" ")
        )
    }

    fn flagz_text(&self) -> String {
        let mut text = heading("flagz");
        text.push('\n');
        for (name, value) in &self.flags {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }
}

/// `1.36.4` of `v1.36.4`.
fn number(version: &str) -> &str {
    version.trim_start_matches('v')
}

fn heading(page: &str) -> String {
    format!(
        "\n{COMPONENT} {page}\nWarning: This page is for people. Its form changes; programs ask for JSON or YAML.\n"
    )
}

/// The first parts of paths, other than those of the API.
fn listed(paths: &[String]) -> Vec<String> {
    let first = paths.iter().filter_map(|path| path.split('/').nth(1)).filter(|part| !part.is_empty());
    let all: BTreeSet<String> = first.map(|part| format!("/{part}")).collect();
    all.into_iter().filter(|path| !NOT_LISTED.contains(&path.as_str())).collect()
}

#[async_trait]
impl NonResource for Zpages {
    fn takes(&self, path: &str) -> bool {
        matches!(path, STATUSZ | FLAGZ)
    }

    async fn serve(
        &self,
        context: &Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let is_status = context.info.path == STATUSZ;
        let kind = if is_status { "Statusz" } else { "Flagz" };
        let (media, version) = match Form::of(context.header("accept"), kind)? {
            Form::Structured(media, version) => (media, version),
            Form::Text if is_status => return Ok(respond::text(200, self.statusz_text(Timestamp::now()))),
            Form::Text => return Ok(respond::text(200, self.flagz_text())),
        };
        let mut page = if is_status { self.statusz(Timestamp::now()) } else { json!({"flags": self.flags}) };
        page["kind"] = json!(kind);
        page["apiVersion"] = json!(format!("{GROUP}/{version}"));
        page["metadata"] = json!({"name": COMPONENT});
        let mut response = media.response(&page);
        if version == "v1alpha1" {
            let why = HeaderValue::from_static("299 - \"v1alpha1 of this page is deprecated, use v1beta1\"");
            response.headers_mut().insert(WARNING, why);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_name_the_form_and_all_others_get_text() {
        let beta = "application/json;as=Statusz;g=config.k8s.io;v=v1beta1";
        for (accept, form) in [
            ("", Some(Form::Text)),
            ("*/*", Some(Form::Text)),
            ("text/plain", Some(Form::Text)),
            ("text/html, */*;q=0.8", Some(Form::Text)),
            (beta, Some(Form::Structured(Media::Json, "v1beta1"))),
            (
                "application/json; v=v1alpha1; g=config.k8s.io; as=Statusz",
                Some(Form::Structured(Media::Json, "v1alpha1")),
            ),
            (
                "application/yaml;as=Statusz;v=v1beta1;g=config.k8s.io",
                Some(Form::Structured(Media::Yaml, "v1beta1")),
            ),
            (
                "application/*;as=Statusz;v=v1beta1;g=config.k8s.io",
                Some(Form::Structured(Media::Json, "v1beta1")),
            ),
            ("application/yaml", None),
            ("application/yaml;as=Flagz;g=config.k8s.io;v=v1beta1", None),
            ("application/json, text/plain", Some(Form::Text)),
            ("application/json", None),
            ("application/json;as=Flagz;g=config.k8s.io;v=v1beta1", None),
            ("application/json;as=Statusz;g=config.k8s.io;v=v1", None),
            ("application/json;as=Statusz;v=v1beta1", None),
            ("text/plain;as=Statusz;g=config.k8s.io;v=v1beta1", None),
            ("application/vnd.kubernetes.protobuf", None),
        ] {
            let found = Form::of(accept, "Statusz").map_err(|error| error.code);
            assert_eq!(found, form.ok_or(406), "{accept}");
        }
    }

    #[test]
    fn paths_of_the_api_are_not_listed() {
        let paths =
            ["/api/v1", "/apis/apps/v1", "/openid/v1/jwks", "/livez", "/debug/scheduler", "/", "/metrics"];
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        assert_eq!(listed(&paths), ["/debug", "/livez", "/metrics"]);
    }
}
