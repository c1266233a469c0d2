//! Catching panics: message and source line as a value.

use futures::FutureExt;
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Longer messages are cut: they are shown in Events and on health pages.
const LONGEST: usize = 300;

thread_local! {
    /// Source line of the last panic of this thread.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Panicked {
    /// The panic message.
    pub message: String,
    /// File and line, where known.
    pub place: Option<String>,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{} (at {place})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let said = payload.downcast_ref::<&str>().copied();
        let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = said.unwrap_or("a panic without a message").chars().take(LONGEST).collect();
        let place = PLACE.try_with(|place| place.borrow_mut().take()).ok().flatten();
        Self { message, place }
    }
}

/// Installs a panic hook that stores the source line, which the payload does not contain, and then calls the previous hook.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
            let _ = PLACE.try_with(|noted| {
                if let Ok(mut noted) = noted.try_borrow_mut() {
                    *noted = place;
                }
            });
            usual(info);
        }));
    });
}

/// Runs `work` and returns a panic as an error. State that `work` changed before the panic stays changed: callers must discard
/// it.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    install_panic_hook();
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked::new(&*payload))
}

/// Awaits a future and returns its panic as an error. Not an `async fn`: that would hold the future twice, once as its
/// argument and once as what it awaits.
pub fn catch_panic_async<F: Future>(future: F) -> impl Future<Output = Result<F::Output, Panicked>> {
    install_panic_hook();
    AssertUnwindSafe(future).catch_unwind().map(|output| output.map_err(|payload| Panicked::new(&*payload)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_panic_is_returned_with_message_and_place() {
        assert_eq!(catch_panic(|| 7), Ok(7));
        let panicked = catch_panic(|| panic!("object {} is odd", "x")).map(|()| 0).unwrap_err();
        assert_eq!(panicked.message, "object x is odd");
        assert!(panicked.place.as_ref().unwrap().contains("panics.rs:"), "{panicked}");
        assert_eq!(catch_panic_async(async { 8 }).await, Ok(8));
        let large = [0u8; 10_000];
        let work = async move {
            tokio::task::yield_now().await;
            large.len()
        };
        assert!(size_of_val(&catch_panic_async(work)) < 11_000, "the future is held twice");
        let late = catch_panic_async(async {
            tokio::task::yield_now().await;
            let list: Vec<u32> = Vec::new();
            list[list.len()]
        });
        let panicked = late.await.unwrap_err();
        assert!(panicked.message.starts_with("index out of bounds"), "{panicked}");
        let long = catch_panic(|| panic!("{}", "é".repeat(5000))).map(|()| 0).unwrap_err();
        assert_eq!(long.message.chars().count(), LONGEST);
    }
}
