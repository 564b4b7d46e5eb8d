//! [`Budget`]: the bytes that a loader may hold, reserved by named holders before memory is taken.
//!
//! Each holder has a share of its own, so nobody waits for memory that only somebody waiting for him could give
//! back. Within a share: batches are opened only where there is room, lists take back the batch opened last
//! (`engine/schedule.rs`), and a worker that finds no room for a sample gives back all it holds, waits its turn, and
//! makes the sample alone ([`Room`]).
//!
//! A batch that does not fit into these shares is made *solo*: it is taken back with all batches after it, those before
//! it are delivered, and every thread gives back what it keeps. Only when nothing is held any more is it opened again,
//! as the only batch, with shares of nearly the whole budget ([`Budget::set_solo`], `engine/shares.rs`). Nobody holds
//! memory while waiting for that, so it always comes to pass. The usual shares return when all memory of the batch
//! has been given back.
//!
//! What is an error depends on sizes only, never on who was faster: a sample or batch is refused for good only if it
//! does not fit when it is made solo, where no memory of other samples counts, or if one allocation is larger than that.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{Error, ErrorKind, Result, lock};

/// Who holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Buffers of batches under way, and those kept for the next ones.
    Batches,
    /// Values of lists in batches under way.
    Lists,
    /// Records read ahead.
    Records,
    /// What workers need for the sample they make: its record, pixels and coefficients in between.
    Samples,
    /// Indexes of JPEGs' rows.
    RowIndexes,
    /// Samples of the verb `cache`.
    Cache,
    /// What sources decode for many samples at once ([`crate::groups`]).
    Groups,
}

impl Holder {
    const ALL: [Self; 7] = [
        Self::Batches,
        Self::Lists,
        Self::Records,
        Self::Samples,
        Self::RowIndexes,
        Self::Cache,
        Self::Groups,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Batches => "batches",
            Self::Lists => "lists",
            Self::Records => "records read ahead",
            Self::Samples => "samples being made",
            Self::RowIndexes => "row indexes",
            Self::Cache => "cached samples",
            Self::Groups => "groups of rows",
        }
    }
}

#[derive(Debug)]
struct Share {
    cap: AtomicU64,
    used: AtomicU64,
}

/// The bytes a loader may hold, and those it holds.
#[derive(Debug)]
pub(crate) struct Budget {
    shares: [Share; Holder::ALL.len()],
    /// One batch has nearly the whole budget.
    solo: AtomicBool,
    /// Nobody waits any more.
    closed: AtomicBool,
    waiting: Mutex<()>,
    given_back: Condvar,
}

impl Budget {
    /// A budget without bounds; [`Budget::set_cap`] gives each holder its share.
    pub(crate) fn new() -> Arc<Self> {
        let share = |_| Share { cap: AtomicU64::new(u64::MAX), used: AtomicU64::new(0) };
        Arc::new(Self {
            shares: Holder::ALL.map(share),
            solo: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waiting: Mutex::default(),
            given_back: Condvar::new(),
        })
    }

    fn share(&self, who: Holder) -> &Share {
        &self.shares[who as usize]
    }

    /// Sets what `who` may hold.
    pub(crate) fn set_cap(&self, who: Holder, bytes: u64) {
        self.share(who).cap.store(bytes, Relaxed);
    }

    /// What `who` may hold.
    pub(crate) fn cap(&self, who: Holder) -> u64 {
        self.share(who).cap.load(Relaxed)
    }

    /// Says whether one batch has nearly the whole budget. Then a sample may take all of its holder's share, and threads
    /// keep nothing from one sample to the next.
    pub(crate) fn set_solo(&self, solo: bool) {
        self.solo.store(solo, Relaxed);
    }

    fn is_solo(&self) -> bool {
        self.solo.load(Relaxed)
    }

    /// What is held for batches that are under way or will be: all but what is kept from epoch to epoch.
    pub(crate) fn under_way(&self) -> u64 {
        let holders = [Holder::Batches, Holder::Lists, Holder::Records, Holder::Samples];
        holders.into_iter().map(|who| self.used(who)).sum()
    }

    /// What `who` holds.
    pub(crate) fn used(&self, who: Holder) -> u64 {
        self.share(who).used.load(Relaxed)
    }

    /// What all hold.
    pub(crate) fn total(&self) -> u64 {
        self.shares.iter().map(|share| share.used.load(Relaxed)).sum()
    }

