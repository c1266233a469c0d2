//! Limits the size of tar headers: the tar crate keeps extended headers and long names in memory without a limit.

use std::{
    cell::Cell,
    io::{self, Read, Seek, SeekFrom},
    rc::Rc,
};

use super::violation::{HEADERS, LayerViolation};

/// Bytes that may be read before the next entry is returned; none for no limit.
#[derive(Clone, Default)]
pub(super) struct ReadBudget(Rc<Cell<Option<u64>>>);

impl ReadBudget {
    /// Limits reads to the headers of one entry.
    pub(super) fn headers(&self) {
        self.0.set(Some(HEADERS));
    }

    /// Removes the limit, to read contents.
    pub(super) fn contents(&self) {
        self.0.set(None);
    }
}

/// A reader with a budget.
pub(super) struct BudgetedReader<R> {
    pub inner: R,
    pub allowance: ReadBudget,
}

impl<R: Read> Read for BudgetedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        if let Some(left) = self.allowance.0.get() {
            let left = left.checked_sub(n as u64);
            let left = left.ok_or_else(|| io::Error::other(LayerViolation::LongHeaders))?;
            self.allowance.0.set(Some(left));
        }
        Ok(n)
    }
}

impl<R: Seek> Seek for BudgetedReader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// The violation inside an error, if any: the tar crate wraps errors of its reader.
pub(super) fn violation_in(error: &io::Error) -> Option<LayerViolation> {
    let ours = |inner: &(dyn std::error::Error + 'static)| inner.downcast_ref::<LayerViolation>().cloned();
    let mut next: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|e| e as _);
    while let Some(inner) = next {
        let nested = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(reason) = ours(inner).or_else(|| nested.and_then(|nested| ours(nested))) {
            return Some(reason);
        }
        next = inner.source();
    }
    None
}
