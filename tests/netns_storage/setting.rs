//! A cluster with a storage driver, and what its tests look at.

use std::time::Duration;

use coracle_tests::csi_driver::CsiDriver;
use coracle_tests::eventually;
use coracle_tests::pods::{Cluster, IMAGE, run};

pub const DRIVER: &str = "disk.example";
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Setting {
    pub cluster: Cluster,
    pub driver: CsiDriver,
}

impl Setting {
    /// A cluster whose driver does not run yet.
    pub fn without_driver(spec: &str) -> Self {
        let cluster = Cluster::start_joined_with("");
        let driver = CsiDriver::new(DRIVER, &cluster.path("kubelet"), &cluster.path("disks"));
        cluster.apply(&format!(
            "{{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {{name: {DRIVER}}}, spec: {{{spec}}}}}"
        ));
        Self { cluster, driver }
    }

    pub fn start(spec: &str) -> Self {
        let mut setting = Self::without_driver(spec);
        setting.driver.start();
        setting.wait_registered();
        setting
    }

    pub fn wait_registered(&self) {
        eventually("the driver is registered", PATIENCE, || self.drivers() == DRIVER);
    }

    /// Names of the drivers in the CSINode.
    pub fn drivers(&self) -> String {
        self.cluster.kubectl.try_with("get csinode node1 -o jsonpath={.spec.drivers[*].name}", "").out
    }

    /// A claim that is bound to a volume of the driver.
    pub fn claim(&self, name: &str) {
        let csi = format!("driver: {DRIVER}, volumeHandle: vol-{name}, volumeAttributes: {{color: blue}}");
        self.claim_of(name, "Filesystem", &format!("csi: {{{csi}}}"));
    }

    /// A claim that is bound to a volume of this mode and source.
    pub fn claim_of(&self, name: &str, mode: &str, source: &str) {
        self.claim_with(name, (mode, "ReadWriteOnce"), source);
    }

    /// A claim with this access mode that is bound to a volume of the driver.
    pub fn claim_for(&self, name: &str, access: &str) {
        let source = format!("csi: {{driver: {DRIVER}, volumeHandle: vol-{name}}}");
        self.claim_with(name, ("Filesystem", access), &source);
    }

    fn claim_with(&self, name: &str, (mode, access): (&str, &str), source: &str) {
        self.cluster.apply(&format!(
            "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{storageClassName: manual, \
             capacity: {{storage: 1Gi}}, accessModes: [{access}], persistentVolumeReclaimPolicy: Retain, \
             volumeMode: {mode}, claimRef: {{namespace: default, name: {name}}}, {source}}}}}"
        ));
        self.cluster.apply(&format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{storageClassName: manual, \
             volumeMode: {mode}, accessModes: [{access}], resources: {{requests: {{storage: 1Gi}}}}}}}}"
        ));
    }

    /// A pod that runs a script with the block device of a claim at `/dev/xvda`.
    pub fn block_pod(&self, name: &str, claim: &str, read_only: bool, script: &str) {
        self.cluster.pod(
            name,
            &format!(
                "volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}, readOnly: {read_only}}}}}], \
                 containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, '{script}; exec sleep 1000'], \
                 volumeDevices: [{{name: v, devicePath: /dev/xvda}}]}}]"
            ),
        );
    }

    /// A field of an object, as kubectl's jsonpath shows it.
    pub fn field(&self, object: &str, path: &str) -> String {
        self.cluster.kubectl.try_with(&format!("get {object} -o jsonpath={{{path}}}"), "").out
    }

    /// A pod that runs a script with the volume of a claim at `/v`.
    pub fn pod(&self, name: &str, claim: &str, script: &str) {
        self.cluster.pod(
            name,
            &format!(
                "volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}], \
                 containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, '{script}; exec sleep 1000'], \
                 volumeMounts: [{{name: v, mountPath: /v}}]}}]"
            ),
        );
    }

    pub fn wait_event(&self, text: &str) {
        let events = || {
            self.cluster
                .kubectl
                .run("get events -o jsonpath={range.items[*]}{.reason}:{.message}{\"\\n\"}{end}")
        };
        eventually(&format!("an event with {text:?}"), PATIENCE, || events().contains(text));
    }

    /// Mounts below the directory of drivers.
    pub fn mounts(&self) -> Vec<String> {
        let dir = format!("{}/", self.cluster.path("kubelet").display());
        let all = run("cut -d' ' -f5 /proc/self/mountinfo");
        all.lines().filter(|path| path.starts_with(&dir)).map(str::to_owned).collect()
    }

    /// Fails if something is mounted on top of something else.
    pub fn assert_mounted_once(&self) {
        let mut mounts = self.mounts();
        mounts.sort();
        assert!(mounts.windows(2).all(|two| two[0] != two[1]), "mounted twice: {mounts:#?}");
    }

    /// Waits until nothing is mounted or kept.
    pub fn wait_clean(&self) {
        eventually("nothing is mounted", PATIENCE, || self.mounts().is_empty());
        let dir = self.cluster.path("kubelet");
        eventually("nothing is recorded", PATIENCE, || {
            run(&format!("find {} -name vol_data.json", dir.display())).is_empty()
        });
    }
}
