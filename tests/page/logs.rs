//! Logs of containers.

use crate::browser::Browser;
use crate::stub::Stub;

const LOG: &str = "document.querySelector('[role=log]').textContent";

/// Lines are shown as they come: the stub never ends an answer. Another container has its own.
pub fn followed(browser: &mut Browser) {
    let stub = Stub::start(3);
    browser.open(&stub.page, "#/object/pods/default/pod-00001");
    browser.wait("the tab", "document.getElementById('tab-logs')");
    browser.value("document.getElementById('tab-logs').click()");
    browser.wait("the view", "location.hash === '#/object/pods/default/pod-00001/logs'");
    for number in ["first", "second"] {
        browser.wait(number, &format!("{LOG}.includes('{number} <b> of web\\n')"));
    }
    let choice = "document.getElementById('container')";
    assert_eq!(
        browser.text(&format!("[...{choice}.options].map((option) => option.value).join(' ')")),
        "web proxy"
    );
    browser.value(&format!("{choice}.value = 'proxy'; {choice}.dispatchEvent(new Event('change'))"));
    for number in ["first", "second"] {
        browser.wait(number, &format!("{LOG}.includes('{number} <b> of proxy\\n')"));
    }
    let text = browser.text(LOG);
    assert!(!text.contains("of web"), "what the other container wrote is gone: {text}");
    browser.check();
}
