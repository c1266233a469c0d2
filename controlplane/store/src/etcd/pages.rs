//! Keys with a prefix at one revision, page by page.

use super::{
    attempt::LARGE,
    shared::{Shared, kv},
};
use crate::{KeyValue, Revision, StoreError};
use etcd_client::GetOptions;
use std::sync::Arc;

/// Keys of a page; the first page tells how large values are.
const FIRST: i64 = 100;
pub(super) const MOST: i64 = 500;
/// About how many bytes a page should have.
const BYTES: usize = 8 << 20;

/// Reads one page after the other.
pub(super) struct Pages {
    etcd: Arc<Shared>,
    /// The first key of the next page; `None` at the end.
    from: Option<String>,
    end: Vec<u8>,
    /// The revision of all pages; 0 until the first page is there.
    pub at: Revision,
    limit: i64,
}

impl Pages {
    pub fn new(etcd: &Arc<Shared>, prefix: &str, at: Option<Revision>) -> Self {
        let (from, end) = (Some(etcd.keys.key(prefix)), etcd.keys.end(prefix));
        Self { etcd: etcd.clone(), from, end, at: at.unwrap_or(0), limit: FIRST }
    }

    /// The next page; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, StoreError> {
        let Some(from) = self.from.take() else { return Ok(None) };
        let keys = &self.etcd.keys;
        let at = match self.at {
            0 => 0,
            at => Some(keys.history(at)?).filter(|at| *at > 0).ok_or(StoreError::Compacted(at))?,
        };
        let options = GetOptions::new().with_range(self.end.clone()).with_limit(self.limit).with_revision(at);
        let mut page = self
            .etcd
            .endpoints
            .read(LARGE, |client| {
                let (from, options) = (from.clone(), options.clone());
                async move { kv(&client).get(from, Some(options)).await }
            })
            .await
            .map_err(|e| e.at(self.at))?;
        if self.at == 0 {
            self.at = keys.seen(self.etcd.hear(page.header())?);
        }
        let (more, mut found, mut bytes) = (page.more(), Vec::new(), 0);
        for one in page.take_kvs() {
            bytes += one.key().len() + one.value().len();
            found.push(keys.key_value(one)?);
        }
        if let Some(last) = found.last().filter(|_| more) {
            self.from = Some(format!("{}\0", keys.key(&last.key)));
        }
        if let Some(fitting) = (BYTES * found.len()).checked_div(bytes) {
            self.limit = (fitting as i64).clamp(1, MOST);
        }
        Ok(Some(found))
    }
}
