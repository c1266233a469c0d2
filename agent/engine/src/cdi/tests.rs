use super::*;
use oci_spec::runtime::{Linux, LinuxResources, Process};
use serde_json::{Value, json};
use std::path::Path;

fn config() -> Spec {
    let (mut process, mut linux, mut spec) = (Process::default(), Linux::default(), Spec::default());
    let mut user = process.user().clone();
    user.set_uid(101).set_gid(0).set_additional_gids(Some(vec![5]));
    process.set_env(Some(vec!["PATH=/bin".into(), "GPU=none".into()])).set_user(user);
    linux.set_resources(Some(LinuxResources::default())).set_devices(None);
    spec.set_process(Some(process)).set_linux(Some(linux)).set_mounts(Some(vec![]));
    spec
}

fn injected(dirs: &[PathBuf], names: &[&str]) -> Result<Value, String> {
    let mut spec = config();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    inject(&mut spec, dirs, &names).map_err(|error| coracle_cli::causes::chain(&error))?;
    Ok(serde_json::to_value(&spec).unwrap())
}

fn write(dir: &Path, name: &str, content: &Value) {
    std::fs::write(dir.join(name), content.to_string()).unwrap();
}

fn gpus(marker: &str, names: &[&str]) -> Value {
    let device =
        |name: &&str| json!({"name": name, "containerEdits": {"env": [format!("GPU={marker}-{name}")]}});
    json!({"cdiVersion": "0.6.0", "kind": "vendor.example/gpu", "devices": names.iter().map(device).collect::<Vec<_>>()})
}

#[test]
fn everything_that_a_spec_file_may_ask_for() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
cdiVersion: 1.1.0
kind: vendor.example/gpu
annotations: {made-by: test}
containerEdits:
  env: [DRIVER=1]
  mounts:
  - {hostPath: /opt/driver, containerPath: /usr/lib/driver/, options: [ro, nosuid]}
  - {hostPath: tmpfs, containerPath: /scratch, type: tmpfs}
