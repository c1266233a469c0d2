//! Who writes while the server dies: creates, updates of both kinds, removals, each noted before it is sent and when it
//! is acknowledged. A writer ends with its connection.

use crate::dice::Dice;
use crate::ledger::{Key, Ledger, SORTS, version_of};
use coracle_tests::client::{Connection, Target};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Mutex;

/// Objects of each sort that a writer has.
const NAMES: u64 = 4;

/// Writes until the server is gone. Any answer that is no success is a failure of the test.
pub async fn write(target: Target, ledger: &'static Mutex<Ledger>, writer: u64) {
    let mut dice = Dice::new(writer + 1);
    let Ok(mut connection) = target.connect().await else { return };
    for turn in 0.. {
        let sort = dice.roll(SORTS.len() as u64) as usize;
        let key: Key = (sort, format!("w{writer}-{}", dice.roll(NAMES)));
        let mark = format!("{writer}-{turn}-{}", dice.roll(u64::MAX));
        if !one(&mut connection, ledger, &key, &mark, dice.roll(5)).await {
            return;
        }
    }
}

/// One write of a key; whether it was acknowledged.
pub async fn one(
    connection: &mut Connection,
    ledger: &Mutex<Ledger>,
    key: &Key,
    mark: &str,
    choice: u64,
) -> bool {
    let sort = &SORTS[key.0];
    let path = format!("{}/{}", sort.path, key.1);
    let now = ledger.lock().unwrap().now(key);
    let (method, path, kind, body) = match (now, choice) {
        (None, _) => ("POST", sort.path.to_owned(), "application/json", sort.object(&key.1, mark)),
        (Some(_), 0) => ("DELETE", path, "application/json", Value::Null),
        // An update of a Lease would have to name its version.
        (Some(_), 1 | 2) if !sort.lazy => ("PUT", path, "application/json", sort.object(&key.1, mark)),
        (Some(_), _) => {
            let patch = json!({"metadata": {"annotations": {"mark": mark}}});
            ("PATCH", path, "application/merge-patch+json", patch)
        }
    };
    let state = (method != "DELETE").then(|| mark.to_owned());
    ledger.lock().unwrap().sent(key, state);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let Ok(response) = connection.open_as(method, &path, kind, body.into()).await else { return false };
    let status = response.status();
    let Ok(body) = response.into_body().collect().await else { return false };
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    assert!(status.is_success(), "{method} {path}: {status} {body}");
    let version = (method != "DELETE").then(|| version_of(&body));
    ledger.lock().unwrap().acknowledged(key, version);
    true
}
