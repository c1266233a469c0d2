//! What pods are told about failed attempts. Of a pod, one report is written at a time: of two at once, the older one could be
//! the last, and the pod would go on telling a reason that is gone.

use crate::attempt::Attempt;
use crate::pod::{PodInfo, PodKey};
use std::collections::HashMap;
use std::sync::Arc;

/// What a pod is told.
pub(super) struct Report {
    pub(super) pod: Arc<PodInfo>,
    pub(super) message: String,
    pub(super) why: Why,
    /// The attempt that failed, which ends with the write.
    pub(super) attempt: Attempt,
}

/// Why an attempt failed.
pub(super) enum Why {
    /// No node fits. The nominated node is written, too, and victims are evicted.
    Unschedulable { nominated: Option<String>, victims: Vec<Arc<PodInfo>> },
    /// Another reason than the nodes.
    Error,
}

impl Report {
    /// Whether pods are evicted for the pod.
    pub(super) fn preempts(&self) -> bool {
        matches!(&self.why, Why::Unschedulable { victims, .. } if !victims.is_empty())
    }
}

/// Reports that are being written, and the next one of each pod.
#[derive(Default)]
pub(super) struct Reports(HashMap<PodKey, Option<Report>>);

impl Reports {
    /// Returns the report if it can be written now. Otherwise it is kept until the one that is being written is done, in the
    /// place of another that was not begun. An eviction is not displaced: it has yet to be made.
    pub(super) fn begin(&mut self, report: Report) -> Option<Report> {
        let Some(next) = self.0.get_mut(&report.pod.key) else {
            self.0.insert(report.pod.key.clone(), None);
            return Some(report);
        };
        let displaced = match next {
            Some(kept) if kept.preempts() => Some(report),
            _ => next.replace(report),
        };
        if let Some(Report { attempt, message, .. }) = displaced {
            attempt.end(Some(&message));
        }
        None
    }

    /// A report of the pod was written; returns the next one, which is to be written now.
    pub(super) fn done(&mut self, pod: &PodKey) -> Option<Report> {
        let next = self.0.get_mut(pod)?.take();
        if next.is_none() {
            self.0.remove(pod);
        }
        next
    }

    /// Drops the report that waits for the one that is being written: its pod is gone. Returns whether it was an eviction.
    pub(super) fn withdraw(&mut self, pod: &str) -> bool {
        let Some(report) = self.0.get_mut(pod).and_then(Option::take) else { return false };
        let preempts = report.preempts();
        report.attempt.end(Some(&report.message));
        preempts
    }

    /// Whether a report of the pod is being written.
    pub(super) fn has(&self, pod: &PodKey) -> bool {
        self.0.contains_key(pod)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn report(pod: &str, message: &str, victims: usize) -> Report {
        let pod = json!({"metadata": {"name": pod, "namespace": "default", "uid": pod}, "spec": {}});
        let pod = Arc::new(PodInfo::parse(pod.to_string().as_bytes()).unwrap());
        let why = Why::Unschedulable { nominated: None, victims: vec![pod.clone(); victims] };
        Report { pod, message: message.to_owned(), why, attempt: Attempt::OFF }
    }

    #[test]
    fn the_newest_report_of_a_pod_is_written_last() {
        let mut reports = Reports::default();
        let begun = |report: Option<Report>| report.map(|report| report.message);
        let a = report("a", "", 0).pod.key.clone();
        assert_eq!(begun(reports.begin(report("a", "tainted", 0))).as_deref(), Some("tainted"));
        assert_eq!(
            begun(reports.begin(report("b", "tainted", 0))).as_deref(),
            Some("tainted"),
            "another pod"
        );
        assert_eq!(begun(reports.begin(report("a", "no cpu", 0))), None, "one is being written");
        assert_eq!(begun(reports.begin(report("a", "no memory", 0))), None);
        assert_eq!(begun(reports.done(&a)).as_deref(), Some("no memory"));
        assert!(reports.has(&a), "it is being written");
        assert_eq!(begun(reports.done(&a)), None);
        assert!(!reports.has(&a));
        assert_eq!(begun(reports.begin(report("a", "tainted", 0))).as_deref(), Some("tainted"));
    }

    #[test]
    fn an_eviction_is_not_displaced() {
        let mut reports = Reports::default();
        let key = report("a", "", 0).pod.key.clone();
        assert!(reports.begin(report("a", "tainted", 0)).is_some());
        assert!(reports.begin(report("a", "evicts", 1)).is_none());
        assert!(reports.begin(report("a", "an extender failed", 0)).is_none());
        assert!(reports.done(&key).unwrap().preempts());
    }

    #[test]
    fn an_eviction_does_not_survive_its_pod() {
        let mut reports = Reports::default();
        let key = report("a", "", 0).pod.key.clone();
        assert!(!reports.withdraw("default/a"), "there is none");
        assert!(reports.begin(report("a", "evicts", 1)).is_some());
        assert!(!reports.withdraw("default/a"), "it is being written");
        assert!(reports.begin(report("a", "evicts more", 1)).is_none());
        assert!(reports.withdraw("default/a"));
        // Another pod of the name.
        assert!(reports.begin(report("a", "tainted", 0)).is_none());
        assert_eq!(reports.done(&key).unwrap().message, "tainted");
        assert!(reports.begin(report("a", "no cpu", 0)).is_none());
        assert!(!reports.withdraw("default/a"), "it evicts nothing");
        assert!(reports.done(&key).is_none() && !reports.has(&key));
    }
}
