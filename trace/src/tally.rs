use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::nanos;
use crate::free_list::FreeList;
use crate::record::Details;

/// Marks of a request.
pub(crate) const MARKS: usize = 8;
/// Sums of a request.
pub(crate) const SUMS: usize = 6;

/// What is measured of a request while it is served, with or without a recorder. It is never freed, but used again.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cells {
    /// Another one for each request: who still works for one that has ended adds nothing to the next.
    turn: AtomicU32,
    /// Nanoseconds after [`EPOCH`].
    began: AtomicU64,
    /// Units of [`Details::UNIT`] after the start, 0 if not reached.
    marks: [AtomicU32; MARKS],
    /// Nanoseconds.
    sums: [AtomicU64; SUMS],
}

/// Where a request is measured.
#[derive(Debug)]
pub(crate) struct Tally(&'static Cells);

/// The same for what is done for the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TallyRef {
    cells: Option<&'static Cells>,
    turn: u32,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tallied {
    pub marks: [u32; Details::MARKS],
    pub sums: [Duration; SUMS],
}

/// Cells without a request. They are in the list of a thread, or, when they are dropped from it, in [`REST`].
struct Idle(&'static Cells);

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
static REST: Mutex<Vec<&'static Cells>> = Mutex::new(Vec::new());
thread_local!(static IDLE: FreeList<Idle> = const { FreeList::new() });

impl Drop for Idle {
    fn drop(&mut self) {
        REST.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

impl Tally {
    pub fn begin(began: Instant) -> Self {
        let epoch = *EPOCH;
        let own = IDLE.try_with(FreeList::take).ok().flatten().map(|idle| {
            let cells = idle.0;
            std::mem::forget(idle);
            cells
        });
        let rest = || REST.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let cells = own.or_else(rest).unwrap_or_else(|| Box::leak(Box::default()));
        cells.began.store(nanos(began.saturating_duration_since(epoch)), Relaxed);
        Self(cells)
    }

    pub fn shared(&self) -> TallyRef {
        TallyRef { cells: Some(self.0), turn: self.0.turn.load(Relaxed) }
    }

    /// Ends the request.
    pub fn end(self) -> Tallied {
        let cells = self.0;
        // Plain loads and stores: who still adds to a request that has ended may be lost.
        cells.turn.store(cells.turn.load(Relaxed).wrapping_add(1), Relaxed);
        let mut tallied = Tallied::default();
        for (mark, cell) in tallied.marks.iter_mut().zip(&cells.marks) {
            *mark = cell.load(Relaxed);
            cell.store(0, Relaxed);
        }
        for (sum, cell) in tallied.sums.iter_mut().zip(&cells.sums) {
            *sum = Duration::from_nanos(cell.load(Relaxed));
            cell.store(0, Relaxed);
        }
        let used = Idle(cells);
        let _ends_with_its_thread = IDLE.try_with(|idle| idle.put(used));
        tallied
    }
}

impl TallyRef {
    pub const NONE: Self = Self { cells: None, turn: 0 };

    pub fn is_none(self) -> bool {
        self.cells.is_none()
    }

    pub fn mark(self, mark: usize, at: Instant) {
        let Some(cells) = self.cells() else { return };
        let after = nanos(at.saturating_duration_since(*EPOCH)).saturating_sub(cells.began.load(Relaxed));
        cells.marks[mark].store(Details::units(after), Relaxed);
    }

    pub fn add(self, sum: usize, time: Duration) {
        if let Some(cells) = self.cells() {
            cells.sums[sum].fetch_add(nanos(time), Relaxed);
        }
    }

    fn cells(self) -> Option<&'static Cells> {
        self.cells.filter(|cells| cells.turn.load(Relaxed) == self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_late_adds_nothing_to_the_next_request() {
        LazyLock::force(&EPOCH);
        let began = Instant::now();
        let tally = Tally::begin(began);
        let late = tally.shared();
        late.add(1, Duration::from_millis(3));
        late.mark(2, began + Duration::from_micros(64));
        let tallied = tally.end();
        assert_eq!((tallied.sums[1], tallied.marks[2]), (Duration::from_millis(3), 1000));
        // The same cells, since nobody else takes those of this thread.
        let next = Tally::begin(began);
        assert!(late.cells.is_some_and(|cells| std::ptr::eq(cells, next.0)));
        late.add(1, Duration::from_millis(5));
        late.mark(2, began + Duration::from_millis(1));
        assert_eq!(next.end(), Tallied::default());
    }
}
