//! How many rounds there are, and numbers that look random, from the clock.

use std::time::SystemTime;

/// Rounds of a test: as many as it says, times `CORACLE_CRASH_TIMES`.
pub fn rounds(usual: u64) -> u64 {
    usual * std::env::var("CORACLE_CRASH_TIMES").map_or(1, |times| times.parse::<u64>().unwrap())
}

/// xorshift.
pub struct Dice(u64);

impl Dice {
    pub fn new(salt: u64) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Self(now.as_nanos() as u64 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
