//! The difference between the clocks of this node and of the API server, measured with requests that are made anyway.
//!
//! Every request asks for the server's time. Of the last exchanges the one whose answer was on its way for the shortest
//! time says the most, but less with every second that has passed since.

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Asks for the server's time, and answers with it.
pub const HEADER: &str = "coracle-clock";
/// How many exchanges are kept, and for how long.
const KEPT: usize = 64;
const MAX_AGE: Duration = Duration::from_secs(600);
/// How fast two clocks may drift apart, in millionths.
const DRIFT_PPM: u64 = 20;
/// A larger change of the node's wall clock against its monotonic clock is a step.
const STEP_NANOS: u64 = 1_000_000;
/// A larger offset is a warning: certificates and tokens have times, too.
const WARN_NANOS: u64 = 1_000_000_000;

/// The four times of a request, in unix nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When this node sent the request.
    pub sent: u64,
    /// When the server got it.
    pub received: u64,
    /// When the server answered.
    pub answered: u64,
    /// When this node got the answer.
    pub arrived: u64,
}

/// How far the server's clock is ahead of the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The server's time minus the node's, in nanoseconds.
    pub nanos: i64,
    /// How wrong that may be, in nanoseconds.
    pub uncertainty: u64,
}

impl Exchange {
    /// What it says; `None` if its times are impossible.
    pub fn offset(self) -> Option<Offset> {
        let [t1, t2, t3, t4] = [self.sent, self.received, self.answered, self.arrived].map(i128::from);
        let on_the_way = (t4 - t1) - (t3 - t2);
        if t4 < t1 || t3 < t2 || on_the_way < 0 {
            return None;
        }
        let nanos = i64::try_from(((t2 - t1) + (t3 - t4)) / 2).ok()?;
        Some(Offset { nanos, uncertainty: u64::try_from((on_the_way + 1) / 2).ok()? })
    }
}

/// The last exchanges. Pure: `now` is monotonic time since any fixed moment.
#[derive(Debug, Default)]
pub struct ClockFilter {
    samples: VecDeque<(Duration, Offset)>,
    /// Wall clock minus monotonic clock of this node.
    anchor: Option<u64>,
}

impl ClockFilter {
    /// Takes an exchange whose answer arrived at `now`.
    pub fn add(&mut self, exchange: Exchange, now: Duration) {
        // The node's clock was set: earlier samples compare another clock.
        let anchor = exchange.arrived.saturating_sub(nanos(now));
        if self.anchor.is_some_and(|before| before.abs_diff(anchor) > STEP_NANOS) {
            self.samples.clear();
        }
        self.anchor = Some(anchor);
        let Some(offset) = exchange.offset() else { return };
        self.samples.truncate(KEPT - 1);
        self.samples.push_front((now, offset));
        self.samples.retain(|(at, _)| now.saturating_sub(*at) <= MAX_AGE);
    }

    /// The best that is known.
    pub fn best(&self, now: Duration) -> Option<Offset> {
        let aged = self.samples.iter().filter_map(|(at, offset)| {
            let age = now.saturating_sub(*at);
            let drift = nanos(age) / 1_000_000 * DRIFT_PPM;
            (age <= MAX_AGE).then_some(Offset { uncertainty: offset.uncertainty + drift, ..*offset })
        });
        aged.min_by_key(|offset| offset.uncertainty)
    }
}

/// The server's clock as the agent's client sees it.
#[derive(Debug)]
pub struct ServerClock {
    began: Instant,
    filter: Mutex<ClockFilter>,
    /// Whether the offset was warned of.
    warned: AtomicBool,
}

impl Default for ServerClock {
    fn default() -> Self {
        ServerClock { began: Instant::now(), filter: Mutex::default(), warned: AtomicBool::new(false) }
    }
}

