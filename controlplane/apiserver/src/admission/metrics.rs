//! Times of admission plugins and webhooks, with upstream's names.

use super::{Operation, Phase};
use crate::metrics::atomic_histogram::AtomicHistogram;
use crate::metrics::atomic_summary::AtomicSummary;
use coracle_proto::exposition::Page;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Upper bounds of the buckets, in seconds.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const WEBHOOK_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Names come from webhook configurations: many of them must not grow the tables.
const MOST: usize = 1024;

const OPERATIONS: [Operation; 4] =
    [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
const PHASES: [Phase; 2] = [Phase::Mutate, Phase::Validate];

/// Phase, operation, and whether the request was rejected.
pub type StepKey = (Phase, Operation, bool);

/// One histogram for each phase, operation and outcome.
type Times = [AtomicHistogram<7>; 16];

fn index((phase, operation, rejected): StepKey) -> usize {
    (phase as usize) * 8 + (operation as usize) * 2 + usize::from(rejected)
}

/// Why a webhook rejected a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionCause {
    /// The webhook denied it.
    Denied,
    /// The webhook could not be called, and its failure policy is `Fail`.
    Call,
    /// The webhook allowed it with a patch that cannot be applied.
    Internal,
}

impl RejectionCause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "no_error",
            Self::Call => "calling_webhook_error",
            Self::Internal => "apiserver_internal_error",
        }
    }
}

/// How a call of a webhook ended.
#[derive(Debug, Clone, Copy)]
pub struct WebhookOutcome {
    /// How long it took.
    pub took: Duration,
    /// The HTTP code of the answer, or of the failure.
    pub code: u16,
    /// Why the request is rejected, if it is.
    pub rejected: Option<RejectionCause>,
    /// Whether the call failed and the failure policy is `Ignore`.
    pub failed_open: bool,
}

#[derive(Default)]
struct Webhook {
    times: [[AtomicHistogram<9>; 2]; 4],
    /// Calls by operation, code and whether the request was rejected.
    calls: BTreeMap<(usize, u16, bool), u64>,
    /// Rejections by operation, cause and code.
    rejections: BTreeMap<(usize, RejectionCause, u16), u64>,
    failed_open: u64,
}

/// Metrics of the admission chain.
pub struct AdmissionMetrics {
    steps: Times,
    /// Quantiles of the same.
    quantiles: [AtomicSummary; 16],
    controllers: Vec<(&'static str, Times)>,
    /// By name and by whether they validate.
    webhooks: Mutex<BTreeMap<(String, bool), Webhook>>,
}

impl AdmissionMetrics {
    /// Of these plugins.
    pub(crate) fn new(plugins: Vec<&'static str>) -> Self {
        let controllers = plugins.into_iter().map(|name| (name, Times::default())).collect();
        let (steps, quantiles) = (Times::default(), Default::default());
        Self { steps, quantiles, controllers, webhooks: Mutex::default() }
    }

    /// Counts a phase of a request.
    pub(crate) fn step(&self, key: StepKey, took: Duration) {
        self.steps[index(key)].observe(&BUCKETS, took);
        self.quantiles[index(key)].observe(Instant::now(), took);
    }

    /// Counts the answer of the plugin with this index.
    pub(crate) fn controller(&self, plugin: usize, key: StepKey, took: Duration) {
        if let Some((_, times)) = self.controllers.get(plugin) {
            times[index(key)].observe(&BUCKETS, took);
        }
    }

    /// Counts a call of a webhook.
    pub(crate) fn webhook(&self, name: &str, phase: Phase, operation: Operation, ended: &WebhookOutcome) {
        let mut webhooks = self.webhooks.lock();
        let key = (name.to_owned(), phase == Phase::Validate);
        if webhooks.len() >= MOST && !webhooks.contains_key(&key) {
            return;
        }
        let (webhook, operation) = (webhooks.entry(key).or_default(), operation as usize);
        let rejected = ended.rejected.is_some();
        webhook.times[operation][usize::from(rejected)].observe(&WEBHOOK_BUCKETS, ended.took);
        *webhook.calls.entry((operation, ended.code, rejected)).or_default() += 1;
        if let Some(cause) = ended.rejected {
            *webhook.rejections.entry((operation, cause, ended.code)).or_default() += 1;
        }
        webhook.failed_open += u64::from(ended.failed_open);
    }

    /// All of them.
    pub fn render(&self, page: &mut Page) {
        let name = "apiserver_admission_step_admission_duration_seconds";
        page.family(name, "histogram", "Latency of the phases of admission, by operation and outcome.");
        each_step(|step, labels| self.steps[step].render(page, name, &labels, &BUCKETS));
        let (name, now) = ("apiserver_admission_step_admission_duration_seconds_summary", Instant::now());
        page.family(name, "summary", "Quantiles of the latency of the phases of admission.");
        each_step(|step, labels| {
            let totals = self.steps[step].totals();
            if totals.0 > 0 {
                self.quantiles[step].render(page, now, name, &labels, totals);
            }
        });
        let name = "apiserver_admission_controller_admission_duration_seconds";
        page.family(name, "histogram", "Latency of admission plugins, by operation and outcome.");
        for (plugin, all) in &self.controllers {
            each_step(|step, labels| {
                let labels: Vec<_> = [("name", *plugin)].into_iter().chain(labels).collect();
                all[step].render(page, name, &labels, &BUCKETS);
            });
        }
        self.render_webhooks(page);
    }

