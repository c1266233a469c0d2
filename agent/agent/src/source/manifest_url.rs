//! Static pods from a URL (`--manifest-url`): a Pod or a list of Pods. It is asked again and again, because nobody tells when it
//! changes.
//!
//! While it does not answer, or with something else, the pods stay as they are. The last usable answer is kept on disk: an agent that
//! is restarted meanwhile does not take its pods for leftovers.

use super::mirror::Mirrors;
use super::static_pods::{self, ManifestError, Origin, StaticPods};
use crate::cluster::Make;
use crate::config::ManifestUrl;
use crate::lifecycle::worker::Workers;
use crate::pod::spec;
use coracle_cli::{causes, private_files};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The largest answer.
const LIMIT: usize = 10 << 20;
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("request failed")]
    Request(#[from] reqwest::Error),
    #[error("status code {0}")]
    Status(u16),
    #[error("the answer is larger than {LIMIT} bytes")]
    TooLarge,
    #[error("the answer is empty")]
    Empty,
    #[error("the answer is not UTF-8")]
    NotText(#[from] std::string::FromUtf8Error),
}

/// The last usable answer, on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    url: String,
    text: String,
}

#[derive(Clone)]
struct Source {
    settings: ManifestUrl,
    client: reqwest::Client,
    pods: StaticPods,
    saved: PathBuf,
}

/// Starts the pods of the last answer, and returns what makes the task that asks the URL from then on, for ever.
pub fn follow(
    workers: Workers,
    mirrors: Mirrors,
    settings: ManifestUrl,
    saved: PathBuf,
) -> Result<Make, reqwest::Error> {
    let client = client(&settings)?;
    let source = Source { settings, client, pods: StaticPods::new(workers, mirrors), saved };
    let last =
        std::fs::read(&source.saved).ok().and_then(|bytes| serde_json::from_slice::<Saved>(&bytes).ok());
    if let Some(last) = last.filter(|last| last.url == source.settings.url) {
        source.apply(&last.text);
    }
    let make: Make = Box::new(move || Box::pin(source.clone().poll()));
    Ok(make)
}

fn client(settings: &ManifestUrl) -> Result<reqwest::Client, reqwest::Error> {
    // An error means that a crypto provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("coracle/", env!("CARGO_PKG_VERSION")))
        .default_headers(settings.headers.clone())
        .redirect(reqwest::redirect::Policy::limited(3))
        .timeout(TIMEOUT)
        .build()
}

impl Source {
    async fn poll(self) {
        let (mut last, mut failure) = (String::new(), String::new());
        loop {
            match fetch(&self.client, &self.settings.url).await {
                Ok(text) if text == last => failure.clear(),
                Ok(text) => {
                    failure.clear();
                    if self.apply(&text) {
                        self.save(&text);
                    }
                    last = text;
                }
                Err(error) => {
                    let why = causes::chain(&error);
                    // It may be away for long: what is wrong is told once.
                    if why != failure {
                        tracing::warn!(
                            url = self.settings.url,
                            why,
                            "manifest URL cannot be read, will retry"
                        );
                    }
                    failure = why;
                }
            }
            tokio::time::sleep(self.settings.every).await;
        }
    }

    /// Starts and ends pods as an answer says; whether it could be read. Bad pods in it are logged and skipped.
    fn apply(&self, text: &str) -> bool {
        let url = self.settings.url.as_str();
        let from = Origin { place: url, source: "http", node: &self.pods.mirrors.node };
        let error = match pods(text, from) {
            Ok((pods, errors)) => {
                for error in errors {
                    tracing::error!(error = %causes::chain(&error), "invalid static pod manifest skipped");
                }
                self.pods.apply(pods);
                return true;
            }
            Err(error) => error,
        };
        tracing::error!(error = %causes::chain(&error), "answer of the manifest URL skipped");
        false
    }

    fn save(&self, text: &str) {
        let saved = Saved { url: self.settings.url.clone(), text: text.to_owned() };
        let bytes = serde_json::to_vec(&saved).unwrap_or_default();
        if let Err(error) = private_files::write(&self.saved, &bytes) {
            tracing::warn!(path = %self.saved.display(), error = %causes::chain(&error), "manifests not saved");
        }
    }
}

