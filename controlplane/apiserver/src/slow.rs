//! The log of slow requests, with where their time went.

use super::request_info::RequestInfo;
use coracle_trace::{RequestMark, RequestTimes};
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Lines per second.
const MOST: u32 = 10;

/// Logs requests that took long, but not long-running ones.
pub struct SlowLog {
    threshold: Duration,
    window: Mutex<Window>,
}

/// The lines of a second.
struct Window {
    begun: Instant,
    lines: u32,
    /// Slow requests that were not logged since the last line.
    skipped: u64,
}

/// A request as the log shows it.
pub(super) struct SlowRequest<'a> {
    pub id: &'a str,
    pub info: RequestInfo,
    pub user: &'a str,
    pub agent: &'a str,
    pub code: u16,
}

impl SlowLog {
    /// Of requests that take so long; zero turns it off.
    pub fn new(threshold: Duration) -> Self {
        let window = Window { begun: Instant::now(), lines: 0, skipped: 0 };
        Self { threshold, window: Mutex::new(window) }
    }

    /// Logs a request if it was slow. `describe` is called only then, and gives nothing for long-running ones.
    pub(super) fn check<'a>(&self, times: &RequestTimes, describe: impl FnOnce() -> Option<SlowRequest<'a>>) {
        if self.threshold.is_zero() || times.total < self.threshold {
            return;
        }
        let Some(request) = describe() else { return };
        let Some(skipped) = self.window.lock().admit(Instant::now()) else { return };
        let SlowRequest { id, info, user, agent, code } = request;
        tracing::info!(
            target: "coracle::slow",
            request_id = id,
            verb = info.verb.as_str(),
            resource = info.resource,
            namespace = info.namespace,
            name = info.name,
            path = info.path,
            user,
            agent,
            code,
            total = millis(times.total),
            stages = stages(times),
            within = parts(times),
            not_logged = (skipped > 0).then_some(skipped),
            "slow request"
        );
    }
}

impl Window {
    /// Whether a line may be written; how many requests were skipped before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.begun) >= Duration::from_secs(1) {
            (self.begun, self.lines) = (now, 0);
        }
        if self.lines >= MOST {
            self.skipped += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.skipped))
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1}ms", time.as_secs_f64() * 1000.0)
}

/// Where the time went: the stages that follow one another, and `other`, which is what no stage covers. They add up to the total.
fn stages(times: &RequestTimes) -> String {
    let names = [
        (RequestMark::Authenticated, "authn"),
        (RequestMark::Filtered, "filters"),
        (RequestMark::Seated, "flow"),
        (RequestMark::Authorized, "authz"),
        (RequestMark::BodyRead, "body"),
        (RequestMark::Decoded, "decode"),
        (RequestMark::Handled, "handle"),
        (RequestMark::Answered, "respond"),
    ];
    let (mut text, mut last) = (String::new(), Duration::ZERO);
    for (mark, name) in names {
        if let Some(at) = times.marks[mark as usize] {
            let _ = write!(text, "{name} {} ", millis(at.saturating_sub(last)));
            last = at;
        }
    }
    let _ = write!(text, "other {}", millis(times.total.saturating_sub(last)));
    text
}

/// Work that is a part of the stages; nothing when none was counted.
fn parts(times: &RequestTimes) -> Option<String> {
    let parts = [
        ("queue", times.queued),
        ("mutating-webhooks", times.mutating_webhooks),
        ("validating-webhooks", times.validating_webhooks),
        ("store", times.store),
        ("transform", times.transform),
        ("serialize", times.serialize),
    ];
    let counted = parts.into_iter().filter(|(_, time)| !time.is_zero());
    let texts: Vec<String> = counted.map(|(name, time)| format!("{name} {}", millis(time))).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_one_another() {
        let mut times = RequestTimes { total: Duration::from_millis(900), ..RequestTimes::default() };
        times.marks[RequestMark::Authenticated as usize] = Some(Duration::from_millis(100));
        times.marks[RequestMark::Decoded as usize] = Some(Duration::from_millis(150));
        times.store = Duration::from_micros(1400);
        assert_eq!(stages(&times), "authn 100.0ms decode 50.0ms other 750.0ms");
        times.marks[RequestMark::Handled as usize] = Some(Duration::from_millis(850));
        times.marks[RequestMark::Answered as usize] = Some(Duration::from_millis(880));
        let want = "authn 100.0ms decode 50.0ms handle 700.0ms respond 30.0ms other 20.0ms";
        assert_eq!(stages(&times), want);
        assert_eq!(parts(&times).as_deref(), Some("store 1.4ms"));
        assert_eq!(parts(&RequestTimes::default()), None);
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let begun = Instant::now();
        let mut window = Window { begun, lines: 0, skipped: 0 };
        let logged = (0..25).filter(|_| window.admit(begun).is_some()).count();
        assert_eq!(logged, 10);
        assert_eq!(window.admit(begun + Duration::from_secs(1)), Some(15));
        assert_eq!(window.admit(begun + Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn only_slow_requests_are_described() {
        let log = SlowLog::new(Duration::from_millis(500));
        let times = |millis| RequestTimes { total: Duration::from_millis(millis), ..RequestTimes::default() };
        log.check(&times(499), || panic!("not slow"));
        SlowLog::new(Duration::ZERO).check(&times(9000), || panic!("off"));
        let mut asked = false;
        log.check(&times(500), || {
            asked = true;
            None
        });
        assert!(asked);
    }
}
