//! Starts the recorder of the server, with its timeline in the data directory.

use super::options::Recording;
use coracle_cli::causes;
use coracle_timeline::{CollectorHandle, Keep, shared_memory, start_recording};
use coracle_trace::{Recorder, Sizes};
use std::path::Path;

/// Starts recording as the options say. A timeline that cannot be opened is logged: the server works without it.
pub fn start(options: &Recording, data_dir: &Path) -> (Recorder, Option<CollectorHandle>) {
    let Some(limits) = options.limits else { return (Recorder::OFF, None) };
    let (dir, memory) = (data_dir.join("trace"), shared_memory::path(data_dir));
    if let Some(memory) = &memory {
        shared_memory::forget_earlier(&dir, memory);
    }
    let keep = match Keep::exclusive(&dir, limits) {
        Ok(keep) => keep,
        Err(error) => {
            tracing::error!(error = %causes::chain(&error), "nothing is recorded");
            return (Recorder::OFF, None);
        }
    };
    let (recorder, collector) = start_recording(memory.as_deref(), Sizes::SERVER, keep);
    (recorder, Some(collector))
}
