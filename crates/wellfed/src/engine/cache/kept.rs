//! [`KeptCaches`]: samples in memory that one loader of a data set leaves to the next one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::CoefficientCache;
use crate::{budget::Budget, lock, source::Source};

/// Caches in memory by the address of their source, which they keep alive. A loop that makes a loader for each epoch finds in
/// the second one what the first one cached, as long as the data set is there.
#[derive(Debug, Default)]
pub(crate) struct KeptCaches(Mutex<HashMap<usize, Arc<CoefficientCache>>>);

fn address(source: &Arc<dyn Source>) -> usize {
    Arc::as_ptr(source).cast::<()>() as usize
}

impl KeptCaches {
    /// Bytes of what is cached for `source` and could be taken.
    pub(crate) fn bytes(&self, source: &Arc<dyn Source>) -> u64 {
        let kept = lock(&self.0);
        let idle = kept.get(&address(source)).filter(|cache| Arc::strong_count(cache) == 1);
        idle.map_or(0, |cache| cache.bytes())
    }

    /// The cache of up to `limit` bytes for `source`, whose bytes are counted in `budget`: what an earlier loader left, or
    /// what `open` makes. While another loader uses one, or where it has more than `limit`, this one begins anew.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn take<E>(
        &self,
        source: &Arc<dyn Source>,
        limit: u64,
        budget: &Arc<Budget>,
        open: impl FnOnce() -> Result<CoefficientCache, E>,
    ) -> Result<Arc<CoefficientCache>, E> {
        let mut kept = lock(&self.0);
        let left = kept.remove(&address(source));
        let cache = match left.map(Arc::try_unwrap) {
            Some(Ok(cache)) if cache.bytes() <= limit => cache.handed_on(limit),
            Some(Err(used)) => {
                // It stays for who comes after both.
                kept.insert(address(source), used);
                return Ok(Arc::new(open()?.counted(budget)));
            }
            _ => open()?,
        };
        let cache = Arc::new(cache.counted(budget));
        kept.insert(address(source), cache.clone());
        Ok(cache)
    }
}
