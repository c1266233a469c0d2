//! Random numbers of a seed that is printed: a trial can be run again with the same faults.

/// splitmix64: every seed is a good one, also 0.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence of its own for one of several users of a seed.
    pub fn of(seed: u64, user: u64) -> Self {
        let mut dice = Self(seed ^ user.wrapping_mul(0xd134_2543_de82_ef95));
        dice.number();
        dice
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `sides`, which is not 0.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.number() % sides
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len() as u64) as usize]
    }
}
