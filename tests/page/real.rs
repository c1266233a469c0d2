//! The page of a real server, through `coracle ui`.

use crate::browser::Browser;
use crate::ui::Ui;
use coracle_pki::authority::{Authority, Profile};
use coracle_pki::kubeconfig;
use coracle_tests::caller::Caller;
use coracle_tests::server::Server;
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn create(server: &Server, name: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "<b>&\"'"}});
    Caller::admin(server).create(MAPS, &map);
}

fn row(name: &str) -> String {
    format!("[...document.querySelectorAll('.row')].some((row) => row.innerText.includes('{name}'))")
}

pub fn administrator(browser: &mut Browser) {
    let server = Server::with(&["--api-only"]);
    create(&server, "first");
    let ui = Ui::start(&server.kubeconfig());
    browser.open(&ui.page, "#/workloads/configmaps");
    browser.wait("the object", &row("first"));
    create(&server, "second");
    browser.wait("what is new", &row("second"));
    let (code, _) = Caller::admin(&server).send("DELETE", &format!("{MAPS}/first"), None);
    assert_eq!(code, 200);
    browser.wait("what is gone", &format!("!{}", row("first")));
    browser.check();
    browser.open(&ui.page, "#/object/configmaps/default/second");
    browser.wait("its timeline", &row("create configmaps/second"));
    browser.wait("stages", &row(" stages: "));
    let range = "document.getElementById('range').textContent";
    let whole = browser.text(range);
    browser.press("+");
    browser.wait("it is zoomed", &format!("{range} !== '{whole}'"));
    browser.press("/");
    browser.type_text("second");
    browser.wait("a result", &format!("location.hash === '#/search/second' && {}", row("second")));
    browser.press("Enter");
    browser.press("Enter");
    browser.wait("it is opened", "location.hash === '#/object/configmaps/default/second/timeline'");
    browser.check();
    browser.open(&ui.page, "#/traces");
    browser.wait("the newest changes", &row("second"));
    browser.wait("who made them", &row("admin"));
    browser.check();
}

