//! `coracle up --demo`: three replicas of nginx behind a Service, at a port of this machine, and where the time went.

use super::options::UpArgs;
use super::published::{Publish, PublishArg, Target};
use super::state::{State, node_name};
use crate::admin::refusal;
use crate::explain::trace::{self, TraceArgs};
use anyhow::{Context as _, bail};
use coracle_apiserver::https_client::{HttpsClient, HttpsClientError};
use coracle_fields::apps::v1::Deployment;
use coracle_fields::core::v1::Service;
use coracle_fields::{Made, Schema as _, View, make};
use http::Method;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The image, as nodes name it.
const IMAGE: &str = "docker.io/library/nginx:latest";
/// Its archive in a release, from the directory above that of the programs.
const ARCHIVE: &str = "images/nginx.tar";
/// Name of the Deployment and of the Service.
const NAME: &str = "web";
const REPLICAS: i32 = 3;
const PORT: u16 = 80;
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// How long the pods may take to be ready, and then the page to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// Pause between looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Exit code of `coracle trace` if the server does not answer.
const AWAY: i32 = 3;

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    /// No image before anything was started.
    #[error(
        "--demo: the image {IMAGE} is not there: there is no {}, and no node has it; \
         --image ARCHIVE names an archive of it, such as that of `docker save nginx`",
        .0.display()
    )]
    NoImage(PathBuf),
    /// No image in what was loaded.
    #[error("--demo: {0} has no image {IMAGE} after loading {1}")]
    NotLoaded(String, String),
    /// The program that lists images cannot be run.
    #[error("cannot run {}", .0.display())]
    Agent(PathBuf, #[source] io::Error),
    /// It fails.
    #[error("cannot list the images of a node: {0}")]
    Images(String),
    /// It prints something else.
    #[error("cannot read the list of the images of a node")]
    Listing(#[source] serde_json::Error),
    /// No port was published for it.
    #[error("no port leads to {0}")]
    NotPublished(Target),
    /// The API server does not answer.
    #[error("the API server does not answer")]
    Ask(#[from] HttpsClientError),
    /// It refuses.
    #[error("{0}: {1}")]
    Refused(&'static str, String),
    /// Pods that do not become ready.
    #[error(
        "{ready} of {wanted} pods are ready after {} s; `coracle why deployment/{NAME}` may say why",
        PATIENCE.as_secs()
    )]
    NotReady {
        /// How many are.
        ready: i64,
        /// How many should be.
        wanted: i64,
    },
    /// A page that does not come.
    #[error("{0} does not answer; `coracle logs publish` may say why")]
    NoAnswer(String),
}

/// What runs.
#[derive(Debug, Serialize)]
pub(super) struct Demo {
    /// What a browser opens.
    url: String,
    /// Objects that were not there before.
    created: Vec<&'static str>,
    /// Ready pods.
    ready: i64,
    /// From the start of the command to the answer of the page.
    seconds: f64,
}

impl Demo {
    /// What people read before the timeline.
    pub(super) fn text(&self) -> String {
        let created: String = self.created.iter().map(|name| format!("{name} created\n")).collect();
        let Self { url, ready, seconds, .. } = self;
        format!(
            "\n{created}{ready} of {ready} pods of deployment.apps/{NAME} are ready\n\
             {url} answers after {seconds:.2} s\n\n\
             open in a browser on this machine: {url}\n\n\
             $ coracle trace deployment/{NAME} --short\n"
        )
    }
}

/// What the published port leads to.
fn target() -> Target {
    Target::Service { namespace: "default".into(), name: NAME.into(), port: PORT.to_string() }
}

/// Adds a port and the image to the options. Fails before anything is started if there is no image. `program` is this one.
pub(super) fn prepare(args: &mut UpArgs, state: &State, program: &Path) -> Result<(), DemoError> {
    let target = target();
    let is_published =
        args.publish.iter().any(|each| matches!(each, PublishArg::Add(said) if said.target == target));
    if !is_published {
        args.publish.push(PublishArg::Add(Publish { port: 0, target }));
    }
    if !args.image.is_empty() {
        return Ok(());
    }
    let release = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let archive = release.join(ARCHIVE);
    if archive.is_file() {
        // Nodes that are added later load what was loaded before, too.
        args.image =
            state.images.iter().filter(|known| **known != archive && known.is_file()).cloned().collect();
        args.image.push(archive);
        return Ok(());
    }
    match has_image(program, &store(&args.data_dir(), state))? {
        true => Ok(()),
        false => Err(DemoError::NoImage(archive)),
    }
}

/// Fails if the first node, into which the images were loaded, does not have the one that is needed.
pub(super) fn check(args: &UpArgs, state: &State, program: &Path) -> Result<(), DemoError> {
    let dir = args.data_dir();
    if has_image(program, &store(&dir, state))? {
        return Ok(());
    }
    let loaded: Vec<String> = args.image.iter().map(|archive| archive.display().to_string()).collect();
    Err(DemoError::NotLoaded(first_node(state), loaded.join(", ")))
}

fn first_node(state: &State) -> String {
    node_name(state.numbers().next().unwrap_or(1))
}

/// The image store of the first node.
fn store(data_dir: &Path, state: &State) -> PathBuf {
    data_dir.join(first_node(state)).join("engine/images")
}

/// An image of a store, as `coracle-agent image ls --json` prints it.
#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(default)]
    repo_tags: Vec<String>,
}

