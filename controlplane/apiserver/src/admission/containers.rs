//! The lists of containers of a pod. Ephemeral containers have the fields of containers.

use coracle_fields::core::v1::{Container, PodSpec};
use coracle_fields::{At, List, View};

/// The ephemeral containers.
pub(super) fn ephemeral(spec: View<'_, PodSpec>) -> View<'_, List<Container>> {
    At::new(*spec.ephemeral_containers())
}

/// The lists by their field names: init, main, ephemeral.
pub(super) fn lists(spec: View<'_, PodSpec>) -> [(&'static str, View<'_, List<Container>>); 3] {
    [
        ("initContainers", spec.init_containers()),
        ("containers", spec.containers()),
        ("ephemeralContainers", ephemeral(spec)),
    ]
}

/// All containers: init, main, ephemeral.
pub(super) fn all(spec: View<'_, PodSpec>) -> impl Iterator<Item = View<'_, Container>> {
    lists(spec).into_iter().flat_map(|(_, list)| list.items())
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Schema as _;
    use coracle_fields::core::v1::Pod;
    use serde_json::json;

    #[test]
    fn containers_of_every_list() {
        let pod = json!({"spec": {"containers": [{"name": "b"}, {"name": "c"}], "initContainers": [{"name": "a"}],
            "ephemeralContainers": [{"name": "d"}]}});
        let names: Vec<&str> = all(Pod::of(&pod).spec()).map(|container| container.name().text()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }
}