/// The root cause of what is not well, which the proxy finds.
pub fn causes(browser: &mut Browser) {
    const CAUSE: &str = "the cluster has no nodes";
    let server = Server::start();
    let admin = Caller::admin(&server);
    // Controllers may not have made it yet.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.send("POST", accounts, Some(&json!({"metadata": {"name": "default"}})));
    let pod = json!({"metadata": {"name": "stuck"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    admin.create("/api/v1/namespaces/default/pods", &pod);
    assert_eq!(admin.get("/coracle/v1/why").0, 404, "servers do not answer this themselves");
    let ui = Ui::start(&server.kubeconfig());
    browser.open(&ui.page, "#/unwell");
    browser.wait("the sentence", &row(CAUSE));
    let explanation = "document.querySelector('[aria-live] [aria-label=\"Root cause\"]')?.innerText ?? ''";
    assert_eq!(browser.text(explanation), "");
    browser.press("ArrowRight");
    browser.wait("the remedy", &format!("({explanation}).includes('add a node to the cluster')"));
    let text = browser.text(explanation);
    assert!(text.contains(CAUSE) && text.contains("nodes of the cluster: none"), "{text}");
    let expanded = "document.querySelector('.row[aria-selected=true]').ariaExpanded";
    assert_eq!(browser.text(expanded), "true");
    browser.screenshot("causes");
    browser.press("ArrowLeft");
    browser.wait("it is hidden", &format!("({explanation}) === ''"));
    browser.check();
    browser.open(&ui.page, "#/object/pods/default/stuck");
    browser.wait("the cause at the object", &format!("({explanation}).includes('{CAUSE}')"));
    browser.check();
}

/// `coracle ui` of a user who has no rights at first.
fn ui_of_alice(server: &Server) -> Ui {
    let pki = server.data_dir().join("pki");
    let authority = Authority::ensure(&pki, "ca", "test").unwrap();
    let signed = authority.sign(&Profile::client("alice", &[])).unwrap();
    let file = server.data_dir().join("alice.kubeconfig");
    kubeconfig::write(&file, &server.url(), &authority.certificate, "alice", &signed).unwrap();
    Ui::start(&file)
}

/// The page has the rights of its user and no others.
pub fn nobody(browser: &mut Browser) {
    let server = Server::with(&["--api-only"]);
    create(&server, "secret-name");
    let ui = ui_of_alice(&server);
    let reason = "document.body.innerText.includes('alice')";
    let status = |text: &str| format!("document.getElementById('status').textContent === '{text}'");
    browser.open(&ui.page, "#/workloads/configmaps");
    browser.wait("the reason", reason);
    is_untold(browser);
    browser.open(&ui.page, "#/object/configmaps/default/secret-name");
    browser.wait("no answer", "document.body.innerText.includes('none was written since')");
    browser.check();
    browser.open(&ui.page, "#/traces");
    browser.wait("the view", "document.querySelector('h2').textContent === 'Changes'");
    browser.wait("an empty list", &status("0 changes"));
    is_untold(browser);
    browser.open(&ui.page, "#/unwell");
    browser.wait("what is not well", "/^\\d+ problems$/.test(document.getElementById('status').textContent)");
    is_untold(browser);
    browser.open(&ui.page, "#/nodes");
    browser.wait("the reason", reason);
    is_untold(browser);
    browser.open(&ui.page, "#/map");
    browser.wait("all kinds are refused", &status("0 rows of 0 objects"));
    browser.wait("ConfigMaps are one of them", "document.body.innerText.includes('configmaps is forbidden')");
    is_untold(browser);
    // In the same page, which has asked for everything by now. The heading has the words that are searched for.
    browser.value("location.hash = '#/search/configmap'");
    browser.wait("an empty list", &status("0 results"));
    is_untold(browser);
    browser.value("location.hash = '#/search/secret-name'");
    browser.wait("the view", "document.querySelector('h2').textContent.includes('secret-name')");
    browser.wait("an empty list", &status("0 results"));
    assert_eq!(browser.value("document.querySelectorAll('.row').length"), json!(0));
    browser.check();
}

/// Somebody who may get objects of one namespace sees those, live, though nothing may be listed, and no others.
pub fn somebody(browser: &mut Browser) {
    const OWN: &str = "/api/v1/namespaces/own/configmaps";
    let server = Server::with(&["--api-only"]);
    create(&server, "secret-name");
    let admin = Caller::admin(&server);
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "own"}}));
    admin.create(OWN, &json!({"metadata": {"name": "mine"}, "data": {"a": "b"}}));
    let (rbac, group) = ("/apis/rbac.authorization.k8s.io/v1/namespaces/own", "rbac.authorization.k8s.io");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    admin.create(&format!("{rbac}/roles"), &json!({"metadata": {"name": "reader"}, "rules": rules}));
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "alice"}]});
    admin.create(&format!("{rbac}/rolebindings"), &binding);
    let ui = ui_of_alice(&server);
    let facts = |text: &str| format!("document.querySelector('.facts').textContent.includes('{text}')");
    browser.open(&ui.page, "#/object/configmaps/own/mine");
    browser.wait("its timeline", &row("create configmaps/mine"));
    browser.wait("its state", &facts("Data1"));
    let (code, answer) =
        admin.send("PATCH", &format!("{OWN}/mine"), Some(&json!({"data": {"another": "c"}})));
    assert_eq!(code, 200, "{answer}");
    browser.wait("its new state", &facts("Data2"));
    is_untold(browser);
    assert_eq!(admin.send("DELETE", &format!("{OWN}/mine"), None).0, 200);
    browser.wait("that it is gone", &facts("It is not there"));
    browser.check();
    browser.open(&ui.page, "#/object/configmaps/default/secret-name");
    browser.wait("no answer", "document.body.innerText.includes('none was written since')");
    browser.wait("no state", &facts("It is not there, or you may not see it."));
    browser.check();
}

/// The page is well, and has nothing of an object that its user may not see.
fn is_untold(browser: &mut Browser) {
    browser.check();
    let text = browser.text("document.body.innerText");
    assert!(!text.contains("secret-name"), "{text}");
}
