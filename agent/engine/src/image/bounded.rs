//! Tars whose headers end. The reader of tars holds extended headers and long names in memory, however long they are.

use std::{
    cell::Cell,
    io::{self, Read, Seek, SeekFrom},
    rc::Rc,
};

/// Extended headers and long names of one entry. The reader of tars holds them in memory.
const HEADERS: u64 = 1 << 20;

/// What the reader of tars may still read before it gives the next entry.
#[derive(Clone, Default)]
pub(super) struct Allowance(Rc<Cell<Option<u64>>>);

impl Allowance {
    /// From now on, no more than an entry's headers.
    pub(super) fn headers(&self) {
        self.0.set(Some(HEADERS));
    }

    /// From now on, as much as there is.
    pub(super) fn contents(&self) {
        self.0.set(None);
    }
}

/// A source that gives no more than is allowed.
pub(super) struct Allowed<R> {
    pub inner: R,
    pub allowance: Allowance,
}

impl<R: Read> Read for Allowed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        if let Some(left) = self.allowance.0.get() {
            let left = left.checked_sub(n as u64).ok_or_else(|| io::Error::other(LongHeaders))?;
            self.allowance.0.set(Some(left));
        }
        Ok(n)
    }
}

impl<R: Seek> Seek for Allowed<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// The error inside an `io::Error` when headers do not end.
#[derive(Debug, thiserror::Error)]
#[error("headers of an entry are longer than {HEADERS} bytes")]
pub(super) struct LongHeaders;

/// The error inside an `io::Error` when a limit was passed.
#[derive(Debug, thiserror::Error)]
#[error("unpacks to more than its compressed size warrants")]
pub(super) struct TooBig;

/// Why we stopped reading, if we did. The reader of tars wraps what its source said.
pub(super) fn cause(error: &io::Error) -> Option<String> {
    let ours = |inner: &(dyn std::error::Error + 'static)| {
        let big = inner.downcast_ref::<TooBig>().map(ToString::to_string);
        big.or_else(|| inner.downcast_ref::<LongHeaders>().map(ToString::to_string))
    };
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