impl ServerClock {
    /// Asks for the server's time, unless the request has a header of that name; the time of the request.
    pub fn ask(&self, headers: &mut HeaderMap) -> Option<u64> {
        if headers.contains_key(HEADER) {
            return None;
        }
        headers.insert(HEADER, HeaderValue::from_static("1"));
        Some(unix_now())
    }

    /// Takes the answer of a request that was sent at `sent`.
    pub fn answer(&self, sent: u64, headers: &HeaderMap) {
        let Some((received, answered)) = headers.get(HEADER).and_then(|value| times(value.to_str().ok()?))
        else {
            return;
        };
        // Read one after the other: a pause between the two would look like a step of the clock.
        let (arrived, now) = (unix_now(), self.began.elapsed());
        self.filter.lock().add(Exchange { sent, received, answered, arrived }, now);
        self.warn();
    }

    /// The best that is known.
    pub fn offset(&self) -> Option<Offset> {
        self.filter.lock().best(self.began.elapsed())
    }

    /// Another server answers from now on.
    pub fn reset(&self) {
        *self.filter.lock() = ClockFilter::default();
    }

    fn warn(&self) {
        let Some(offset) = self.offset() else { return };
        let nanos = offset.nanos.unsigned_abs();
        if nanos < WARN_NANOS / 2 {
            self.warned.store(false, Ordering::Relaxed);
        }
        let is_far = nanos > WARN_NANOS + offset.uncertainty;
        if is_far && !self.warned.swap(true, Ordering::Relaxed) {
            let seconds = offset.nanos as f64 / 1e9;
            tracing::warn!(seconds, "the clocks of this node and of the API server differ");
        }
    }
}

/// `<received> <answered>`.
fn times(text: &str) -> Option<(u64, u64)> {
    let (received, answered) = text.split_once(' ')?;
    Some((received.parse().ok()?, answered.parse().ok()?))
}

