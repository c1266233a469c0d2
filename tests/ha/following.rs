//! Watches that survive their server: lists once, watches, and goes on from the last revision seen at the next server when a connection
//! ends, says nothing for too long, or fails. Lists again only when the revision is too old (410).

use super::failover::Failover;
use super::history::{Change, Revision};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// A watch that shows nothing for so long, not even a bookmark, is begun again elsewhere: its server may be cut off.
const SILENCE: Duration = Duration::from_secs(5);
/// After so many seconds the server ends a watch, which goes on at another one.
const LIFETIME: u64 = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// What a line may have at most.
const LINE: usize = 4 << 20;

/// What is seen.
#[derive(Debug)]
pub enum Seen {
    /// A list.
    Listed(Revision, Vec<Value>),
    /// A watch that begins, at this server and after this revision.
    Connected(usize, Revision),
    /// An event.
    Event(Change, Value),
    /// A bookmark.
    Bookmark(Revision),
}

/// The revision of an object or list.
pub fn revision(object: &Value) -> Revision {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Why a connection is over.
enum End {
    /// It broke, or the server ended it.
    Broken,
    /// The revision is too old.
    Expired,
}

/// Watches a collection until `stop`; `path` has no query.
pub async fn follow(mut client: Failover, path: &str, stop: &AtomicBool, mut see: impl FnMut(Seen)) {
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let from = match last {
            Some(from) => from,
            None => match list(&mut client, path).await {
                Some((revision, objects)) => {
                    see(Seen::Listed(revision, objects));
                    *last.insert(revision)
                }
                None => continue,
            },
        };
        let mut newest = from;
        match watch(&mut client, path, &mut newest, stop, &mut see).await {
            End::Broken => last = Some(newest),
            End::Expired => last = None,
        }
        client.leave();
        tokio::time::sleep(PAUSE).await;
    }
}

async fn list(client: &mut Failover, path: &str) -> Option<(Revision, Vec<Value>)> {
    let answer = client.read(path).await.ok().filter(|answer| answer.status == StatusCode::OK)?;
    let mut list: Value = serde_json::from_slice(&answer.body).ok()?;
    let objects = match list["items"].take() {
        Value::Array(objects) => objects,
        _ => Vec::new(),
    };
    Some((revision(&list), objects))
}

async fn watch(
    client: &mut Failover,
    path: &str,
    newest: &mut Revision,
    stop: &AtomicBool,
    see: &mut impl FnMut(Seen),
) -> End {
    let Ok(mut connection) = client.connect().await else { return End::Broken };
    let query = format!(
        "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={LIFETIME}&resourceVersion={newest}"
    );
    let opened = timeout(SILENCE, connection.open("GET", &query, Bytes::new())).await;
    let Ok(Ok(response)) = opened else { return End::Broken };
    match response.status() {
        StatusCode::OK => see(Seen::Connected(client.server(), *newest)),
        StatusCode::GONE => return End::Expired,
        _ => return End::Broken,
    }
    let (mut body, mut rest) = (response.into_body(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let Ok(Some(Ok(frame))) = timeout(SILENCE, body.frame()).await else { return End::Broken };
        rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { return End::Broken };
            let object = event["object"].take();
            let change = match event["type"].as_str() {
                Some("ADDED") => Change::Added,
                Some("MODIFIED") => Change::Modified,
                Some("DELETED") => Change::Deleted,
                Some("BOOKMARK") => {
                    *newest = revision(&object);
                    see(Seen::Bookmark(*newest));
                    continue;
                }
                _ if object["code"] == 410 => return End::Expired,
                _ => return End::Broken,
            };
            *newest = revision(&object);
            see(Seen::Event(change, object));
        }
        if rest.len() > LINE {
            return End::Broken;
        }
    }
    End::Broken
}
