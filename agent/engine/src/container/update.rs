//! Resources of a container that runs.

use coracle_proto::cri;

use super::Containers;
use crate::limits;
use crate::record::ContainerPhase;
use crate::runtime::Result;

impl Containers {
    pub(crate) async fn update_resources(
        &self,
        id: &str,
        update: cri::LinuxContainerResources,
    ) -> Result<()> {
        let container = self.objects.container(id)?;
        let _verb = container.verb.lock().await;
        let (old, cgroup) = {
            let record = container.record.lock();
            let linux = record.config.linux.clone().unwrap_or_default();
            (linux.resources.unwrap_or_default(), record.cgroup.clone())
        };
        if container.phase() == ContainerPhase::Running {
            let (files, hierarchy) = (limits::files(&update), &self.launcher.hierarchy);
            let missing = hierarchy.cgroup(&cgroup)?.apply(files, hierarchy.controllers())?;
            if !missing.is_empty() {
                tracing::warn!(container = id, ?missing, "limits of missing controllers are not enforced");
            }
        }
        let merged = limits::merge(&old, &update);
        self.objects.change_container(&container, |record| {
            record.config.linux.get_or_insert_default().resources = Some(merged);
        })
    }
}
