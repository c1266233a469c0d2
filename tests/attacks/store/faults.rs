//! Writes and syncs of the store's files fail, for a while or for good. Nothing acknowledged is lost, health says so
//! meanwhile, reads go on, and writes work again when the disk does.

use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WITHIN: Duration = Duration::from_secs(60);

/// What was acknowledged: name, content and version of each object.
#[derive(Default)]
struct Ledger {
    maps: BTreeMap<String, (String, u64)>,
    newest: u64,
}

impl Ledger {
    /// Writes one object; the code when it is refused, with the message.
    fn write(&mut self, admin: &Caller, name: &str, text: &str) -> Result<(), (u16, String)> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"text": text, "more": noise(text.len() as u64 + self.newest)}});
        let (code, answer) = match self.maps.contains_key(name) {
            true => admin.send("PUT", &format!("{MAPS}/{name}"), Some(&map)),
            false => admin.send("POST", MAPS, Some(&map)),
        };
        if !(200..300).contains(&code) {
            return Err((code, answer["message"].as_str().unwrap_or_default().to_owned()));
        }
        let version = version(&answer);
        assert!(version > self.newest, "{version} was given after {}", self.newest);
        self.newest = version;
        self.maps.insert(name.to_owned(), (text.to_owned(), version));
        Ok(())
    }

    /// Everything acknowledged is there; what is there without having been acknowledged was at least tried.
    fn check(&self, admin: &Caller, tried: &BTreeMap<String, String>) {
        let (code, list) = admin.get(MAPS);
        assert_eq!(code, 200, "{list}");
        assert!(version(&list) >= self.newest, "the list is at {}, before {}", version(&list), self.newest);
        let mut found = BTreeMap::new();
        for map in list["items"].as_array().unwrap() {
            let name = map["metadata"]["name"].as_str().unwrap().to_owned();
            found.insert(name, (map["data"]["text"].as_str().unwrap_or_default().to_owned(), version(map)));
        }
        for (name, acknowledged) in &self.maps {
            let now = found.remove(name).unwrap_or_else(|| panic!("{name} is lost"));
            let unsure = tried.get(name).is_some_and(|text| now.0 == *text && now.1 > acknowledged.1);
            assert!(
                now == *acknowledged || unsure,
                "{name} is {now:?}, was acknowledged as {acknowledged:?}"
            );
        }
        found.retain(|name, (text, _)| name != "kube-root-ca.crt" && tried.get(name) != Some(text));
        assert!(found.is_empty(), "nobody wrote {found:?}");
    }
}

/// Some kilobytes that cannot be made small.
fn noise(seed: u64) -> String {
    let word = |n: u64| format!("{:x}", (seed + n).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (1..600).map(word).collect()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse().unwrap_or(0)
}

/// The library that makes files of a store fail.
fn shim(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("shim.c"), dir.join("shim.so"));
    std::fs::write(&source, include_str!("shim.c")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).args([&library, &source]);
    assert!(cc.status().unwrap().success(), "the shim is not compiled");
    library
}

/// A server whose disk can be told to fail.
struct Lab {
    server: Server,
    admin: Caller,
    control: PathBuf,
    ledger: Ledger,
    tried: BTreeMap<String, String>,
    _dir: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (library, control) = (shim(dir.path()), dir.path().join("control"));
        std::fs::write(&control, "").unwrap();
        let environment =
            [("LD_PRELOAD", library.to_str().unwrap()), ("SHIM_CONTROL", control.to_str().unwrap())];
        let server = Server::with_environment(&["--api-only"], &environment);
        let admin = Caller::admin(&server);
        Self { server, admin, control, ledger: Ledger::default(), tried: BTreeMap::new(), _dir: dir }
    }

    /// From now on writes (`w`) or syncs (`s`) end with this error; none when it is empty.
    fn fail(&self, how: &str) {
        let aside = self.control.with_extension("new");
        std::fs::write(&aside, how).unwrap();
        std::fs::rename(aside, &self.control).unwrap();
    }

    fn healthy(&self, path: &str) -> bool {
        self.admin.get(path).0 == 200
    }

    fn write(&mut self, name: &str, text: &str) -> Result<(), (u16, String)> {
        self.tried.insert(name.to_owned(), text.to_owned());
        self.ledger.write(&self.admin, name, text)
    }

    fn check(&self) {
        self.ledger.check(&self.admin, &self.tried);
    }

    /// Writes fail with the reason, health fails, reads work.
    fn suffers(&mut self, how: &str, reason: &str) {
        for n in 0..2 {
            let name = format!("unsure-{}", self.tried.len());
            let (code, message) = self.write(&name, how).expect_err("nothing can be written");
            assert!((500..=503).contains(&code) && message.contains(reason), "{how}: {code} {message}");
            // One that was there already.
            self.write("steady", &format!("{how} {n}")).expect_err("nothing can be written");
        }
        for path in ["/readyz", "/livez", "/readyz/etcd"] {
            assert!(!self.healthy(path), "{how}: {path} says that all is well");
        }
        let shown = self.admin.get("/api/v1/componentstatuses/etcd-0").1;
        assert_eq!(shown["conditions"][0]["status"], "False", "{how}: {shown}");
        self.check();
    }

    /// Writes work again by themselves.
    fn recovers(&mut self, round: &str) {
        eventually("the server is ready again", WITHIN, || self.healthy("/readyz") && self.healthy("/livez"));
        for n in 0..2 {
            self.write(&format!("after-{round}-{n}"), round).unwrap();
        }
        self.check();
        // What was not acknowledged is there or not, and stays so.
        let now = |admin: &Caller| admin.get(&format!("{MAPS}/steady")).1;
        let steady = now(&self.admin);
        self.ledger.maps.insert(
            "steady".to_owned(),
            (steady["data"]["text"].as_str().unwrap().to_owned(), version(&steady)),
        );
        assert_eq!(now(&self.admin), steady);
        self.write("steady", round).unwrap();
    }
}

