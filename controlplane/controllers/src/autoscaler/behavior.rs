//! How fast replicas may change: windows of stabilization and policies. No clock, no tasks.

use coracle_fields::autoscaling_v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler};
use coracle_fields::{Made, View, make};
use coracle_informer::time;
use jiff::Timestamp;

/// What happened to one autoscaler.
#[derive(Debug, Clone, Default)]
pub struct History {
    recommended: Vec<(Timestamp, i64)>,
    ups: Vec<(Timestamp, i64)>,
    downs: Vec<(Timestamp, i64)>,
}

/// What became of a recommendation.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// How many.
    pub replicas: i64,
    /// `AbleToScale`: reason and message.
    pub able: (&'static str, &'static str),
    /// `ScalingLimited`: whether, reason and message.
    pub limited: (bool, &'static str, &'static str),
}

/// The bounds of an autoscaler.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Replicas as they are.
    pub current: i64,
    /// At least.
    pub min: i64,
    /// At most.
    pub max: i64,
}

/// The rules in force: what the autoscaler says over the defaults.
fn rules(own: View<'_, HPAScalingRules>, up: bool) -> Made<HPAScalingRules> {
    let policy = |type_: &str, value: i64| make!(part HPAScalingPolicy { type_, value, period_seconds: 15 });
    let mut rules = make!(part HPAScalingRules {
        stabilization_window_seconds: own.stabilization_window_seconds().or(if up { 0 } else { 300 }),
        select_policy: own.select_policy().or("Max"),
    });
    if own.policies().is_set() {
        rules.edit().policies().set(own.policies());
    } else {
        rules.edit().policies().set(up.then(|| vec![policy("Pods", 4)]));
        rules.edit().policies().push(policy("Percent", 100));
    }
    rules
}

impl History {
    /// Before the first recommendation the replicas are what was recommended.
    pub fn begin(&mut self, current: i64, now: Timestamp) {
        if self.recommended.is_empty() {
            self.recommended.push((now, current));
        }
    }

    /// Notes that replicas were changed.
    pub fn scaled(&mut self, from: i64, to: i64, now: Timestamp) {
        if to > from {
            self.ups.push((now, to - from));
        } else {
            self.downs.push((now, from - to));
        }
        // No policy looks back further than half an hour.
        let old = time::after(now, -1800);
        self.ups.retain(|(at, _)| *at >= old);
        self.downs.retain(|(at, _)| *at >= old);
    }

    /// Bends a recommendation to what the rules allow, and remembers it.
    pub fn decide(
        &mut self,
        hpa: View<'_, HorizontalPodAutoscaler>,
        wanted: i64,
        bounds: Bounds,
        now: Timestamp,
    ) -> Decision {
        let behavior = hpa.spec().behavior();
        let (up, down) = (rules(behavior.scale_up(), true), rules(behavior.scale_down(), false));
        let (up, down) = (up.view(), down.view());
        let stable = self.stabilize(up, down, wanted, bounds.current, now);
        let able = if stable == wanted {
            ("ReadyForNewScale", "recommended size matches current size")
        } else if wanted >= bounds.current {
            (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            )
        } else {
            (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            )
        };
        let (replicas, reason, message) = self.limit(up, down, stable, bounds, now);
        Decision { replicas, able, limited: (replicas != stable, reason, message) }
    }

    fn stabilize(
        &mut self,
        up: View<'_, HPAScalingRules>,
        down: View<'_, HPAScalingRules>,
        wanted: i64,
        current: i64,
        now: Timestamp,
    ) -> i64 {
        let up_since = time::after(now, -up.stabilization_window_seconds().or(0));
        let down_since = time::after(now, -down.stabilization_window_seconds().or(0));
        let (mut lowest, mut highest) = (wanted, wanted);
        for (at, recommended) in &self.recommended {
            if *at > up_since {
                lowest = lowest.min(*recommended);
            }
            if *at > down_since {
                highest = highest.max(*recommended);
            }
        }
        self.recommended.retain(|(at, _)| *at > up_since.min(down_since));
        self.recommended.push((now, wanted));
        current.max(lowest).min(highest)
    }

