//! Timelines of the fixtures.

use crate::browser::Browser;
use crate::stub::Stub;

const WEB: &str = "#/object/deployments.apps/default/web";
/// What of it is seen.
const RANGE: &str = "document.getElementById('range').textContent";
/// The widths of all bars that are seen.
const BARS: &str =
    "[...document.querySelectorAll('.row svg rect')].map((bar) => bar.getAttribute('width')).join(' ')";
const ROWS: &str = "[...document.querySelectorAll('.row')].map((row) => row.innerText).join('|')";
const COUNT: &str = "document.querySelector('[role=treegrid]').ariaRowCount";

fn open(browser: &mut Browser, fragment: &str) {
    let stub = Stub::start(3);
    browser.open(&stub.page, fragment);
    browser.wait("a timeline", "document.querySelectorAll('[role=treegrid] .row').length > 5");
}

pub fn drawn(browser: &mut Browser) {
    open(browser, WEB);
    let text = browser.text("document.querySelector('main').innerText");
    // In the words of `coracle trace`, whose golden files have the same.
    for part in [
        "created by kubectl (kubernetes-admin)",
        "6 pods ready after 756.4 ms",
        "100.0 % explained",
        "critical path: image 702.0 ms (93 %), container 22.6 ms, readiness 12.0 ms, store 8.5 ms, API server 7.0 ms, \
         9 others 4.2 ms",
        "create deployments.apps/web",
        "POST /apis/apps/v1",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(browser.value("document.querySelectorAll('.critical-line').length").as_u64() > Some(0));
    browser.screenshot("timeline");
    browser.check();
}

/// Many spans: the first screen has the pods, and stages of requests only together.
pub fn folded(browser: &mut Browser) {
    open(browser, WEB);
    let rows = browser.text(ROWS);
    let pods = rows.matches("create pods/web-").count();
    assert_eq!(pods, 6, "{rows}");
    assert!(rows.contains(" stages: ") && !rows.contains("authn"), "{rows}");
    // The pod that all waited for is marked although what it waited for is folded away.
    let marked = "[...document.querySelectorAll('.row .on-path')].map((label) => label.innerText).filter((label) => label.includes('create pods/')).join('|')";
    let marked = browser.text(marked);
    assert!(marked.contains("web-7d9f8c6b5-q8rzn") && !marked.contains('|'), "{marked}");
    let (pod, stages) = (rows.find("create pods/").unwrap(), rows.find(" stages: ").unwrap());
    assert!(pod < stages, "{rows}");
    let count: usize = browser.text(COUNT).parse().unwrap();
    assert!(count < 40, "{count} of 467 spans are rows");
    // Nothing of a number is cut.
    let cut =
        "[...document.querySelectorAll('.row .number')].some((cell) => cell.scrollWidth > cell.clientWidth)";
    assert_eq!(browser.value(cut), false);
    browser.check();
}

pub fn keys(browser: &mut Browser) {
    open(browser, WEB);
    browser.wait("it has the focus", "document.activeElement.getAttribute('role') === 'treegrid'");
    let (whole, bars) = (browser.text(RANGE), browser.text(BARS));
    browser.press("+");
    let zoomed = browser.text(RANGE);
    assert!(whole != zoomed && bars != browser.text(BARS), "{zoomed}");
    browser.press("ArrowRight");
    assert_ne!(zoomed, browser.text(RANGE));
    browser.press("0");
    assert_eq!((&whole, &bars), (&browser.text(RANGE), &browser.text(BARS)));
    // The first row ended long before the middle: it is zoomed to all the same.
    for _ in 0..5 {
        browser.press("+");
    }
    assert!(browser.text(RANGE).starts_with("0 ns to "), "{}", browser.text(RANGE));
    browser.press("0");
    let rows = browser.text(COUNT);
    browser.press("Enter");
    browser.wait("all of it is folded", &format!("{COUNT} === '2'"));
    browser.press("Enter");
    browser.wait("and unfolded", &format!("{COUNT} === '{rows}'"));
    browser.check();
}

pub fn tree(browser: &mut Browser) {
    open(browser, WEB);
    let levels = browser.text("[...document.querySelectorAll('.row')].map((row) => row.ariaLevel).join(' ')");
    assert!(levels.starts_with("1 2"), "{levels}");
    let first = browser.text("document.querySelector('.row').innerText");
    for part in ["POST", "server", "+0 ns", "4.3 ms"] {
        assert!(first.contains(part), "times are text: {first}");
    }
    assert_eq!(browser.text("document.querySelector('.row').ariaExpanded"), "true");
    assert_eq!(browser.text("String(document.querySelectorAll('.row svg:not([aria-hidden])').length)"), "0");
    browser.check();
}

/// What comes while it is looked at is added.
pub fn follows(browser: &mut Browser) {
    open(browser, "#/object/deployments.apps/default/running");
    browser.wait("more of it", "document.querySelector('main').innerText.includes('after 640.0 ms')");
    browser.check();
}

/// What an object waits for is above its timeline and in the row that made it, and changes with it.
pub fn waits(browser: &mut Browser) {
    open(browser, "#/object/deployments.apps/default/waits");
    let above = "[...document.querySelectorAll('.summary .waits')].map((line) => line.innerText).join('|')";
    let name = "pods/web-7d9f8c6b5-2xk4p";
    for what in ["node-3, which is away", "the readiness probe"] {
        browser.wait(what, &format!("({above}) === '{name} waits for {what}'"));
        browser.wait("the row says it", &format!("({ROWS}).includes('create {name} waits for {what}')"));
    }
    browser.check();
}

/// A pod is ready, and its node, such as one of a stock kubelet, does not tell since when.
pub fn untold(browser: &mut Browser) {
    open(browser, "#/object/deployments.apps/default/untold");
    let text = "6 pods ready, of 1 it is not known when";
    browser.wait(text, &format!("document.querySelector('main').innerText.includes('{text}')"));
    browser.check();
}

/// Why a pod is on its node: a sentence, not the record of the scheduler.
pub fn placement(browser: &mut Browser) {
    let stub = Stub::start(3);
    browser.open(&stub.page, "#/object/pods/default/web-7d9f8c6b5-q8rzn/verdicts");
    browser.wait("the choice", "document.body.innerText.includes('Placed on node3, score 86')");
    let text = browser.text("document.querySelector('main').innerText");
    assert!(text.contains("The next best: node2, score 85; node1, score 80."), "{text}");
    assert!(text.contains("The cluster had 3 nodes."), "{text}");
    browser.check();
}

/// Why a pod is on no node: each node that was refused, and why.
pub fn refused(browser: &mut Browser) {
    let stub = Stub::start(3);
    browser.open(&stub.page, "#/object/pods/default/refused/verdicts");
    browser.wait("a node", "document.querySelector('[role=tabpanel] .bad')?.innerText === 'node1'");
    let text = browser.text("document.querySelector('[role=tabpanel]').innerText");
    assert!(text.contains("node1 NodeResourcesFit: Insufficient cpu"), "{text}");
    assert!(text.contains("2 more nodes NodeAffinity: node(s) didn't match"), "{text}");
    assert!(!text.contains("Placed on"), "{text}");
    browser.check();
}

pub fn missing(browser: &mut Browser) {
    let stub = Stub::start(3);
    browser.open(&stub.page, "#/object/deployments.apps/default/missing");
    browser.wait("the reason", "document.body.innerText.includes('none was written since')");
    browser.check();
}
