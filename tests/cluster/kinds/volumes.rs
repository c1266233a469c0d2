//! Claims and volumes.

use super::{Room, WAIT};
use coracle_tests::eventually;
use std::path::PathBuf;

fn pod(name: &str, claim: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  securityContext: \
         {{runAsUser: 1000, runAsGroup: 1000}}\n  containers:\n\
         \x20 - {{name: c, image: busybox, command: [sleep, '3600'], volumeMounts: [{{name: v, mountPath: /v}}]}}\n\
         \x20 volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]\n"
    )
}

/// The directory of a claim's volume. Nodes of `coracle up` keep theirs where this process can look.
fn directory(room: &Room, claim: &str) -> PathBuf {
    let volume = room.run(&format!("get pvc {claim} -o jsonpath={{.spec.volumeName}}"));
    let path = PathBuf::from(room.run(&format!("get pv {volume} -o jsonpath={{.spec.hostPath.path}}")));
    let node = room.run(&format!("get pv {volume} -o jsonpath={{.metadata.annotations.coracle\\.dev/node}}"));
    assert!(
        path.parent().unwrap().ends_with(format!("{node}/storage")),
        "{}: in the node's own",
        path.display()
    );
    path
}

pub fn claims(room: &Room) {
    // The default class makes a volume when the first pod wants it.
    room.apply(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: made}\nspec: {accessModes: [ReadWriteOnce], \
         resources: {requests: {storage: 1Mi}}}\n",
    );
    room.until("get pvc made -o jsonpath={.status.phase}", "Pending");
    room.apply(&pod("one", "made"));
    room.run("wait --for=condition=Ready pod/one --timeout=120s");
    assert_eq!(room.run("get pvc made -o jsonpath={.status.phase}"), "Bound");
    let volume = room.run("get pvc made -o jsonpath={.spec.volumeName}");
    let dir = directory(room, "made");
    room.run("exec one -- sh -c 'echo kept > /v/file'");
    assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), "kept\n");

    // A claim in use waits for its pod.
    room.run("delete pvc made --wait=false");
    room.until("get pvc made -o jsonpath={.metadata.finalizers}", r#"["kubernetes.io/pvc-protection"]"#);
    assert_ne!(room.run("get pvc made -o jsonpath={.metadata.deletionTimestamp}"), "");
    assert_eq!(room.run("exec one -- cat /v/file"), "kept\n");
    room.run("delete pod one --wait");
    room.run("wait --for=delete pvc/made --timeout=120s");
    room.kubectl.run(&format!("wait --for=delete pv/{volume} --timeout=120s"));
    assert!(!dir.exists(), "{} is left", dir.display());
    retained(room);
    refused(room);

    // A volume somebody made, kept when its claim goes.
    room.apply(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: by-hand}\nspec:\n  capacity: {storage: 1Mi}\n  accessModes: \
         [ReadWriteOnce]\n  storageClassName: none\n  persistentVolumeReclaimPolicy: Retain\n  hostPath: {path: \
         /run/by-hand, type: DirectoryOrCreate}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: mine}\n\
         spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n",
    );
    room.until("get pvc mine -o jsonpath={.spec.volumeName}", "by-hand");
    room.apply(&pod("two", "mine"));
    room.run("wait --for=condition=Ready pod/two --timeout=120s");
    room.run("delete pod two --wait");
    room.run("delete pvc mine --wait");
    room.until("get pv by-hand -o jsonpath={.status.phase}", "Released");
    room.kubectl.run("delete pv by-hand --wait");
}

/// What is to be retained stays, after its claim and after its volume.
fn retained(room: &Room) {
    room.apply(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: retained}\nprovisioner: coracle.dev/local-path\n\
         reclaimPolicy: Retain\nvolumeBindingMode: WaitForFirstConsumer\n---\napiVersion: v1\nkind: PersistentVolumeClaim\n\
         metadata: {name: retained}\nspec: {storageClassName: retained, accessModes: [ReadWriteOnce], resources: {requests: \
         {storage: 1Mi}}}\n",
    );
    room.apply(&pod("three", "retained"));
    room.run("wait --for=condition=Ready pod/three --timeout=120s");
    room.run("exec three -- sh -c 'echo kept > /v/file'");
    let dir = directory(room, "retained");
    let volume = room.run("get pvc retained -o jsonpath={.spec.volumeName}");
    room.run("delete pod three --wait");
    room.run("delete pvc retained --wait");
    room.until(&format!("get pv {volume} -o jsonpath={{.status.phase}}"), "Released");
    room.kubectl.run(&format!("delete pv {volume} --wait --timeout=120s"));
    assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), "kept\n");

    // The same until somebody changes their mind.
    room.apply(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: changed}\nspec: {storageClassName: retained, \
         accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n",
    );
    room.apply(&pod("four", "changed"));
    room.run("wait --for=condition=Ready pod/four --timeout=120s");
    let dir = directory(room, "changed");
    let volume = room.run("get pvc changed -o jsonpath={.spec.volumeName}");
    room.run("delete pod four --wait");
    room.run("delete pvc changed --wait");
    let policy = r#"{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}"#;
    room.kubectl.run(&format!("patch pv {volume} -p {policy}"));
    eventually("the volume goes with its directory", WAIT, || !dir.exists());
    room.kubectl.run(&format!("wait --for=delete pv/{volume} --timeout=120s"));
    room.kubectl.run("delete storageclass retained");
}

/// What cannot be had says why.
fn refused(room: &Room) {
    room.apply(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: elsewhere}\nprovisioner: coracle.dev/local-path\n\
         parameters: {path: /etc}\nvolumeBindingMode: WaitForFirstConsumer\n---\napiVersion: v1\nkind: \
         PersistentVolumeClaim\nmetadata: {name: elsewhere}\nspec: {storageClassName: elsewhere, accessModes: \
         [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n",
    );
    room.apply(&pod("five", "elsewhere"));
    room.until_with("get events --field-selector involvedObject.name=elsewhere,reason=ProvisioningFailed", |text| {
        text.contains(r#"failed to provision volume with StorageClass "elsewhere": config doesn't contain path /etc on node"#)
    });
    room.run("delete pod five --wait");
    room.run("delete pvc elsewhere --wait");
    room.kubectl.run("delete storageclass elsewhere");
}
