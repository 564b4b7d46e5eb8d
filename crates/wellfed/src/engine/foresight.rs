//! What the cache of remote bytes is told of the order: which samples come in an epoch, on all ranks of this machine.
//!
//! Ranks share a folder, so what counts is what any of them needs next. They go through an epoch together: a batch's number is
//! the same time for all.

use std::{collections::HashSet, sync::Arc};

use super::{exec::Executor, governor};
use crate::{
    Result,
    io::cache::{Keeper, Walk, visit},
    order::{Order, Picks},
    plan::{Options, RemoteCache},
    source::Source,
};

/// The cache has this part of the memory budget: a quarter of it for each epoch that is known (two of them, and a third where
/// one follows the other), and one for what waits to be written.
const PART: u64 = 8;

/// Opens the cache of a loader, where it has remote samples and options or environment name one. `planned`: the plan
/// gives the order, and not the caller. Gives what is left of the budget, too.
pub(crate) fn open(
    options: &Options,
    executor: &Executor,
    order: &Arc<Order>,
    planned: bool,
    budget: u64,
) -> Result<(Option<Arc<Keeper>>, u64)> {
    if !executor.is_remote() && !executor.has_far_groups() {
        return Ok((None, budget));
    }
    let Some(RemoteCache { path, max_bytes }) = options.remote_cache()? else { return Ok((None, budget)) };
    let mut text = String::new();
    let mut names = Vec::new();
    let mut first = Vec::new();
    let mut grouped = Vec::new();
    let mut samples = 0_u64;
    for leaf in executor.leaves() {
        let source = leaf.shared_source();
        let name = without_seals(&source.name());
        text.push_str(&format!("{name}\n{}\n", source.len()));
        let groups = leaf.has_far_groups();
        let remote = groups || source.store().is_some_and(|store| store.remote().is_some());
        first.push(remote.then_some(samples));
        grouped.push(groups.then(|| source.clone()));
        samples = samples.saturating_add(source.len());
        if remote {
            names.push(name);
        }
    }
    let owner = rapidhash::v3::rapidhash_v3(text.as_bytes());
    let part = budget / PART;
    let walk = planned.then(|| walk(order, first, grouped, part / 4)).flatten();
    let keeper = Keeper::open(&path, max_bytes, (owner, &names.join(", ")), walk, part / 4)?;
    Ok((Some(Arc::new(keeper)), budget - part))
}

/// A name without the numbers of secrets, which differ from process to process.
fn without_seals(name: &str) -> String {
    let mut parts = name.split("sealed=");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    text
}

/// Says which samples come in an epoch. `first`: the number of the first sample of each leaf that is remote. `grouped`: the sources
/// that are read in groups; a group stays in memory while it is in use, so that it comes once an epoch, in the place of a sample of
/// its number. `None`, where the order has no end, or is only found by walking through lengths.
fn walk(
    order: &Arc<Order>,
    first: Vec<Option<u64>>,
    grouped: Vec<Option<Arc<dyn Source>>>,
    most: u64,
) -> Option<Box<Walk>> {
    if order.is_cut() || order.len().is_none() {
        return None;
    }
    let orders: Vec<Arc<Order>> = match order.rank() {
        None => vec![order.clone()],
        Some((rank, ranks)) => {
            let here = governor::ranks_here(rank, ranks);
            let of = |other| if other == rank { order.clone() } else { Arc::new(order.of_rank(other)) };
            here.map(of).collect()
        }
    };
    Some(Box::new(move |epoch| {
        let mut visits = Vec::new();
        let mut picks = Picks::default();
        for order in &orders {
            let mut seen = HashSet::new();
            for number in 0..order.len_of(epoch)? {
                let span = order.batch(epoch, 0, number);
                order.picks_in(&span, 0..span.len, &mut picks);
                for pick in picks.all() {
                    let Some(first) = first[pick.leaf] else { continue };
                    let which = match &grouped[pick.leaf] {
                        None => pick.index,
                        Some(source) => match source.group_of(pick.index) {
                            Some(group) if seen.insert((pick.leaf, group)) => group,
                            _ => continue,
                        },
                    };
                    visits.push(visit(first.saturating_add(which), number)?);
                }
                if 8 * visits.len() as u64 > most {
                    return None;
                }
            }
        }
        Some(visits)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        io::cache::{Future, SOMETIME, moment},
        plan::Node,
        source::SourceSpec,
    };

    fn order(verbs: impl Fn(Node) -> Node, samples: u64) -> Arc<Order> {
        let leaf = Node::source(SourceSpec::Custom { name: String::new() });
        Arc::new(Order::new(&verbs(leaf), &[samples]).unwrap())
    }

    fn walk_of(order: &Arc<Order>, most: u64) -> Option<Box<Walk>> {
        walk(order, vec![Some(100)], vec![None], most)
    }

    #[test]
    fn each_sample_is_known_by_the_batch_in_which_it_comes() {
        let order = order(|leaf| leaf.shuffle(3).batch(4, false), 50);
        let walk = walk_of(&order, 1 << 20).unwrap();
        let mut future = Future::default();
        for epoch in [5, 6] {
            future.know(epoch, 5, walk(epoch).unwrap());
        }
        let batch_of = |epoch, sample| {
            let holds = |number: &u64| {
                let span = order.batch(epoch, 0, *number);
                let mut picks = Picks::default();
                order.picks_in(&span, 0..span.len, &mut picks);
                picks.all().iter().any(|pick| pick.index == sample)
            };
            (0..13).find(holds).unwrap()
        };
        for sample in 0..50 {
            let now = moment(5, batch_of(5, sample));
            assert_eq!(future.next(100 + sample, moment(5, 0)), now);
            assert_eq!(future.next(100 + sample, now + 1), moment(6, batch_of(6, sample)));
            assert_eq!(future.next(sample, 0), SOMETIME, "of another source");
        }
        assert!(walk_of(&order, 8 * 49).unwrap()(0).is_none(), "what is too large is not known");
    }

    #[test]
    fn ranks_of_a_machine_know_of_each_other() {
        let order = order(|leaf| leaf.shuffle(1).shard(1, 4).batch(2, false), 40);
        // Nobody says how many ranks there are here: all of them.
        let all = walk_of(&order, 1 << 20).unwrap()(2).unwrap();
        let mut samples: Vec<u64> = all.iter().map(|visit| visit >> 28).collect();
        samples.sort_unstable();
        assert_eq!(samples, (100..140).collect::<Vec<u64>>());
        assert_eq!(all.iter().map(|visit| visit & 0xFF).max(), Some(4), "five batches on each rank");
        assert_eq!(order.of_rank(1).batch(0, 0, 1).len, 2);
    }

    #[test]
    fn names_are_the_same_in_all_processes() {
        let name = "image_folder(s3://b/x?region=eu&sealed=00ff00ff00ff00ff, recursive)";
        assert_eq!(without_seals(name), "image_folder(s3://b/x?region=eu&, recursive)");
        assert_eq!(without_seals("files"), "files");
    }

    #[test]
    fn what_has_no_end_is_not_known() {
        assert!(walk_of(&order(|leaf| leaf.shuffle(0).repeat(None).batch(4, false), 50), 1 << 20).is_none());
    }
}
