#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;
use std::collections::HashSet;

fn host() -> Host {
    Host {
        capabilities: capabilities::from_mask(u64::MAX),
        seccomp: true,
        controllers: ["cpu", "memory"].map(str::to_owned).into(),
        ..Host::default()
    }
}

fn facts() -> Facts {
    Facts {
        id: "c".into(),
        sandbox: "s".into(),
        hostname: "web-0".into(),
        sandbox_dir: "/run/s".into(),
        cgroup: "/kubepods/podx/c".into(),
        user: User { uid: 101, gid: 102, groups: vec![5] },
        namespaces: Namespaces {
            join: [
                (LinuxNamespaceType::Network, "/run/s/ns/net".into()),
                (LinuxNamespaceType::Ipc, "/run/s/ns/ipc".into()),
            ]
            .into(),
            host: HashSet::new(),
        },
        ..Default::default()
    }
}

fn image() -> ImageConfig {
    ImageConfig {
        entrypoint: vec!["/entry".into()],
        cmd: vec!["serve".into()],
        env: vec!["A=image".into(), "PATH=/opt/bin".into()],
        working_dir: "/srv".into(),
        ..Default::default()
    }
}

fn container() -> cri::ContainerConfig {
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "web".into(), attempt: 0 }),
        envs: vec![cri::KeyValue { key: "A".into(), value: "pod".into() }],
        linux: Some(cri::LinuxContainerConfig::default()),
        ..Default::default()
    }
}

fn security(config: &mut cri::ContainerConfig) -> &mut cri::LinuxContainerSecurityContext {
    config.linux.get_or_insert_default().security_context.get_or_insert_default()
}

fn spec(config: &cri::ContainerConfig) -> Value {
    spec_with(config, &facts(), &host())
}

fn spec_with(config: &cri::ContainerConfig, facts: &Facts, host: &Host) -> Value {
    generate(config, &Default::default(), &image(), facts, host).unwrap().into_json().unwrap()
}

/// The whole document, so that no default of oci-spec gets into it.
#[test]
fn has_what_was_asked_for_and_nothing_else() {
    let mut config = container();
    let capabilities = cri::Capability {
        drop_capabilities: vec!["ALL".into()],
        add_capabilities: vec!["NET_RAW".into(), "KILL".into()],
        add_ambient_capabilities: vec!["kill".into()],
    };
    security(&mut config).capabilities = Some(capabilities);
    security(&mut config).masked_paths = vec!["/proc/kcore".into()];
    let mut got = spec(&config);
    let mounts = got["mounts"].take();
    assert_eq!(mounts.as_array().unwrap().len(), 10);
    assert_eq!(
        mounts[0],
        json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] })
    );
    let set = json!(["CAP_KILL", "CAP_NET_RAW"]);
    let expected = json!({
        "ociVersion": "1.0.2",
        "root": { "path": "rootfs", "readonly": false },
        "mounts": null,
        "process": {
            "terminal": false,
            "user": { "uid": 101, "gid": 102, "additionalGids": [5] },
            "args": ["/entry", "serve"],
            "env": ["PATH=/opt/bin", "HOSTNAME=web-0", "A=pod"],
            "cwd": "/srv",
            "capabilities": { "bounding": set, "effective": set, "permitted": set,
                "inheritable": ["CAP_KILL"], "ambient": ["CAP_KILL"] },
            "oomScoreAdj": 0,
        },
        "annotations": {
            "io.kubernetes.cri.container-name": "web",
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.sandbox-id": "s",
            "io.kubernetes.cri.sandbox-name": "",
            "io.kubernetes.cri.sandbox-namespace": "",
            "io.kubernetes.cri.sandbox-uid": "",
        },
        "linux": {
            "cgroupsPath": "/kubepods/podx/c",
            "namespaces": [{ "type": "mount" }, { "type": "pid" }, { "type": "network", "path": "/run/s/ns/net" },
                { "type": "ipc", "path": "/run/s/ns/ipc" }, { "type": "uts" }, { "type": "cgroup" }],
            "resources": { "devices": [{ "allow": false, "access": "rwm" }], "unified": {} },
            "devices": [],
            "maskedPaths": ["/proc/kcore"],
            "readonlyPaths": [],
        },
    });
    assert_eq!(got, expected, "{got:#}");
}

