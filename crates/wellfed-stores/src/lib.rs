//! Stores in the cloud and on the web, over `object_store`: `s3://`, `gs://`, `az://` and `abfss://`, `http://` and
//! `https://`, `hf://`, `memory://`. [`register`] makes their schemes known to [`wellfed::store::registry`]; nothing is started
//! and nobody is asked before the first of them is used.
//!
//! A crate of its own, so that the engine is built and tested without an async runtime and TLS. Requests are tried again
//! by the engine, never by `object_store`, so that there is one bound for all of it.

#![warn(missing_docs)]

mod azure;
mod bucket;
mod client;
mod cloud;
mod gcs;
mod hub;
mod options;
mod process;
mod profile;
mod s3;
mod seen;
mod transfer;
mod trouble;
mod web;

use std::sync::Once;

use wellfed::store::registry;

/// Makes the schemes known. Further calls do nothing.
pub fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        for scheme in ["s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory"] {
            // Fails for what is no scheme only.
            let _ = registry::register(scheme, move |rest| cloud::open(scheme, rest));
        }
        let _ = registry::register("hf", hub::open);
        for scheme in ["http", "https"] {
            let _ = registry::register(scheme, move |rest| web::open(scheme, rest));
        }
    });
}
