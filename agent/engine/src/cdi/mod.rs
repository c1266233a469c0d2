//! Container Device Interface: device nodes, mounts, environment and hooks that spec files of the node describe, by name.
//!
//! Spec files are read for each container that names devices, so that a change counts from the next container on. They are not
//! trusted: size, number and nesting are limited, and errors name the file.

// Why a device is not injected.
mod error;
// Qualified names of devices.
pub mod names;
// The content of a spec file.
pub mod spec;
// Versions of spec files, and what each allows.
mod version;
// Reading of spec files.
mod parse;
// Spec files of the node.
mod registry;
// Changes of a container's OCI configuration.
mod edits;

pub use error::CdiError;

use coracle_proto::cri;
use oci_spec::runtime::Spec;
use std::path::PathBuf;

/// Where other runtimes look for spec files; of a device in both the last one counts.
pub const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// Annotations with this prefix name devices, too.
const ANNOTATION: &str = "cdi.k8s.io/";

/// Names of the devices of a container, each once: from its list, and from its annotations, which are sorted.
pub fn requested(config: &cri::ContainerConfig) -> Result<Vec<String>, CdiError> {
    let mut annotated: Vec<_> =
        config.annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION)).collect();
    annotated.sort();
    let annotated = annotated.into_iter().flat_map(|(_, value)| value.split(',')).map(str::trim);
    let mut names: Vec<String> = Vec::new();
    for name in config.cdi_devices.iter().map(|device| device.name.as_str()).chain(annotated) {
        names::check(name)?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Changes the OCI configuration of a container as the spec files describe its devices.
pub fn inject(spec: &mut Spec, dirs: &[PathBuf], names: &[String]) -> Result<(), CdiError> {
    if names.is_empty() {
        return Ok(());
    }
    let registry = registry::read(dirs);
    for (file, device, edits) in registry.resolve(names)? {
        edits::apply(spec, edits).map_err(|source| CdiError::Edit {
            file: file.to_owned(),
            device,
            source,
        })?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
