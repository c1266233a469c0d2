//! Which backups are kept. Pure.

use crate::name::Name;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;

/// What is kept, of each cluster. A backup is removed if neither rule keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many.
    pub count: Option<usize>,
    /// Those of so many days.
    pub days: Option<u32>,
}

impl Retention {
    /// Whether everything is kept.
    pub fn keeps_all(&self) -> bool {
        self.count.is_none() && self.days.is_none()
    }

    /// Those of `backups` that are to be removed, oldest first. The newest of a cluster is always kept.
    pub fn expired<'a, T>(&self, backups: &'a [(Name, T)], now: Timestamp) -> Vec<&'a (Name, T)> {
        if self.keeps_all() {
            return Vec::new();
        }
        let mut newest_first: Vec<_> = backups.iter().collect();
        newest_first.sort_by_key(|(name, _)| std::cmp::Reverse((name.time, name.revision)));
        let days = self.days.map(|days| SignedDuration::from_hours(24 * i64::from(days)));
        let since = days.and_then(|days| now.checked_sub(days).ok());
        let mut seen: HashMap<&str, usize> = HashMap::new();
        newest_first.retain(|(name, _)| {
            let before = seen.entry(&name.cluster).or_default();
            *before += 1;
            let is_counted = *before <= self.count.unwrap_or(1).max(1);
            let is_young = since.is_some_and(|since| name.time >= since);
            !is_counted && !is_young
        });
        newest_first.reverse();
        newest_first
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn backups(list: &str) -> Vec<(Name, String)> {
        let one = |text: &str| {
            let (cluster, day) = text.split_at(1);
            let name = format!("coracle-{}-202611{day}T120000Z-1.backup", cluster.repeat(12));
            (Name::parse(&name).unwrap(), text.to_owned())
        };
        list.split_whitespace().map(one).collect()
    }

    #[test]
    fn what_no_rule_keeps_is_removed() {
        let now = "2026-11-17T13:00:00Z".parse().unwrap();
        for (count, days, list, want) in [
            (None, None, "a01 a02 a03", ""),
            (Some(2), None, "a03 a01 a02", "a01"),
            (Some(2), None, "a03 b01 a01 a02 b02", "a01"),
            (Some(0), None, "a01 a02", "a01"),
            (None, Some(7), "a01 a09 a12 a17", "a01 a09"),
            (None, Some(7), "a01 a02", "a01"),
            (Some(3), Some(7), "a01 a02 a03", ""),
            (Some(1), Some(7), "a01 a02 a16 a17", "a01 a02"),
            (Some(3), Some(1), "a01 a02 a16 a17", "a01"),
        ] {
            let backups = backups(list);
            let expired = Retention { count, days }.expired(&backups, now);
            let expired: Vec<&str> = expired.iter().map(|(_, text)| text.as_str()).collect();
            assert_eq!(expired.join(" "), want, "{count:?} {days:?} {list}");
        }
    }
}
