//! [`Policy`]: which bytes stay, and which go when others come: those that are needed last (Belady's rule).
//!
//! A loader's order is a pure function, so it is known when each sample comes next, in this epoch and in later ones. What
//! comes next last is what a full cache can best do without, and if that is the newcomer itself, it is not taken in at all.
//! Where all have one size, no other choice downloads less. Plain data: nothing here touches a disk.
//!
//! Invariant: what is put leaves all entries together with at most `limit` bytes.

use std::collections::{BTreeSet, HashMap};

/// When something is needed next, as a number that grows with time. What nobody needs has [`NEVER`].
pub type Moment = u64;

/// Needed by nobody who is known.
pub const NEVER: Moment = Moment::MAX;

/// Needed some day, later than all that is known of the order.
pub const SOMETIME: Moment = NEVER - 1;

/// In use by somebody whose order is not known here: it is never given up.
pub const IN_USE: Moment = 0;

/// Who needs an entry: a sample of a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Tells data sets apart.
    pub owner: u64,
    /// Number of the sample among all of the data set.
    pub sample: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    next: Moment,
    user: User,
}

/// Entries by key, and when each is needed.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    limit: u64,
    bytes: u64,
    entries: HashMap<u64, Entry>,
    by_next: BTreeSet<(Moment, u64)>,
}

impl Policy {
    /// A policy for a cache of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether this is kept.
    pub fn contains(&self, key: u64) -> bool {
        self.entries.contains_key(&key)
    }

    /// Who needs an entry, if it is kept.
    pub fn user(&self, key: u64) -> Option<User> {
        self.entries.get(&key).map(|entry| entry.user)
    }

    /// Takes in `bytes` that `user` needs at `next`, if that is worth it: then gives the keys that go for them. `None`: the
    /// newcomer is what the cache can best do without, and nothing goes.
    pub fn put(&mut self, key: u64, bytes: u64, user: User, next: Moment) -> Option<Vec<u64>> {
        let own = self.entries.get(&key).map_or(0, |entry| entry.bytes);
        let mut missing = (self.bytes - own).saturating_add(bytes).saturating_sub(self.limit);
        let mut gone = Vec::new();
        for &(when, other) in self.by_next.iter().rev() {
            if missing == 0 || when <= next || when == IN_USE {
                break;
            }
            if other != key {
                gone.push(other);
                missing = missing.saturating_sub(self.entries.get(&other).map_or(0, |entry| entry.bytes));
            }
        }
        if missing > 0 {
            return None;
        }
        for other in &gone {
            self.remove(*other);
        }
        self.insert(key, bytes, user, next);
        Some(gone)
    }

    /// Takes in what is there, whatever goes for it later.
    pub fn insert(&mut self, key: u64, bytes: u64, user: User, next: Moment) {
        self.remove(key);
        self.entries.insert(key, Entry { bytes, next, user });
        self.by_next.insert((next, key));
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Keys, bytes and users of all entries.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u64, User)> {
        self.entries.iter().map(|(key, entry)| (*key, entry.bytes, entry.user))
    }

    /// What is known of the order has changed: `next` says anew when each entry is needed.
    pub fn renew_all(&mut self, next: impl Fn(User) -> Moment) {
        for entry in self.entries.values_mut() {
            entry.next = next(entry.user);
        }
        self.by_next = self.entries.iter().map(|(key, entry)| (entry.next, *key)).collect();
    }

    /// Asks anew of the entries that were needed before `now`: somebody else has used them, or nobody will.
    pub fn renew_past(&mut self, now: Moment, next: impl Fn(User) -> Moment) {
        let start = (IN_USE + 1, 0);
        let past: Vec<u64> = self.by_next.range(start..(now, 0).max(start)).map(|(_, key)| *key).collect();
        for key in past {
            if let Some(user) = self.user(key) {
                self.renew(key, user, next(user));
            }
        }
    }

    /// An entry was used, or what is known of the order has changed: `user` needs it next, at `next`.
    pub fn renew(&mut self, key: u64, user: User, next: Moment) {
        if let Some(entry) = self.entries.get_mut(&key) {
            self.by_next.remove(&(entry.next, key));
            self.by_next.insert((next, key));
            (entry.next, entry.user) = (next, user);
        }
    }

