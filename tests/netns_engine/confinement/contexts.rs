//! Security contexts, as pods ask for them.

use coracle_proto::cri;

/// A security context.
pub struct Context {
    pub name: &'static str,
    pub change: fn(&mut cri::PodSandboxConfig, &mut cri::ContainerConfig),
}

type Sandbox = cri::PodSandboxConfig;
type Container = cri::ContainerConfig;

const FIRST: u32 = 655_360;

/// What every pod has: the paths that Kubernetes hides, and a pid namespace of its own.
pub fn base(sandbox: &mut Sandbox, container: &mut Container) {
    let text = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect();
    let security = security(container);
    security.masked_paths = text(&[
        "/proc/asound",
        "/proc/acpi",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/timer_stats",
        "/proc/sched_debug",
        "/proc/scsi",
        "/sys/firmware",
        "/sys/devices/virtual/powercap",
    ]);
    security.readonly_paths =
        text(&["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]);
    spaces(sandbox, container, |options| options.pid = cri::NamespaceMode::Container.into());
}

pub fn security(container: &mut Container) -> &mut cri::LinuxContainerSecurityContext {
    container.linux.get_or_insert_default().security_context.get_or_insert_default()
}

pub fn capabilities(container: &mut Container) -> &mut cri::Capability {
    security(container).capabilities.get_or_insert_default()
}

pub fn user(container: &mut Container, uid: i64) {
    security(container).run_as_user = Some(cri::Int64Value { value: uid });
}

/// Changes the namespaces of the pod and of the container, which have to agree.
pub fn spaces(sandbox: &mut Sandbox, container: &mut Container, change: impl Fn(&mut cri::NamespaceOption)) {
    let linux = sandbox.linux.get_or_insert_default();
    change(linux.security_context.get_or_insert_default().namespace_options.get_or_insert_default());
    change(security(container).namespace_options.get_or_insert_default());
}

pub fn user_namespace(sandbox: &mut Sandbox, container: &mut Container) {
    let mapping = cri::IdMapping { host_id: FIRST, container_id: 0, length: 65_536 };
    spaces(sandbox, container, |options| {
        options.userns_options = Some(cri::UserNamespace {
            mode: cri::NamespaceMode::Pod.into(),
            uids: vec![mapping],
            gids: vec![mapping],
        });
    });
}

pub fn privileged(sandbox: &mut Sandbox, container: &mut Container) {
    sandbox.linux.get_or_insert_default().security_context.get_or_insert_default().privileged = true;
    let security = security(container);
    security.privileged = true;
    (security.masked_paths, security.readonly_paths) = (vec![], vec![]);
    unconfined(container);
}

fn unconfined(container: &mut Container) {
    use cri::security_profile::ProfileType;
    let profile = cri::SecurityProfile { profile_type: ProfileType::Unconfined.into(), ..Default::default() };
    security(container).seccomp = Some(profile);
}

/// A seccomp profile of the node; the suite's process has the file.
fn of_node(container: &mut Container, name: &str, text: &str) {
    use cri::security_profile::ProfileType;
    let path = std::env::temp_dir().join(format!("{name}.json"));
    std::fs::write(&path, text).expect("a profile is written");
    security(container).seccomp = Some(cri::SecurityProfile {
        profile_type: ProfileType::Localhost.into(),
        localhost_ref: path.display().to_string(),
    });
}

/// Those of a process.
pub const CONTEXTS: &[Context] = &[
    Context { name: "default", change: |_, _| {} },
    Context { name: "unconfined", change: |_, c| unconfined(c) },
    Context { name: "no new privileges", change: |_, c| security(c).no_new_privs = true },
    Context {
        name: "no new privileges, unconfined",
        change: |_, c| {
            security(c).no_new_privs = true;
            unconfined(c);
        },
    },
    Context { name: "privileged", change: privileged },
    Context {
        name: "privileged, another user",
        change: |s, c| {
            privileged(s, c);
            user(c, 1000);
        },
    },
    Context { name: "another user", change: |_, c| user(c, 1000) },
    Context {
        name: "user and group",
        change: |_, c| {
            user(c, 1000);
            security(c).run_as_group = Some(cri::Int64Value { value: 2000 });
        },
    },
    Context {
        name: "user and groups",
        change: |_, c| {
            user(c, 1000);
            security(c).supplemental_groups = vec![3000, 4000];
        },
    },
    Context { name: "root with groups", change: |_, c| security(c).supplemental_groups = vec![5, 6] },
    Context { name: "user of the image", change: |_, c| security(c).run_as_username = "web".into() },
    Context {
        name: "another user, no new privileges",
        change: |_, c| {
            user(c, 1000);
            security(c).no_new_privs = true;
        },
    },
    Context {
        name: "no capabilities",
        change: |_, c| capabilities(c).drop_capabilities = vec!["ALL".into()],
    },
    Context {
        name: "restricted",
        change: |_, c| {
            user(c, 1000);
            security(c).no_new_privs = true;
            capabilities(c).drop_capabilities = vec!["ALL".into()];
            security(c).readonly_rootfs = true;
        },
    },
    Context {
        name: "one capability",
        change: |_, c| {
            capabilities(c).drop_capabilities = vec!["ALL".into()];
            capabilities(c).add_capabilities = vec!["NET_BIND_SERVICE".into()];
        },
    },
    Context { name: "SYS_ADMIN", change: |_, c| capabilities(c).add_capabilities = vec!["SYS_ADMIN".into()] },
    Context {
        name: "SYS_TIME and SYS_CHROOT without MKNOD",
        change: |_, c| {
            capabilities(c).add_capabilities = vec!["SYS_TIME".into(), "SYS_CHROOT".into()];
            capabilities(c).drop_capabilities = vec!["MKNOD".into()];
        },
    },
    Context {
        name: "all capabilities",
        change: |_, c| capabilities(c).add_capabilities = vec!["ALL".into()],
    },
    Context {
        name: "all capabilities, another user",
        change: |_, c| {
            capabilities(c).add_capabilities = vec!["ALL".into()];
            user(c, 1000);
        },
    },
    Context {
        name: "ambient capability",
        change: |_, c| {
            user(c, 1000);
            capabilities(c).add_capabilities = vec!["NET_BIND_SERVICE".into()];
            capabilities(c).add_ambient_capabilities = vec!["NET_BIND_SERVICE".into()];
        },
    },
    Context { name: "read-only root", change: |_, c| security(c).readonly_rootfs = true },
    Context {
        name: "unmasked proc",
        change: |_, c| {
            let security = security(c);
            (security.masked_paths, security.readonly_paths) = (vec![], vec![]);
        },
    },
    Context {
        name: "other masked paths",
        change: |_, c| {
            security(c).masked_paths = ["/etc", "/proc/version", "/nowhere"].map(str::to_owned).to_vec();
            security(c).readonly_paths = ["/dev/shm", "/tmp", "/nowhere"].map(str::to_owned).to_vec();
        },
    },
    Context {
        name: "processes of the host",
        change: |s, c| spaces(s, c, |options| options.pid = cri::NamespaceMode::Node.into()),
    },
    Context {
        name: "processes of the pod",
        change: |s, c| spaces(s, c, |options| options.pid = cri::NamespaceMode::Pod.into()),
    },
    Context {
        name: "network of the host",
        change: |s, c| spaces(s, c, |options| options.network = cri::NamespaceMode::Node.into()),
    },
    Context {
        name: "IPC of the host",
        change: |s, c| spaces(s, c, |options| options.ipc = cri::NamespaceMode::Node.into()),
    },
    Context { name: "user namespace", change: user_namespace },
    Context {
        name: "user namespace, another user, no new privileges",
        change: |s, c| {
            user_namespace(s, c);
            user(c, 1000);
            security(c).no_new_privs = true;
        },
    },
    Context {
        name: "user namespace, all capabilities",
        change: |s, c| {
            user_namespace(s, c);
            capabilities(c).add_capabilities = vec!["ALL".into()];
        },
    },
    Context { name: "terminal", change: |_, c| c.tty = true },
    Context {
        name: "terminal of another user",
        change: |_, c| {
            c.tty = true;
            user(c, 1000);
        },
    },
    Context { name: "stdin", change: |_, c| c.stdin = true },
    Context {
        name: "killed first, in a directory, with variables",
        change: |_, c| {
            c.linux.get_or_insert_default().resources =
                Some(cri::LinuxContainerResources { oom_score_adj: 500, ..Default::default() });
            c.working_dir = "/tmp".into();
            let variables = [("B", "2"), ("A", "1"), ("HOME", "/elsewhere"), ("B", "3"), ("EMPTY", "")];
            c.envs =
                variables.map(|(key, value)| cri::KeyValue { key: key.into(), value: value.into() }).to_vec();
        },
    },
    Context {
        name: "seccomp profile of the node",
        change: |_, c| {
            let text = r#"{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                { "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13 },
                { "names": ["chmod"], "action": "SCMP_ACT_KILL_PROCESS" }] }"#;
            of_node(c, "plain", text);
        },
    },
];

/// The flag of [`WITH_FLAG`].
pub const FLAG: &str = "SECCOMP_FILTER_FLAG_LOG";

/// One that not every runc accepts: a seccomp profile with a flag, which libseccomp compiles.
pub static WITH_FLAG: Context = Context {
    name: "seccomp profile that libseccomp compiles",
    change: |_, c| {
        let text = r#"{ "defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"],
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "syscalls": [
            { "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO" }] }"#;
        of_node(c, "flags", text);
    },
};