const FAULTS: [(&str, &str); 5] = [
    ("w28", "No space left on device"),
    ("w5", "Input/output error"),
    ("s5", "Input/output error"),
    ("s28", "No space left on device"),
    ("w5 s5", "Input/output error"),
];

#[test]
fn a_failing_disk_costs_no_acknowledged_write_and_no_restart() {
    let mut lab = Lab::new();
    lab.write("steady", "first").unwrap();
    let (seen, from) = (lab.control.with_file_name("events"), lab.ledger.newest);
    let _watch = lab.admin.watch_into(&format!("{MAPS}?watch=1&resourceVersion={from}"), &seen);
    let events = || std::fs::read_to_string(&seen).unwrap();
    for (round, (how, reason)) in FAULTS.into_iter().enumerate() {
        for n in 0..2 {
            lab.write(&format!("before-{round}-{n}"), how).unwrap();
        }
        lab.fail(how);
        lab.suffers(how, reason);
        lab.fail("");
        lab.recovers(&format!("round-{round}"));
    }
    assert_eq!(lab.server.log().matches("takes writes again").count(), FAULTS.len(), "{}", lab.server.log());
    let (_, list) = lab.admin.get(MAPS);
    let newest = lab.ledger.newest;
    eventually("the watcher has seen the last write", WITHIN, || {
        let last = events().lines().next_back().and_then(|line| serde_json::from_str::<Value>(line).ok());
        last.is_some_and(|event| version(&event["object"]) >= newest)
    });
    lab.server.kill();
    watched(&events(), &list, from);
    // A restart finds the same.
    lab.server.restart();
    lab.check();
}

/// The watcher saw all that is there, in order, and nothing that was taken back.
fn watched(events: &str, list: &Value, from: u64) {
    let (mut last, mut seen) = (from, BTreeMap::new());
    for line in events.lines().filter(|line| !line.is_empty()) {
        let event: Value = serde_json::from_str(line).unwrap();
        let object = &event["object"];
        assert!(version(object) > last, "{} after {last}", version(object));
        last = version(object);
        seen.insert(object["metadata"]["name"].as_str().unwrap().to_owned(), last);
    }
    assert!(last > from, "the watcher saw nothing");
    let maps = list["items"].as_array().unwrap();
    for map in maps.iter().filter(|map| (from + 1..=last).contains(&version(map))) {
        let name = map["metadata"]["name"].as_str().unwrap();
        assert_eq!(seen.remove(name), Some(version(map)), "{name} was not seen as it is");
    }
    seen.retain(|name, _| !maps.iter().any(|map| map["metadata"]["name"] == name.as_str()));
    assert!(seen.is_empty(), "seen, but not there: {seen:?}");
}

#[test]
fn a_disk_that_stays_broken_costs_nothing_that_was_acknowledged() {
    for (how, reason) in [("w28", "No space left on device"), ("s5", "Input/output error")] {
        let mut lab = Lab::new();
        lab.write("steady", "first").unwrap();
        for n in 0..10 {
            lab.write(&format!("before-{n}"), how).unwrap();
        }
        lab.fail(how);
        lab.suffers(how, reason);
        // It is killed while it cannot write, and another one is that cannot write either.
        lab.server.kill();
        lab.server.start_and_kill(Duration::from_secs(2));
        lab.fail("");
        lab.server.restart();
        lab.check();
        lab.recovers("replaced");
    }
}

/// A disk that gets full under the server, without a shim.
#[test]
#[ignore = "run by in_namespaces"]
fn a_full_disk_is_told_and_survived() {
    let run = |program: &str, args: &[&str]| {
        assert!(Command::new(program).args(args).status().unwrap().success(), "{program} {args:?}");
    };
    run("ip", &["link", "set", "lo", "up"]);
    let mut lab = Lab::new();
    lab.server.kill();
    let store = lab.server.data_dir().join("store");
    let aside = lab.server.data_dir().join("aside");
    std::fs::rename(&store, &aside).unwrap();
    std::fs::create_dir(&store).unwrap();
    let (from, to) = (format!("{}/.", aside.display()), store.display().to_string());
    run("mount", &["-t", "tmpfs", "-o", "size=24m", "none", &to]);
    run("cp", &["-a", "--sparse=always", &from, &to]);
    lab.server.restart();
    lab.write("steady", "first").unwrap();
    for round in 0..3 {
        // Everything but a little is taken away, so that it gets full in the middle of a batch.
        let filler = store.join("filler");
        let free = nix::sys::statvfs::statvfs(&store).unwrap();
        let free = free.blocks_available() * free.fragment_size() - 30_000 - 7_777 * round;
        std::fs::write(&filler, vec![1; free as usize]).unwrap();
        let mut refused = None;
        for n in 0..40 {
            if let Err(why) = lab.write(&format!("fill-{round}-{n}"), "x") {
                refused = Some(why);
                break;
            }
        }
        let (code, message) = refused.expect("the disk gets full");
        assert!((500..=503).contains(&code) && message.contains("No space left on device"), "{message}");
        lab.suffers("full", "No space left on device");
        std::fs::remove_file(filler).unwrap();
        lab.recovers(&format!("round-{round}"));
    }
    lab.server.kill();
    lab.server.restart();
    lab.check();
    lab.server.kill();
    run("umount", &[&to]);
}
