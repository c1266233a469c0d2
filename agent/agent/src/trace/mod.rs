//! What the node records of its own work: spans on disk until the API server has them, and durations as metrics.
//!
//! Pod workers set a scope ([`coracle_trace::Scope`]) in which everything below them records, in the engine, too. A
//! collector thread writes what they record to a spool; a task delivers the spool.

// The server's clock.
pub mod clock;
// How far the spool is delivered.
mod acknowledged;
// Delivery to the server.
pub mod delivery;
// The spool and its collector.
pub mod spool;
// Histograms of one name.
mod family;
// Durations, under the kubelet's names.
pub mod metrics;

use coracle_trace::{Moment, Recorder, Stage, Uid};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use self::metrics::NodeMetrics;

/// Where the parts of the node record. Clones share everything.
#[derive(Clone)]
pub struct NodeTrace {
    /// Spans.
    pub recorder: Recorder,
    /// Durations.
    pub metrics: Arc<NodeMetrics>,
    /// What the agent before this one had begun, with the revisions of the pods, until somebody goes on with it.
    cut: Arc<Mutex<HashMap<(Uid, Stage), u64>>>,
}

impl NodeTrace {
    /// Records spans with this recorder.
    pub fn new(recorder: Recorder) -> Self {
        NodeTrace { recorder, metrics: Arc::default(), cut: Arc::default() }
    }

    /// The same, after an agent that had begun to start or to end these pods.
    #[must_use]
    pub fn after(self, cut: HashMap<(Uid, Stage), u64>) -> Self {
        NodeTrace { cut: Arc::new(Mutex::new(cut)), ..self }
    }

    /// The revision of a pod that the agent before this one began a stage with. Only one can go on with it.
    pub(crate) fn take_cut(&self, uid: Uid, stage: Stage) -> Option<u64> {
        self.cut.lock().remove(&(uid, stage))
    }

    /// The recorder's moment of an instant.
    pub fn moment(&self, at: Instant) -> Moment {
        moment(self.recorder, at)
    }
}

/// A recorder's moment of an instant.
pub fn moment(recorder: Recorder, at: Instant) -> Moment {
    recorder.clock().map_or(Moment::MAX, |clock| clock.of(at))
}
