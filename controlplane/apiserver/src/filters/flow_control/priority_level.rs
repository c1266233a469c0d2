//! One priority level: its seats and its queues.

use super::flow_schema::PriorityLevelWire;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// The result of requesting a seat.
pub(super) enum SeatOutcome {
    /// The level is exempt from limits.
    Exempt,
    /// The request has a seat.
    Seat,
    /// The request is queued.
    Wait(QueuedRequest),
    /// The queue is full.
    Full,
}

/// A request in a queue.
pub(super) struct QueuedRequest {
    /// Signals its seat.
    pub(super) seat: oneshot::Receiver<()>,
    /// Length of the queue, with this request.
    pub(super) length: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<oneshot::Sender<()>>,
    /// How much the queue was served: the least served is next.
    served: u64,
}

/// A priority level.
#[derive(Default)]
pub(super) struct PriorityLevel {
    /// Uid of the object, for headers.
    pub(super) uid: String,
    exempt: bool,
    seats: usize,
    lends: usize,
    borrows: Option<usize>,
    in_use: usize,
    queues: Vec<Queue>,
    hand: usize,
    longest: usize,
    queued: usize,
    /// The served mark of whoever was let in last; queues that were empty start here instead of catching up.
    clock: u64,
}

impl PriorityLevel {
    pub(super) fn configure(&mut self, wire: &PriorityLevelWire, seats: usize) {
        self.exempt = wire.exempt();
        self.seats = seats;
        self.lends = seats * wire.lendable_percent() / 100;
        self.borrows = wire.borrowing_percent().map(|percent| seats * percent / 100);
        let (queues, hand, longest) = wire.queues();
        self.hand = hand.clamp(1, queues.max(1));
        self.longest = longest;
        if self.queues.len() < queues {
            self.queues.resize_with(queues, Queue::default);
        } else {
            // Queues that somebody waits in stay until they are empty.
            while self.queues.len() > queues && self.queues.last().is_some_and(|q| q.waiting.is_empty()) {
                self.queues.pop();
            }
        }
    }

    /// Whether requests may wait.
    pub(super) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    pub(super) fn busy(&self) -> bool {
        self.in_use > 0 || self.waiting() > 0
    }

    pub(super) fn waiting(&self) -> usize {
        self.queued
    }

    pub(super) fn has_seat(&self) -> bool {
        self.in_use < self.seats
    }

    pub(super) fn borrowed(&self) -> usize {
        self.in_use.saturating_sub(self.seats)
    }

    /// Seats it lends and does not use now.
    pub(super) fn lendable(&self) -> usize {
        if self.exempt || self.waiting() > 0 {
            return 0;
        }
        self.lends.min(self.seats.saturating_sub(self.in_use))
    }

    fn may_borrow(&self) -> bool {
        self.borrows.is_none_or(|limit| self.borrowed() < limit)
    }

    /// Requests a seat for a request of a flow; `spare` seats can be borrowed from other levels.
    pub(super) fn request_seat(&mut self, flow: u64, spare: usize) -> SeatOutcome {
        if self.exempt {
            return SeatOutcome::Exempt;
        }
        let nobody_waits = self.waiting() == 0;
        if nobody_waits && (self.has_seat() || (spare > 0 && self.may_borrow())) {
            self.in_use += 1;
            return SeatOutcome::Seat;
        }
        if self.queues.is_empty() {
            return SeatOutcome::Full;
        }
        let Some(index) = self.shuffle_shard(flow) else { return SeatOutcome::Full };
        let queue = &mut self.queues[index];
        // Those who hung up hold no place.
        let before = queue.waiting.len();
        queue.waiting.retain(|waiter| !waiter.is_closed());
        self.queued -= before - queue.waiting.len();
        if queue.waiting.len() >= self.longest {
            return SeatOutcome::Full;
        }
        if queue.waiting.is_empty() {
            queue.served = queue.served.max(self.clock);
        }
        let (sender, receiver) = oneshot::channel();
        queue.waiting.push_back(sender);
        self.queued += 1;
        SeatOutcome::Wait(QueuedRequest { seat: receiver, length: queue.waiting.len() })
    }

