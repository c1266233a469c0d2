//! Images that cannot be pulled.

use super::containers::{Slot, containers};
use super::pull_secrets;
use super::registry::{DOCKER, registry};
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::workloads;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::{Event, Node, Pod};

const WAITING: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];

/// Why images of a pod cannot be pulled.
pub fn explain(world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let waiting = containers(pod).into_iter().filter(|slot| WAITING.contains(&slot.waiting()));
    waiting.map(|slot| explain_container(world, pod, slot)).collect()
}

fn explain_container(world: &World, pod: View<'_, Pod>, slot: Slot<'_>) -> Finding {
    let object = ObjectRef::to(pod);
    let image = slot.spec.image().text();
    let all = world.events(&object);
    let failed = pull_event(&all, image);
    let message = slot.status.state().waiting().message().text();
    let text = format!("{message}\n{}", failed.map_or("", |event| event.message().text()));
    let trouble = match slot.waiting() {
        "InvalidImageName" => Trouble::ImageNameInvalid,
        "ErrImageNeverPull" => Trouble::ImageNeverPull,
        _ => classify(&text, registry(image)),
    };
    let secret = match trouble {
        Trouble::ImagePullDenied | Trouble::ImageNotFound => pull_secrets::explain(world, pod, image),
        _ => None,
    };
    let (trouble, cause) = match secret {
        Some(secret) => secret,
        None => (trouble, sentence(world, pod, slot, trouble)),
    };
    Finding::new(object.clone(), trouble, cause)
        .since(failed.map_or_else(|| pod.metadata().creation_timestamp().text(), events::first_seen))
        .evidence(format!("{} waits: {}", slot.title(), slot.waiting()), message)
        .with(failed.map(events::evidence))
        .remedy(remedy(world, trouble, pod, slot))
}

/// The last event of a failed pull of an image.
fn pull_event<'a>(all: &[View<'a, Event>], image: &str) -> Option<View<'a, Event>> {
    events::last(all, &["Failed", "InspectFailed", "ErrImageNeverPull"], |message| {
        message.contains(image) && !message.starts_with("Error: ")
    })
}

/// The trouble that the words of a failed pull name.
pub fn classify(text: &str, registry: &str) -> Trouble {
    const KNOWN: [(Trouble, &[&str]); 8] = [
        (Trouble::RegistryCertificate, &["x509", "certificate", "unknownissuer"]),
        (Trouble::RegistryRateLimited, &["toomanyrequests", "429 too many", "rate limit"]),
        (
            Trouble::ImageArchitecture,
            &["no match for platform", "no matching manifest", "no image for linux/"],
        ),
        (
            Trouble::ImageNotFound,
            &["repository does not exist", "name unknown", "name_unknown", "repository name not known"],
        ),
        (
            Trouble::ImagePullDenied,
            &[
                "unauthorized",
                "authentication required",
                "authorization failed",
                "denied",
                "forbidden",
                "no basic auth",
                "insufficient_scope",
            ],
        ),
        (
            Trouble::RegistryUnreachable,
            &[
                "no such host",
                "connection refused",
                "i/o timeout",
                "no route to host",
                "network is unreachable",
                "failed to lookup",
                "dns error",
                "timed out",
                "deadline exceeded",
                "takes longer than",
                "connection reset",
                "error sending request",
                "server misbehaving",
                "503 service unavailable",
                "500 internal server error",
            ],
        ),
        (Trouble::ImageTagNotFound, &["manifest unknown", "manifest_unknown", "not found"]),
        (Trouble::ImageNameInvalid, &["invalid reference format", "couldn't parse image name"]),
    ];
    let text = text.to_lowercase();
    let known = KNOWN.iter().find(|(_, words)| words.iter().any(|word| text.contains(word)));
    match known {
        // Container engines say for every refusal that the repository may not exist. Docker Hub refuses what does not exist,
        // other registries refuse what needs credentials.
        Some((Trouble::ImageNotFound, _)) if registry != DOCKER && is_refusal(&text) => {
            Trouble::ImagePullDenied
        }
        Some((trouble, _)) => *trouble,
        None => Trouble::ImagePullFailed,
    }
}

