//! What a container needs before it can be created: ConfigMaps, Secrets, keys, a user, commands.

use super::containers::{Slot, containers};
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::kinds::Resource;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use coracle_cli::closest::suggestion;
use coracle_fields::core::v1::{ConfigMap, KeyToPath, Pod, Secret};
use coracle_fields::{Bool, List, View};

/// A reference to a ConfigMap or a Secret that must exist.
struct Reference<'a> {
    secret: bool,
    name: &'a str,
    keys: Vec<&'a str>,
    field: String,
}

/// Why containers of a pod cannot be created.
pub fn explain(world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let slots = containers(pod);
    let waiting = |slot: &&Slot<'_>| slot.status.state().waiting().is_set();
    if pod.spec().node_name().text().is_empty() || !slots.iter().any(|slot| waiting(&slot)) {
        return Vec::new();
    }
    let references = references(pod, &slots);
    let missing: Vec<Finding> =
        references.iter().filter_map(|reference| check(world, pod, reference)).collect();
    if !missing.is_empty() {
        return missing;
    }
    slots.iter().filter(waiting).filter_map(|slot| refused(world, pod, *slot)).collect()
}

fn required(optional: View<'_, Bool>) -> bool {
    !optional.flag()
}

fn keys(items: View<'_, List<KeyToPath>>) -> Vec<&str> {
    items.items().map(|item| item.key().text()).collect()
}

fn references<'a>(pod: View<'a, Pod>, slots: &[Slot<'a>]) -> Vec<Reference<'a>> {
    let mut all = Vec::new();
    for slot in slots {
        of_environment(*slot, &mut all);
    }
    for volume in pod.spec().volumes().items() {
        let field = format!("volume {}", volume.name().text());
        let (map, secret) = (volume.config_map(), volume.secret());
        if map.is_set() && required(map.optional()) {
            all.push(Reference {
                secret: false,
                name: map.name().text(),
                keys: keys(map.items()),
                field: field.clone(),
            });
        }
        if secret.is_set() && required(secret.optional()) {
            all.push(Reference {
                secret: true,
                name: secret.secret_name().text(),
                keys: keys(secret.items()),
                field: field.clone(),
            });
        }
        for source in volume.projected().sources().items() {
            let (map, secret) = (source.config_map(), source.secret());
            if map.is_set() && required(map.optional()) {
                all.push(Reference {
                    secret: false,
                    name: map.name().text(),
                    keys: keys(map.items()),
                    field: field.clone(),
                });
            }
            if secret.is_set() && required(secret.optional()) {
                all.push(Reference {
                    secret: true,
                    name: secret.name().text(),
                    keys: keys(secret.items()),
                    field: field.clone(),
                });
            }
        }
    }
    all
}

fn of_environment<'a>(slot: Slot<'a>, all: &mut Vec<Reference<'a>>) {
    for variable in slot.spec.env().items() {
        let field = format!("{}, variable {}", slot.title(), variable.name().text());
        let (map, secret) =
            (variable.value_from().config_map_key_ref(), variable.value_from().secret_key_ref());
        if map.is_set() && required(map.optional()) {
            all.push(Reference {
                secret: false,
                name: map.name().text(),
                keys: vec![map.key().text()],
                field: field.clone(),
            });
        }
        if secret.is_set() && required(secret.optional()) {
            all.push(Reference {
                secret: true,
                name: secret.name().text(),
                keys: vec![secret.key().text()],
                field,
            });
        }
    }
    for source in slot.spec.env_from().items() {
        let field = format!("{}, envFrom", slot.title());
        let (map, secret) = (source.config_map_ref(), source.secret_ref());
        if map.is_set() && required(map.optional()) {
            all.push(Reference {
                secret: false,
                name: map.name().text(),
                keys: Vec::new(),
                field: field.clone(),
            });
        }
        if secret.is_set() && required(secret.optional()) {
            all.push(Reference { secret: true, name: secret.name().text(), keys: Vec::new(), field });
        }
    }
}

/// The keys of a ConfigMap or Secret, none when it does not exist, nothing when that is not known.
fn keys_of<'a>(world: &'a World, namespace: &str, reference: &Reference<'_>) -> Option<Option<Vec<&'a str>>> {
    if reference.secret {
        return match world.get::<Secret>(namespace, reference.name) {
            Found::Yes(secret) => Some(Some(secret.data().entries().map(|(key, _)| key).collect())),
            Found::No => Some(None),
            Found::Unknown => None,
        };
    }
    match world.get::<ConfigMap>(namespace, reference.name) {
        Found::Yes(map) => {
            let (text, binary) = (map.data(), map.binary_data());
            let keys = text.entries().map(|(key, _)| key).chain(binary.entries().map(|(key, _)| key));
            Some(Some(keys.collect()))
        }
        Found::No => Some(None),
        Found::Unknown => None,
    }
}

