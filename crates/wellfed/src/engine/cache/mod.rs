//! What a loader keeps from epoch to epoch, so that later ones are faster. Nothing here changes a pixel.
//!
//! `row_index` keeps where the rows of JPEGs begin, in this process or (`row_indexes`) for several ones, and `seen_rows`
//! of images that are opened one by one; `coefficients` keeps samples whose JPEGs are without Huffman coding, in memory (`slab`)
//! or by way of `disk`; `kept` hands what is in memory on to the next loader.

mod coefficients;
mod disk;
mod kept;
mod row_index;
mod row_index_build;
mod row_index_file;
mod row_index_table;
mod row_indexes;
mod seen_rows;
mod share;

use std::sync::Arc;

pub(crate) use coefficients::CoefficientCache;
pub(crate) use kept::KeptCaches;
pub(crate) use row_index::RowIndexCache;
pub use row_index_build::{Indexed, index_rows};
pub use row_indexes::RowIndexes;
pub use seen_rows::SeenRows;

use crate::meter::{CacheStats, RowIndexStats};

/// What is kept; nothing by default.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) row_indexes: Option<Arc<RowIndexCache>>,
    pub(crate) coefficients: Option<Arc<CoefficientCache>>,
}

impl Caches {
    /// Whether [`Caches::save`] has something to do.
    pub(crate) fn unsaved(&self) -> bool {
        self.row_indexes.as_ref().is_some_and(|rows| rows.unsaved())
            || self.coefficients.as_ref().is_some_and(|cache| cache.unsaved())
    }

    /// Writes what belongs into files and is not there yet.
    pub(crate) fn save(&self) {
        if let Some(row_indexes) = &self.row_indexes {
            row_indexes.save();
        }
        if let Some(coefficients) = &self.coefficients {
            coefficients.save();
        }
    }

    pub(crate) fn row_index_stats(&self) -> Option<RowIndexStats> {
        self.row_indexes.as_ref().map(|rows| rows.stats())
    }

    pub(crate) fn sample_stats(&self) -> Option<CacheStats> {
        self.coefficients.as_ref().map(|cache| cache.stats())
    }
}
