//! Which OCI runtimes support precreation.

use std::path::Path;

use super::gate;
use crate::objects::{Gate, WaitsAt};
use crate::oci_implementation::Implementation;
use crate::oci_runtime::OciRuntime;

/// OCI runtimes whose containers can be started without them.
#[derive(Debug, Default)]
pub(crate) struct Precreation(Vec<WaitsAt>);

impl Precreation {
    /// Asks each runtime what it is.
    pub(crate) async fn detect(runtimes: &OciRuntime) -> Self {
        let mut found = Vec::new();
        for program in runtimes.programs() {
            let version = tokio::process::Command::new(program).arg("--version").output().await;
            let output = version.ok().filter(|output| output.status.success());
            let known = output.and_then(|output| Implementation::from_version(&output.stdout));
            if let Some(gate) = known.and_then(gate_of) {
                found.push(WaitsAt { program: program.to_owned(), gate });
            }
        }
        Self(found)
    }

    pub(super) fn is_possible(&self) -> bool {
        !self.0.is_empty()
    }

    /// Where containers of a runtime wait.
    pub(super) fn of(&self, program: &Path) -> Option<WaitsAt> {
        self.0.iter().find(|known| known.program == program).cloned()
    }
}

fn gate_of(runtime: Implementation) -> Option<Gate> {
    match runtime {
        Implementation::Runc => Some(gate::OF_RUNC),
        Implementation::Coracle => Some(gate::OF_CORACLE),
        // crun uses its FIFO in the other direction, youki would take the container for one that is not started.
        Implementation::Crun | Implementation::Youki => None,
    }
}