    fn limit(
        &self,
        up: View<'_, HPAScalingRules>,
        down: View<'_, HPAScalingRules>,
        wanted: i64,
        bounds: Bounds,
        now: Timestamp,
    ) -> (i64, &'static str, &'static str) {
        if wanted > bounds.current {
            let rate = self.allowed(up, bounds.current, now, true).max(bounds.current);
            let (most, reason, message) = if bounds.max > rate {
                (
                    rate,
                    "ScaleUpLimit",
                    "the desired replica count is increasing faster than the maximum scale rate",
                )
            } else {
                (
                    bounds.max,
                    "TooManyReplicas",
                    "the desired replica count is more than the maximum replica count",
                )
            };
            if wanted > most {
                return (most, reason, message);
            }
        } else if wanted < bounds.current {
            let rate = self.allowed(down, bounds.current, now, false).min(bounds.current);
            let (least, reason, message) = if bounds.min < rate {
                (
                    rate,
                    "ScaleDownLimit",
                    "the desired replica count is decreasing faster than the maximum scale rate",
                )
            } else {
                (
                    bounds.min,
                    "TooFewReplicas",
                    "the desired replica count is less than the minimum replica count",
                )
            };
            if wanted < least {
                return (least, reason, message);
            }
        } else if wanted > bounds.max {
            return (
                bounds.max,
                "TooManyReplicas",
                "the desired replica count is more than the maximum replica count",
            );
        } else if wanted < bounds.min {
            return (
                bounds.min,
                "TooFewReplicas",
                "the desired replica count is less than the minimum replica count",
            );
        }
        (wanted, "DesiredWithinRange", "the desired count is within the acceptable range")
    }

    /// The farthest that the policies of one direction allow.
    fn allowed(&self, rules: View<'_, HPAScalingRules>, current: i64, now: Timestamp, up: bool) -> i64 {
        let select = rules.select_policy().or("Max");
        if select == "Disabled" {
            return current;
        }
        let changed = |events: &[(Timestamp, i64)], seconds: i64| -> i64 {
            let since = time::after(now, -seconds);
            events.iter().filter(|(at, _)| *at > since).map(|(_, change)| change).sum()
        };
        let each = rules.policies().items().map(|policy| {
            let (period, value) = (policy.period_seconds().or(15), policy.value().or(0));
            let start = current - changed(&self.ups, period) + changed(&self.downs, period);
            match (policy.type_() == "Percent", up) {
                (true, true) => (start as f64 * (1.0 + value as f64 / 100.0)).ceil() as i64,
                (true, false) => (start as f64 * (1.0 - value as f64 / 100.0)) as i64,
                (false, true) => start.saturating_add(value),
                (false, false) => start.saturating_sub(value),
            }
        });
        // The largest change up is the largest number, the largest change down the smallest.
        let found = if (select == "Max") == up { each.max() } else { each.min() };
        found.unwrap_or(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        time::after(Timestamp::UNIX_EPOCH, seconds)
    }

    fn decide(
        history: &mut History,
        hpa: &Value,
        wanted: i64,
        current: i64,
        now: i64,
    ) -> (i64, &'static str) {
        let hpa = HorizontalPodAutoscaler::of(hpa);
        let decision = history.decide(hpa, wanted, Bounds { current, min: 1, max: 100 }, at(now));
        (decision.replicas, if decision.limited.0 { decision.limited.1 } else { decision.able.0 })
    }

    #[test]
    fn down_waits_five_minutes_and_up_does_not() {
        let (mut history, hpa) = (History::default(), json!({}));
        history.begin(10, at(0));
        assert_eq!(decide(&mut history, &hpa, 2, 10, 10), (10, "ScaleDownStabilized"));
        assert_eq!(decide(&mut history, &hpa, 12, 10, 20), (12, "ReadyForNewScale"));
        history.scaled(10, 12, at(20));
        assert_eq!(decide(&mut history, &hpa, 2, 12, 300).0, 12);
        assert_eq!(decide(&mut history, &hpa, 2, 12, 700), (2, "ReadyForNewScale"));
    }

    #[test]
    fn policies_bound_the_rate() {
        let hpa = json!({"spec": {"behavior": {
            "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [
                {"type": "Percent", "value": 50, "periodSeconds": 60}, {"type": "Pods", "value": 1, "periodSeconds": 60}]}}}});
        let mut history = History::default();
        assert_eq!(decide(&mut history, &hpa, 50, 10, 0), (12, "ScaleUpLimit"));
        history.scaled(10, 12, at(0));
        assert_eq!(decide(&mut history, &hpa, 50, 12, 30).0, 12, "not within the period");
        assert_eq!(decide(&mut history, &hpa, 50, 12, 61).0, 14);
        let mut history = History::default();
        assert_eq!(decide(&mut history, &hpa, 1, 10, 0), (9, "ScaleDownLimit"));
        let off = json!({"spec": {"behavior": {"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}}});
        assert_eq!(decide(&mut History::default(), &off, 1, 10, 0).0, 10);
    }

    #[test]
    fn by_default_replicas_double_or_grow_by_four() {
        let hpa = json!({});
        assert_eq!(decide(&mut History::default(), &hpa, 100, 1, 0), (5, "ScaleUpLimit"));
        assert_eq!(decide(&mut History::default(), &hpa, 100, 10, 0), (20, "ScaleUpLimit"));
        assert_eq!(decide(&mut History::default(), &hpa, 500, 90, 0), (100, "TooManyReplicas"));
    }
}