fn check(world: &World, pod: View<'_, Pod>, reference: &Reference<'_>) -> Option<Finding> {
    let namespace = pod.metadata().namespace().text();
    let (kind, resource) = match reference.secret {
        true => ("Secret", Resource::of::<Secret>()),
        false => ("ConfigMap", Resource::of::<ConfigMap>()),
    };
    let (name, field) = (reference.name, &reference.field);
    let (trouble, cause, remedy) = match keys_of(world, namespace, reference)? {
        None => {
            let similar = suggestion(name, world.names(&resource, namespace));
            let trouble = if reference.secret { Trouble::SecretMissing } else { Trouble::ConfigMapMissing };
            let remedy = format!(
                "create the {kind} {name} in namespace {namespace}, or correct the reference in the pod"
            );
            (trouble, format!("the {kind} {name} does not exist ({field}){similar}"), remedy)
        }
        Some(keys) => {
            let key = reference.keys.iter().find(|key| !keys.contains(key))?;
            let similar = suggestion(key, keys.iter().copied());
            let trouble =
                if reference.secret { Trouble::SecretKeyMissing } else { Trouble::ConfigMapKeyMissing };
            let remedy =
                format!("add the key {key} to the {kind} {name}, or correct the reference in the pod");
            (trouble, format!("the {kind} {name} has no key {key} ({field}){similar}"), remedy)
        }
    };
    let object = ObjectRef::to(pod);
    let all = world.events(&object);
    let event = events::last(&all, &["Failed", "FailedMount"], |message| message.contains(name));
    let finding = Finding::new(object, trouble, cause)
        .since(event.map_or_else(|| pod.metadata().creation_timestamp().text(), events::first_seen))
        .with(event.map(events::evidence))
        .remedy(remedy);
    Some(finding)
}

/// What the message of a container that cannot be created says.
fn refused(world: &World, pod: View<'_, Pod>, slot: Slot<'_>) -> Option<Finding> {
    let reason = slot.waiting();
    if !matches!(reason, "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") {
        return None;
    }
    let object = ObjectRef::to(pod);
    let message = slot.status.state().waiting().message().text();
    let all = world.events(&object);
    let event =
        events::last(&all, &["Failed"], |text| text.starts_with("Error: ") || text.contains(slot.name()));
    let text = if message.is_empty() { event.map_or("", |event| event.message().text()) } else { message };
    let (trouble, cause, remedy) = by_message(slot, text);
    let finding = Finding::new(object, trouble, cause)
        .since(event.map_or_else(|| pod.metadata().creation_timestamp().text(), events::first_seen))
        .evidence(format!("{} waits: {reason}", slot.title()), message)
        .with(event.map(events::evidence))
        .remedy(remedy);
    Some(finding)
}

/// Trouble, cause and remedy by the words of the container engine.
pub fn by_message(slot: Slot<'_>, text: &str) -> (Trouble, String, &'static str) {
    let (title, image) = (slot.title(), slot.spec.image().text());
    let lower = text.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&["runasnonroot", "non-root"]) {
        let cause =
            format!("{title} has runAsNonRoot, and image {image} runs as root or as a user without a number");
        let remedy =
            "set securityContext.runAsUser to a number other than 0, or use an image with a numeric USER";
        (Trouble::RunAsNonRoot, cause, remedy)
    } else if has(&["subpath", "missing value for"]) {
        let cause = format!("{title}: a subPath cannot be mounted: {}", text.trim());
        (
            Trouble::SubPathInvalid,
            cause,
            "correct volumeMounts[].subPath: it is a relative path within the volume",
        )
    } else if has(&["exec format error"]) {
        let cause =
            format!("{title}: the program in image {image} is for another architecture than the node's");
        (Trouble::ImageArchitecture, cause, "use an image that is built for the node's architecture")
    } else if has(&["executable file not found", "no such file or directory", "no command specified"]) {
        let cause = format!("{title}: its command is not in image {image}: {}", text.trim());
        (Trouble::CommandNotFound, cause, "correct command and args of the container, or the image")
    } else if has(&["permission denied", "is a directory"]) {
        let cause = format!("{title}: its command cannot be executed: {}", text.trim());
        (
            Trouble::CommandNotExecutable,
            cause,
            "name a file in command that is executable for the container's user",
        )
    } else {
        let cause = format!("{title} cannot be created: {}", text.trim());
        (Trouble::ContainerCreateFailed, cause, "correct what the message names in the pod's spec")
    }
}
