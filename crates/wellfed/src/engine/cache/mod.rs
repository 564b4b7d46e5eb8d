//! What a loader keeps from epoch to epoch, so that later ones are faster. Nothing here changes a pixel.
//!
//! `rows` keeps where the rows of JPEGs begin.

mod build;
mod row_file;
mod rows;
mod share;

pub use build::{Indexed, index_rows};
pub(crate) use rows::RowCache;

/// What is kept; nothing by default.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) rows: Option<RowCache>,
}

impl Caches {
    /// Whether [`Caches::save`] has something to do.
    pub(crate) fn unsaved(&self) -> bool {
        self.rows.as_ref().is_some_and(RowCache::unsaved)
    }

    /// Writes what belongs into files and is not there yet.
    pub(crate) fn save(&self) {
        if let Some(rows) = &self.rows {
            rows.save();
        }
    }
}
