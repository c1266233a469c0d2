//! Success and failure thresholds of a probe. Pure.

/// Which probe it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// Holds the others back until it succeeds.
    Startup,
    /// Kills the container when it fails.
    Liveness,
    /// Takes the pod out of services when it fails.
    Readiness,
}

impl ProbeKind {
    /// As events name it.
    pub fn as_str(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }
}

/// Consecutive results and the verdict they led to.
#[derive(Clone, Debug)]
pub struct ThresholdCounter {
    kind: ProbeKind,
    successes_needed: u32,
    failures_needed: u32,
    last: Option<bool>,
    run: u32,
    verdict: Option<bool>,
}

impl ThresholdCounter {
    /// Nothing counted yet. A container is alive and not ready until its probes say otherwise, or as an earlier agent
    /// reported it (`initial`).
    pub fn new(
        kind: ProbeKind,
        successes_needed: Option<i32>,
        failures_needed: Option<i32>,
        initial: Option<bool>,
    ) -> Self {
        let needed = |value: Option<i32>, default: u32| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        let unprobed = match kind {
            ProbeKind::Startup => None,
            ProbeKind::Liveness => Some(true),
            ProbeKind::Readiness => Some(false),
        };
        ThresholdCounter {
            kind,
            successes_needed: needed(successes_needed, 1),
            failures_needed: needed(failures_needed, 3),
            last: None,
            run: 0,
            verdict: initial.or(unprobed),
        }
    }

    /// Counts one result; says whether the verdict changed.
    pub fn count(&mut self, success: bool) -> bool {
        if self.last == Some(success) {
            self.run += 1;
        } else {
            self.last = Some(success);
            self.run = 1;
        }
        let needed = if success { self.successes_needed } else { self.failures_needed };
        if self.run < needed || self.verdict == Some(success) {
            return false;
        }
        self.verdict = Some(success);
        true
    }

    /// What the results mean so far.
    pub fn verdict(&self) -> Option<bool> {
        self.verdict
    }

    /// Nothing can change any more for this container: it is about to be killed, or has started.
    pub fn is_final(&self) -> bool {
        match self.kind {
            ProbeKind::Startup => self.verdict.is_some(),
            ProbeKind::Liveness => self.verdict == Some(false),
            ProbeKind::Readiness => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        for (kind, successes, failures, results, want) in [
            (ProbeKind::Readiness, 1, 3, "s", Some(true)),
            (ProbeKind::Readiness, 2, 3, "s", Some(false)),
            (ProbeKind::Readiness, 2, 3, "ss", Some(true)),
            (ProbeKind::Readiness, 1, 3, "sff", Some(true)),
            (ProbeKind::Readiness, 1, 3, "sfff", Some(false)),
            (ProbeKind::Readiness, 1, 3, "sffsff", Some(true)),
            (ProbeKind::Liveness, 1, 2, "f", Some(true)),
            (ProbeKind::Liveness, 1, 2, "ff", Some(false)),
            (ProbeKind::Startup, 1, 3, "ff", None),
            (ProbeKind::Startup, 1, 3, "fff", Some(false)),
            (ProbeKind::Startup, 1, 3, "ffs", Some(true)),
        ] {
            let mut count = ThresholdCounter::new(kind, Some(successes), Some(failures), None);
            for result in results.chars() {
                count.count(result == 's');
            }
            assert_eq!(count.verdict(), want, "{kind:?} {results}");
        }
    }
}
