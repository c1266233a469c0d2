//! Who watches over all the server's lives: goes on from the last revision seen, whenever there is a server.

use crate::ledger::{SORTS, State, mark_of, version_of};
use coracle_tests::client::Target;
use http_body_util::BodyExt;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// What one watcher saw since it was last asked, by name.
#[derive(Default)]
pub struct Seen {
    pub names: BTreeMap<String, Vec<State>>,
    pub events: usize,
    /// How often it had to connect again.
    pub resumed: usize,
    last: u64,
    /// What went wrong; a watcher stops then.
    pub failure: Option<String>,
}

impl Seen {
    pub fn starting_at(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// Whether it has seen a state of a name.
    pub fn has(&self, name: &str, state: &State) -> bool {
        self.names.get(name).is_some_and(|states| states.contains(state))
    }

    /// Takes one line; `false` when the watcher cannot go on.
    fn line(&mut self, line: &[u8]) -> bool {
        let event: Value = match serde_json::from_slice(line) {
            Ok(event) => event,
            Err(error) => return self.fail(format!("{error}: {}", String::from_utf8_lossy(line))),
        };
        let (what, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        let version = version_of(object);
        match what {
            "BOOKMARK" => self.last = self.last.max(version),
            "ADDED" | "MODIFIED" | "DELETED" => {
                if version <= self.last {
                    return self.fail(format!("{version} after {}: {event}", self.last));
                }
                self.last = version;
                self.events += 1;
                if let Some(mark) = mark_of(object) {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    let state = (what != "DELETED").then_some(mark);
                    self.names.entry(name).or_default().push(state);
                }
            }
            _ => return self.fail(event.to_string()),
        }
        true
    }

    fn fail(&mut self, why: String) -> bool {
        self.failure = Some(why);
        false
    }
}

/// Watches one sort for ever.
pub async fn watch(target: Target, sort: usize, seen: &'static Mutex<Seen>) {
    loop {
        if once(&target, sort, seen).await.is_ok() && seen.lock().unwrap().failure.is_some() {
            return;
        }
        seen.lock().unwrap().resumed += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Watches until the server is gone (an error) or something is wrong.
async fn once(target: &Target, sort: usize, seen: &Mutex<Seen>) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    let last = seen.lock().unwrap().last;
    let path = format!("{}?watch=true&allowWatchBookmarks=true&resourceVersion={last}", SORTS[sort].path);
    let response = connection.open("GET", &path, Default::default()).await?;
    let status = response.status();
    let mut body = response.into_body();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        rest.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
        // The last line may not be whole.
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if !seen.lock().unwrap().line(&line) {
                return Ok(());
            }
        }
    }
    if !status.is_success() {
        seen.lock().unwrap().failure = Some(format!("{status}: {}", String::from_utf8_lossy(&rest)));
    }
    Ok(())
}
