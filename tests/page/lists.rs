//! Lists, search, themes.

use crate::browser::Browser;
use crate::stub::Stub;
use serde_json::json;
use std::time::Duration;

pub const MANY: usize = 10_000;
/// From opening the page to the first key that does something: a second on a machine that does nothing else.
pub const INTERACTIVE: Duration = Duration::from_secs(5);

pub fn many(browser: &mut Browser) {
    let stub = Stub::start(MANY);
    // On a machine that does other things, the best of three.
    let mut best = Duration::MAX;
    for _ in 0..3 {
        browser.open(&stub.page, "#/workloads/pods");
        browser.wait("rows", "document.querySelectorAll('.row').length > 5");
        browser.press("j");
        browser
            .wait("the second is selected", "document.querySelectorAll('.row')[1]?.ariaSelected === 'true'");
        let milliseconds = browser.value("performance.now()").as_f64().unwrap();
        best = best.min(Duration::from_secs_f64(milliseconds / 1e3));
    }
    println!("interactive after {best:.0?}");
    assert!(best <= INTERACTIVE, "interactive after {best:?}");
    browser.wait("all are listed", "document.querySelector('[role=grid]').ariaRowCount >= 10001");
    let rows = browser.value("document.querySelectorAll('.row').length").as_u64().unwrap();
    assert!(rows <= 80, "{rows} rows are in the page");
    browser.press("End");
    browser.wait(
        "the last",
        "[...document.querySelectorAll('.row')].some((row) => row.innerText.includes('pod-09999'))",
    );
    browser.wait("live changes", "document.querySelector('[role=grid]').ariaRowCount >= 10002");
    browser.check();
}

pub fn keys(browser: &mut Browser) {
    let stub = Stub::start(50);
    browser.open(&stub.page, "#/workloads/pods");
    browser.wait("rows", "document.querySelectorAll('.row').length > 20");
    for _ in 0..3 {
        browser.press("j");
    }
    browser.press("k");
    let selected = "document.querySelector('.row[aria-selected=true]')?.innerText ?? ''";
    browser.wait("the third row", &format!("({selected}).includes('pod-00002')"));
    // Those who do not see it are told which row it is.
    let active =
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).innerText";
    assert!(browser.text(active).contains("pod-00002"));
    browser.press("Enter");
    browser.wait("the object", "location.hash === '#/object/pods/default/pod-00002/timeline'");
    browser.wait("its name", "document.querySelector('h2').textContent.includes('default/pod-00002')");
    browser.press("Escape");
    browser.wait("back", "location.hash === '#/workloads/pods'");
    browser.check();
}

pub fn search(browser: &mut Browser) {
    let stub = Stub::start(2000);
    browser.open(&stub.page, "");
    browser.wait("all are listed", "document.getElementById('status').textContent.includes('problems')");
    browser.press("/");
    assert_eq!(browser.text("document.activeElement.id"), "search");
    browser.type_text("pod-01999");
    browser.wait("one result", "document.getElementById('status').textContent === '1 results'");
    browser.press("Enter");
    browser.press("Enter");
    browser.wait("the object", "location.hash.includes('pod-01999')");
    browser.press("/");
    browser.value("document.getElementById('search').select()");
    browser.type_text("app=web uid-pod-00003");
    browser.wait("by label and uid", "document.querySelector('.row')?.innerText.includes('pod-00003')");
    browser.check();
}

pub fn refused(browser: &mut Browser) {
    let stub = Stub::start(1);
    browser.open(&stub.page, "#/workloads/configmaps");
    browser.wait("the reason", "document.body.innerText.includes('configmaps is forbidden')");
    // What others wrote is text, never markup.
    assert!(browser.text("document.body.innerText").contains("User \"<img src=x>\" cannot list"));
    assert_eq!(browser.value("document.querySelectorAll('img').length"), json!(0));
    browser.check();
}

