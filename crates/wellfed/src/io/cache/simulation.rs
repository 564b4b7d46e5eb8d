//! How much is downloaded: what [`Policy`] and [`Future`] make of an order, beside the least that any choice needs and beside
//! a cache that evicts what was used least lately. Everything is a function of numbers drawn by a hash.

use std::collections::{HashMap, VecDeque};

use super::{Future, Policy, SOMETIME, User, moment, visit};

/// The samples of each batch of each epoch, of all ranks together.
type Epochs = Vec<Vec<Vec<u64>>>;

/// Bytes of a sample.
const SIZE: u64 = 1000;

/// Batches that are read ahead of the one in use.
const AHEAD: usize = 3;

fn drawn(a: u64, b: u64) -> u64 {
    rapidhash::v3::rapidhash_v3(&[a.to_le_bytes(), b.to_le_bytes()].concat())
}

/// Epochs of which each takes `taken` of the samples, shuffled, in batches of 10.
fn epochs(samples: u64, taken: usize, count: u64) -> Epochs {
    let of = |epoch| {
        let mut order: Vec<u64> = (0..samples).collect();
        order.sort_by_key(|sample| drawn(epoch, *sample));
        order.truncate(taken);
        order.chunks(10).map(<[u64]>::to_vec).collect()
    };
    (0..count).map(of).collect()
}

/// Downloads in each epoch by what this crate does: the epoch under way and the next one are known, and an epoch begins to be
/// read while the last batches of the one before are in use.
fn ours(epochs: &Epochs, limit: u64) -> Vec<usize> {
    let (mut policy, mut future) = (Policy::new(limit), Future::default());
    let mut downloads = vec![0; epochs.len()];
    let visits = |epoch: usize| {
        let batches = epochs.get(epoch).map_or(&[][..], Vec::as_slice).iter().zip(0..);
        batches
            .flat_map(|(batch, number)| batch.iter().map(move |sample| visit(*sample, number).unwrap()))
            .collect()
    };
    // What was read is written later.
    let mut late: VecDeque<(u64, u64)> = VecDeque::new();
    let write = |policy: &mut Policy, future: &Future, (sample, at): (u64, u64)| {
        let (user, next) = (User { owner: 1, sample }, future.next(sample, at + 1));
        if policy.contains(sample) {
            policy.renew(sample, user, next);
        } else {
            policy.put(sample, SIZE, user, next);
        }
        assert!(policy.bytes() <= limit);
    };
    for (epoch, batches) in epochs.iter().enumerate() {
        for known in [epoch, epoch + 1] {
            future.know(known as u64, (epoch as u64).saturating_sub(1), visits(known));
        }
        policy.renew_all(|user| future.next(user.sample, moment(epoch as u64, 0)));
        for (number, batch) in batches.iter().enumerate() {
            let at = moment(epoch as u64, number as u64);
            for sample in batch {
                let there = policy.contains(*sample) || late.iter().any(|(other, _)| other == sample);
                downloads[epoch] += usize::from(!there);
                late.push_back((*sample, at));
            }
            while late.len() > 10 * AHEAD {
                let first = late.pop_front().unwrap();
                write(&mut policy, &future, first);
            }
        }
    }
    downloads
}

/// The fewest downloads of the whole trace: what is needed last of all goes, by looking through all that comes.
fn least(epochs: &Epochs, limit: u64) -> Vec<usize> {
    let trace: Vec<(usize, u64)> = epochs
        .iter()
        .enumerate()
        .flat_map(|(epoch, batches)| batches.iter().flatten().map(move |sample| (epoch, *sample)))
        .collect();
    let mut uses: HashMap<u64, VecDeque<usize>> = HashMap::new();
    for (at, (_, sample)) in trace.iter().enumerate() {
        uses.entry(*sample).or_default().push_back(at);
    }
    let (mut kept, mut downloads) = (HashMap::<u64, usize>::new(), vec![0; epochs.len()]);
    for (epoch, sample) in &trace {
        let coming = uses.get_mut(sample).unwrap();
        coming.pop_front();
        let next = coming.front().copied().unwrap_or(usize::MAX);
        downloads[*epoch] += usize::from(kept.insert(*sample, next).is_none());
        if kept.len() as u64 * SIZE > limit {
            let last = *kept.iter().max_by_key(|(sample, next)| (**next, **sample)).unwrap().0;
            kept.remove(&last);
        }
    }
    downloads
}

/// Downloads of a cache that evicts what was used least lately.
fn lru(epochs: &Epochs, limit: u64) -> Vec<usize> {
    let mut kept = VecDeque::new();
    let mut pass = |batches: &Vec<Vec<u64>>| {
        let mut downloads = 0;
        for sample in batches.iter().flatten() {
            match kept.iter().position(|other| other == sample) {
                Some(at) => drop(kept.remove(at)),
                None => downloads += 1,
            }
            kept.push_back(*sample);
            if kept.len() as u64 * SIZE > limit {
                kept.pop_front();
            }
        }
        downloads
    };
    epochs.iter().map(&mut pass).collect()
}

#[test]
fn the_second_epoch_downloads_what_it_must_and_lru_far_more() {
    // All of the data in each epoch, and a cache of half of it; a quarter in each epoch, as of one machine of four, and a cache for
    // what comes in the next one, too.
    for (taken, room, far) in [(1000, 500, 1.5), (250, 60, 1.15)] {
        let (epochs, limit) = (epochs(1000, taken, 5), room * SIZE);
        let (ours, least, lru) = (ours(&epochs, limit), least(&epochs, limit), lru(&epochs, limit));
        assert_eq!((ours[0], lru[0]), (taken, taken), "the first one needs all of it");
        for epoch in 1..4 {
            let part = ours[epoch] as f64 / least[epoch] as f64;
            assert!(part <= 1.05, "epoch {epoch} of {taken}: {part} times the least of {least:?}: {ours:?}");
            let part = lru[epoch] as f64 / least[epoch] as f64;
            assert!(
                part >= far,
                "epoch {epoch} of {taken}: LRU needs {part} times the least of {least:?}: {lru:?}"
            );
        }
    }
}

#[test]
fn where_nothing_is_known_of_the_order_what_is_there_stays() {
    // As in an order that the caller gives: in each epoch everything comes once.
    let epochs = epochs(1000, 1000, 4);
    let mut policy = Policy::new(500 * SIZE);
    for (number, batches) in epochs.iter().enumerate() {
        let mut downloads = 0;
        for sample in batches.iter().flatten() {
            if !policy.contains(*sample) {
                downloads += 1;
                policy.put(*sample, SIZE, User { owner: 1, sample: *sample }, SOMETIME);
            }
        }
        assert_eq!(downloads, if number == 0 { 1000 } else { 500 });
    }
}
