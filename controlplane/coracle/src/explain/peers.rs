//! Spans that other servers of the cluster have.

use async_trait::async_trait;
use coracle_timeline::{Question, StoredRecord};

/// Asks other servers.
#[async_trait]
pub trait PeerSpans: Send + Sync {
    /// The records that other servers have for a question.
    async fn find(&self, question: &Question) -> Vec<StoredRecord>;

    /// Whether writes may have gone through servers that are not asked: answers then say so.
    fn incomplete(&self) -> bool;
}

/// Asks nobody.
#[derive(Debug, Clone, Copy)]
pub struct NoPeers {
    /// Whether the store is shared with other servers.
    pub shared: bool,
}

#[async_trait]
impl PeerSpans for NoPeers {
    async fn find(&self, _question: &Question) -> Vec<StoredRecord> {
        Vec::new()
    }

    fn incomplete(&self) -> bool {
        self.shared
    }
}
