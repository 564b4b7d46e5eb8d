//! Weights kept from one image to the next. Random crops meet the same lengths again and again; making the
//! weights costs as much as resampling twenty rows. Invariant: never more bytes than the budget, except one
//! axis in use.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::axis::{Axis, Filter, Span};
use crate::level::Level;

type Key = (Span, usize, Filter);

/// Axes by (part of a source, output length, filter); the oldest go first.
#[derive(Debug)]
pub(super) struct Cache {
    level: Level,
    budget: usize,
    size: usize,
    axes: HashMap<Key, Arc<Axis>>,
    order: VecDeque<Key>,
}

impl Cache {
    pub(super) fn new(level: Level, budget: usize) -> Self {
        Self { level, budget, size: 0, axes: HashMap::new(), order: VecDeque::new() }
    }

    /// Bytes kept.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The weights from `input` to `output` samples, at least 1.
    pub(super) fn axis(&mut self, input: Span, output: usize, filter: Filter) -> Arc<Axis> {
        let key = (input, output, filter);
        if let Some(axis) = self.axes.get(&key) {
            return Arc::clone(axis);
        }
        let axis = Arc::new(Axis::new(input, output, filter, self.level));
        let size = axis.size();
        if size <= self.budget {
            while self.size + size > self.budget {
                let Some(oldest) = self.order.pop_front() else { break };
                self.size -= self.axes.remove(&oldest).map_or(0, |axis| axis.size());
            }
            self.size += size;
            self.order.push_back(key);
            self.axes.insert(key, Arc::clone(&axis));
        }
        axis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds() {
        let one = Axis::new(Span::whole(100), 50, Filter::Bilinear, Level::Avx2).size();
        let mut cache = Cache::new(Level::Avx2, 3 * one);
        for input in (90..110).chain(90..110) {
            let axis = cache.axis(Span::whole(input), 50, Filter::Bilinear);
            assert_eq!(axis.len(), 50);
            assert!(cache.size() <= 3 * one);
        }
        assert!(cache.size() > 0);
        let mut none = Cache::new(Level::Scalar, 0);
        assert_eq!(none.axis(Span::whole(5), 3, Filter::Box).len(), 3);
        assert_eq!(none.size(), 0);
    }
}
