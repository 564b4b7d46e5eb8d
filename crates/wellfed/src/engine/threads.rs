//! The threads of a loader, and how they end.
//!
//! A thread that waits for storage cannot be woken: a dead network mount holds it until the mount answers. So whoever
//! ends the threads waits for those that compute, and for those in storage only for a while. What is left behind owns
//! nothing but references of its own, and ends by itself when storage answers.

use std::{
    cell::RefCell,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use crate::{Error, Result, lock};

/// How long the end of threads in storage is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked whether those that still run are in storage.
const LOOK: Duration = Duration::from_millis(20);

thread_local! {
    /// Of a thread of a loader: whether it is in storage.
    static IN_STORAGE: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs `call`, which may wait for storage without end.
pub(crate) fn in_storage<T>(call: impl FnOnce() -> T) -> T {
    let note = |inside| {
        IN_STORAGE.with_borrow(|flag| {
            if let Some(flag) = flag {
                flag.store(inside, Relaxed);
            }
        });
    };
    note(true);
    let result = call();
    note(false);
    result
}

#[derive(Debug, Default)]
pub(crate) struct Threads {
    threads: Vec<Thread>,
    ended: Arc<Ended>,
}

#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    in_storage: Arc<AtomicBool>,
}

/// Rings when a thread has ended.
#[derive(Debug, Default)]
struct Ended {
    count: Mutex<usize>,
    changed: Condvar,
}

/// Counts its thread as ended when it is dropped, also by a panic.
struct Counted(Arc<Ended>);

impl Drop for Counted {
    fn drop(&mut self) {
        *lock(&self.0.count) += 1;
        self.0.changed.notify_all();
    }
}

impl Threads {
    /// Threads that were started.
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether all of them have ended.
    pub(crate) fn idle(&self) -> bool {
        *lock(&self.ended.count) == self.threads.len()
    }

    /// Starts a thread.
    ///
    /// # Errors
    /// That of the operating system.
    pub(crate) fn start(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let (counted, in_storage) = (Counted(self.ended.clone()), Arc::new(AtomicBool::new(false)));
        let flag = in_storage.clone();
        let body = move || {
            let _counted = counted;
            IN_STORAGE.set(Some(flag));
            run();
        };
        let number = self.threads.len();
        let handle = Builder::new()
            .name(name)
            .spawn(body)
            .map_err(|e| Error::io("start", format!("thread {number}"), e))?;
        self.threads.push(Thread { handle, in_storage });
        Ok(())
    }

    /// Waits for all threads, and for those in storage no longer than `patience`. True if all have ended.
    pub(crate) fn end(&mut self, patience: Duration) -> bool {
        let since = Instant::now();
        let mut count = lock(&self.ended.count);
        let all = loop {
            if *count == self.threads.len() {
                break true;
            }
            let running = self.threads.iter().filter(|thread| !thread.handle.is_finished());
            let mut hung = running.map(|thread| thread.in_storage.load(Relaxed));
            if since.elapsed() >= patience && hung.all(|hung| hung) {
                break false;
            }
            let waited = self.ended.changed.wait_timeout(count, LOOK);
            count = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        };
        drop(count);
        for thread in self.threads.drain(..) {
            if all || thread.handle.is_finished() {
                // A worker catches panics of its samples; one that died anyway has nothing left to clean up.
                drop(thread.handle.join());
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_that_compute_are_waited_for_and_those_in_storage_for_a_while() {
        let mut threads = Threads::default();
        let (go, wait) = mpsc::channel::<()>();
        let (begun, inside) = mpsc::channel();
        threads
            .start("hung".to_owned(), move || {
                in_storage(|| {
                    begun.send(()).unwrap();
                    wait.recv().unwrap_or_default();
                });
            })
            .unwrap();
        inside.recv().unwrap();
        assert!(!threads.idle() && !threads.end(Duration::ZERO));
        drop(go);
        let mut threads = Threads::default();
        let (go, wait) = mpsc::channel::<()>();
        threads.start("busy".to_owned(), move || wait.recv().unwrap_or_default()).unwrap();
        let waker = std::thread::spawn(move || go.send(()));
        assert!(threads.end(Duration::ZERO), "it is waited for whatever the patience");
        waker.join().unwrap().unwrap();
    }
}
