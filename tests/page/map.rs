//! The map of what made what.

use crate::browser::Browser;
use crate::lists::{INTERACTIVE, MANY};
use crate::stub::Stub;
use serde_json::json;
use std::time::Instant;

const COUNT: &str = "document.querySelector('[role=treegrid]').ariaRowCount";
const SELECTED: &str = "document.querySelector('.row[aria-selected=true]')";
/// Levels and names of the rows that are in the page.
const ROWS: &str = "[...document.querySelectorAll('.row')].map((row) => `${row.ariaLevel} ${row.querySelector('a').innerText}`).join('|')";

/// Opened from the navigation with many objects, and used by keys alone.
pub fn opened(browser: &mut Browser) {
    let stub = Stub::start(MANY);
    browser.open(&stub.page, "#/unwell");
    browser.wait("the navigation", "document.querySelector('nav a[href=\"#/map\"]')");
    let begun = Instant::now();
    browser.value("document.querySelector('nav a[href=\"#/map\"]').click()");
    browser.wait("rows", "document.querySelectorAll('[role=treegrid] .row').length > 5");
    assert!(begun.elapsed() <= INTERACTIVE, "rows after {:?}", begun.elapsed());
    assert_eq!(browser.text("document.querySelector('nav [aria-current=page]').innerText"), "Map");
    // Nodes, pods and the one that comes later, a Service, a Deployment and its ReplicaSet, and the heading.
    let all = 3 + MANY + 1 + 1 + 2 + 1;
    browser.wait("all are listed", &format!("{COUNT} === '{all}'"));
    browser.press("End");
    let took = browser.wait("the last", &format!("{SELECTED}.innerText.includes('pod-00001')"));
    assert!(took <= INTERACTIVE, "a key takes {took:?}");
    let rows = browser.text(ROWS);
    assert!(
        rows.ends_with("1 Deployment web|2 ReplicaSet web-1|3 Pod pod-00000|3 Pod pod-00001"),
        "each is below what made it: {rows}"
    );
    let count = browser.value("document.querySelectorAll('.row').length").as_u64().unwrap();
    assert!(count <= 80, "{count} rows are in the page");
    // What the page may not list is said here, too.
    browser.wait("a refusal", "document.querySelector('main').innerText.includes('configmaps is forbidden')");
    for _ in 0..3 {
        browser.press("k");
    }
    browser.wait("the Deployment", &format!("{SELECTED}.innerText.includes('Deployment web')"));
    // Those who do not see it are told which row it is, and whether it is open.
    let active = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))";
    assert!(browser.text(&format!("{active}.innerText")).contains("Deployment web"));
    assert_eq!(browser.value(&format!("{active}.ariaExpanded")), json!("true"));
    browser.press("ArrowLeft");
    browser.wait("what it made is hidden", &format!("{COUNT} === '{}'", all - 3));
    assert_eq!(browser.value(&format!("{active}.ariaExpanded")), json!("false"));
    browser.press("ArrowRight");
    browser.wait("and shown again", &format!("{COUNT} === '{all}'"));
    browser.screenshot("map");
    browser.press("Enter");
    browser.wait("the object", "location.hash === '#/object/deployments.apps/default/web/timeline'");
    browser.check();
}
