//! Provisioners that cannot make a volume for the node that was chosen: they remove the node from the claim.

use super::Volumes;
use crate::pod::PodInfo;

impl Volumes {
    /// A node was chosen for the pod's claims: from now on a provisioner may refuse it.
    pub fn forget_refusals(&mut self, pod: &PodInfo) {
        for name in &pod.claims {
            if let Some(claim) = self.claims.get_mut(&format!("{}/{name}", pod.namespace)) {
                claim.deselected = false;
            }
        }
    }

    /// The claim of the pod whose provisioner cannot make a volume for the chosen node.
    pub fn refused<'a>(&self, pod: &'a PodInfo) -> Option<&'a str> {
        let is_refused = |name: &&String| {
            let claim = self.claims.get(&format!("{}/{name}", pod.namespace));
            claim.is_some_and(|claim| claim.deselected && !claim.is_bound())
        };
        pod.claims.iter().find(is_refused).map(String::as_str)
    }
}
