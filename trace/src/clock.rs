use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch of the recorder's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// No moment.
    pub const MAX: Self = Self(u64::MAX);

    /// Whether this is [`Moment::MAX`].
    #[inline]
    pub fn is_none(self) -> bool {
        self == Self::MAX
    }

    /// Nanoseconds since an earlier moment; 0 if it is later, or if one of the two is none.
    #[inline]
    pub fn nanos_since(self, earlier: Self) -> u64 {
        if self.is_none() { 0 } else { self.0.saturating_sub(earlier.0) }
    }
}

/// No moment.
impl Default for Moment {
    fn default() -> Self {
        Self::MAX
    }
}

/// Monotonic time, and an anchor that makes unix time of it.
///
/// Linux slews both clocks alike, so that their difference changes only when somebody sets the time.
#[derive(Debug)]
pub struct Clock {
    epoch: Instant,
    /// Unix time of the epoch.
    wall: AtomicU64,
}

/// The epoch is before the start of the process, so that there are moments for what began before it.
const BEFORE: Duration = Duration::from_secs(24 * 60 * 60);
/// A larger difference of the two clocks is a step.
const STEP: u64 = 1_000_000;

impl Clock {
    /// A clock whose anchor is the present.
    pub fn start() -> Self {
        let now = Instant::now();
        let epoch = now.checked_sub(BEFORE).unwrap_or(now);
        Self { epoch, wall: AtomicU64::new(anchor(epoch)) }
    }

    /// The present.
    #[inline]
    pub fn now(&self) -> Moment {
        self.of(Instant::now())
    }

    /// The moment of an instant; 0 for those before the epoch.
    #[inline]
    pub fn of(&self, at: Instant) -> Moment {
        Moment(nanos(at.saturating_duration_since(self.epoch)))
    }

    /// Unix time in nanoseconds.
    pub fn unix(&self, at: Moment) -> u64 {
        self.wall.load(Relaxed).saturating_add(at.0)
    }

    /// The moment of a unix time in nanoseconds; 0 for those before the epoch. The wall clock may have been set since it was checked.
    pub fn at_unix(&self, unix: u64) -> Moment {
        let (checked, present) = (self.wall.load(Relaxed), anchor(self.epoch));
        Moment(unix.saturating_sub(if present.abs_diff(checked) <= STEP { checked } else { present }))
    }

    /// Compares the two clocks; a step of the wall clock of more than 1 ms moves the anchor and is returned, in nanoseconds.
    pub fn check(&self) -> Option<i64> {
        self.compare(anchor(self.epoch))
    }

    fn compare(&self, wall: u64) -> Option<i64> {
        let before = self.wall.load(Relaxed);
        if wall.abs_diff(before) <= STEP {
            return None;
        }
        self.wall.store(wall, Relaxed);
        Some(wall.wrapping_sub(before) as i64)
    }
}

/// Unix time of the epoch. The two clocks are read one after the other; of five readings the one with the shortest pause counts.
fn anchor(epoch: Instant) -> u64 {
    let reading = || {
        let before = Instant::now();
        let wall = SystemTime::now();
        let pause = before.elapsed();
        let wall = nanos(wall.duration_since(UNIX_EPOCH).unwrap_or_default());
        (pause, wall.saturating_sub(nanos(before.saturating_duration_since(epoch) + pause / 2)))
    };
    (0..5).map(|_| reading()).min_by_key(|(pause, _)| *pause).map_or(0, |(_, wall)| wall)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_the_wall_clock() {
        let clock = Clock::start();
        let unix = nanos(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970"));
        let now = clock.now();
        assert!(clock.unix(now).abs_diff(unix) < 1_000_000_000);
        assert_eq!(clock.at_unix(clock.unix(now)), now);
        assert_eq!(clock.check(), None);
        assert!(clock.now() >= now);
    }

    #[test]
    fn what_began_before_the_process_has_a_moment() {
        let clock = Clock::start();
        let Some(earlier) = Instant::now().checked_sub(Duration::from_secs(60)) else { return };
        let moment = clock.of(earlier);
        assert!(moment > Moment(0));
        assert!(clock.now().nanos_since(moment) >= 60_000_000_000);
    }

    #[test]
    fn a_step_moves_the_anchor_once() {
        let clock = Clock::start();
        let wall = clock.wall.load(Relaxed);
        let at = clock.now();
        let unix = clock.unix(at);
        assert_eq!(clock.compare(wall + STEP), None);
        assert_eq!(clock.compare(wall - 3_000_000_000), Some(-3_000_000_000));
        assert_eq!(clock.unix(at), unix - 3_000_000_000);
        assert_eq!(clock.compare(wall - 3_000_000_000), None);
    }

    #[test]
    fn no_moment_is_no_time_ago() {
        assert_eq!(Moment::MAX.nanos_since(Moment(5)), 0);
        assert_eq!(Moment(5).nanos_since(Moment::MAX), 0);
        assert_eq!(Moment(7).nanos_since(Moment(5)), 2);
        assert!(Moment::default().is_none());
    }
}
