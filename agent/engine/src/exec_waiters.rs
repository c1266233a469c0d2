//! Waiters for exits of commands.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use coracle_keeper::exits::Exit;

/// Waiters by id of the command, with the generation of the keeper connection.
#[derive(Default)]
pub(crate) struct ExecWaiters(Mutex<HashMap<String, (u64, oneshot::Sender<Exit>)>>);

impl ExecWaiters {
    /// Receives the exit of a command that is about to be started.
    pub(crate) fn add(&self, id: &str, generation: u64) -> oneshot::Receiver<Exit> {
        let (sender, exit) = oneshot::channel();
        self.0.lock().insert(id.to_owned(), (generation, sender));
        exit
    }

    pub(crate) fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Gives an exit to its waiter; returns it if there is none, or none left.
    pub(crate) fn deliver(&self, exit: Exit) -> Option<Exit> {
        let waiter = self.0.lock().remove(&exit.id);
        match waiter {
            None => Some(exit),
            Some((_, waiter)) => waiter.send(exit).err(),
        }
    }

    /// Fails the waiters for commands of earlier keepers that the current one does not know.
    pub(crate) fn fail_lost(&self, generation: u64, known: &HashSet<String>) {
        self.0.lock().retain(|id, (asked, _)| *asked >= generation || known.contains(id));
    }
}
