//! The thread that walks ahead along the order and lets the I/O layer get the bytes of samples.
//!
//! Where a source lies in a store that answers later, every sample of the loader comes through here: workers take what has
//! arrived, and read by themselves only what lies near. So no worker waits for such a store, and one that hangs holds up
//! the samples that lie in it, and no others.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use super::{
    exec::Fetched,
    schedule::Ticket,
    shared::{Shared, guard},
    threads::in_storage,
};
use crate::{
    io::{
        Located,
        layer::{CONCURRENCY, Layer, Mailbox},
    },
    lock,
    meter::{Probe, Stage},
    order::Pick,
};

/// Samples that are under way or have arrived, at most.
pub(super) const AHEAD: usize = 2 * CONCURRENCY;

/// Samples are asked for when so many can be at once, so that neighbours are seen together.
const GROUP: usize = 32;

/// One sample under way.
#[derive(Debug)]
struct Flight {
    ticket: Ticket,
    picks: Vec<Pick>,
    fetched: Fetched,
}

impl Shared {
    /// The loop of the I/O thread, until shutdown.
    pub(crate) fn run_io(&self, mailbox: &Arc<Mailbox>) {
        let lane = self.meter.lane("reader io");
        let mut layer = Layer::new(self.executor.stores(), CONCURRENCY, mailbox.clone());
        let mut generation = 0;
        loop {
            let (arrived, room) = {
                let schedule = self.lock();
                if schedule.shutdown {
                    return;
                }
                if schedule.generation() != generation {
                    generation = schedule.generation();
                    // What was under way for abandoned batches is cancelled.
                    layer.retain(|flight: &Flight| flight.ticket.is_of(generation));
                }
                (schedule.read_bytes, schedule.read_budget)
            };
            let flying = layer.bytes().0;
            let room = room.saturating_sub(arrived.saturating_add(flying));
            layer.keep(room);
            let settled = layer.poll(Instant::now(), room);
            let some = !settled.is_empty();
            for (mut flight, pieces) in settled {
                let mut probe = Probe::start(&lane, 1);
                let result = guard("read", || {
                    let assemble = |pieces: Vec<_>| {
                        self.executor.assemble(&flight.picks, &pieces, &mut flight.fetched)
                    };
                    pieces.and_then(assemble).map_err(|e| self.executor.located(e, &flight.picks))
                });
                probe.lap(Stage::Read, flight.fetched.len());
                let late = self.lock().put_read(flight.ticket, result.map(|()| flight.fetched));
                drop(late);
                self.wake_worker();
            }
            let group = self.depart(&layer, &lane);
            if !group.is_empty() {
                layer.submit(group, Instant::now());
                continue;
            }
            let (flying, kept) = layer.bytes();
            self.io_bytes.store(flying + kept, Relaxed);
            if !some {
                mailbox.wait(layer.next());
            }
        }
    }
}
