//! What a loader keeps from epoch to epoch, so that later ones are faster. Nothing here changes a pixel.
//!
//! `rows` keeps where the rows of JPEGs begin; `coefficients` keeps samples whose JPEGs are without Huffman coding,
//! in memory
//! (`slab`) or by way of `disk`.

mod build;
mod coefficients;
mod disk;
mod row_file;
mod rows;
mod share;

pub use build::{Indexed, index_rows};
pub(crate) use coefficients::CoefficientCache;
pub(crate) use rows::RowCache;

use crate::meter::{CacheStats, RowIndexStats};

/// What is kept; nothing by default.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) rows: Option<RowCache>,
    pub(crate) coefficients: Option<CoefficientCache>,
}

impl Caches {
    /// Whether [`Caches::save`] has something to do.
    pub(crate) fn unsaved(&self) -> bool {
        self.rows.as_ref().is_some_and(RowCache::unsaved)
            || self.coefficients.as_ref().is_some_and(CoefficientCache::unsaved)
    }

    /// Writes what belongs into files and is not there yet.
    pub(crate) fn save(&self) {
        if let Some(rows) = &self.rows {
            rows.save();
        }
        if let Some(coefficients) = &self.coefficients {
            coefficients.save();
        }
    }

    pub(crate) fn row_stats(&self) -> Option<RowIndexStats> {
        self.rows.as_ref().map(RowCache::stats)
    }

    pub(crate) fn sample_stats(&self) -> Option<CacheStats> {
        self.coefficients.as_ref().map(CoefficientCache::stats)
    }
}
