//! Block volumes: pods see a device, and nothing of it is left.

use crate::setting::{DRIVER, PATIENCE, Setting};
use coracle_tests::eventually;
use coracle_tests::pods::run;
use std::path::Path;

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_writes_to_a_block_device_of_a_driver() {
    let s = Setting::start("attachRequired: false");
    s.claim_of("raw", "Block", &format!("csi: {{driver: {DRIVER}, volumeHandle: vol-raw}}"));
    s.block_pod("writer", "raw", false, "test -b /dev/xvda && printf kept > /dev/xvda && sync && echo wrote");
    s.cluster.wait_ready("writer");
    eventually("it wrote", PATIENCE, || s.cluster.output("writer", "c", 0) == "wrote");
    // Where a kubelet has them.
    let kubelet = s.cluster.path("kubelet");
    let uid = s.field("pod writer", ".metadata.uid");
    let published = kubelet.join("plugins/kubernetes.io/csi/volumeDevices/publish/raw").join(&uid);
    let link = kubelet.join("pods").join(&uid).join("volumeDevices/kubernetes.io~csi/raw");
    assert_eq!(std::fs::read_link(&link).unwrap(), published);
    assert!(kubelet.join("plugins/kubernetes.io/csi/volumeDevices/staging/raw").is_dir());
    s.cluster.delete("writer");
    s.wait_clean();
    assert_eq!((s.driver.count("unpublish"), s.driver.count("unstage")), (1, 1), "{:?}", s.driver.calls());
    let left = run(&format!(
        "find {}/plugins/kubernetes.io {}/pods -mindepth 1 -name raw",
        kubelet.display(),
        kubelet.display()
    ));
    assert_eq!(left, "");

    // Another pod finds the data, and may not change it.
    s.block_pod("reader", "raw", true, "head -c 4 /dev/xvda; echo; printf lost > /dev/xvda || echo refused");
    s.cluster.wait_ready("reader");
    eventually("it read", PATIENCE, || s.cluster.output("reader", "c", 0).contains("kept"));
    eventually("it was refused", PATIENCE, || s.cluster.output("reader", "c", 0).contains("refused"));
    s.cluster.delete("reader");
    // A claim for devices is no directory.
    s.pod("mounts", "raw", "true");
    s.wait_event("volume v has volumeMode Block, but is specified in volumeMounts");
    s.cluster.delete("mounts");
    s.wait_clean();
}

#[test]
#[ignore = "run by in_namespaces"]
fn disks_of_the_node_are_devices_or_file_systems() {
    let mut s = Setting::without_driver("attachRequired: false");
    let image = s.cluster.path("disk.img");
    run(&format!("truncate -s 16M {}", image.display()));
    let device = run(&format!("losetup --find --show {}", image.display())).trim().to_owned();
    let detach = Detach(device.clone());
    let affinity = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: Exists}]}]}}";
    let local = |path: &str| format!("local: {{path: {path}}}, {affinity}");
    s.claim_of("raw", "Block", &local(&device));
    s.block_pod("uses", "raw", false, "printf disk > /dev/xvda && head -c 4 /dev/xvda; echo");
    s.cluster.wait_ready("uses");
    eventually("it wrote", PATIENCE, || s.cluster.output("uses", "c", 0) == "disk");
    s.cluster.delete("uses");
    // An empty disk is formatted, and keeps its data.
    run(&format!("dd if=/dev/zero of={device} bs=1M count=1 conv=fsync 2>/dev/null"));
    s.claim_of("files", "Filesystem", &local(&device));
    s.pod("first", "files", "echo kept > /v/file; sync");
    s.cluster.wait_ready("first");
    s.cluster.delete("first");
    s.pod("second", "files", "cat /v/file");
    s.cluster.wait_ready("second");
    eventually("it read", PATIENCE, || s.cluster.output("second", "c", 0) == "kept");
    s.cluster.delete("second");
    let mounted = || run("cat /proc/self/mountinfo").contains(&device);
    eventually("it is unmounted", PATIENCE, || !mounted());
    // Options of disks and directories count, and paths of the host have none.
    let directory = s.cluster.path("directory");
    std::fs::create_dir(&directory).unwrap();
    let options = |options: &str, path: &str| format!("mountOptions: [{options}], {}", local(path));
    s.claim_of("disk-noexec", "Filesystem", &options("noexec, noatime", &device));
    s.claim_of("dir-noexec", "Filesystem", &options("noexec, nodev", &directory.display().to_string()));
    for (claim, want) in [("disk-noexec", "noexec,noatime"), ("dir-noexec", "nodev,noexec")] {
        s.pod(claim, claim, "grep \" /v \" /proc/mounts; cp /bin/busybox /v/true; /v/true || echo refused");
        s.cluster.wait_ready(claim);
        eventually("it has tried", PATIENCE, || s.cluster.output(claim, "c", 0).contains("refused"));
        let said = s.cluster.output(claim, "c", 0);
        assert!(said.contains(want), "{claim}: {said}");
        s.cluster.delete(claim);
    }
    assert!(directory.join("true").exists(), "the end of a pod leaves its volume");
    // An agent that is killed between the two steps of mounting leaves a directory without its options.
    let script =
        "grep \" /v \" /proc/mounts; until test -e /v/again; do sleep 0.1; done; rm /v/again; exit 1";
    s.pod("again", "dir-noexec", script);
    s.cluster.wait_ready("again");
    let uid = s.field("pod again", ".metadata.uid");
    let mounts = run("cut -d' ' -f5 /proc/self/mountinfo");
    let of_pod = |path: &&str| path.contains(&uid) && path.contains("local-volume");
    let target = mounts.lines().find(of_pod).expect("its directory is mounted");
    s.cluster.kill_agent();
    run(&format!("mount -o remount,bind,exec,dev {target}"));
    std::fs::write(directory.join("again"), "").unwrap();
    eventually("it ends", PATIENCE, || !directory.join("again").exists());
    s.cluster.start_agent();
    eventually("it is started again", PATIENCE, || s.cluster.output("again", "c", 1).contains(" /v "));
    let said = s.cluster.output("again", "c", 1);
    assert!(said.contains("nodev,noexec"), "{said}");
    s.cluster.delete("again");
    s.claim_of("host", "Filesystem", "mountOptions: [noexec], hostPath: {path: /tmp}");
    s.pod("host", "host", "true");
    s.wait_event(
        "FailedMount:MountVolume.MountOptionSupport check failed for volume \"v\" : mount options are not supported for this volume type",
    );
    s.cluster.delete("host");
    // What is not a device cannot be one.
    s.claim_of("odd", "Block", &local("/etc"));
    s.block_pod("odd", "odd", false, "true");
    s.wait_event("path \"/etc\" of PersistentVolume odd is not a block device");
    s.cluster.delete("odd");
    drop(detach);
    assert!(Path::new(&device).exists());
}

/// Frees a loop device.
struct Detach(String);

impl Drop for Detach {
    fn drop(&mut self) {
        run(&format!("losetup -d {}", self.0));
    }
}
