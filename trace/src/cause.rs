use crate::clock::Moment;
use crate::ids::{SpanId, Uid};

/// The change that a control loop reacts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cause {
    /// The object that changed.
    pub uid: Uid,
    /// The revision that the change gave it.
    pub revision: u64,
    /// How much it says about what follows.
    pub rank: Rank,
    /// When it was seen.
    pub since: Moment,
}

/// How much a change says about what a control loop does next, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Rank {
    /// Nothing changed.
    #[default]
    None,
    /// All objects are looked at again.
    Resync,
    /// Something was due.
    Timer,
    /// An earlier turn failed.
    Retry,
    /// A status, or an object of another kind.
    Related,
    /// An object was removed.
    Deleted,
    /// An object was created, or its specification changed.
    Spec,
}

impl Cause {
    /// No change: what follows is a root.
    pub const NONE: Self = Self { uid: Uid::NONE, revision: 0, rank: Rank::None, since: Moment::MAX };

    /// The span of the write that is the cause; [`SpanId::NONE`] without one.
    pub fn span(self) -> SpanId {
        if self.is_none() { SpanId::NONE } else { SpanId::of_write(self.uid, self.revision) }
    }

    /// Whether there is no write that it names.
    pub fn is_none(self) -> bool {
        self.uid.is_none()
    }

    /// The more important of two; of equal ones the newer.
    ///
    /// ```
    /// use coracle_trace::{Cause, Moment, Rank, Uid};
    ///
    /// let scale = Cause { uid: Uid(1), revision: 7, rank: Rank::Spec, since: Moment(70) };
    /// let status = Cause { uid: Uid(2), revision: 9, rank: Rank::Related, since: Moment(90) };
    /// assert_eq!(scale.or(status), scale);
    /// assert_eq!(Cause::NONE.or(status), status);
    /// ```
    #[must_use]
    pub fn or(self, later: Self) -> Self {
        if later.rank >= self.rank { later } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_the_most_important_wins() {
        let of = |uid: u128, rank| Cause { uid: Uid(uid), revision: 1, rank, since: Moment(1) };
        let storm = [
            of(1, Rank::Related),
            of(2, Rank::Spec),
            of(3, Rank::Related),
            of(4, Rank::Spec),
            of(5, Rank::Timer),
        ];
        assert_eq!(storm.into_iter().fold(Cause::NONE, Cause::or), of(4, Rank::Spec));
        assert_eq!(Cause::default(), Cause::NONE);
        assert_eq!(of(1, Rank::Spec).or(Cause::NONE), of(1, Rank::Spec));
    }

    #[test]
    fn no_cause_has_no_span() {
        assert_eq!(Cause::NONE.span(), SpanId::NONE);
        let cause = Cause { uid: Uid(9), revision: 3, rank: Rank::Spec, since: Moment(0) };
        assert_eq!(cause.span(), SpanId::of_write(Uid(9), 3));
    }
}
