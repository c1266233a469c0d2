//! Cost limits of evaluation, those of Kubernetes. One unit is about 50 ns of CPU time.

use super::error::explain;
use super::meter::{EXCEEDED, Metered};
use cel::ExecutionError;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Cost limit of all rules of one object, and of all expressions of one policy.
pub const VALIDATION: u64 = 10_000_000;
/// Cost limit of all match conditions of one webhook or policy.
pub const CONDITIONS: u64 = VALIDATION / 4;
/// Cost limit of one evaluation.
const EVALUATION: u64 = 1_000_000;
/// Cost limit of an evaluation on a thread of the async runtime.
const INLINE_BUDGET: u64 = 50_000;

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The expression cannot be evaluated with these values.
    #[error("{}", explain(.0))]
    Evaluation(ExecutionError),
    /// One evaluation costs too much.
    #[error("{EXCEEDED}")]
    Cost,
    /// All together do.
    #[error("running out of cost budget")]
    Budget,
}

/// What is left.
pub struct Budget {
    left: u64,
    spent: bool,
}

impl Budget {
    /// So much.
    pub fn of(left: u64) -> Self {
        Self { left, spent: false }
    }

    /// Whether nothing more can be evaluated.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Nothing more is to be evaluated.
    pub fn stop(&mut self) {
        (self.left, self.spent) = (0, true);
    }

    /// Takes the cost of work that is no evaluation.
    pub fn take(&mut self, cost: u64) {
        match self.left.checked_sub(cost) {
            Some(left) => self.left = left,
            None => self.stop(),
        }
    }

    /// Evaluates for at most what is left, and for at most what one evaluation may cost.
    pub(super) fn spend(
        &mut self,
        evaluate: impl FnOnce(u64) -> Metered<Result<cel::Value, ExecutionError>>,
    ) -> Result<cel::Value, Failure> {
        if self.spent {
            return Err(Failure::Budget);
        }
        let limit = self.left.min(EVALUATION);
        let metered = evaluate(limit);
        self.left -= metered.spent;
        // An operator may have absorbed the error.
        if metered.exceeded {
            if limit == EVALUATION {
                return Err(Failure::Cost);
            }
            self.stop();
            return Err(Failure::Budget);
        }
        metered.outcome.map_err(Failure::Evaluation)
    }
}

/// Runs `work`, which evaluates expressions. It runs first with a small budget. If it exceeds that, it is restarted with the
/// whole budget in `block_in_place`, so that it does not block other requests.
pub fn evaluate_blocking<T>(budget: u64, work: impl Fn(&mut Budget) -> T) -> T {
    let mut first = Budget::of(budget.min(INLINE_BUDGET));
    let done = work(&mut first);
    if !first.spent {
        return done;
    }
    let again = || work(&mut Budget::of(budget));
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(again),
        _ => again(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    /// With one worker thread, an evaluation blocks other tasks unless it leaves the thread to them.
    #[test]
    fn an_expensive_evaluation_leaves_the_thread_to_others() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let work = runtime.spawn(async {
            let (said, heard) = std::sync::mpsc::channel();
            tokio::spawn(async move { said.send(()).unwrap() });
            evaluate_blocking(VALIDATION, |budget| {
                if budget.left <= INLINE_BUDGET {
                    budget.stop();
                    return None;
                }
                // The other task runs only if this thread is not the only one for tasks.
                Some(heard.recv_timeout(Duration::from_secs(60)))
            })
        });
        assert_eq!(runtime.block_on(work).unwrap(), Some(Ok(())));
    }
}
