//! Admission through the API: one server with the default plugins, and for quotas two servers on one etcd.

use coracle_apiserver::admission::pod_security::checks::RULES;
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

async fn client(server: &Server) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = kube::config::Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A namespace whose default account is there.
fn namespace(kubectl: &Kubectl, name: &str) {
    kubectl.run(&format!("create namespace {name}"));
    eventually("the namespace has its account", Duration::from_secs(60), || {
        kubectl.try_with(&format!("get serviceaccount default -n {name}"), "").ok
    });
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(change))
            if change.iter().all(Value::is_object) && !into.is_empty() =>
        {
            into.iter_mut().zip(change).for_each(|(into, change)| merge(into, change));
        }
        (into, change) => *into = change.clone(),
    }
}

/// A pod that every level accepts, with a change.
fn pod(change: &Value) -> Pod {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {
        "automountServiceAccountToken": false,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext":
            {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}});
    merge(&mut pod, change);
    serde_json::from_value(pod).unwrap()
}

fn container(change: Value) -> Value {
    json!({"spec": {"containers": [change]}})
}

fn secured(change: Value) -> Value {
    container(json!({"securityContext": change}))
}

/// A check by its name, the namespace of the level that has it, a pod that passes, a pod that does not, and what is said of it.
fn checks() -> Vec<(&'static str, &'static str, Value, Value, &'static str)> {
    let context = |change: Value| json!({"spec": {"securityContext": change}});
    let volume = |volume: Value| json!({"spec": {"volumes": [volume]}});
    let unmasked =
        json!({"spec": {"hostUsers": false, "containers": [{"securityContext": {"procMount": "Unmasked"}}]}});
    vec![
        (
            "hostNamespaces",
            "baseline",
            json!({}),
            json!({"spec": {"hostNetwork": true}}),
            "host namespaces (hostNetwork=true)",
        ),
        (
            "privileged",
            "baseline",
            secured(json!({"privileged": false})),
            secured(json!({"privileged": true, "allowPrivilegeEscalation": true})),
            "privileged (container \"c\" must not set securityContext.privileged=true)",
        ),
        (
            "capabilities_baseline",
            "baseline",
            secured(json!({"capabilities": {"add": ["CHOWN"]}})),
            secured(json!({"capabilities": {"add": ["SYS_ADMIN"]}})),
            "non-default capabilities (container \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add)",
        ),
        (
            "hostPathVolumes",
            "baseline",
            volume(json!({"name": "v", "emptyDir": {}})),
            volume(json!({"name": "v", "hostPath": {"path": "/"}})),
            "hostPath volumes (volume \"v\")",
        ),
        (
            "hostPorts",
            "baseline",
            container(json!({"ports": [{"containerPort": 80}]})),
            container(json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
            "hostPort (container \"c\" uses hostPort 80)",
        ),
        (
            "hostProbesAndHostLifecycle",
            "baseline",
            container(json!({"livenessProbe": {"tcpSocket": {"port": 80}}})),
            container(json!({"livenessProbe": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}})),
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"10.0.0.1\")",
        ),
        (
            "appArmorProfile",
            "baseline",
            context(json!({"appArmorProfile": {"type": "RuntimeDefault"}})),
            context(json!({"appArmorProfile": {"type": "Unconfined"}})),
            "forbidden AppArmor profile (pod must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            "seLinuxOptions",
            "baseline",
            context(json!({"seLinuxOptions": {"type": "container_t"}})),
            context(json!({"seLinuxOptions": {"user": "u"}})),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set)",
        ),
        // Validation keeps `Unmasked` to pods with users of their own; older versions of the level refuse it there too.
        (
            "procMount",
            "old",
            secured(json!({"procMount": "Default"})),
            unmasked.clone(),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            "procMount",
            "baseline",
            unmasked.clone(),
            json!({"spec": {"hostUsers": true, "containers": [{"securityContext": {"procMount": "Unmasked"}}]}}),
            "",
        ),
        (
            "procMount_restricted",
            "restricted",
            secured(json!({"procMount": "Default"})),
            unmasked,
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            "windowsHostProcess",
            "baseline",
            context(json!({"windowsOptions": {"runAsUserName": "somebody"}})),
            json!({"spec": {"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true}}}}),
            "host namespaces (hostNetwork=true), hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            "seccompProfile_baseline",
            "baseline",
            context(json!({"seccompProfile": {"type": "RuntimeDefault"}})),
            context(json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            "sysctls",
            "baseline",
            context(json!({"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]})),
            context(json!({"sysctls": [{"name": "kernel.sem", "value": "1"}]})),
            "forbidden sysctls (kernel.sem)",
        ),
        (
            "allowPrivilegeEscalation",
            "restricted",
            json!({}),
            secured(json!({"allowPrivilegeEscalation": null})),
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
        ),
        (
            "capabilities_restricted",
            "restricted",
            secured(json!({"capabilities": {"add": ["NET_BIND_SERVICE"]}})),
            secured(json!({"capabilities": {"drop": null}})),
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])",
        ),
        (
            "restrictedVolumes",
            "restricted",
            volume(json!({"name": "v", "secret": {"secretName": "s"}})),
            volume(json!({"name": "v", "nfs": {"server": "s", "path": "/p"}})),
            "restricted volume types (volume \"v\" uses restricted volume type \"nfs\")",
        ),
        (
            "runAsNonRoot",
            "restricted",
            secured(json!({"runAsNonRoot": true})),
            context(json!({"runAsNonRoot": null})),
            "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)",
        ),
        (
            "runAsUser",
            "restricted",
            secured(json!({"runAsUser": 1000})),
            secured(json!({"runAsUser": 0})),
            "runAsUser=0 (container \"c\" must not set runAsUser=0)",
        ),
        (
            "seccompProfile_restricted",
            "restricted",
            secured(json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}})),
            context(json!({"seccompProfile": null})),
            "seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
    ]
}

async fn pod_security(server: &Server, kubectl: &Kubectl) {
    for level in ["baseline", "restricted"] {
        namespace(kubectl, level);
        kubectl.run(&format!("label namespace {level} pod-security.kubernetes.io/enforce={level}"));
    }
    namespace(kubectl, "old");
    kubectl.run("label namespace old pod-security.kubernetes.io/enforce=baseline pod-security.kubernetes.io/enforce-version=v1.34");
    let client = client(server).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let rules: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    let tried: BTreeSet<&str> = checks().iter().map(|(check, ..)| *check).collect();
    assert_eq!(rules, tried, "every check has a pod that it accepts and one that it refuses");
    for (check, level, good, bad, said) in checks() {
        let api: Api<Pod> = Api::namespaced(client.clone(), level);
        let accepted = api.create(&dry, &pod(&good)).await;
        assert!(accepted.is_ok(), "{level} {check}: {accepted:?}");
        let refused = api.create(&dry, &pod(&bad)).await.unwrap_err();
        let kube::Error::Api(status) = refused else { panic!("{refused}") };
        if said.is_empty() {
            assert_eq!(status.code, 422, "{level} {check}: {status:?}");
            continue;
        }
        assert_eq!(status.code, 403, "{level} {check}: {status:?}");
        let standard = if level == "old" { "baseline:v1.34".to_owned() } else { format!("{level}:latest") };
        let expected = format!("pods \"p\" is forbidden: violates PodSecurity \"{standard}\": {said}");
        assert_eq!(status.message, expected, "{check}");
    }
    // Workloads are warned of, and a stricter namespace names the pods that it would refuse.
    let warned = kubectl.try_with("create deployment d --image=i -n restricted --dry-run=server", "");
    assert!(
        warned.ok && warned.err.contains("Warning: would violate PodSecurity \"restricted:latest\""),
        "{warned:?}"
    );
    namespace(kubectl, "loose");
    kubectl.run("run careless --image=i -n loose");
    let warned = kubectl.try_with("label namespace loose pod-security.kubernetes.io/enforce=restricted", "");
    let expected = "Warning: existing pods in namespace \"loose\" violate the new PodSecurity enforce level \"restricted:latest\"";
    assert!(warned.ok && warned.err.contains(expected), "{warned:?}");
    assert!(warned.err.contains("Warning: careless: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile"), "{warned:?}");
    let refused =
        kubectl.try_with("label namespace loose --overwrite pod-security.kubernetes.io/enforce=strict", "");
    assert!(
        !refused.ok && refused.err.contains("must be one of privileged, baseline, restricted"),
        "{refused:?}"
    );
}

fn limits(kubectl: &Kubectl) {
    namespace(kubectl, "limited");
    let range = r#"{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}, "min": {"cpu": "50m"}}]}}"#;
    kubectl.run_with("create -n limited -f -", range);
    kubectl.run("run plain --image=i -n limited");
    let resources = kubectl.run("get pod plain -n limited -o jsonpath={.spec.containers[0].resources}");
    let resources: Value = serde_json::from_str(&resources).unwrap();
    assert_eq!(resources, json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}));
    let big = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]}}"#;
    let refused = kubectl.try_with("create -n limited -f -", big);
    let said = "pods \"big\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
    assert!(!refused.ok && refused.err.contains(said), "{refused:?}");
}

