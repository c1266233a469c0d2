//! Closes the open connections of revoked nodes: watches, tunnels and other streams. New requests of a revoked node are
//! rejected by `authn`. Also closes those of clients whose authority the operator has replaced.

use super::authn::x509::{Certificate, PresentedCertificate};
use coracle_kinds::watch::cache::Cache;
use coracle_pki::revoked::{REVOKED, revoked};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Where the list of revoked nodes is.
const NAMESPACE: &str = "kube-system";

/// The open connections of nodes, and of clients with a certificate of the operator's authorities.
#[derive(Default)]
pub struct Revocations(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, (Certificate, CancellationToken)>,
}

impl Revocations {
    /// Tracks a connection until the returned value is dropped; `None` for one that is never closed from here.
    pub fn track(self: &Arc<Self>, presented: &PresentedCertificate) -> Option<TrackedConnection> {
        let PresentedCertificate::Verified(certificate) = presented else { return None };
        if certificate.node().is_none() && !certificate.is_of_operator() {
            return None;
        }
        let end = CancellationToken::new();
        let mut open = self.0.lock();
        open.next += 1;
        let number = open.next;
        open.connections.insert(number, (certificate.as_ref().clone(), end.clone()));
        let revoked_future = Box::pin(end.clone().cancelled_owned());
        Some(TrackedConnection { number, end, revoked_future, all: self.clone() })
    }

    /// Closes connections when nodes are revoked; does not return.
    pub async fn follow(self: Arc<Self>, maps: Arc<Cache>) {
        loop {
            let (_, _, mut news) = maps.list_and_watch(Some(NAMESPACE));
            self.reload(&maps);
            // A cursor that was too slow starts over.
            while let Ok(events) = news.next_batch().await {
                let meta = events.iter().map(|event| &event.object.meta);
                if meta.into_iter().any(|meta| meta.namespace == NAMESPACE && meta.name == REVOKED) {
                    self.reload(&maps);
                }
            }
        }
    }

    /// Closes the connections with a certificate of the operator's authorities.
    pub(crate) fn close_operators(&self) {
        let open = self.0.lock();
        let all = open.connections.values().filter(|(certificate, _)| certificate.is_of_operator());
        all.for_each(|(_, end)| end.cancel());
    }

    fn reload(&self, maps: &Cache) {
        if let Some(list) = maps.get(NAMESPACE, REVOKED) {
            self.close_revoked(&list.value());
        }
    }

    fn close_revoked(&self, list: &Value) {
        for (certificate, end) in self.0.lock().connections.values() {
            let Some((node, from)) = certificate.node() else { continue };
            if revoked(list, node).is_some_and(|since| from < since) && !end.is_cancelled() {
                tracing::info!(node, "closing a connection of a revoked node");
                end.cancel();
            }
        }
    }
}

/// A connection that may be closed.
pub struct TrackedConnection {
    number: u64,
    end: CancellationToken,
    revoked_future: Pin<Box<WaitForCancellationFutureOwned>>,
    all: Arc<Revocations>,
}

impl TrackedConnection {
    /// An error once its certificate does not count any more.
    pub fn check(&self) -> io::Result<()> {
        match self.end.is_cancelled() {
            true => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the certificate of the client is revoked",
            )),
            false => Ok(()),
        }
    }

    /// Ready with an error once its certificate does not count any more.
    pub fn poll_revoked(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        use std::future::Future;
        self.revoked_future.as_mut().poll(context).map(|()| self.check())
    }
}

impl Drop for TrackedConnection {
    fn drop(&mut self) {
        self.all.0.lock().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::idle_timeout::TimedStream;
    use coracle_client::user::User;
    use serde_json::json;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn presented(node: &str, from: i64) -> PresentedCertificate {
        let user = User::new(format!("system:node:{node}"), ["system:nodes".to_owned()]);
        PresentedCertificate::Verified(Box::new(Certificate::of(user, from)))
    }

    #[tokio::test]
    async fn streams_of_a_revoked_node_end_and_those_of_others_do_not() {
        let all = Arc::new(Revocations::default());
        assert!(all.track(&PresentedCertificate::Absent).is_none());
        let user = PresentedCertificate::Verified(Box::new(Certificate::of(User::new("ann", []), 0)));
        assert!(all.track(&user).is_none(), "nobody revokes users");
        let open = |node: &str, from| {
            let (near, far) = tokio::io::duplex(64);
            (TimedStream::new(near, None, all.track(&presented(node, from))), far)
        };
        let (mut old, _far) = open("a", 50);
        let (mut writer, _other_far) = open("a", 50);
        let (mut new, mut new_far) = open("a", 150);
        let (mut other, mut other_far) = open("b", 50);
        assert_eq!(all.0.lock().connections.len(), 4);
        // One waits when it happens, one looks later.
        let waiting = tokio::spawn(async move { old.read_u8().await });
        tokio::task::yield_now().await;
        all.close_revoked(&json!({"data": {"a": "1970-01-01T00:01:40Z"}}));
        let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert!(writer.write_u8(1).await.is_err());
        for (near, far) in [(&mut new, &mut new_far), (&mut other, &mut other_far)] {
            far.write_u8(7).await.unwrap();
            assert_eq!(near.read_u8().await.unwrap(), 7);
            near.write_u8(8).await.unwrap();
        }
        drop((writer, new, other));
        assert!(all.0.lock().connections.is_empty(), "nothing is left of closed connections");
    }

    #[test]
    fn a_list_of_another_shape_ends_nobody() {
        let all = Arc::new(Revocations::default());
        let tracked = all.track(&presented("a", 50)).unwrap();
        for list in
            [json!({}), json!({"data": null}), json!({"data": {"a": 5}}), json!({"data": {"b": "soon"}})]
        {
            all.close_revoked(&list);
            assert!(tracked.check().is_ok(), "{list}");
        }
    }
}