pub fn unwell(browser: &mut Browser) {
    let stub = Stub::start(300);
    browser.open(&stub.page, "#/unwell");
    // The pod that comes later is one of them.
    browser.wait("problems", "document.getElementById('status').textContent === '7 problems'");
    let rows = browser.text("[...document.querySelectorAll('.row')].map((row) => row.innerText).join('|')");
    let (crash, waits) = (rows.find("CrashLoopBackOff").unwrap(), rows.find("0 of 1 containers").unwrap());
    assert!(crash < waits, "{rows}");
    // Without a proxy that knows them, root causes are not asked for.
    let asked = "performance.getEntriesByType('resource').some((entry) => entry.name.includes('/v1/why'))";
    assert_eq!(browser.value(asked), json!(false));
    browser.screenshot("unwell");
    browser.check();
}

/// The list of `coracle why -A`, not that of the tables.
pub fn causes(browser: &mut Browser) {
    let stub = Stub::explaining(300);
    browser.open(&stub.page, "#/unwell");
    browser.wait("problems", "document.getElementById('status').textContent === '3 problems'");
    let rows = browser.text("[...document.querySelectorAll('.row')].map((row) => row.innerText).join('|')");
    for part in ["error", "Service", "typo", "(and 1 more)", "warning", "ResourceQuota"] {
        assert!(rows.contains(part), "{part}: {rows}");
    }
    let colour = |at: usize| {
        format!("getComputedStyle(document.querySelectorAll('.row')[{at}].querySelector('.text span')).color")
    };
    let (error, warning) = (browser.text(&colour(0)), browser.text(&colour(2)));
    assert!(browser.text(&colour(1)) == error && error != warning, "{error} {warning}");
    browser.press("Enter");
    browser.wait("the Service", "location.hash === '#/object/services/default/typo/timeline'");
    // What once was ready is not green below its root cause.
    let explanation = "document.querySelector('[aria-label=\"Root cause\"]')?.innerText ?? ''";
    browser.wait("its cause", &format!("({explanation}).includes('matches no pod')"));
    browser.wait("its state", "document.querySelector('.summary')?.innerText.includes('not well now')");
    assert_eq!(browser.value("document.querySelectorAll('.summary .good').length"), json!(0));
    browser.open(&stub.page, "#/object/pods/default/pod-00001");
    browser.wait("one that is well", "document.querySelectorAll('.summary .good').length === 1");
    assert_eq!(browser.text(explanation), "");
    browser.check();
}

/// Nothing of a cause is cut where there is little room.
pub fn narrow(browser: &mut Browser) {
    let stub = Stub::explaining(10);
    let size = json!({"width": 480, "height": 800, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", size);
    browser.open(&stub.page, "#/unwell");
    browser.wait("problems", "document.querySelectorAll('.row').length === 3");
    let cut = "[...document.querySelectorAll('.row .cell')].some((cell) => cell.scrollWidth > cell.clientWidth + 1)";
    assert_eq!(browser.value(cut), json!(false));
    let overlap = "[...document.querySelectorAll('.row')].some((row, at, all) => at > 0 && \
        row.getBoundingClientRect().top < all[at - 1].getBoundingClientRect().bottom - 1)";
    assert_eq!(browser.value(overlap), json!(false));
    browser.screenshot("narrow");
    browser.call("Emulation.clearDeviceMetricsOverride", json!({}));
    browser.check();
}

pub fn nodes(browser: &mut Browser) {
    let stub = Stub::start(10);
    browser.open(&stub.page, "#/nodes");
    browser.wait("usage", "document.querySelector('.row')?.innerText.includes('2.0 cores')");
    assert!(browser.text("document.querySelector('.row').innerText").contains("734 MiB"));
    let link = "document.querySelector('.row a').getAttribute('href')";
    assert_eq!(browser.text(link), "#/object/nodes/-/node0/timeline");
    browser.check();
}

/// Pods have the sum of their containers, what made them the sum of its pods, others nothing. Nothing is asked while nobody looks.
pub fn usage(browser: &mut Browser) {
    let stub = Stub::start(10);
    let asked =
        "performance.getEntriesByType('resource').some((entry) => entry.name.endsWith('/v1beta1/pods'))";
    browser.open(&stub.page, "#/nodes");
    browser.wait("nodes", "document.querySelectorAll('.row').length === 3");
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}}); \
            document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.value(&hide(true));
    browser.value("location.hash = '#/workloads'");
    browser.wait(
        "rows",
        "[...document.querySelectorAll('.row')].some((row) => row.innerText.includes('web-1'))",
    );
    assert_eq!(browser.value(asked), json!(false));
    browser.value(&hide(false));
    let rows = "[...document.querySelectorAll('.row')].map((row) => [...row.querySelectorAll('.cell')].map((cell) => cell.innerText).join(' '))";
    for (row, usage) in [
        ("Deployment default web ", "1.5 cores 256 MiB"),
        ("ReplicaSet default web-1 ", "1.5 cores 256 MiB"),
        ("Pod default pod-00000 ", "0.50 cores 128 MiB"),
        ("Pod default pod-00001 ", "1.0 cores 128 MiB"),
    ] {
        browser
            .wait(row, &format!("{rows}.some((row) => row.startsWith('{row}') && row.includes('{usage}'))"));
    }
    let text = browser.text(&format!("{rows}.join('|')"));
    assert_eq!(text.matches("cores").count(), 4, "{text}");
    browser.check();
}