/// Whether a store has the image.
fn has_image(program: &Path, store: &Path) -> Result<bool, DemoError> {
    // Listing would make it.
    if !store.is_dir() {
        return Ok(false);
    }
    let agent = program.with_file_name("coracle-agent");
    let mut command = Command::new(&agent);
    command.args(["image", "--image-dir"]).arg(store).args(["ls", "--json"]);
    let output = command.output().map_err(|error| DemoError::Agent(agent, error))?;
    if !output.status.success() {
        return Err(DemoError::Images(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let images: Vec<Listed> = serde_json::from_slice(&output.stdout).map_err(DemoError::Listing)?;
    Ok(images.iter().any(|image| image.repo_tags.iter().any(|tag| tag == IMAGE)))
}

/// Creates what is not there, and waits until the page answers.
pub(super) fn run(state: &State, kubeconfig: &Path, begun: Instant) -> anyhow::Result<Demo> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let demo = runtime.block_on(deploy(state, kubeconfig, begun));
    demo.with_context(|| format!("the cluster runs (KUBECONFIG={}), but not the demo", kubeconfig.display()))
}

async fn deploy(state: &State, kubeconfig: &Path, begun: Instant) -> Result<Demo, DemoError> {
    let target = target();
    let published = state.published.iter().find(|each| each.target == target);
    let base = published.ok_or(DemoError::NotPublished(target))?.url();
    let remote = HttpsClient::from_kubeconfig(kubeconfig)?.with_timeout(REQUEST);
    let mut created = Vec::new();
    for (name, path, object) in [
        ("deployment.apps/web", DEPLOYMENTS, deployment().into_value()),
        ("service/web", SERVICES, service().into_value()),
    ] {
        let (code, answer) = remote.send(Method::POST, path, Some(&object)).await?;
        match code {
            201 => created.push(name),
            // That of before, which may have been scaled since.
            409 => {}
            _ => return Err(DemoError::Refused(name, refusal(&answer, "the server refused").to_owned())),
        }
    }
    let ready = rolled_out(&remote).await?;
    answers(&remote.at(&base)).await?;
    Ok(Demo { url: format!("{base}/"), created, ready, seconds: begun.elapsed().as_secs_f64() })
}

fn deployment() -> Made<Deployment> {
    make!(Deployment {
        metadata: { name: NAME, labels: [("app", NAME)] },
        spec: {
            replicas: REPLICAS,
            selector: { match_labels: [("app", NAME)] },
            template: {
                metadata: { labels: [("app", NAME)] },
                spec: { containers: [{ name: "nginx", image: "nginx" }] },
            },
        },
    })
}

fn service() -> Made<Service> {
    make!(Service {
        metadata: { name: NAME, labels: [("app", NAME)] },
        spec: { selector: [("app", NAME)], ports: [{ port: PORT }] },
    })
}

/// How far a Deployment is.
#[derive(Debug, PartialEq, Eq)]
struct Rollout {
    ready: i64,
    wanted: i64,
    is_complete: bool,
}

impl Rollout {
    fn of(deployment: View<'_, Deployment>) -> Self {
        let (meta, status) = (deployment.metadata(), deployment.status());
        let wanted = deployment.spec().replicas().or(1);
        let (updated, ready) = (status.updated_replicas().or(0), status.available_replicas().or(0));
        let is_seen = status.observed_generation().or(0) >= meta.generation().or(0);
        let is_complete =
            is_seen && updated >= wanted && ready >= wanted && status.replicas().or(0) <= updated;
        Self { ready, wanted, is_complete }
    }
}

/// Waits until all pods are ready; how many they are.
async fn rolled_out(remote: &HttpsClient) -> Result<i64, DemoError> {
    let (begun, path) = (Instant::now(), format!("{DEPLOYMENTS}/{NAME}"));
    loop {
        let (code, answer) = remote.send(Method::GET, &path, None).await?;
        if code != 200 {
            let why = refusal(&answer, "it could not be read").to_owned();
            return Err(DemoError::Refused("deployment.apps/web", why));
        }
        let Rollout { ready, wanted, is_complete } = Rollout::of(Deployment::of(&answer));
        if is_complete {
            return Ok(wanted);
        }
        if begun.elapsed() > PATIENCE {
            return Err(DemoError::NotReady { ready, wanted });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the page answers: the rules of the Service follow the pods.
async fn answers(page: &HttpsClient) -> Result<(), DemoError> {
    let begun = Instant::now();
    while !matches!(page.send(Method::GET, "/", None).await, Ok((200, _))) {
        if begun.elapsed() > PATIENCE {
            return Err(DemoError::NoAnswer(format!("{}/", page.url())));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Draws what the Deployment caused. Of one that is older than the timelines nothing is kept, and pods that were started again since
/// are shown as such: neither is an error here, because the page answers.
pub(super) fn show_timeline(kubeconfig: &Path) -> anyhow::Result<()> {
    let args = TraceArgs::short_of_object(&format!("deployment/{NAME}"), kubeconfig)?;
    if trace::run(&args)? == AWAY {
        bail!("the timeline of the demo cannot be read");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cluster_args::ClusterArgs;
    use crate::output::Output;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt as _;

    fn args(dir: &Path) -> UpArgs {
        UpArgs::as_before(ClusterArgs::of(dir), Vec::new(), Output::Text)
    }

    /// A release with an agent that lists an image; the path of its `coracle`.
    fn release(dir: &Path, image: &str) -> PathBuf {
        let agent = dir.join("bin/coracle-agent");
        std::fs::create_dir_all(dir.join("bin")).unwrap();
        std::fs::write(&agent, format!("#!/bin/sh\necho '[{{\"repo_tags\": [\"{image}\"]}}]'\n")).unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        dir.join("bin/coracle")
    }

    #[test]
    fn the_image_is_that_of_the_option_of_the_release_or_of_a_node() {
        let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = release(dir.path(), IMAGE);
        let archive = dir.path().join(ARCHIVE);
        let state = State { node_count: 1, ..State::default() };
        let error = prepare(&mut args(data.path()), &state, &program).unwrap_err().to_string();
        assert!(error.contains(&archive.display().to_string()) && error.contains("--image"), "{error}");

        std::fs::create_dir_all(data.path().join("node-1/engine/images")).unwrap();
        let mut of_node = args(data.path());
        prepare(&mut of_node, &state, &program).unwrap();
        assert!(of_node.image.is_empty());

        std::fs::create_dir(dir.path().join("images")).unwrap();
        std::fs::write(&archive, "").unwrap();
        let mut of_release = args(data.path());
        prepare(&mut of_release, &state, &program).unwrap();
        assert_eq!(of_release.image, [archive]);

        let mut of_option = UpArgs { image: vec!["own.tar".into()], ..args(data.path()) };
        prepare(&mut of_option, &state, &program).unwrap();
        assert_eq!(of_option.image, [PathBuf::from("own.tar")]);
    }

    #[test]
    fn archives_without_the_image_are_named() {
        let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(data.path().join("node-1/engine/images")).unwrap();
        let state = State { node_count: 1, ..State::default() };
        let args = UpArgs { image: vec!["own.tar".into()], ..args(data.path()) };
        let other = release(dir.path(), "docker.io/library/busybox:latest");
        let error = check(&args, &state, &other).unwrap_err().to_string();
        assert!(error.contains("node-1") && error.contains("own.tar"), "{error}");
        check(&args, &state, &release(dir.path(), IMAGE)).unwrap();
    }

    #[test]
    fn one_port_leads_to_the_demo() {
        let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = release(dir.path(), IMAGE);
        for said in [vec![], vec!["8080:web:80".parse().unwrap()]] {
            let mut args = UpArgs { publish: said, image: vec!["own.tar".into()], ..args(data.path()) };
            prepare(&mut args, &State::default(), &program).unwrap();
            let [PublishArg::Add(only)] = &args.publish[..] else { panic!("{:?}", args.publish) };
            assert_eq!(only.target, target());
        }
    }

    #[test]
    fn a_rollout_is_complete_when_the_new_pods_are_available_and_no_others_are_left() {
        let of = |generation: i64, replicas: i64, updated: i64, available: i64| {
            let status = json!({"observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated,
                "availableReplicas": available});
            let object =
                json!({"metadata": {"generation": generation}, "spec": {"replicas": 3}, "status": status});
            Rollout::of(Deployment::of(&object)).is_complete
        };
        assert!(of(2, 3, 3, 3));
        for (generation, replicas, updated, available) in
            [(3, 3, 3, 3), (2, 4, 3, 3), (2, 3, 2, 3), (2, 3, 3, 2), (2, 0, 0, 0)]
        {
            assert!(
                !of(generation, replicas, updated, available),
                "{generation} {replicas} {updated} {available}"
            );
        }
        let new = json!({"metadata": {"generation": 1}, "spec": {"replicas": 3}});
        assert_eq!(Rollout::of(Deployment::of(&new)), Rollout { ready: 0, wanted: 3, is_complete: false });
    }
}
