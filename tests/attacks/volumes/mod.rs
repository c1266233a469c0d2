//! Volumes that a pod, or a local user of a node, tries to turn against the node.

// Directories and links that change places while the agent works in them.
mod races;

use coracle_tests::eventually;
use coracle_tests::pods::{Cluster, IMAGE, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// So many files that writing them all takes a while: time to put a link in the place of their directory.
const KEYS: usize = 3000;

/// As Pod Security's level "restricted" wants it.
const RESTRICTED: &str = "securityContext: {runAsUser: 1000, runAsNonRoot: true, fsGroup: 2000, seccompProfile: {type: RuntimeDefault}}";

fn config_map(value: &str) -> String {
    let data: String = (0..KEYS).map(|key| format!("k{key}: '{value}', ")).collect();
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: cm}}, data: {{{data}a: '{value}'}}}}")
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_restricted_pod_cannot_write_files_of_the_host_through_its_volumes() {
    let cluster = Cluster::start();
    let outside = cluster.path("outside");
    fs::create_dir(&outside).unwrap();
    cluster.apply(&config_map("one"));
    cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: sec}, stringData: {pw: hunter2}}");
    let out = outside.display();
    // Whenever a directory for new files appears, it becomes a link to a directory of the host.
    let attack = format!(
        "while :; do for d in /cm/..2*; do [ -L $d ] || {{ mv $d /cm/x$RANDOM; ln -s {out} $d; }}; done; done"
    );
    let script = format!(
        "for v in /cm /sec /down /proj /sub /nested; do touch $v/planted && echo wrote $v; done 2>&1;
         touch /nested/inner/file && echo inner is writable;
         if touch /cm/planted; then {attack} & fi;
         last=; while :; do now=$(cat /cm/a); [ $now = \"$last\" ] || echo a is $now; last=$now; sleep 0.2; done"
    );
    let command = serde_json::json!(["sh", "-c", script]);
    cluster.pod(
        "attacker",
        &format!(
            "{RESTRICTED}, volumes: [{{name: cm, configMap: {{name: cm}}}}, {{name: sec, secret: {{secretName: sec}}}},
              {{name: down, downwardAPI: {{items: [{{path: d/labels, fieldRef: {{fieldPath: metadata.labels}}}}]}}}},
              {{name: proj, projected: {{sources: [{{secret: {{name: sec}}}}]}}}}, {{name: inner, emptyDir: {{}}}}],
            containers: [{{name: c, image: '{IMAGE}', command: {command},
              securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}},
              volumeMounts: [{{name: cm, mountPath: /cm, readOnly: false}}, {{name: sec, mountPath: /sec}}, {{name: down, mountPath: /down}},
                {{name: proj, mountPath: /proj}}, {{name: down, mountPath: /sub, subPath: d}},
                {{name: sec, mountPath: /nested}}, {{name: inner, mountPath: /nested/inner}}]}}]"
        ),
    );
    cluster.wait_ready("attacker");
    let output = || cluster.output("attacker", "c", 0);
    eventually("the first value", PATIENCE, || output().contains("a is one"));
    cluster.apply(&config_map("two"));
    // Either the reader sees the update, or the agent wrote it elsewhere.
    let written = || fs::read_dir(&outside).unwrap().count();
    eventually("the update", PATIENCE, || output().contains("a is two") || written() > 0);
    assert_eq!(written(), 0, "root wrote files where the pod pointed; output: {}", output());
    let output = output();
    for volume in ["/cm", "/sec", "/down", "/proj", "/sub", "/nested"] {
        let refused = format!("touch: {volume}/planted: Read-only file system");
        assert!(output.contains(&refused), "{refused:?} is not in:\n{output}");
    }
    assert!(output.contains("inner is writable"), "volumes inside read-only ones can be mounted: {output}");
    cluster.delete("attacker");
}

/// Everything below these directories that a local user can read or write, by path.
fn open_to_nobody(dirs: &[&Path]) -> String {
    let list = tempfile::NamedTempFile::new().unwrap();
    for dir in dirs {
        run(&format!("find {} ! -type d ! -type l >> {}", dir.display(), list.path().display()));
    }
    assert!(fs::metadata(list.path()).unwrap().len() > 1000, "there is something to find");
    fs::set_permissions(list.path(), fs::Permissions::from_mode(0o644)).unwrap();
    run(&format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'while read -r f; do
           [ ! -r \"$f\" ] && [ ! -w \"$f\" ] || echo \"$f\"; done < {}' | head -n 40",
        list.path().display()
    ))
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_local_user_cannot_read_secrets_volumes_logs_or_files_of_pods() {
    let mut cluster = Cluster::start();
    cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: sec}, stringData: {pw: hunter2}}");
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: cm}, data: {a: one}}");
    for (name, users) in [("plain", "true"), ("mapped", "false")] {
        let script = "echo said; echo x > /tmp/own; echo x > /empty/f; echo x > /mem/f; echo x > /dev/termination-log; cat /proj/token > /empty/token; sleep 1000";
        cluster.pod(
            name,
            &format!(
                "hostUsers: {users}, volumes: [{{name: cm, configMap: {{name: cm}}}}, {{name: sec, secret: {{secretName: sec}}}},
                  {{name: proj, projected: {{sources: [{{serviceAccountToken: {{path: token}}}}]}}}},
                  {{name: empty, emptyDir: {{}}}}, {{name: mem, emptyDir: {{medium: Memory}}}}],
                containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, '{script}'],
                  volumeMounts: [{{name: cm, mountPath: /cm}}, {{name: sec, mountPath: /sec}}, {{name: proj, mountPath: /proj}},
                    {{name: empty, mountPath: /empty}}, {{name: mem, mountPath: /mem}}, {{name: empty, mountPath: /part, subPath: p}}]}}]"
            ),
        );
    }
    for name in ["plain", "mapped"] {
        cluster.wait_ready(name);
        eventually("output", PATIENCE, || cluster.output(name, "c", 0).contains("said"));
    }
    let [agent, memory, logs, engine, state] =
        ["agent", "memory", "logs", "engine", "run"].map(|name| cluster.path(name));
    let dirs: [&Path; 5] = [&agent, &memory, &logs, &engine, &state];
    assert_eq!(open_to_nobody(&dirs), "", "what a local user can read or write");

    // What an older agent, or an administrator, left open is closed at the next start.
    cluster.kill_agent();
    for (dir, mode) in [(&agent, 0o755), (&memory, 0o777), (&logs, 0o755), (&engine, 0o755), (&state, 0o755)]
    {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    }
    cluster.start_agent();
    let mode = |dir: &Path| fs::metadata(dir).unwrap().permissions().mode() & 0o7777;
    eventually("they are closed again", PATIENCE, || dirs.iter().all(|dir| mode(dir) & 0o6 == 0));
    assert_eq!(open_to_nobody(&dirs), "", "what a local user can read or write after a restart");
    eventually("it is told", PATIENCE, || cluster.log().contains("directory closed to other users"));
    // A pod of a user namespace still starts: it reaches its own files and nobody else does.
    cluster.delete("plain mapped");
}
