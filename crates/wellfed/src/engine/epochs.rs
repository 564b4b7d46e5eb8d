//! Where the consumer of a loader stands in the epochs of the plan.

use crate::order::Position;

/// The consumer's place in the epochs.
#[derive(Debug)]
pub(super) struct Epochs {
    /// The next batch to deliver.
    at: Position,
    /// Where the next epoch starts, if it was set by the user or restored.
    jump: Option<Position>,
    under_way: bool,
    /// The batch that the pass under way began with.
    began_with: u64,
    /// Samples since the last batch that was delivered, all of them bad and skipped.
    fruitless: u64,
    /// Whether some batch of this pass through the epoch was delivered.
    delivered: bool,
}

impl Epochs {
    /// Before the first one.
    pub(super) fn new() -> Self {
        let start = Position::start_of(0);
        Self { at: start, jump: Some(start), under_way: false, began_with: 0, fruitless: 0, delivered: false }
    }

    /// The batch that comes next: that of the epoch under way, or where one will start.
    pub(super) fn next(&self) -> Position {
        self.jump.unwrap_or(self.at)
    }

    /// Starts an epoch: at the place that was jumped to, at what an end was met before, or else at the one after a
    /// half-read one. Gives its first batch.
    pub(super) fn start(&mut self) -> Position {
        let after = Position::start_of(self.at.epoch + 1);
        self.at = match self.jump.take() {
            Some(position) => position,
            None if self.under_way && self.at.number > self.began_with => after,
            // Nothing was taken of the pass under way: it begins again, be it an epoch or the rest of one.
            None => self.at,
        };
        self.began_with = self.at.number;
        self.under_way = true;
        (self.fruitless, self.delivered) = (0, false);
        self.at
    }

    /// Lets the next epoch start at `position`. The one under way goes on until then.
    pub(super) fn jump_to(&mut self, position: Position) {
        self.jump = Some(position);
    }

    /// Lets the next epoch start at `position`, and breaks off the one under way.
    pub(super) fn restore(&mut self, position: Position) {
        self.jump = Some(position);
        self.under_way = false;
    }

    /// The next batch to deliver of the epoch under way, if one is.
    pub(super) fn under_way(&self) -> Option<Position> {
        self.under_way.then_some(self.at)
    }

    /// Ends the epoch under way. Gives the number of bad samples if there was nothing else in it.
    pub(super) fn end(&mut self) -> Option<u64> {
        self.under_way = false;
        self.at = Position::start_of(self.at.epoch + 1);
        (!self.delivered && self.fruitless > 0).then_some(self.fruitless)
    }

    /// The next batch was taken, whatever becomes of it.
    pub(super) fn advance(&mut self) {
        self.at.number += 1;
    }

    /// A batch reached the consumer.
    pub(super) fn delivered(&mut self) {
        (self.fruitless, self.delivered) = (0, true);
    }

    /// All `samples` of a batch were bad and skipped. Gives how many were so since the last batch that was delivered.
    pub(super) fn skipped(&mut self, samples: usize) -> u64 {
        self.fruitless += samples as u64;
        self.fruitless
    }

    /// Counts bad samples anew.
    pub(super) fn forget_skipped(&mut self) {
        self.fruitless = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_read_epoch_is_given_up_and_one_that_was_not_begun_is_not() {
        let mut epochs = Epochs::new();
        assert_eq!((epochs.under_way(), epochs.start()), (None, Position::start_of(0)));
        assert_eq!(epochs.start(), Position::start_of(0), "nothing was read of it");
        epochs.advance();
        assert_eq!(epochs.next().number, 1);
        assert_eq!(epochs.start(), Position::start_of(1));
        assert_eq!((epochs.end(), epochs.under_way()), (None, None));
        assert_eq!(epochs.start(), Position::start_of(2));
    }

    #[test]
    fn a_jump_waits_for_the_next_start_and_a_restored_place_does_not() {
        let mut epochs = Epochs::new();
        epochs.start();
        epochs.jump_to(Position::start_of(7));
        assert_eq!((epochs.under_way(), epochs.next()), (Some(Position::start_of(0)), Position::start_of(7)));
        epochs.restore(Position { epoch: 3, base: 2, number: 1 });
        assert_eq!(epochs.under_way(), None);
        assert_eq!(epochs.start(), Position { epoch: 3, base: 2, number: 1 });
    }

    #[test]
    fn an_epoch_of_bad_samples_only_says_so() {
        let mut epochs = Epochs::new();
        epochs.start();
        assert_eq!((epochs.skipped(3), epochs.skipped(4)), (3, 7));
        assert_eq!(epochs.end(), Some(7));
        epochs.start();
        epochs.delivered();
        epochs.skipped(1);
        assert_eq!(epochs.end(), None);
    }
}