/// Whether the words of a failed pull, in lower case, are those of a registry that wants credentials.
fn is_refusal(text: &str) -> bool {
    ["unauthorized", "authentication required", "authorization failed for"]
        .iter()
        .any(|word| text.contains(word))
}

fn sentence(world: &World, pod: View<'_, Pod>, slot: Slot<'_>, trouble: Trouble) -> String {
    let (image, title) = (slot.spec.image().text(), slot.title());
    let (registry, node) = (registry(image), pod.spec().node_name().text());
    match trouble {
        Trouble::ImageNameInvalid => format!("{title}: {image:?} is not the name of an image"),
        Trouble::ImageNeverPull => {
            format!("{title}: image {image} is not on node {node}, and imagePullPolicy is Never")
        }
        Trouble::RegistryCertificate => {
            format!("{title}: node {node} does not trust the certificate of the registry {registry}")
        }
        Trouble::RegistryRateLimited => format!("{title}: the registry {registry} limits the rate of pulls"),
        Trouble::ImageArchitecture => {
            let found = world.get::<Node>("", node).view();
            let architecture = found.map_or("that", |node| node.status().node_info().architecture().text());
            format!(
                "{title}: image {image} has no variant for the architecture of node {node} ({architecture})"
            )
        }
        Trouble::ImageNotFound => {
            format!("{title}: the registry {registry} has no repository of image {image}, or it is private")
        }
        Trouble::ImagePullDenied => format!(
            "{title}: the registry {registry} refuses to give image {image} without valid credentials"
        ),
        Trouble::RegistryUnreachable => format!("{title}: node {node} cannot reach the registry {registry}"),
        Trouble::ImageTagNotFound => format!("{title}: the registry {registry} has no image {image}"),
        _ => format!("{title}: image {image} cannot be pulled"),
    }
}

fn remedy(world: &World, trouble: Trouble, pod: View<'_, Pod>, slot: Slot<'_>) -> String {
    let (object, name) = (ObjectRef::to(pod), slot.name());
    let node = pod.spec().node_name().text();
    let set = match workloads::template_of(world, pod) {
        Some(owner) => format!("kubectl set image {} {name}=IMAGE", owner.arguments()),
        None => format!(
            "kubectl set image {} {name}=IMAGE (or on the workload that made the pod)",
            object.arguments()
        ),
    };
    match trouble {
        Trouble::ImagePullDenied | Trouble::ImagePullSecretMissing | Trouble::ImagePullSecretInvalid => {
            // The name is known where the pod names one Secret.
            let mut names = pod.spec().image_pull_secrets().items().map(|secret| secret.name().text());
            let name = match (names.next(), names.next()) {
                (Some(name), None) if trouble == Trouble::ImagePullSecretMissing => name,
                _ => "NAME",
            };
            let create = format!(
                "kubectl create secret docker-registry {name} -n {} --docker-server={}",
                object.namespace,
                registry(slot.spec.image().text())
            );
            format!("{create} …, and name it in spec.imagePullSecrets or in the ServiceAccount")
        }
        Trouble::RegistryUnreachable => {
            format!("check network, DNS and proxy settings of node {node}, and that the registry runs")
        }
        Trouble::RegistryCertificate => {
            format!("add the registry's authority to the trusted ones of node {node}")
        }
        Trouble::RegistryRateLimited => {
            "wait, pull with an account (imagePullSecrets), or use a mirror".to_owned()
        }
        Trouble::ImageNeverPull => {
            format!("load the image on node {node}, or set imagePullPolicy: IfNotPresent")
        }
        Trouble::ImageArchitecture => format!(
            "use an image that is built for the node's architecture, or a nodeSelector for kubernetes.io/arch: {set}"
        ),
        _ => set,
    }
}
