//! Metrics in the Prometheus text format or as OpenMetrics.

use std::fmt::{Display, Write};
use std::fs;

/// The two ways of writing a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// Prometheus' text form, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Form {
    /// The form that an `Accept` header asks for: OpenMetrics only where it is named and not less wanted than plain text.
    pub fn accepted(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0, None);
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                match key.trim() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            match media.as_str() {
                "application/openmetrics-text" if version.is_none_or(|version| version == "1.0.0") => {
                    open = f64::max(open, quality);
                }
                "text/plain" => plain = f64::max(plain, quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// How often values were at most as large as each of some bounds.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Of each bound, cumulative.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// An empty one with these upper bounds, which ascend.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], count: 0, sum: 0.0 }
    }

    /// With counts that were made elsewhere: of each bound, not cumulative, and of greater values.
    pub fn of_counts(bounds: &'static [f64], counts: &[u64], sum: f64) -> Self {
        let running = |sum: &mut u64, of: &u64| {
            *sum += of;
            Some(*sum)
        };
        let cumulative: Vec<u64> = counts.iter().scan(0, running).collect();
        let count = cumulative.last().copied().unwrap_or_default();
        Self { bounds, counts: cumulative.into_iter().take(bounds.len()).collect(), count, sum }
    }

    /// Counts a value.
    pub fn observe(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        for (count, bound) in self.counts.iter_mut().zip(self.bounds) {
            *count += u64::from(value <= *bound);
        }
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// A page of series.
#[derive(Debug, Default)]
pub struct Page {
    form: Form,
    text: String,
}

impl Page {
    /// An empty page.
    pub fn new(form: Form) -> Self {
        Self { form, text: String::new() }
    }

    /// Begins a family: its name, `counter`, `gauge` or `histogram`, and what it is. All its values must follow at once.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // OpenMetrics names the family of `x_total` `x`, and knows no counter without that ending.
        let (name, kind) = match (self.form, kind, name.strip_suffix("_total")) {
            (Form::OpenMetrics, "counter", Some(stem)) => (stem, kind),
            (Form::OpenMetrics, "counter", None) => (name, "unknown"),
            _ => (name, kind),
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One value.
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (at, (key, value)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{key}=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    letter => self.text.push(letter),
                }
            }
            self.text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    /// A family of one value without labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }

    /// The values of a histogram.
    pub fn histogram(&mut self, name: &str, labels: &[(&str, &str)], values: &Histogram) {
        let bucket = format!("{name}_bucket");
        let below = |bound: &str, count: u64, page: &mut Self| {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound)]).collect();
            page.value(&bucket, &labels, count);
        };
        for (bound, count) in values.bounds.iter().zip(&values.counts) {
            let bound = match self.form {
                Form::Prometheus => bound.to_string(),
                Form::OpenMetrics => format!("{bound:?}"),
            };
            below(&bound, *count, self);
        }
        below("+Inf", values.count, self);
        self.value(&format!("{name}_sum"), labels, values.sum);
        self.value(&format!("{name}_count"), labels, values.count);
    }

    /// Feature gates: name, stage and whether the feature is enabled.
    pub fn features<'a>(&mut self, features: impl IntoIterator<Item = (&'a str, &'a str, bool)>) {
        let family = "kubernetes_feature_enabled";
        self.family(
            family,
            "gauge",
            "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
        );
        for (name, stage, enabled) in features {
            self.value(family, &[("name", name), ("stage", stage)], u8::from(enabled));
        }
    }

    /// This process, as Prometheus' clients show theirs.
    pub fn process(&mut self) {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name may hold blanks; everything behind its bracket is numbers.
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().skip(1).map(|f| f.parse().unwrap_or(0)).collect())
            .unwrap_or_default();
        let field = |at: usize| fields.get(at).copied().unwrap_or(0);
        let cpu = (field(10) + field(11)) as f64 / 100.0;
        let counter = "Total user and system CPU time spent in seconds.";
        self.single("process_cpu_seconds_total", "counter", counter, cpu);
        self.single("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", field(19));
        let resident = field(20) * 4096;
        self.single("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident);
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        self.single("process_open_fds", "gauge", "Number of open file descriptors.", open);
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        if self.form == Form::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_what_the_client_wants_most() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, form) in [
            ("", Form::Prometheus),
            ("*/*", Form::Prometheus),
            ("application/json", Form::Prometheus),
            ("text/plain", Form::Prometheus),
            ("application/openmetrics-text", Form::OpenMetrics),
            ("Application/OpenMetrics-Text; version=\"1.0.0\"", Form::OpenMetrics),
            ("application/openmetrics-text; version=0.0.1", Form::Prometheus),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.9", Form::Prometheus),
            ("application/openmetrics-text;q=0", Form::Prometheus),
            (prometheus, Form::OpenMetrics),
        ] {
            assert_eq!(Form::accepted(accept), form, "{accept}");
        }
    }

    #[test]
    fn features_have_a_stage_and_a_value() {
        let mut page = Page::new(Form::Prometheus);
        page.features([("A", "BETA", true), ("B", "", false)]);
        let text = page.finish();
        let (head, values) = text.split_at(text.find("kubernetes_feature_enabled{").unwrap_or_default());
        assert!(head.ends_with("# TYPE kubernetes_feature_enabled gauge\n"), "{head}");
        assert_eq!(
            values,
            "kubernetes_feature_enabled{name=\"A\",stage=\"BETA\"} 1\nkubernetes_feature_enabled{name=\"B\",stage=\"\"} 0\n"
        );
    }

    fn sample(form: Form) -> String {
        let mut page = Page::new(form);
        page.single("a", "gauge", "What it is", 1.5);
        page.family("b_total", "counter", "Other");
        page.value("b_total", &[("x", "quote\" back\\ line\n"), ("y", "z")], 2);
        let mut times = Histogram::new(&[0.5, 1.0]);
        times.observe(0.7);
        page.family("c", "histogram", "Times");
        page.histogram("c", &[("k", "v")], &times);
        page.finish()
    }

    #[test]
    fn pages_are_what_prometheus_reads() {
        let text = "# HELP a What it is\n# TYPE a gauge\na 1.5\n# HELP b_total Other\n# TYPE b_total counter\n\
                    b_total{x=\"quote\\\" back\\\\ line\\n\",y=\"z\"} 2\n# HELP c Times\n# TYPE c histogram\n\
                    c_bucket{k=\"v\",le=\"0.5\"} 0\nc_bucket{k=\"v\",le=\"1\"} 1\nc_bucket{k=\"v\",le=\"+Inf\"} 1\n\
                    c_sum{k=\"v\"} 0.7\nc_count{k=\"v\"} 1\n";
        assert_eq!(sample(Form::Prometheus), text);
        let open = text
            .replace("HELP b_total", "HELP b")
            .replace("TYPE b_total", "TYPE b")
            .replace("le=\"1\"", "le=\"1.0\"");
        assert_eq!(sample(Form::OpenMetrics), open + "# EOF\n");
    }
}
