//! Bad input: a clear reason on the pod, and the agent goes on.

use crate::cluster::{Cluster, IMAGE};

#[test]
#[ignore = "run by in_namespaces"]
fn reasons_people_know() {
    let cluster = Cluster::start();
    let here = "nodeName: node1";
    cluster.pod(
        "big",
        &format!(
            "{here}, containers: [{{name: c, image: '{IMAGE}', resources: {{requests: {{cpu: '1000'}}}}}}]"
        ),
    );
    cluster.pod("port1", &format!("{here}, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], ports: [{{containerPort: 80, hostPort: 8080}}]}}]"));
    cluster.wait_ready("port1");
    cluster.pod("port2", &format!("{here}, containers: [{{name: c, image: '{IMAGE}', ports: [{{containerPort: 80, hostPort: 8080}}]}}]"));
    cluster.pod("root", &format!("{here}, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], securityContext: {{runAsNonRoot: true}}}}]"));
    cluster
        .pod("command", &format!("{here}, containers: [{{name: c, image: '{IMAGE}', command: [/no/such]}}]"));
    cluster.pod(
        "never",
        &format!("{here}, containers: [{{name: c, image: 'example.test/none:1', imagePullPolicy: Never}}]"),
    );
    cluster.pod("sysctl", &format!("{here}, securityContext: {{sysctls: [{{name: kernel.msgmax, value: '1'}}]}}, containers: [{{name: c, image: '{IMAGE}'}}]"));
    assert_eq!(cluster.wait_phase("big", "Failed")["reason"], "OutOfcpu");
    assert_eq!(cluster.wait_phase("port2", "Failed")["reason"], "NodePorts");
    assert_eq!(cluster.wait_phase("sysctl", "Failed")["reason"], "SysctlForbidden");
    assert!(
        cluster
            .wait_waiting("root", "CreateContainerConfigError")
            .starts_with("container has runAsNonRoot and image will run as root")
    );
    assert_eq!(
        cluster.wait_waiting("never", "ErrImageNeverPull"),
        "Container image \"example.test/none:1\" is not present with pull policy of Never"
    );
    let status = cluster.wait("command", "StartError", |status| {
        let container = &status["containerStatuses"][0];
        container["lastState"]["terminated"]["reason"] == "StartError"
            || container["state"]["terminated"]["reason"] == "StartError"
    });
    assert!(status.to_string().contains("/no/such"), "{status}");
    cluster.delete("big port1 port2 root command never sysctl");
    cluster.pod("after", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000']}}]"));
    cluster.wait_ready("after");
    cluster.delete("after");
}
