//! The page of a whole cluster, while its pods start, write and end.

use crate::browser::Browser;
use crate::ui::Ui;
use coracle_tests::cluster::Cluster;
use coracle_tests::kubectl::Kubectl;

/// Each pod writes a line a second, and the first probe finds it ready.
const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: busybox
        imagePullPolicy: IfNotPresent
        command: [/bin/sh, -c, 'n=0; while sleep 1; do n=$((n + 1)); echo "line $n of <$HOSTNAME>"; done']
"#;
const ROWS: &str = "[...document.querySelectorAll('.row')].map((row) => row.innerText).join('|')";
const TEXT: &str = "document.querySelector('main').innerText";

/// From a Deployment that is not there yet to pods that were replaced, without loading the page again.
pub fn live(browser: &mut Browser) {
    let cluster = Cluster::start(1);
    let k = cluster.kubectl();
    k.run("wait --for=condition=Ready node --all --timeout=120s");
    let ui = Ui::start(&cluster.data_dir().join("admin.kubeconfig"));
    rollout(browser, &ui, &k);
    map(browser, &ui);
    let pod = replaced(browser, &ui, &k);
    log(browser, &ui, &pod);
    drop(ui);
    cluster.down();
}

/// The timeline is open while the rollout happens and when more pods are wanted.
fn rollout(browser: &mut Browser, ui: &Ui, k: &Kubectl) {
    k.run_with("create -f -", WEB);
    browser.open(&ui.page, "#/object/deployments.apps/default/web");
    browser.wait("the request", &format!("({ROWS}).includes('create deployments.apps/web')"));
    browser.wait("both pods are ready", &format!("({TEXT}).match(/^2 pods ready after/m)"));
    for stage in ["image", "container"] {
        let told = browser.text(TEXT);
        assert!(told.contains(stage), "{stage} is on the critical path or in a row: {told}");
    }
    k.run("scale deployment web --replicas=3");
    let scaled = "/^updated by kubectl/m.test(told) && /^ready after/m.test(told) && told.includes('3/3')";
    browser.wait("a third pod", &format!("((told) => {scaled})({TEXT})"));
    browser.check();
}

/// Each pod is below the ReplicaSet that made it, and that below the Deployment.
fn map(browser: &mut Browser, ui: &Ui) {
    const TREE: &str = "[...document.querySelectorAll('.row')].map((row) => `${row.ariaLevel} ${row.querySelector('a').innerText}`).join('|')";
    browser.open(&ui.page, "#/map");
    browser.wait("the Deployment", &format!("({TREE}).includes('1 Deployment web|2 ReplicaSet web-')"));
    let of_web = format!(
        "({TREE}).split('1 Deployment web|')[1].match(/^2 ReplicaSet web-[^|]*(.3 Pod web-[^|]*){{3}}/)"
    );
    browser.wait("its pods", &of_web);
    browser.wait("all kinds", "!document.getElementById('status').textContent.includes('being listed')");
    browser.screenshot("map-of-a-cluster");
    browser.check();
}

/// A pod that is deleted goes from the list and another comes; the name of the other.
fn replaced(browser: &mut Browser, ui: &Ui, k: &Kubectl) -> String {
    let names = || k.run("get pods -l app=web -o name").trim().replace("pod/", "");
    let before = names();
    let gone = before.lines().next().unwrap().to_owned();
    browser.open(&ui.page, "#/workloads/pods");
    browser.wait("it is listed", &format!("({ROWS}).includes('{gone}')"));
    k.run(&format!("delete pod {gone} --wait=false"));
    browser.wait("it is gone", &format!("!({ROWS}).includes('{gone}')"));
    let after = names();
    let new = after.lines().find(|name| !before.contains(name)).expect("another pod").to_owned();
    let ready =
        format!("({ROWS}).split('|').some((row) => row.includes('{new}') && row.includes('Running'))");
    browser.wait("another runs", &ready);
    browser.check();
    new
}

/// Lines of a container come as it writes them.
fn log(browser: &mut Browser, ui: &Ui, pod: &str) {
    const LOG: &str = "document.querySelector('[role=log]').textContent";
    browser.open(&ui.page, &format!("#/object/pods/default/{pod}/logs"));
    let line = |number: u32| format!("({LOG}).includes('line {number} of <{pod}>\\n')");
    browser.wait("what it wrote before", &line(1));
    let seen = browser.text(&format!("({LOG}).match(/line (\\d+) of [^\\n]*\\n$/)[1]"));
    let seen: u32 = seen.parse().unwrap();
    browser.wait("what it writes later", &line(seen + 2));
    browser.check();
}