devices:
- name: '0'
  containerEdits:
    env: [GPU=zero]
    deviceNodes:
    - {path: /dev/gpu0, hostPath: /dev/null, permissions: rw}
    - {path: /dev/gpuctl, type: c, major: 10, minor: 7, fileMode: 0660, uid: 1, gid: 2, permissions: none}
    hooks:
    - {hookName: createContainer, path: /bin/true, args: [\"true\", x], env: [A=b], timeout: 5}
    additionalGids: [0, 5, 44]
    intelRdt: {closID: gold, l3CacheSchema: 'L3:0=f', enableMonitoring: true}
- name: '1'
  containerEdits: {env: [GPU=one]}
";
    std::fs::write(dir.path().join("gpu.yaml"), text).unwrap();
    let got = injected(&[dir.path().to_owned()], &["vendor.example/gpu=0", "vendor.example/gpu=1"]).unwrap();
    assert_eq!(got["process"]["env"], json!(["PATH=/bin", "GPU=one", "DRIVER=1"]), "the last device wins");
    assert_eq!(got["process"]["user"]["additionalGids"], json!([5, 44]));
    assert_eq!(
        got["mounts"],
        json!([
            {"destination": "/scratch", "type": "tmpfs", "source": "tmpfs", "options": []},
            {"destination": "/usr/lib/driver", "type": "bind", "source": "/opt/driver", "options": ["ro", "nosuid", "rbind"]},
        ])
    );
    let devices = got["linux"]["devices"].as_array().unwrap();
    assert_eq!(devices[0]["path"], "/dev/gpu0");
    assert_eq!(
        (&devices[0]["type"], &devices[0]["major"], &devices[0]["minor"]),
        (&json!("c"), &json!(1), &json!(3))
    );
    assert_eq!(devices[0]["uid"], 101, "the user of the container");
    assert_eq!(
        (&devices[1]["fileMode"], &devices[1]["uid"], &devices[1]["gid"]),
        (&json!(0o660), &json!(1), &json!(2))
    );
    assert_eq!(
        got["linux"]["resources"]["devices"],
        json!([{"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw"}]),
        "none means no rule"
    );
    assert_eq!(
        got["hooks"]["createContainer"],
        json!([{"path": "/bin/true", "args": ["true", "x"], "env": ["A=b"], "timeout": 5}])
    );
    assert_eq!(got["linux"]["intelRdt"]["closID"], "gold");
}

#[test]
fn the_last_directory_counts_and_conflicts_name_both_files() {
    let (first, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = [first.path().to_owned(), last.path().to_owned()];
    write(first.path(), "a.json", &gpus("a", &["0", "1", "2"]));
    write(first.path(), "b.json", &gpus("b", &["1", "2"]));
    write(last.path(), "c.json", &gpus("c", &["0", "2"]));
    std::fs::write(last.path().join("notes.txt"), "not a spec").unwrap();
    let env = |name: &str| injected(&dirs, &[name]).map(|got| got["process"]["env"][1].clone());
    assert_eq!(env("vendor.example/gpu=0"), Ok(json!("GPU=c-0")));
    assert_eq!(
        env("vendor.example/gpu=2"),
        Ok(json!("GPU=c-2")),
        "a conflict in a directory that does not count"
    );
    let error = env("vendor.example/gpu=1").unwrap_err();
    assert!(error.contains("conflicting specs of vendor.example/gpu=1"), "{error}");
    assert!(error.contains("a.json") && error.contains("b.json"), "{error}");
}

#[test]
fn errors_name_the_file_and_the_field() {
    let edits = |edits: Value| json!({"cdiVersion": "0.7.0", "kind": "v/c", "devices": [{"name": "d", "containerEdits": edits}]});
    let node = |node: Value| edits(json!({"deviceNodes": [node]}));
    for (content, part) in [
        (json!({}), "missing field `cdiVersion`"),
        (json!({"cdiVersion": "9.0.0", "kind": "v/c", "devices": []}), "cdiVersion \"9.0.0\" is not known"),
        (json!({"cdiVersion": "0.5.0", "kind": "v", "devices": []}), "kind: \"v\" is not vendor/class"),
        (json!({"cdiVersion": "0.5.0", "kind": "v/c", "devices": []}), "devices: there is none"),
        (json!({"cdiVersion": "0.5.0", "kind": "v/c", "surprise": 1}), "unknown field `surprise`"),
        (
            json!({"cdiVersion": "0.3.0", "kind": "v/c", "devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}}]}),
            "0.5.0",
        ),
        (
            json!({"cdiVersion": "0.6.0", "kind": "v/c", "devices": [{"name": "d", "containerEdits": {"additionalGids": [1]}}]}),
            "additionalGids needs 0.7.0",
        ),
        (edits(json!({})), "devices[0].containerEdits: they are empty"),
        (edits(json!({"env": ["=x"]})), "devices[0].containerEdits.env: \"=x\" is not NAME=value"),
        (node(json!({"path": "gpu"})), "deviceNodes[0]: path \"gpu\" is not absolute"),
        (node(json!({"path": "/dev/x", "type": "z"})), "type \"z\""),
        (node(json!({"path": "/dev/x", "major": -1})), "-1:0 is not a device number"),
        (node(json!({"path": "/dev/x", "permissions": "rwx"})), "permissions \"rwx\""),
        (edits(json!({"hooks": [{"hookName": "later", "path": "/x"}]})), "hookName \"later\""),
        (
            edits(json!({"mounts": [{"hostPath": "/x", "containerPath": "/"}]})),
            "mounts[0]: containerPath \"/\"",
        ),
        (edits(json!({"intelRdt": {"closID": "../x"}})), "intelRdt.closID"),
        (node(json!({"path": "/dev/gpu0", "hostPath": "/dev/none-such"})), "0.7.0"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "broken.json", &content);
        let Err(error) = injected(&[dir.path().to_owned()], &["v/c=d"]) else { panic!("{content}") };
        assert!(error.contains("broken.json"), "{error}");
        if part != "0.7.0" {
            assert!(error.contains(part), "{part}: {error}");
        } else {
            assert!(error.contains("/dev/none-such"), "{error}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "file.json", &node(json!({"path": "/dev/x", "hostPath": "/etc/passwd"})));
    let error = injected(&[dir.path().to_owned()], &["v/c=d"]).unwrap_err();
    assert!(error.contains("device node \"/etc/passwd\" is not of type"), "{error}");
}

#[test]
fn a_broken_file_does_not_affect_devices_of_others() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "good.json", &gpus("a", &["0"]));
    std::fs::write(dir.path().join("broken.json"), "{").unwrap();
    let dirs = [dir.path().to_owned(), dir.path().join("missing")];
    injected(&dirs, &["vendor.example/gpu=0"]).unwrap();
    let error = injected(&dirs, &["vendor.example/gpu=0", "vendor.example/gpu=7"]).unwrap_err();
    assert!(error.contains("unresolvable CDI devices vendor.example/gpu=7;"), "{error}");
    assert!(error.contains("broken.json"), "{error}");
}

#[test]
fn hostile_files_are_refused() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    for (name, text) in [
        ("deep.json", deep("[", "]")),
        ("deep.yaml", deep("[", "]")),
        ("large.json", format!("{{\"kind\": \"{}\"}}", "x".repeat(2 << 20))),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), text).unwrap();
        let error = injected(&[dir.path().to_owned()], &["v/c=d"]).unwrap_err();
        assert!(error.contains(name), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&dir.path().join("fifo.json"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    let error = injected(&[dir.path().to_owned()], &["v/c=d"]).unwrap_err();
    assert!(error.contains("fifo.json: not a regular file"), "{error}");
}

#[test]
fn devices_of_the_list_and_of_annotations() {
    let device = |name: &str| cri::CdiDevice { name: name.into() };
    let mut config = cri::ContainerConfig {
        cdi_devices: vec![device("v/c=1"), device("v/c=0"), device("v/c=1")],
        annotations: [
            ("cdi.k8s.io/b".to_owned(), "v/c=2, v/c=0".to_owned()),
            ("cdi.k8s.io/a".to_owned(), "v/c=3".to_owned()),
            ("other".to_owned(), "v/c=9".to_owned()),
        ]
        .into(),
        ..cri::ContainerConfig::default()
    };
    assert_eq!(requested(&config).unwrap(), ["v/c=1", "v/c=0", "v/c=3", "v/c=2"]);
    config.cdi_devices.push(device("gpu"));
    assert!(requested(&config).unwrap_err().to_string().contains("\"gpu\""));
}
