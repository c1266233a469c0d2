//! How many kills a trial has, and at which random moments.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ha::dice::Dice;

/// The kills of a trial.
#[derive(Debug)]
pub struct Kills {
    /// How many there are; `CORACLE_KILLS` for more.
    pub count: u64,
    /// Random numbers of a seed that is printed; `CORACLE_KILLS_SEED` for that of another run.
    pub dice: Dice,
}

impl Kills {
    /// So many, unless the environment says otherwise.
    pub fn new(usual: u64) -> Self {
        let count = setting("CORACLE_KILLS").unwrap_or(usual);
        let seed = setting("CORACLE_KILLS_SEED").unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            // Short enough to be typed.
            u64::from(now.subsec_nanos()) % 1_000_000
        });
        println!("CORACLE_KILLS={count} CORACLE_KILLS_SEED={seed} kills at the same moments");
        Self { count, dice: Dice::new(seed) }
    }

    /// Waits for a time below this.
    pub fn wait_below(&mut self, milliseconds: u64) {
        std::thread::sleep(Duration::from_millis(self.dice.roll(milliseconds)));
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}
