//! Applies rules to nftables on a blocking thread.

use coracle_cli::causes;
use coracle_cni::netlink::Error as NetlinkError;
use coracle_cni::nft::{Batch, Nft};

use super::ruleset::{self, Ruleset, TABLE};

/// Why the rules were not changed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel refused them, or cannot be spoken to.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The thread that speaks to it panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

impl KernelError {
    /// Whether other rules might be accepted.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Netlink(NetlinkError::Refused { .. } | NetlinkError::TooLong { .. }))
    }
}

/// The kernel's rules; always changed by one socket, so that our own changes are known.
#[derive(Default)]
pub(super) struct Kernel {
    nft: Option<Nft>,
    port: u32,
    /// The rules that it has; `None` when that is not known.
    current: Option<Ruleset>,
}

impl Kernel {
    /// Our socket, as notifications of changes name it.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Another program changed the rules: the next change rebuilds all of them.
    pub fn forget(&mut self) {
        self.current = None;
    }

    /// Removes all rules.
    pub async fn clear(&mut self) -> Result<(), KernelError> {
        if self.current.as_ref() != Some(&Ruleset::default()) {
            self.apply(ruleset::clear()).await?;
            self.current = Some(Ruleset::default());
        }
        Ok(())
    }

    /// Changes the rules to these; after a failure they are what they were.
    pub async fn replace(&mut self, wanted: Ruleset) -> Result<(), KernelError> {
        let current = self.current.take().filter(|current| *current != Ruleset::default());
        if let Some(current) = current {
            match self.apply(ruleset::update(&current, &wanted)).await {
                Ok(()) => {
                    self.current = Some(wanted);
                    return Ok(());
                }
                // Another program may have changed the table: only a rejected rebuild is the fault of the rules.
                Err(error) => {
                    tracing::debug!(error = %causes::chain(&error), "change of the policy rules refused, making all of them")
                }
            }
        }
        self.apply(ruleset::rebuild(&wanted)).await?;
        self.current = Some(wanted);
        Ok(())
    }

    /// Whether the table has rules at all.
    pub async fn has_rules(&mut self) -> bool {
        self.ask(|nft| nft.rule_count(TABLE, "entering")).await.is_ok_and(|count| count > 0)
    }

    async fn apply(&mut self, batch: Batch) -> Result<(), KernelError> {
        self.ask(move |nft| nft.apply(batch)).await
    }

    async fn ask<T: Send + 'static>(
        &mut self,
        question: impl FnOnce(&mut Nft) -> Result<T, NetlinkError> + Send + 'static,
    ) -> Result<T, KernelError> {
        let mut nft = match self.nft.take() {
            Some(nft) => nft,
            None => {
                let nft = Nft::open()?;
                self.port = nft.port()?;
                nft
            }
        };
        let work = move || (question(&mut nft), nft);
        let (result, nft) = tokio::task::spawn_blocking(work).await?;
        self.nft = Some(nft);
        Ok(result?)
    }
}