pub fn changes(browser: &mut Browser) {
    let stub = Stub::start(1);
    browser.open(&stub.page, "#/traces");
    browser.wait("them", "document.querySelectorAll('.row').length === 2");
    let rows = browser.text("document.querySelector('[role=grid]').innerText");
    assert!(rows.contains("kubectl (kubernetes-admin)") && !rows.contains("State"), "{rows}");
    browser.check();
}

pub fn themes(browser: &mut Browser) {
    let stub = Stub::start(10);
    let mut backs = Vec::new();
    for scheme in ["light", "dark"] {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.call("Emulation.setEmulatedMedia", features);
        browser.open(&stub.page, "#/nodes");
        browser.wait("nodes", "document.querySelectorAll('.row').length === 3");
        backs.push(browser.text("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(backs[0], backs[1]);
    // Somebody who wants light, whatever the system has.
    browser.value("document.getElementById('theme').click()");
    assert_eq!(browser.text("getComputedStyle(document.body).backgroundColor"), backs[0]);
    browser.value("localStorage.clear()");
    browser.call("Emulation.setEmulatedMedia", json!({"features": []}));
    browser.check();
}

/// Every control has a name in the tree that screen readers get.
pub fn names(browser: &mut Browser) {
    const FEWEST: usize = 5;
    let stub = Stub::start(20);
    for (fragment, ready) in [
        ("#/unwell", "h2"),
        ("#/workloads", ".row"),
        ("#/map", ".row"),
        ("#/object/deployments.apps/default/web", ".row"),
    ] {
        browser.open(&stub.page, fragment);
        browser.wait("it is there", &format!("document.querySelector('main {ready}')"));
        let tree = browser.call("Accessibility.getFullAXTree", json!({}));
        let mut named = 0;
        for node in tree["nodes"].as_array().unwrap() {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            let is_control =
                matches!(role, "button" | "link" | "searchbox" | "combobox" | "tab" | "grid" | "treegrid");
            let is_named = node["name"]["value"].as_str().is_some_and(|name| !name.trim().is_empty());
            assert!(
                !is_control || is_named || node["ignored"] == true,
                "{fragment}: a {role} without a name: {node:#}"
            );
            named += usize::from(is_control && is_named);
        }
        // Each view has the links of the navigation, the search and the button of the theme.
        assert!(named >= FEWEST, "{fragment}: {named} controls have a name\n{tree:#}");
        browser.check();
    }
}
