//! Tables as sources: rows of Parquet files, of CSV files, of Arrow files and streams, and of the folders that Hugging Face's
//! `save_to_disk` writes; and Parquet files as shards that are written. [`register`] makes them known to
//! [`wellfed::source::tables`] and [`wellfed::write`].
//!
//! A crate of its own, so that the engine is built and tested without the libraries of these formats. What lies in a file is
//! decoded in groups of rows, which the engine keeps ([`wellfed::groups`]).

#![warn(missing_docs)]

mod cells;
mod container;
mod csv;
mod dates;
mod filter;
mod gather;
mod ipc;
mod kinds;
mod pages;
mod parquet;
mod paths;
mod stack;
mod table;
#[cfg(test)]
mod tests;
mod write;

/// Makes the formats known. Further calls do nothing.
pub fn register() {
    wellfed::source::tables::register(table::open);
    wellfed::write::register(write::make);
}