#[test]
fn filters_are_the_default_or_the_node_s_file() {
    let mut config = container();
    security(&mut config).seccomp = Some(cri::SecurityProfile::default());
    let typed: Spec = serde_json::from_value(spec(&config)).unwrap();
    assert!(typed.linux().as_ref().unwrap().seccomp().is_some());
    let profile_type = cri::security_profile::ProfileType::Localhost.into();
    security(&mut config).seccomp = Some(cri::SecurityProfile { profile_type, ..Default::default() });
    // As it is written, with what oci-spec does not know.
    let file = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["kill"], "args": [{ "op": "SCMP_CMP_EQ" }],
        "action": "SCMP_ACT_LOG", "comment": "x" }], "newer": 1 });
    let facts = Facts { seccomp: Some(file.clone()), ..facts() };
    assert_eq!(spec_with(&config, &facts, &host())["linux"]["seccomp"], file);
    let old = Host { seccomp: false, ..host() };
    let result = generate(&config, &Default::default(), &image(), &facts, &old);
    assert_eq!(result.unwrap_err(), Error::Profile(ProfileError::NoSeccomp));
}

#[test]
fn devices_and_user_namespaces() {
    let path = "/dev/null".to_owned();
    let asked = cri::Device { container_path: path.clone(), host_path: path, permissions: "rw".into() };
    let mut facts = Facts { devices: devices::requested(&[asked]).unwrap(), ..facts() };
    facts.namespaces.join.insert(LinuxNamespaceType::User, "/run/s/ns/user".into());
    let ids = vec![cri::IdMapping { host_id: 65536, container_id: 0, length: 65536 }];
    let userns_options = Some(cri::UserNamespace { uids: ids.clone(), gids: ids, ..Default::default() });
    let options = cri::NamespaceOption { userns_options, ..Default::default() };
    let context = cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    let linux = cri::LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
    let sandbox = cri::PodSandboxConfig { linux: Some(linux), ..Default::default() };
    let config = generate(&container(), &sandbox, &image(), &facts, &host()).unwrap();
    let spec = config.into_json().unwrap();
    let linux = &spec["linux"];
    let rule = json!({ "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw" });
    assert_eq!(linux["resources"]["devices"][1], rule);
    assert_eq!(
        (&linux["devices"][0]["path"], &linux["devices"][0]["type"]),
        (&json!("/dev/null"), &json!("c"))
    );
    let mapping = json!([{ "hostID": 65536, "containerID": 0, "size": 65536 }]);
    assert_eq!((&linux["uidMappings"], &linux["gidMappings"]), (&mapping, &mapping));
    let user = json!({ "type": "user", "path": "/run/s/ns/user" });
    assert_eq!(linux["namespaces"].as_array().unwrap().last(), Some(&user));
}

#[test]
fn commands_and_arguments_replace_the_image_s() {
    let strings = |list: &[&str]| -> Vec<String> { list.iter().map(|s| s.to_string()).collect() };
    for (command, args, expected) in [
        (&[][..], &[][..], &["/entry", "serve"][..]),
        (&[], &["x"], &["/entry", "x"]),
        (&["/c"], &[], &["/c"]),
        (&["/c"], &["x"], &["/c", "x"]),
    ] {
        let config = cri::ContainerConfig { command: strings(command), args: strings(args), ..container() };
        assert_eq!(process::args(&config, &image()).unwrap(), expected);
    }
    let nothing = ImageConfig::default();
    assert_eq!(process::args(&container(), &nothing), Err(Error::NoCommand));
}