    /// Shuffle sharding: the shortest queue of the flow's hand. Two flows rarely share all queues of their hands.
    fn shuffle_shard(&self, flow: u64) -> Option<usize> {
        let count = self.queues.len() as u64;
        let mut value = flow;
        let mut hand: Vec<usize> = Vec::with_capacity(self.hand);
        for dealt in 0..self.hand as u64 {
            let left = count - dealt;
            let mut card = (value % left) as usize;
            value /= left;
            // The card counts among those not dealt yet.
            let mut sorted = hand.clone();
            sorted.sort_unstable();
            for taken in sorted {
                if card >= taken {
                    card += 1;
                }
            }
            hand.push(card);
        }
        hand.into_iter().min_by_key(|index| self.queues[*index].waiting.len())
    }

    /// Gives a seat to the next request of the queue that was served least; false if all queues are empty.
    pub(super) fn admit_next(&mut self) -> bool {
        while self.queued > 0 {
            let next = self.queues.iter_mut().filter(|q| !q.waiting.is_empty()).min_by_key(|q| q.served);
            let Some(queue) = next else { return false };
            let Some(waiter) = queue.waiting.pop_front() else { return false };
            self.queued -= 1;
            // Whoever gave up waiting has closed the other end.
            if waiter.send(()).is_err() {
                continue;
            }
            queue.served += 1;
            self.clock = self.clock.max(queue.served);
            self.in_use += 1;
            return true;
        }
        false
    }

    /// Releases the seat of a finished request.
    pub(super) fn release_seat(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn level(seats: usize, queues: usize, longest: usize) -> PriorityLevel {
        let wire = json!({"spec": {"type": "Limited", "limited": {"lendablePercent": 50, "limitResponse":
            {"type": "Queue", "queuing": {"queues": queues, "handSize": 2, "queueLengthLimit": longest}}}}});
        let wire: PriorityLevelWire = serde_json::from_value(wire).unwrap_or_default();
        let mut level = PriorityLevel::default();
        level.configure(&wire, seats);
        level
    }

    #[test]
    fn a_flood_waits_behind_itself() {
        let mut level = level(1, 8, 50);
        assert!(matches!(level.request_seat(1, 0), SeatOutcome::Seat));
        let mut flood: Vec<_> = (0..100).map(|_| level.request_seat(11, 0)).collect();
        assert!(flood.iter().any(|asked| matches!(asked, SeatOutcome::Full)) || level.waiting() == 100);
        let SeatOutcome::Wait(mut other) = level.request_seat(5000, 0) else {
            panic!("room for another flow")
        };
        assert_eq!(other.length, 1, "it is alone in its queue");
        for turn in 0..4 {
            level.release_seat();
            assert!(level.admit_next());
            if other.seat.try_recv().is_ok() {
                return;
            }
            assert!(turn < 3, "the other flow waits behind the flood");
        }
        flood.clear();
    }

    #[test]
    fn queues_are_finite_and_those_who_hung_up_make_room() {
        let mut level = level(1, 1, 2);
        let SeatOutcome::Seat = level.request_seat(1, 0) else { panic!() };
        let first = level.request_seat(1, 0);
        let _second = level.request_seat(1, 0);
        assert!(matches!(level.request_seat(1, 0), SeatOutcome::Full));
        drop(first);
        assert!(matches!(level.request_seat(1, 0), SeatOutcome::Wait(_)));
    }

    #[test]
    fn seats_are_lent_while_nobody_needs_them() {
        let mut level = level(4, 1, 10);
        assert_eq!(level.lendable(), 2);
        for _ in 0..3 {
            level.request_seat(1, 0);
        }
        assert_eq!(level.lendable(), 1);
        level.request_seat(1, 0);
        assert!(matches!(level.request_seat(1, 1), SeatOutcome::Seat), "borrowed");
        assert_eq!(level.borrowed(), 1);
        assert!(matches!(level.request_seat(1, 0), SeatOutcome::Wait(_)));
    }
}
