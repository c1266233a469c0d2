//! Histograms of one name.

use coracle_proto::exposition::{Histogram, Page};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Histograms of one name, by the value of at most one label.
pub(super) struct Family {
    name: &'static str,
    help: &'static str,
    label: Option<&'static str>,
    bounds: &'static [f64],
    values: Mutex<BTreeMap<String, Histogram>>,
}

impl Family {
    pub(super) fn new(
        name: &'static str,
        label: Option<&'static str>,
        bounds: &'static [f64],
        help: &'static str,
    ) -> Self {
        let values = BTreeMap::from_iter(label.is_none().then(|| (String::new(), Histogram::new(bounds))));
        Family { name, help, label, bounds, values: Mutex::new(values) }
    }

    pub(super) fn observe(&self, value: &str, took: Duration) {
        let mut values = self.values.lock();
        if let Some(histogram) = values.get_mut(value) {
            return histogram.observe(took.as_secs_f64());
        }
        let mut histogram = Histogram::new(self.bounds);
        histogram.observe(took.as_secs_f64());
        values.insert(value.to_owned(), histogram);
    }

    pub(super) fn render(&self, page: &mut Page) {
        page.family(self.name, "histogram", self.help);
        let values = self.values.lock().clone();
        for (value, histogram) in &values {
            match self.label {
                Some(label) => page.histogram(self.name, &[(label, value.as_str())], histogram),
                None => page.histogram(self.name, &[], histogram),
            }
        }
    }
}
