//! What belongs to one process: threads and connections. A forked child inherits neither, and makes its own.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};
use wellfed::{Error, Result};

/// A value for each process that asks for it: one, and one more for each time that it was forked.
///
/// There is no lock that a fork could leave locked: values are made outside, and put into the first free place. What
/// belongs to the parent stays where it is, since dropping it would reach for threads that are not there.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(OnceLock<Box<Entry<T>>>);

#[derive(Debug)]
struct Entry<T> {
    process: u32,
    value: T,
    next: PerProcess<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// This process's value, made now if there is none.
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        let process = std::process::id();
        let mut place = self;
        let mut made = None;
        let mut make = Some(make);
        loop {
            while let Some(entry) = place.0.get() {
                if entry.process == process {
                    return Ok(&entry.value);
                }
                place = &entry.next;
            }
            if let Some(make) = make.take() {
                made = Some(Box::new(Entry { process, value: make()?, next: Self::new() }));
            }
            // Another thread of this process may have been first: its value is found then, and this one dropped.
            if let Some(Err(back)) = made.take().map(|entry| place.0.set(entry)) {
                made = Some(back);
            }
        }
    }
}

/// The threads that requests of this process run on. Few: they wait, encrypt and copy.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    RUNTIME.get(|| {
        // The provider of TLS is one for the process; that another one was chosen before is no error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Builder::new_multi_thread()
            .worker_threads(cores.clamp(1, 4))
            .thread_name("wellfed-net")
            .enable_all()
            .build()
            .map_err(|e| Error::io("start", "threads for stores", e))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_a_process() {
        static PLACE: PerProcess<u32> = PerProcess::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope
                    .spawn(|| assert_eq!(PLACE.get(|| Ok(std::process::id())).unwrap(), &std::process::id()));
            }
        });
        let parent = PLACE.get(|| unreachable!()).unwrap();
        // SAFETY: the child calls nothing that may have been locked by a thread of the parent: it makes a value,
        // which allocates (the allocator is made for that), and ends without running destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = PLACE.get(|| Ok(std::process::id())).unwrap();
            let good = own != parent && *own == std::process::id() && PLACE.get(|| Ok(7)).unwrap() == own;
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = 0;
        // SAFETY: `child` is a process that this one has started, and `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(PLACE.get(|| Ok(8)).unwrap(), parent);
    }
}