fn classes(kubectl: &Kubectl) {
    namespace(kubectl, "classes");
    let refused = kubectl
        .try_with("run p --image=i -n classes --overrides={\"spec\":{\"priorityClassName\":\"none\"}}", "");
    assert!(
        refused.err.contains("pods \"p\" is forbidden: no PriorityClass with name none was found"),
        "{refused:?}"
    );
    let refused = kubectl
        .try_with("run p --image=i -n classes --overrides={\"spec\":{\"runtimeClassName\":\"none\"}}", "");
    assert!(refused.err.contains("pod rejected: RuntimeClass \"none\" not found"), "{refused:?}");
    kubectl.run("create priorityclass one --value=10 --global-default=true");
    let refused = kubectl.try_with("create priorityclass two --value=20 --global-default=true", "");
    assert!(
        refused.err.contains("PriorityClass one is already marked as default. Only one default can exist"),
        "{refused:?}"
    );
    kubectl.run("delete priorityclass one");
    let class = r#"{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}, "handler": "vm",
        "overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": {"nodeSelector": {"vm": "yes"}}}"#;
    kubectl.run_with("create -f -", class);
    kubectl.run("run inside --image=i -n classes --overrides={\"spec\":{\"runtimeClassName\":\"vm\"}}");
    let spec: Value =
        serde_json::from_str(&kubectl.run("get pod inside -n classes -o jsonpath={.spec}")).unwrap();
    assert_eq!((&spec["overhead"]["cpu"], &spec["nodeSelector"]["vm"]), (&json!("250m"), &json!("yes")));
}

