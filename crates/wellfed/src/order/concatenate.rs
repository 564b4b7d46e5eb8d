//! One input after the other.

/// Where each input ends.
#[derive(Clone, Debug)]
pub(super) struct Concatenate {
    /// Positions at which inputs end; one without end has none, and nothing comes after it.
    pub(super) ends: Vec<u64>,
}

impl Concatenate {
    /// The input at `position`, and the position in it.
    pub(super) fn at(&self, position: u64) -> (usize, u64) {
        let input = self.ends.partition_point(|end| *end <= position);
        (input, position - input.checked_sub(1).map_or(0, |before| self.ends[before]))
    }
}