    fn render_webhooks(&self, page: &mut Page) {
        let webhooks = self.webhooks.lock();
        let name = "apiserver_admission_webhook_admission_duration_seconds";
        page.family(name, "histogram", "Latency of admission webhooks, by operation and outcome.");
        for ((webhook, validates), of) in webhooks.iter() {
            for (operation, outcomes) in OPERATIONS.iter().zip(&of.times) {
                for (rejected, times) in ["false", "true"].into_iter().zip(outcomes) {
                    let labels = labels(webhook, *validates, *operation, [("rejected", rejected)]);
                    times.render(page, name, &labels, &WEBHOOK_BUCKETS);
                }
            }
        }
        let name = "apiserver_admission_webhook_request_total";
        page.family(name, "counter", "Calls of admission webhooks, by operation, code and outcome.");
        for ((webhook, validates), of) in webhooks.iter() {
            for ((operation, code, rejected), count) in &of.calls {
                let (code, rejected) = (code.to_string(), rejected.to_string());
                let more = [("code", code.as_str()), ("rejected", rejected.as_str())];
                page.value(name, &labels(webhook, *validates, OPERATIONS[*operation], more), count);
            }
        }
        let name = "apiserver_admission_webhook_rejection_count";
        page.family(name, "counter", "Requests that admission webhooks rejected, by cause.");
        for ((webhook, validates), of) in webhooks.iter() {
            for ((operation, cause, code), count) in &of.rejections {
                let code = code.to_string();
                let more = [("error_type", cause.as_str()), ("rejection_code", code.as_str())];
                page.value(name, &labels(webhook, *validates, OPERATIONS[*operation], more), count);
            }
        }
        let name = "apiserver_admission_webhook_fail_open_count";
        page.family(name, "counter", "Calls of admission webhooks that failed and were ignored.");
        for ((webhook, validates), of) in webhooks.iter().filter(|(_, of)| of.failed_open > 0) {
            page.value(
                name,
                &[("name", webhook.as_str()), ("type", webhook_type(*validates))],
                of.failed_open,
            );
        }
    }
}

/// Calls `show` with the index and the labels of each phase, operation and outcome.
fn each_step(mut show: impl FnMut(usize, [(&'static str, &'static str); 3])) {
    for phase in PHASES {
        for operation in OPERATIONS {
            for (rejected, text) in [(false, "false"), (true, "true")] {
                let kind = if phase == Phase::Mutate { "admit" } else { "validate" };
                let labels = [("operation", operation.as_str()), ("rejected", text), ("type", kind)];
                show(index((phase, operation, rejected)), labels);
            }
        }
    }
}

fn webhook_type(validates: bool) -> &'static str {
    if validates { "validating" } else { "admit" }
}

/// The labels of a webhook.
fn labels<'a, const N: usize>(
    name: &'a str,
    validates: bool,
    operation: Operation,
    more: [(&'static str, &'a str); N],
) -> Vec<(&'static str, &'a str)> {
    let head = [("name", name), ("operation", operation.as_str()), ("type", webhook_type(validates))];
    head.into_iter().chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    #[test]
    fn plugins_and_webhooks_have_upstreams_names() {
        let metrics = AdmissionMetrics::new(vec!["Priority"]);
        let took = Duration::from_millis(1);
        metrics.step((Phase::Mutate, Operation::Create, false), took);
        metrics.controller(0, (Phase::Validate, Operation::Update, true), took);
        let refused =
            WebhookOutcome { took, code: 403, rejected: Some(RejectionCause::Denied), failed_open: false };
        metrics.webhook("a.example.com", Phase::Validate, Operation::Create, &refused);
        let ignored = WebhookOutcome { took, code: 500, rejected: None, failed_open: true };
        metrics.webhook("b.example.com", Phase::Mutate, Operation::Delete, &ignored);
        let mut page = Page::new(Form::Prometheus);
        metrics.render(&mut page);
        let text = page.finish();
        let median = "summary{operation=\"CREATE\",rejected=\"false\",type=\"admit\",quantile=\"0.5\"} 0.00";
        assert!(text.contains(median), "{text}");
        for line in [
            "step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1",
            "step_admission_duration_seconds_summary_count{operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1",
            "step_admission_duration_seconds_summary_sum{operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 0.001",
            "controller_admission_duration_seconds_count{name=\"Priority\",operation=\"UPDATE\",rejected=\"true\",type=\"validate\"} 1",
            "webhook_admission_duration_seconds_count{name=\"a.example.com\",operation=\"CREATE\",type=\"validating\",rejected=\"true\"} 1",
            "webhook_request_total{name=\"b.example.com\",operation=\"DELETE\",type=\"admit\",code=\"500\",rejected=\"false\"} 1",
            "webhook_rejection_count{name=\"a.example.com\",operation=\"CREATE\",type=\"validating\",error_type=\"no_error\",rejection_code=\"403\"} 1",
            "webhook_fail_open_count{name=\"b.example.com\",type=\"admit\"} 1",
        ] {
            assert!(text.contains(&format!("apiserver_admission_{line}\n")), "{line}\n{text}");
        }
    }
}
