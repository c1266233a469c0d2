//! Registries of images.

/// The registry of images without one in their names.
pub const DOCKER: &str = "docker.io";

/// The host of an image's registry.
pub fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => DOCKER,
    }
}