/// Unix time in nanoseconds.
fn unix_now() -> u64 {
    nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MS: u64 = 1_000_000;
    /// Unix time at which the tests begin.
    const BASE: u64 = 1_000_000_000 * MS;

    /// An exchange that arrives at `now` with a server that is `ahead`, so long on the way there and back.
    fn exchange(now: Duration, ahead: i64, there: u64, back: u64) -> Exchange {
        let arrived = BASE + nanos(now);
        let work = 3 * MS;
        let sent = arrived - there - back - work;
        let server = |node: u64| node.checked_add_signed(ahead).unwrap();
        Exchange { sent, received: server(sent + there), answered: server(arrived - back), arrived }
    }

    #[test]
    fn an_exchange_is_wrong_by_half_of_its_way_at_most() {
        for (ahead, there, back) in [
            (0, 0, 0),
            (0, MS, MS),
            (3_000 * MS as i64, MS, MS),
            (-3_000 * MS as i64, 5 * MS, MS),
            (17, 40 * MS, 0),
            (17, 0, 40 * MS),
        ] {
            let offset = exchange(Duration::from_secs(1), ahead, there, back).offset().unwrap();
            assert_eq!(offset.uncertainty, (there + back).div_ceil(2), "{ahead} {there} {back}");
            assert!(offset.nanos.abs_diff(ahead) <= offset.uncertainty, "{ahead} {there} {back}: {offset:?}");
        }
    }

    #[test]
    fn impossible_times_say_nothing() {
        let good = Exchange { sent: 100, received: 200, answered: 210, arrived: 150 };
        assert!(good.offset().is_some());
        for bad in [
            Exchange { arrived: 90, ..good },
            Exchange { answered: 190, ..good },
            Exchange { answered: 300, ..good },
        ] {
            assert_eq!(bad.offset(), None, "{bad:?}");
        }
    }

    /// Exchanges as (second, way in ms), and the uncertainty in µs that is expected at a second.
    #[test]
    fn the_shortest_way_counts_until_its_age_outweighs_it() {
        for (samples, at, expected) in [
            (&[][..], 10, None),
            (&[(1, 10)][..], 1, Some(5_000)),
            (&[(1, 10), (2, 2), (3, 20)][..], 3, Some(1_000 + 20)),
            // 20 µs of drift each second.
            (&[(1, 2), (101, 10)][..], 101, Some(1_000 + 2_000)),
            (&[(1, 2), (401, 10)][..], 401, Some(5_000)),
            (&[(1, 2)][..], 601, Some(1_000 + 12_000)),
            (&[(1, 2)][..], 602, None),
        ] {
            let mut filter = ClockFilter::default();
            for (second, way) in samples {
                let now = Duration::from_secs(*second);
                filter.add(exchange(now, 7 * MS as i64, way * MS / 2, way * MS / 2), now);
            }
            let best = filter.best(Duration::from_secs(at));
            assert_eq!(best.map(|offset| offset.uncertainty / 1_000), expected, "{samples:?} at {at}");
            assert!(best.is_none_or(|offset| offset.nanos == 7 * MS as i64), "{best:?}");
        }
    }

    #[test]
    fn only_the_last_exchanges_are_kept() {
        let mut filter = ClockFilter::default();
        filter.add(exchange(Duration::from_secs(1), 0, 0, 0), Duration::from_secs(1));
        for _ in 0..KEPT {
            let now = Duration::from_secs(2);
            filter.add(exchange(now, 0, 10 * MS, 10 * MS), now);
        }
        assert_eq!(filter.samples.len(), KEPT);
        assert_eq!(filter.best(Duration::from_secs(2)).unwrap().uncertainty, 10 * MS);
    }

    #[test]
    fn a_step_of_the_nodes_clock_drops_what_was_measured_before() {
        let mut filter = ClockFilter::default();
        let now = Duration::from_secs(1);
        filter.add(exchange(now, 0, 0, 0), now);
        // The node's clock is set back by three seconds; the server's is as before.
        let now = Duration::from_secs(2);
        let back = 3_000 * MS;
        let Exchange { sent, received, answered, arrived } = exchange(now, 0, 10 * MS, 10 * MS);
        filter.add(Exchange { sent: sent - back, arrived: arrived - back, received, answered }, now);
        assert_eq!(filter.best(now).unwrap(), Offset { nanos: back as i64, uncertainty: 10 * MS });
    }

    #[test]
    fn a_drifting_clock_stays_within_what_is_claimed() {
        // 15 ppm, an exchange every ten seconds with ways of 1 to 13 ms in one direction.
        let mut filter = ClockFilter::default();
        let drifted = |second: u64| (second * 15_000) as i64;
        for second in (10..3_600).step_by(10) {
            let now = Duration::from_secs(second);
            filter.add(exchange(now, drifted(second), (second * 7 % 13 + 1) * MS, 0), now);
            for later in [0, 5, 9] {
                let best = filter.best(now + Duration::from_secs(later)).unwrap();
                let error = best.nanos.abs_diff(drifted(second + later));
                assert!(error <= best.uncertainty, "{second}+{later}: {error} > {best:?}");
            }
        }
    }

    #[test]
    fn headers_are_asked_and_answered() {
        let clock = ServerClock::default();
        let mut headers = HeaderMap::new();
        let sent = clock.ask(&mut headers).unwrap();
        assert_eq!(headers[HEADER], "1");
        assert_eq!(clock.ask(&mut headers), None, "asked already");
        for bad in ["", "1", "a b", "5 4", "1 2 3"] {
            headers.insert(HEADER, HeaderValue::from_static(bad));
            clock.answer(sent, &headers);
            assert_eq!(clock.offset(), None, "{bad:?}");
        }
        let ahead = sent + 10_000 * MS;
        headers.insert(HEADER, format!("{ahead} {ahead}").parse().unwrap());
        clock.answer(sent, &headers);
        let offset = clock.offset().unwrap();
        assert!(offset.nanos.abs_diff(10_000 * MS as i64) <= offset.uncertainty, "{offset:?}");
        clock.reset();
        assert_eq!(clock.offset(), None);
    }
}
