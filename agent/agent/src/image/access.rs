//! Access to images on the node: for pods whose credentials have pulled them, or for all.

use coracle_cli::causes::chain;
use coracle_proto::cri;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use super::pull_error::PullError;
use super::{Images, Present, found_as};
use crate::config::verification::repository_of;
use crate::pod::pull_secret::{PullCredential, PullSecret};
use coracle_engine::runtime::RuntimeError;

impl Images {
    /// Whether a pod with these credentials may use an image that is on the node.
    pub(super) fn admits(&self, image: &str, present: &Present, credentials: &[PullCredential]) -> bool {
        let id = &present.spec.image;
        let is_preloaded = || present.imported || !self.records.was_pulled(id, &present.names);
        let secrets = credentials.iter().map(|credential| &credential.secret);
        !self.verification.is_needed(image, is_preloaded)
            || self.records.admits(id, &repository_of(image), secrets)
    }

    /// Removes records of images that are gone. `images` were listed at `listed`.
    pub fn settle(&self, images: &[cri::Image], listed: SystemTime) {
        let under_way: HashSet<String> = {
            let pulling = self.pulling.lock();
            let awaited = pulling.iter().filter(|(_, turn)| Arc::strong_count(turn) > 1);
            awaited.map(|(name, _)| name.clone()).collect()
        };
        self.records.settle(images, listed, |name| under_way.contains(name));
    }

    /// Pulls an image and records the credentials. If the caller is cancelled, the record of the pull in progress stays.
    pub(super) async fn pull_and_record(
        &self,
        image: &str,
        wanted: &cri::ImageSpec,
        credentials: &[PullCredential],
        sandbox: &cri::PodSandboxConfig,
    ) -> Result<Present, PullError> {
        let name = &wanted.image;
        let is_new = self.records.begin(name)?;
        let by = match self.try_credentials(wanted, credentials, sandbox).await {
            Ok(by) => by,
            Err(error) => {
                // One from before is about an image that may be here.
                if is_new {
                    self.records.end(name);
                }
                return Err(error.into());
            }
        };
        let found = self.runtime.image_status(wanted.clone()).await?;
        let present = found.map(|image| found_as(image, wanted)).ok_or(PullError::Missing)?;
        // The image was imported meanwhile: no registry verified the credentials.
        if present.imported {
            self.records.end(name);
            return Ok(present);
        }
        match self.records.add(&present.spec.image, &repository_of(image), by) {
            Ok(()) => self.records.end(name),
            Err(error) => {
                tracing::error!(image, error = %chain(&error), "image pull not recorded, pods have to pull the image again");
            }
        }
        Ok(present)
    }

    /// Tries every matching credential in turn, or an anonymous pull; returns the secret that worked, or the last error.
    async fn try_credentials<'a>(
        &self,
        wanted: &cri::ImageSpec,
        credentials: &'a [PullCredential],
        sandbox: &cri::PodSandboxConfig,
    ) -> Result<Option<&'a PullSecret>, RuntimeError> {
        let pull = |auth| self.runtime.pull_image(wanted.clone(), auth, Some(sandbox.clone()));
        let Some((last, others)) = credentials.split_last() else {
            return pull(None).await.map(|_| None);
        };
        for credential in others {
            if pull(Some(credential.auth.clone())).await.is_ok() {
                return Ok(Some(&credential.secret));
            }
        }
        pull(Some(last.auth.clone())).await.map(|_| Some(&last.secret))
    }
}