    /// Takes `bytes` if they are left.
    pub(crate) fn take(&self, bytes: u64, who: Holder) -> bool {
        let Share { cap, used } = self.share(who);
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= cap.load(Relaxed));
        used.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Takes `bytes` whether they are left or not: they are held already.
    pub(crate) fn force(&self, bytes: u64, who: Holder) {
        self.share(who).used.fetch_add(bytes, Relaxed);
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&self, bytes: u64, who: Holder) {
        if bytes > 0 {
            self.share(who).used.fetch_sub(bytes, Relaxed);
            self.given_back.notify_all();
        }
    }

    /// Takes `bytes` if they are left; whoever does gives them back ([`Budget::give`]).
    ///
    /// # Errors
    /// A refusal that says who holds what.
    pub(crate) fn reserve(&self, bytes: u64, who: Holder) -> Result<()> {
        if self.take(bytes, who) { Ok(()) } else { Err(self.refusal(bytes, who)) }
    }

    /// Waits until something may have been given back, but never long.
    pub(crate) fn wait(&self) {
        let guard = lock(&self.waiting);
        let waited = self.given_back.wait_timeout(guard, Duration::from_millis(5));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends all waiting: the loader is being dropped.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.given_back.notify_all();
    }

    /// Whether the loader is being dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    fn refusal(&self, bytes: u64, who: Holder) -> Error {
        let share = self.cap(who);
        let held =
            Holder::ALL.into_iter().map(|who| (self.used(who), who.name())).filter(|(used, _)| *used > 0);
        let held: Vec<String> = held.map(|(used, name)| format!("{used} by {name}")).collect();
        let held = held.join(", ");
        let held = if held.is_empty() { "nothing".to_owned() } else { held };
        Error::new(
            ErrorKind::Limit,
            format!("no room for {bytes} bytes of {} in the {share} they may take; held: {held}", who.name()),
        )
        .with_hint("raise it with with_options(memory_budget=...)")
    }
}

/// The error of a sample that takes at least `bytes`, of which one may take `most`.
pub(crate) fn too_large(bytes: u64, most: u64) -> Error {
    Error::new(
        ErrorKind::Limit,
        format!(
            "one sample takes at least {bytes} bytes of memory, above the {most} that the memory budget has for one"
        ),
    )
    .with_hint("raise it with with_options(memory_budget=...), or make the sample smaller")
}

/// What one thread holds for the sample it makes or reads.
///
/// Half of the share is for samples that are being made; what threads keep for the next one fits into the other half
/// ([`Room::keeps`]). So whoever makes a sample alone finds room for it, unless it never fits into the share. While a
/// batch is made solo, threads keep nothing, and a sample may have all of the share.
#[derive(Debug)]
pub(crate) struct Room {
    budget: Arc<Budget>,
    who: Holder,
    threads: u64,
    held: AtomicU64,
    /// All others will give back what they hold: waiting helps.
    alone: AtomicBool,
    /// Something was refused that may fit when others have finished and this thread holds nothing else.
    refused: AtomicBool,
    /// Bytes of a sample that does not fit into the share at all; 0 for none.
    excess: AtomicU64,
}

impl Room {
    /// The room of one of so many `threads`.
    pub(crate) fn new(budget: &Arc<Budget>, who: Holder, threads: usize) -> Arc<Self> {
        Arc::new(Self {
            budget: budget.clone(),
            who,
            threads: threads.max(1) as u64,
            held: AtomicU64::new(0),
            alone: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            excess: AtomicU64::new(0),
        })
    }

    /// Bytes that one sample may take.
    fn most(&self) -> u64 {
        let share = self.budget.cap(self.who);
        if self.budget.is_solo() { share } else { share / 2 }
    }

    /// Bytes that a thread may keep from one sample to the next.
    pub(crate) fn keeps(&self) -> u64 {
        if self.budget.is_solo() { 0 } else { self.most() / self.threads }
    }

