//! Claims and volumes.

use super::Room;

fn pod(name: &str, claim: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n\
         \x20 - {{name: c, image: busybox, command: [sleep, '3600'], volumeMounts: [{{name: v, mountPath: /v}}]}}\n\
         \x20 volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]\n"
    )
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
    room.run("exec one -- sh -c 'echo kept > /v/file'");

    // A claim in use waits for its pod.
    room.run("delete pvc made --wait=false");
    room.until("get pvc made -o jsonpath={.metadata.finalizers}", r#"["kubernetes.io/pvc-protection"]"#);
    assert_ne!(room.run("get pvc made -o jsonpath={.metadata.deletionTimestamp}"), "");
    assert_eq!(room.run("exec one -- cat /v/file"), "kept\n");
    room.run("delete pod one --wait");
    room.run("wait --for=delete pvc/made --timeout=120s");
    room.kubectl.run(&format!("wait --for=delete pv/{volume} --timeout=120s"));

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