#[test]
fn plugins() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(pod_security(&server, &kubectl));
    limits(&kubectl);
    classes(&kubectl);
    runtime.block_on(quota(&[&server], &kubectl));
}

#[test]
fn two_servers_give_no_share_away_twice() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let first = Server::with(&["--datastore", &store]);
    let second = first.beside(&["--datastore", &store]);
    let servers = [first, second];
    let kubectl = newest(&servers[0].kubeconfig());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(quota(&[&servers[0], &servers[1]], &kubectl));
}

/// 200 creates at a time against a quota of 50, over all servers.
async fn quota(servers: &[&Server], kubectl: &Kubectl) {
    namespace(kubectl, "quota");
    kubectl.run("create quota fifty --hard=pods=50,services=1,count/configmaps=100 -n quota");
    eventually("the quota is counted", Duration::from_secs(60), || {
        kubectl.run("get quota fifty -n quota -o jsonpath={.status.used.pods}") == "0"
    });
    let mut clients = Vec::new();
    for server in servers {
        clients.push(client(server).await);
    }
    let creates = (0..200).map(|i| {
        let api: Api<Pod> = Api::namespaced(clients[i % clients.len()].clone(), "quota");
        let pod = pod(&json!({"metadata": {"name": format!("p{i}")}}));
        async move { api.create(&PostParams::default(), &pod).await }
    });
    let begun = std::time::Instant::now();
    let outcomes = futures::future::join_all(creates).await;
    let took = begun.elapsed();
    let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    for error in outcomes.into_iter().filter_map(Result::err) {
        let kube::Error::Api(status) = error else { panic!("{error}") };
        let said = "is forbidden: exceeded quota: fifty, requested: pods=1, used: pods=50, limited: pods=50";
        assert!(status.code == 403 && status.message.contains(said), "{status:?}");
    }
    let api: Api<Pod> = Api::namespaced(clients[0].clone(), "quota");
    let quotas: Api<ResourceQuota> = Api::namespaced(clients[0].clone(), "quota");
    let stored = api.list(&ListParams::default()).await.unwrap().items;
    assert_eq!((made, stored.len()), (50, 50));
    println!(
        "200 creates at once over {} servers against a quota of 50: {made} made, in {took:?}",
        servers.len()
    );
    let used = |quota: ResourceQuota| {
        quota.status.and_then(|s| s.used).and_then(|u| u.get("pods").map(|q| q.0.clone()))
    };
    assert_eq!(used(quotas.get("fifty").await.unwrap()).as_deref(), Some("50"));
    // What goes is given back.
    for pod in stored.iter().take(10) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        api.delete(pod.metadata.name.as_deref().unwrap(), &now).await.unwrap();
    }
    eventually("the quota has room", Duration::from_secs(60), || {
        kubectl.run("get quota fifty -n quota -o jsonpath={.status.used.pods}") == "40"
    });
    // A create that fails for another reason leaves no charge behind.
    kubectl.run("create service clusterip s --tcp=80 -n quota");
    let refused = kubectl.try_with("create service clusterip t --tcp=80 -n quota", "");
    assert!(
        refused
            .err
            .contains("exceeded quota: fifty, requested: services=1, used: services=1, limited: services=1"),
        "{refused:?}"
    );
    let again = kubectl.try_with("create configmap kube-root-ca.crt -n quota", "");
    assert!(again.err.contains("already exists"), "{again:?}");
    let count = kubectl.run("get configmaps -n quota -o name").lines().count().to_string();
    eventually("configmaps are counted", Duration::from_secs(60), || {
        let quota: Value = serde_json::from_str(&kubectl.run("get quota fifty -n quota -o json")).unwrap();
        quota["status"]["used"]["count/configmaps"] == count.as_str()
    });
}
