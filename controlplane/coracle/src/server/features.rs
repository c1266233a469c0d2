//! The metric of feature gates.

use coracle_cli::feature_gates::{Feature, Switches, in_force};
use coracle_client::diagnostics::MetricsSource;
use coracle_proto::exposition::Page;

/// The gates with their values, which do not change while the server runs.
pub(super) struct FeatureMetrics(Vec<Feature>);

impl FeatureMetrics {
    pub(super) fn new(switches: Switches) -> Self {
        Self(in_force(switches))
    }
}

impl MetricsSource for FeatureMetrics {
    fn render(&self, page: &mut Page) {
        page.features(self.0.iter().map(|feature| (feature.name, feature.stage, feature.enabled)));
    }
}
