//! HDF5 as a source: data sets of one length are the fields of samples. [`register`] makes it known to
//! [`wellfed::source::hdf5`].
//!
//! The format is read by what its specification says ("HDF5 File Format Specification Version 3.0"; sections are named where they
//! are used), without the HDF5 library and its one lock: metadata is read when a file is opened, by few ranged reads
//! (`pages.rs`), and says where all chunks lie. From then on a row is a read by position, and chunks are unpacked by whichever
//! threads want them. Whatever a file states is checked against the file's size before memory is taken, and nothing in it is
//! followed twice, so that damage ends in an error.
//!
//! A crate of its own, so that this code, which reads what others wrote, is tested and fuzzed by itself.

#![warn(missing_docs)]

mod bitshuffle;
mod blosc;
mod blosclz;
mod btree1;
mod btree2;
mod checksum;
mod chunks;
mod cursor;
mod dataset;
mod datatype;
mod extensible_array;
mod file;
mod filters;
mod find;
mod fixed_array;
mod fractal_heap;
mod gather;
mod global_heap;
mod links;
mod lz4;
mod lzf;
mod object_header;
mod pages;
mod scaleoffset;
mod source;
mod superblock;
#[cfg(test)]
mod tests;

/// Makes the format known. Further calls do nothing.
pub fn register() {
    wellfed::source::hdf5::register(source::open);
}