async fn fetch(client: &reqwest::Client, url: &str) -> Result<String, FetchError> {
    let mut response = client.get(url).send().await?;
    let code = response.status().as_u16();
    if code != 200 {
        return Err(FetchError::Status(code));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > LIMIT {
            return Err(FetchError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    if body.is_empty() { Err(FetchError::Empty) } else { Ok(String::from_utf8(body)?) }
}

type Pods = BTreeMap<String, Arc<Pod>>;

/// The pods of an answer by uid, and what is wrong with others in it.
fn pods(text: &str, from: Origin<'_>) -> Result<(Pods, Vec<ManifestError>), ManifestError> {
    let value = static_pods::content(text, from.place)?;
    let is_list = matches!(value.get("kind").and_then(Value::as_str), Some("PodList" | "List"));
    let items = match value {
        Value::Object(mut fields) if is_list => match fields.remove("items") {
            Some(Value::Array(items)) => items,
            Some(Value::Null) | None => Vec::new(),
            Some(_) => return Err(ManifestError::Items { origin: from.place.to_owned() }),
        },
        value => return one(value, from).map(|pod| (BTreeMap::from([pod]), Vec::new())),
    };
    let (mut pods, mut errors) = (BTreeMap::new(), Vec::new());
    for mut item in items {
        // Items of a PodList need not say what they are.
        if let Value::Object(fields) = &mut item {
            fields.entry("kind").or_insert_with(|| "Pod".into());
        }
        match one(item, from) {
            Ok((uid, pod)) => _ = pods.insert(uid, pod),
            Err(error) => errors.push(error),
        }
    }
    Ok((pods, errors))
}

/// A pod and its uid, which changes with its own manifest only.
fn one(value: Value, from: Origin<'_>) -> Result<(String, Arc<Pod>), ManifestError> {
    let text = value.to_string();
    let pod = static_pods::pod(value, &text, from)?;
    Ok((spec::uid(&pod).to_owned(), Arc::new(pod)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use reqwest::header::{HeaderMap, HeaderValue};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const FROM: Origin<'static> = Origin { place: "http://x/pods", source: "http", node: "Node1" };
    const POD: &str =
        "{kind: Pod, apiVersion: v1, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}";

    #[test]
    fn an_answer_is_a_pod_or_a_list_of_pods() {
        let (one, errors) = pods(POD, FROM).unwrap();
        let pod = one.values().next().unwrap();
        assert_eq!((spec::name(pod), errors.len()), ("web-node1", 0));
        assert!(spec::is_static(pod));
        let list = format!(
            "kind: PodList\nitems:\n- {POD}\n- {{metadata: {{name: db}}, spec: {{containers: [{{name: c, image: i}}]}}}}\n- {{metadata: {{name: none}}}}\n"
        );
        let (two, errors) = pods(&list, FROM).unwrap();
        assert_eq!(
            two.keys().filter(|uid| one.contains_key(*uid)).count(),
            1,
            "the same manifest is the same pod"
        );
        assert_eq!(two.len(), 2);
        assert!(errors[0].to_string().ends_with("spec.containers: Required value"), "{}", errors[0]);
        assert!(pods("kind: PodList\n", FROM).unwrap().0.is_empty());
        for wrong in ["kind: Service", "<html>", "kind: PodList\nitems: 1", ""] {
            assert!(pods(wrong, FROM).is_err(), "{wrong}");
        }
    }

    /// Answers one request with these bytes, and returns the request.
    async fn answer(bytes: Vec<u8>) -> (String, tokio::task::JoinHandle<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/pods", listener.local_addr().unwrap());
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 4096];
            let length = stream.read(&mut buffer).await.unwrap();
            let _ = stream.write_all(&bytes).await;
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        });
        (url, asked)
    }

    async fn fetched(bytes: Vec<u8>) -> (Result<String, FetchError>, String) {
        let (url, asked) = answer(bytes).await;
        let headers =
            HeaderMap::from_iter([(reqwest::header::AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
        let settings = ManifestUrl { url: url.clone(), headers, every: Duration::from_secs(20) };
        let found = fetch(&client(&settings).unwrap(), &url).await;
        (found, asked.await.unwrap())
    }

    #[tokio::test]
    async fn answers_are_bounded_and_requests_have_the_headers() {
        let response = |code: &str, body: &str| {
            format!("HTTP/1.1 {code}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
                .into_bytes()
        };
        let (text, asked) = fetched(response("200 OK", POD)).await;
        assert_eq!(text.unwrap(), POD);
        assert!(
            asked.starts_with("GET /pods HTTP/1.1") && asked.contains("authorization: Bearer x"),
            "{asked}"
        );
        assert!(matches!(fetched(response("503 No", "x")).await.0, Err(FetchError::Status(503))));
        assert!(matches!(fetched(response("200 OK", "")).await.0, Err(FetchError::Empty)));
        let large = "x".repeat(LIMIT + 1);
        assert!(matches!(fetched(response("200 OK", &large)).await.0, Err(FetchError::TooLarge)));
    }
}
