//! Names of Services that changed and were not asked for since: the first answer that cluster DNS gives is recorded.

use coracle_trace::{Recorder, SpanId, Stage};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::name::Name;
use super::origin::Origin;

/// How many names wait at most, and for how long.
const MOST: usize = 256;
const MAX_AGE: Duration = Duration::from_secs(60);

/// Services whose first answer is awaited. While there are none, an answer costs one relaxed load.
pub struct AwaitedNames {
    recorder: Recorder,
    count: AtomicUsize,
    names: Mutex<HashMap<Name, Origin>>,
}

impl AwaitedNames {
    /// Nothing is awaited yet.
    pub fn new(recorder: Recorder) -> Self {
        AwaitedNames { recorder, count: AtomicUsize::new(0), names: Mutex::default() }
    }

    /// A Service has changed.
    pub fn add(&self, name: &Name, origin: Origin) {
        if !self.recorder.is_on() {
            return;
        }
        let mut names = self.names.lock();
        forget_old(&mut names);
        if names.len() < MOST {
            names.insert(name.clone(), origin);
        }
        self.count.store(names.len(), Ordering::Relaxed);
    }

    /// Whether no answer is awaited.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// A name of the cluster's domain was answered: `labels` are those from the left, such as `web`, `default`, `svc`.
    pub fn answered<'a>(&self, labels: impl Iterator<Item = &'a [u8]>) {
        let mut labels = labels.filter_map(|label| std::str::from_utf8(label).ok()).take(3);
        let (Some(service), Some(namespace), Some("svc")) = (labels.next(), labels.next(), labels.next())
        else {
            return;
        };
        let name = Name::new(&namespace.to_ascii_lowercase(), &service.to_ascii_lowercase());
        let mut names = self.names.lock();
        // Names that nobody asks for must not cost every other answer something for ever.
        forget_old(&mut names);
        let found = names.remove(&name);
        self.count.store(names.len(), Ordering::Relaxed);
        drop(names);
        let Some(origin) = found else { return };
        let (parent, about) = (SpanId::of_write(origin.uid, origin.revision), (origin.uid, origin.revision));
        let (now, text) = (self.recorder.now(), format!("{}.{}.svc", name.name, name.namespace));
        self.recorder.span_at(Stage::DnsAnswered, parent, about, now, now, &text, 0);
    }
}

fn forget_old(names: &mut HashMap<Name, Origin>) {
    let now = Instant::now();
    names.retain(|_, origin| now.saturating_duration_since(origin.at) < MAX_AGE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_trace::Uid;

    fn ask(awaited: &AwaitedNames, name: &str) {
        awaited.answered(name.split('.').map(str::as_bytes));
    }

    #[test]
    fn only_the_first_answer_of_a_service_is_recorded() {
        let recorder = Recorder::for_tests();
        let awaited = AwaitedNames::new(recorder);
        assert!(awaited.is_empty());
        let origin = Origin { uid: Uid(7), revision: 9, at: Instant::now(), trigger: None };
        awaited.add(&Name::new("default", "web"), origin);
        assert!(!awaited.is_empty());
        for name in
            ["other.default.svc.cluster.local", "web.default.pod", "web", "WEB.Default.svc.cluster.local"]
        {
            ask(&awaited, name);
        }
        assert!(awaited.is_empty());
        ask(&awaited, "web.default.svc.cluster.local");
        let mut found = Vec::new();
        let read =
            recorder.read(&mut |record, _, text| found.push((record.stage, record.parent, text.to_owned())));
        recorder.release(read);
        let text = "web.default.svc".to_owned();
        assert_eq!(found, [(Stage::DnsAnswered, SpanId::of_write(Uid(7), 9), text)]);
    }

    #[test]
    fn names_that_nobody_asks_for_make_room() {
        let awaited = AwaitedNames::new(Recorder::for_tests());
        let Some(long_ago) = Instant::now().checked_sub(2 * MAX_AGE) else { return };
        for number in 0..MOST {
            let name = Name::new("default", &number.to_string());
            awaited.add(&name, Origin { uid: Uid(1), revision: 1, at: long_ago, trigger: None });
        }
        awaited.add(
            &Name::new("default", "new"),
            Origin { uid: Uid(2), revision: 2, at: Instant::now(), trigger: None },
        );
        assert_eq!(awaited.names.lock().len(), 1);
        awaited.add(
            &Name::new("default", "old"),
            Origin { uid: Uid(1), revision: 1, at: long_ago, trigger: None },
        );
        ask(&awaited, "new.default.svc");
        assert!(awaited.is_empty());
    }
}