#[test]
fn the_pod_s_environment_wins() {
    let spec = spec(&container());
    let env: Vec<&str> =
        spec["process"]["env"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    assert_eq!(env, ["PATH=/opt/bin", "HOSTNAME=web-0", "A=pod"]);
}

#[test]
fn joins_and_shares_namespaces() {
    let mut facts = facts();
    facts.namespaces.host.insert(LinuxNamespaceType::Pid);
    let spec = spec_with(&container(), &facts, &host());
    let spaces = spec["linux"]["namespaces"].as_array().unwrap();
    let find = |kind: &str| spaces.iter().find(|n| n["type"] == kind);
    assert_eq!(find("network").unwrap()["path"], "/run/s/ns/net");
    assert!(find("mount").unwrap().get("path").is_none());
    assert!(find("pid").is_none());
    assert!(find("cgroup").is_some());
}

#[test]
fn privileged_has_everything_and_no_filter() {
    let mut config = container();
    security(&mut config).privileged = true;
    security(&mut config).seccomp = Some(cri::SecurityProfile::default());
    security(&mut config).masked_paths = vec!["/proc/kcore".into()];
    let spec = spec(&config);
    assert!(spec["linux"].get("seccomp").is_none());
    assert!(spec["linux"].get("maskedPaths").is_none());
    assert_eq!(spec["linux"]["resources"]["devices"][0]["allow"], true);
    assert_eq!(spec["process"]["capabilities"]["bounding"].as_array().unwrap().len(), 41);
    let sys = spec["mounts"].as_array().unwrap().iter().find(|m| m["destination"] == "/sys").unwrap();
    assert!(sys["options"].as_array().unwrap().iter().any(|o| o == "rw"));
}

#[test]
fn labels_are_in_the_configuration() {
    let selinux = Some(SeLinux { process: "u:r:t:s0".into(), mount: "u:r:f:s0".into() });
    let facts = Facts { selinux, ..facts() };
    let host = Host { apparmor: true, ..host() };
    let typed: Spec = serde_json::from_value(spec_with(&container(), &facts, &host)).unwrap();
    let process = typed.process().as_ref().unwrap();
    assert_eq!(process.apparmor_profile().as_deref(), Some(DEFAULT_PROFILE));
    assert_eq!(process.selinux_label().as_deref(), Some("u:r:t:s0"));
    assert_eq!(typed.linux().as_ref().unwrap().mount_label().as_deref(), Some("u:r:f:s0"));
    let without = self::spec(&container());
    assert!(without["process"].get("apparmorProfile").is_none());
    assert!(without["process"].get("selinuxLabel").is_none());
}

#[test]
fn limits_of_absent_controllers_are_left_out() {
    let mut config = container();
    config.linux.as_mut().unwrap().resources = Some(cri::LinuxContainerResources {
        cpu_shares: 1024,
        memory_limit_in_bytes: 64 << 20,
        cpuset_cpus: "0".into(),
        oom_score_adj: -998,
        ..Default::default()
    });
    let spec = spec(&config);
    let unified = spec["linux"]["resources"]["unified"].as_object().unwrap();
    assert_eq!(unified.keys().collect::<Vec<_>>(), ["cpu.weight", "memory.max"], "and in this order");
    assert_eq!(spec["process"]["oomScoreAdj"], 0, "not lower than the host allows");
}

#[test]
fn mounts_are_ordered_and_the_pod_s_replace_ours() {
    let mut config = container();
    let mount = |container: &str, propagation: cri::MountPropagation| cri::Mount {
        container_path: container.into(),
        host_path: "/src".into(),
        readonly: true,
        propagation: propagation.into(),
        ..Default::default()
    };
    config.mounts = vec![
        mount("/data/deep/er", cri::MountPropagation::PropagationBidirectional),
        mount("/data/", cri::MountPropagation::PropagationPrivate),
        mount("/etc/hosts", cri::MountPropagation::PropagationHostToContainer),
    ];
    let spec = spec(&config);
    let list = spec["mounts"].as_array().unwrap();
    let at = |destination: &str| list.iter().position(|m| m["destination"] == destination).unwrap();
    assert!(at("/data") < at("/data/deep/er"));
    assert_eq!(list.iter().filter(|m| m["destination"] == "/etc/hosts").count(), 1);
    assert_eq!(list[at("/etc/hosts")]["source"], "/src");
    assert_eq!(list[at("/etc/hosts")]["options"], json!(["rbind", "rslave", "ro"]));
    assert_eq!(list[at("/etc/resolv.conf")]["source"], "/run/s/resolv.conf");
    assert_eq!(spec["linux"]["rootfsPropagation"], "rshared");
}

#[test]
fn what_can_never_work_is_refused() {
    let mut config = container();
    config.mounts = vec![cri::Mount { container_path: "data".into(), ..Default::default() }];
    let result = generate(&config, &Default::default(), &image(), &facts(), &host());
    assert!(matches!(result, Err(Error::Relative { .. })));
    let recursive = |readonly: bool, propagation: cri::MountPropagation| {
        let mut config = container();
        let (container_path, propagation) = ("/data".into(), propagation.into());
        let mount = cri::Mount { container_path, readonly, propagation, ..Default::default() };
        config.mounts = vec![cri::Mount { recursive_read_only: true, ..mount }];
        generate(&config, &Default::default(), &image(), &facts(), &host())
    };
    assert!(recursive(true, cri::MountPropagation::PropagationPrivate).is_ok());
    for (readonly, propagation) in [
        (false, cri::MountPropagation::PropagationPrivate),
        (true, cri::MountPropagation::PropagationHostToContainer),
        (true, cri::MountPropagation::PropagationBidirectional),
    ] {
        let result = recursive(readonly, propagation);
        assert!(matches!(result, Err(Error::RecursiveReadOnly { .. })), "{result:?}");
    }
    let config = cri::ContainerConfig { working_dir: "srv".into(), ..container() };
    assert!(generate(&config, &Default::default(), &image(), &facts(), &host()).is_err());
}

#[test]
fn annotations_for_the_runtime_are_passed_on() {
    let mut config = container();
    config.annotations = [
        ("vendor.example/x", "1"),
        ("io.kubernetes.container.hash", "h"),
        ("io.kubernetes.cri.sandbox-id", "z"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let got = spec(&config);
    assert_eq!(got["annotations"]["vendor.example/x"], "1");
    assert_eq!(got["annotations"]["io.kubernetes.container.hash"], Value::Null);
    assert_eq!(got["annotations"]["io.kubernetes.cri.sandbox-id"], "s", "the engine's own stay");
}