    /// Reserves `more` bytes, before they are taken.
    ///
    /// # Errors
    /// `Limit` if the sample takes more than the share has for one ([`Room::take_excess`]), or more than there is now
    /// ([`Room::was_refused`]).
    pub(crate) fn take(&self, more: usize) -> Result<()> {
        let more = more as u64;
        let (sum, most) = (self.held.load(Relaxed).saturating_add(more), self.most());
        if sum > most {
            // Whoever is not alone may hold memory of earlier samples, which does not count against this one.
            let needed = if self.alone.load(Relaxed) { sum } else { more };
            let never = needed > most;
            let (excess, refused) = if never { (needed, false) } else { (0, true) };
            self.excess.fetch_max(excess, Relaxed);
            self.refused.fetch_or(refused, Relaxed);
            return Err(too_large(needed, most));
        }
        while !self.budget.take(more, self.who) {
            if !self.alone.load(Relaxed) || self.budget.is_closed() {
                self.refused.store(true, Relaxed);
                return Err(self.budget.refusal(more, self.who));
            }
            self.budget.wait();
        }
        self.held.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Says how many bytes are really held after a sample, or between two steps.
    pub(crate) fn settle(&self, bytes: usize) {
        // Only this thread changes what it holds; the share is everyone's, and left alone where nothing changed.
        let (now, before) = (bytes as u64, self.held.load(Relaxed));
        if now == before {
            return;
        }
        self.held.store(now, Relaxed);
        match now.checked_sub(before) {
            Some(more) => self.budget.force(more, self.who),
            None => self.budget.give(before - now, self.who),
        }
    }

    /// Whether a sample found no room since this was last asked.
    pub(crate) fn was_refused(&self) -> bool {
        self.refused.swap(false, Relaxed)
    }

    /// Bytes of a sample that does not fit into the share, if there was one since this was last asked: at least so many.
    pub(crate) fn take_excess(&self) -> Option<u64> {
        Some(self.excess.swap(0, Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// From now on waits for room. Only one thread at a time may, which holds nothing when it begins.
    pub(crate) fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reserved_beyond_a_share_and_a_refusal_says_who_holds_what() {
        let budget = Budget::new();
        budget.set_cap(Holder::Lists, 100);
        budget.reserve(70, Holder::Lists).unwrap();
        budget.reserve(1 << 40, Holder::Batches).unwrap();
        let refusal = budget.reserve(40, Holder::Lists).unwrap_err().to_string();
        for part in ["40 bytes of lists", "the 100 they", "70 by lists", "1099511627776 by batches"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        budget.give(10, Holder::Lists);
        budget.reserve(40, Holder::Lists).unwrap();
        assert_eq!((budget.used(Holder::Lists), budget.total()), (100, 100 + (1 << 40)));
        budget.give(100, Holder::Lists);
        budget.give(1 << 40, Holder::Batches);
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn a_sample_that_never_fits_is_told_from_one_that_has_to_wait() {
        let budget = Budget::new();
        budget.set_cap(Holder::Samples, 1000);
        let rooms = [0, 1].map(|_| Room::new(&budget, Holder::Samples, 2));
        assert_eq!(rooms[0].take(501).unwrap_err().kind(), ErrorKind::Limit);
        assert!(!rooms[0].was_refused());
        assert_eq!((rooms[0].take_excess(), rooms[0].take_excess()), (Some(501), None));
        rooms[0].take(500).unwrap();
        rooms[1].take(400).unwrap();
        budget.force(100, Holder::Samples);
        assert!(rooms[1].take(50).is_err() && rooms[1].was_refused() && !rooms[1].was_refused());
        rooms[0].settle(20);
        rooms[1].take(50).unwrap();
        assert_eq!(budget.used(Holder::Samples), 20 + 450 + 100);
        drop(rooms);
        assert_eq!(budget.used(Holder::Samples), 100);
    }

    #[test]
    fn what_is_held_of_earlier_samples_is_no_reason_to_refuse_one_for_good() {
        let budget = Budget::new();
        budget.set_cap(Holder::Samples, 1000);
        let room = Room::new(&budget, Holder::Samples, 1);
        room.settle(300);
        assert_eq!(room.take(400).unwrap_err().kind(), ErrorKind::Limit);
        assert_eq!((room.was_refused(), room.take_excess()), (true, None), "it may fit without the rest");
        room.settle(0);
        room.set_alone(true);
        room.take(400).unwrap();
        assert!(room.take(101).is_err());
        assert_eq!((room.was_refused(), room.take_excess()), (false, Some(501)));
        room.settle(0);
        budget.set_solo(true);
        assert_eq!(room.keeps(), 0);
        room.take(1000).unwrap();
        assert_eq!(room.take(1).unwrap_err().message().matches("1001 bytes").count(), 1);
    }

    #[test]
    fn whoever_is_alone_waits_until_others_gave_back_what_they_held() {
        let budget = Budget::new();
        budget.set_cap(Holder::Samples, 1000);
        let (big, other) = (Room::new(&budget, Holder::Samples, 2), Room::new(&budget, Holder::Samples, 2));
        budget.force(400, Holder::Samples);
        other.take(300).unwrap();
        big.set_alone(true);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| big.take(500).is_ok());
            other.settle(100);
            assert!(waiting.join().unwrap());
        });
        budget.close();
        other.set_alone(true);
        assert!(other.take(300).is_err(), "a loader that ends keeps nobody");
    }
}
