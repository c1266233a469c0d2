//! A cluster with a device plugin, and what its tests look at.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use coracle_csi::channel;
use coracle_devices::podresources::pod_resources_lister_client::PodResourcesListerClient;
use coracle_devices::podresources::{ListPodResourcesRequest, PodResources};
use coracle_tests::device_plugin::{self, FakeGpus, RESOURCE};
use coracle_tests::eventually;
use coracle_tests::pods::{Cluster, IMAGE};

pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Setting {
    pub cluster: Cluster,
    /// Spec files of the Container Device Interface.
    pub specs: PathBuf,
    pub gpus: FakeGpus,
}

impl Setting {
    pub fn start() -> Self {
        let specs = tempfile::Builder::new().prefix("cdi").tempdir().unwrap().keep();
        let cluster = Cluster::start_joined_with(&format!("--cdi-spec-dir {}", specs.display()));
        device_plugin::write_cdi_spec(&specs, &cluster.path("hook-ran"));
        let mut gpus = FakeGpus::new(&cluster.path("kubelet"), &cluster.path("cards"));
        gpus.start();
        let setting = Self { cluster, specs, gpus };
        setting.wait_allocatable("4");
        setting
    }

    /// How many devices the node has for pods.
    pub fn amount(&self, which: &str) -> String {
        let key = RESOURCE.replace('.', r"\.");
        self.cluster.kubectl.run(&format!("get node node1 -o jsonpath={{.status.{which}.{key}}}"))
    }

    pub fn wait_allocatable(&self, count: &str) {
        let text = format!("the node has {count} devices");
        eventually(&text, PATIENCE, || self.amount("allocatable") == count);
    }

    /// A pod that runs a script with so many devices.
    pub fn pod(&self, name: &str, count: u32, script: &str) {
        self.cluster.pod(
            name,
            &format!(
                "containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, '{script}; trap exit TERM; sleep 1000 & wait'], \
                 resources: {{limits: {{{RESOURCE}: {count}}}}}}}]"
            ),
        );
    }

    /// A field of a pod.
    pub fn get(&self, pod: &str, path: &str) -> String {
        self.cluster.kubectl.run(&format!("get pod {pod} -o jsonpath={{{path}}}"))
    }

    pub fn wait_event(&self, text: &str) {
        let events = || {
            self.cluster
                .kubectl
                .run("get events -o jsonpath={range.items[*]}{.reason}:{.message}{\"\\n\"}{end}")
        };
        eventually(&format!("an event with {text:?}"), PATIENCE, || events().contains(text));
    }

    /// The devices of a pod, as monitoring agents see them.
    pub fn devices_of(&self, pod: &str) -> BTreeSet<String> {
        let found = self.pod_resources().into_iter().find(|one| one.name == pod).unwrap_or_default();
        let devices = found.containers.into_iter().flat_map(|container| container.devices);
        devices
            .inspect(|device| assert_eq!(device.resource_name, RESOURCE))
            .flat_map(|device| device.device_ids)
            .collect()
    }

    fn pod_resources(&self) -> Vec<PodResources> {
        let socket = self.cluster.path("kubelet").join("pod-resources/kubelet.sock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = PodResourcesListerClient::new(channel(socket));
            client.list(ListPodResourcesRequest {}).await.unwrap().into_inner().pod_resources
        })
    }
}