    /// Forgets an entry. False, if there is none.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(entry) = self.entries.remove(&key) else { return false };
        self.by_next.remove(&(entry.next, key));
        self.bytes -= entry.bytes;
        true
    }

    /// May have so many bytes from now on: what is too much goes with the next one that is put.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const USER: User = User { owner: 1, sample: 0 };

    /// Bytes that are downloaded in each pass over a trace of keys, with Belady's rule.
    fn belady(epochs: &[Vec<u64>], sizes: &[u64], limit: u64) -> Vec<u64> {
        let mut policy = Policy::new(limit);
        let length = sizes.len() as u64;
        // A loader knows the order of the epoch under way and of the next one, and no more.
        let place = |epoch: usize, key: u64| {
            let order: Option<&Vec<u64>> = epochs.get(epoch);
            order.and_then(|order| order.iter().position(|other| *other == key))
        };
        let mut places: Vec<Vec<Option<u64>>> = Vec::new();
        for epoch in 0..=epochs.len() {
            let of = |key| place(epoch, key).map(|at| epoch as u64 * length + at as u64);
            places.push((0..length).map(of).collect());
        }
        let mut downloaded = Vec::new();
        for (epoch, order) in epochs.iter().enumerate() {
            let mut bytes = 0;
            for &key in order {
                // After the last epoch that is played comes one more, whose order matters to nobody.
                let next = places[epoch + 1][key as usize].unwrap_or(NEVER);
                if policy.contains(key) {
                    policy.renew(key, USER, next);
                } else {
                    bytes += sizes[key as usize];
                    policy.put(key, sizes[key as usize], USER, next);
                }
                assert!(policy.bytes() <= limit);
            }
            downloaded.push(bytes);
        }
        downloaded
    }

    /// The same of a cache that evicts what was used least lately.
    fn lru(epochs: &[Vec<u64>], sizes: &[u64], limit: u64) -> Vec<u64> {
        let (mut kept, mut bytes) = (VecDeque::new(), 0);
        let mut pass = |order: &Vec<u64>| {
            let mut downloaded = 0;
            for key in order {
                if let Some(at) = kept.iter().position(|other| other == key) {
                    kept.remove(at);
                } else {
                    downloaded += sizes[*key as usize];
                    bytes += sizes[*key as usize];
                }
                kept.push_back(*key);
                while bytes > limit {
                    bytes -= sizes[kept.pop_front().unwrap() as usize];
                }
            }
            downloaded
        };
        epochs.iter().map(&mut pass).collect()
    }

    fn drawn(a: u64, b: u64) -> u64 {
        rapidhash::v3::rapidhash_v3(&[a.to_le_bytes(), b.to_le_bytes()].concat())
    }

    /// Epochs in which each sample comes once, in an order of its own.
    fn shuffled(samples: u64, epochs: u64) -> Vec<Vec<u64>> {
        let of = |epoch| {
            let mut order: Vec<u64> = (0..samples).collect();
            order.sort_by_key(|sample| drawn(epoch, *sample));
            order
        };
        (0..epochs).map(of).collect()
    }

    #[test]
    fn half_of_the_data_in_the_cache_is_half_of_the_downloads_and_lru_is_far_from_it() {
        let samples = 2000;
        let epochs = shuffled(samples, 4);
        // From a tenth to ten times the median, as photographs have it.
        let spread =
            |key| (100_000.0 * 10_f64.powf(drawn(77, key) as f64 / u64::MAX as f64 * 2.0 - 1.0)) as u64;
        for sizes in [vec![100_000; samples as usize], (0..samples).map(spread).collect::<Vec<u64>>()] {
            let total: u64 = sizes.iter().sum();
            let limit = total / 2;
            let (best, usual) = (belady(&epochs, &sizes, limit), lru(&epochs, &sizes, limit));
            assert_eq!((best[0], usual[0]), (total, total), "the first epoch needs all of it");
            for epoch in 1..epochs.len() {
                // What does not lie in the cache when an epoch begins must be downloaded in it, whoever decides.
                let least = total - limit;
                let times = |bytes: u64| bytes as f64 / least as f64;
                assert!(times(best[epoch]) <= 1.05, "epoch {epoch}: {} times the least", times(best[epoch]));
                assert!(times(usual[epoch]) >= 1.5, "epoch {epoch}: LRU needs {}", times(usual[epoch]));
            }
        }
    }

    #[test]
    fn in_a_fixed_order_what_is_kept_stays_and_lru_keeps_nothing() {
        let epochs = vec![(0..100).collect::<Vec<u64>>(); 5];
        let sizes = vec![10; 100];
        assert_eq!(belady(&epochs, &sizes, 500)[1..4], [500, 500, 500]);
        assert_eq!(lru(&epochs, &sizes, 500)[1..4], [1000, 1000, 1000]);
    }

    #[test]
    fn what_is_needed_last_goes_and_may_be_the_newcomer() {
        let mut policy = Policy::new(100);
        assert_eq!(policy.put(1, 40, USER, 10), Some(vec![]));
        assert_eq!(policy.put(2, 40, USER, 30), Some(vec![]));
        assert_eq!(policy.put(3, 40, USER, 40), None, "it is needed last");
        assert_eq!(policy.put(3, 40, USER, 20), Some(vec![2]));
        assert_eq!((policy.bytes(), policy.len()), (80, 2));
        // Room for it would cost what is needed sooner.
        assert_eq!(policy.put(4, 90, USER, 15), None);
        assert!(policy.contains(1) && policy.contains(3));
        policy.renew(1, USER, 50);
        assert_eq!(policy.put(4, 60, USER, 15), Some(vec![1]));
        assert_eq!(policy.put(4, 10, USER, 15), Some(vec![]), "it may be put again");
        assert_eq!(policy.bytes(), 50);
        assert_eq!(policy.put(5, 101, USER, 0), None, "never more than there is room for");
        assert_eq!(policy.put(6, 50, USER, NEVER), Some(vec![]), "an empty place costs nothing");
        assert_eq!(policy.put(7, 50, USER, NEVER), None);
        policy.set_limit(20);
        assert_eq!(policy.put(4, 10, USER, 15), Some(vec![6, 3]), "what is too much goes with the next one");
        assert!(policy.remove(4) && !policy.remove(4) && policy.is_empty());
        assert_eq!(policy.bytes(), 0);
    }

    #[test]
    fn what_others_use_stays_and_what_is_past_is_asked_about_anew() {
        let of = |owner| User { owner, sample: 0 };
        let mut policy = Policy::new(100);
        policy.insert(1, 50, of(2), IN_USE);
        policy.insert(2, 30, of(1), 10);
        policy.insert(3, 20, of(1), 90);
        assert_eq!(policy.put(4, 60, of(1), 5), None, "what others use is in the way");
        assert!(policy.contains(2) && policy.contains(3), "and nothing goes in vain");
        policy.renew_past(50, |user| if user.owner == 1 { 95 } else { panic!("not its own") });
        assert_eq!(
            policy.put(4, 20, of(1), 40),
            Some(vec![2]),
            "it was needed before, and is now needed last"
        );
        assert_eq!((policy.user(1), policy.user(2)), (Some(of(2)), None));
        policy.renew_all(|user| if user.owner == 2 { NEVER } else { SOMETIME });
        assert_eq!(policy.put(5, 40, of(1), SOMETIME), Some(vec![1]), "whoever used it has gone");
        assert_eq!(policy.put(6, 80, of(1), SOMETIME), None, "nothing goes for what is as good");
    }

    /// The fewest downloads of a trace that any choice of what to keep can do with, by trying all of them.
    fn fewest(trace: &[u64], room: usize) -> usize {
        let mut states: HashMap<Vec<u64>, usize> = HashMap::from([(Vec::new(), 0)]);
        for key in trace {
            let mut next: HashMap<Vec<u64>, usize> = HashMap::new();
            for (kept, downloads) in states {
                let there = kept.contains(key);
                let mut all = kept.clone();
                if !there {
                    all.push(*key);
                    all.sort_unstable();
                }
                let downloads = downloads + usize::from(!there);
                for bits in 0..1_u32 << all.len() {
                    let chosen: Vec<u64> =
                        all.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, k)| *k).collect();
                    if chosen.len() <= room {
                        let best = next.entry(chosen).or_insert(usize::MAX);
                        *best = downloads.min(*best);
                    }
                }
            }
            states = next;
        }
        states.values().copied().min().unwrap_or(0)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
        #[test]
        fn where_all_have_one_size_no_other_choice_downloads_less(
            trace in prop::collection::vec(0..6_u64, 0..24), room in 0..4_usize
        ) {
            let mut policy = Policy::new(room as u64 * 10);
            let mut downloads = 0;
            for (at, key) in trace.iter().enumerate() {
                let next = trace[at + 1..].iter().position(|other| other == key);
                let next = next.map_or(NEVER, |after| (at + 1 + after) as u64);
                if policy.contains(*key) {
                    policy.renew(*key, USER, next);
                } else {
                    downloads += 1;
                    policy.put(*key, 10, USER, next);
                }
            }
            prop_assert_eq!(downloads, fewest(&trace, room));
        }
    }
}
