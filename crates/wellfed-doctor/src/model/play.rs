//! Plays a pipeline, event by event.

use super::{Cost, Pipeline};

/// Steps that are played, and how many of them are left out because queues fill up first.
const STEPS: usize = 480;
const WARM: usize = 80;

/// What somebody is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Nothing,
    /// Waiting that needs nobody: seconds left.
    Blocked(f64),
    /// Reading through the shared bandwidth: bytes left.
    Reading(f64),
    /// On a core: core-seconds left, cores it can use.
    Running(f64, f64),
}

/// What somebody has to do still, in this order: read, wait, run.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    cost: Cost,
}

impl Work {
    /// The next thing to do.
    fn next(&mut self, bandwidth: bool) -> Doing {
        let cost = &mut self.cost;
        if bandwidth && cost.bytes > 0.0 {
            return Doing::Reading(std::mem::take(&mut cost.bytes));
        }
        if cost.blocked > 0.0 {
            return Doing::Blocked(std::mem::take(&mut cost.blocked));
        }
        if cost.cpu > 0.0 {
            return Doing::Running(std::mem::take(&mut cost.cpu), cost.parallel.max(1.0));
        }
        Doing::Nothing
    }
}

struct Actor {
    doing: Doing,
    work: Work,
}

impl Actor {
    fn idle() -> Self {
        Self { doing: Doing::Nothing, work: Work::default() }
    }

    fn start(&mut self, cost: Cost, bandwidth: bool) {
        self.work = Work { cost };
        self.doing = self.work.next(bandwidth);
    }
}

/// The measured cost that is next: in the order they were measured, since slow ones may come at regular distances, or in a row.
fn at(costs: &[Cost], begin: u64, number: usize) -> Cost {
    let Some(last) = costs.len().checked_sub(1) else { return Cost::default() };
    // Another begin by the golden ratio, so that a few of them spread evenly.
    let offset = (begin as f64 * 0.618_033_988_75).fract() * (last + 1) as f64;
    costs[(offset as usize + number) % (last + 1)]
}

/// Seconds a step.
pub(super) fn play(p: &Pipeline, seed: u64) -> f64 {
    let shared = p.bandwidth.is_some();
    if p.step.is_empty() {
        return 0.0;
    }
    // The last actor is the training process.
    let mut actors: Vec<Actor> = (0..=p.workers).map(|_| Actor::idle()).collect();
    let main = p.workers;
    let ahead = p.workers * p.prefetch.max(1);
    // Batches by number: whose they are, whether they are there. Batch k is worker k % workers's, as torch does it.
    let mut asked = vec![0usize; p.workers];
    let mut making: Vec<Option<usize>> = vec![None; p.workers];
    let mut next_of: Vec<usize> = (0..p.workers).collect();
    let mut there = vec![false; STEPS + ahead + p.workers + 1];
    let mut given = 0usize;
    for _ in 0..ahead {
        asked[given % p.workers] += 1;
        given += 1;
    }
    let (mut taken, mut step, mut begun) = (0usize, None::<Cost>, 0.0);
    let mut now = 0.0;
    loop {
        for worker in 0..p.workers {
            while actors[worker].doing == Doing::Nothing {
                if let Some(batch) = making[worker].take()
                    && let Some(flag) = there.get_mut(batch)
                {
                    *flag = true;
                }
                if asked[worker] == 0 {
                    break;
                }
                asked[worker] -= 1;
                making[worker] = Some(next_of[worker]);
                actors[worker].start(at(&p.make, seed, next_of[worker]), shared);
                next_of[worker] += p.workers;
            }
        }
        while actors[main].doing == Doing::Nothing {
            if let Some(cost) = step.take() {
                actors[main].start(cost, false);
                continue;
            }
            if taken == STEPS {
                return (now - begun) / (STEPS - WARM) as f64;
            }
            if taken == WARM && begun == 0.0 {
                begun = now;
            }
            if p.workers == 0 {
                actors[main].start(at(&p.make, seed, taken), shared);
                taken += 1;
            } else {
                let found = if p.in_order {
                    there[taken].then_some(taken)
                } else {
                    there.iter().position(|&there| there)
                };
                let Some(batch) = found else { break };
                there[batch] = false;
                taken += 1;
                asked[given % p.workers] += 1;
                given += 1;
                actors[main].start(Cost { cpu: p.receive, parallel: 1.0, ..Cost::default() }, false);
            }
            step = Some(at(&p.step, seed, taken));
        }
        let pace = Pace::of(p, &actors);
        let until = actors.iter().filter_map(|actor| pace.left(actor.doing)).fold(f64::INFINITY, f64::min);
        if !until.is_finite() {
            // Nobody does anything: a pipeline that makes no progress has no time. Cannot happen with a batch under way.
            return 0.0;
        }
        now += until;
        for actor in &mut actors {
            actor.doing = pace.after(actor.doing, until);
            if actor.doing == Doing::Nothing {
                actor.doing = actor.work.next(shared);
            }
        }
    }
}

/// How fast things go at the moment.
struct Pace {
    /// Core-seconds a second for each core wanted.
    core: f64,
    /// Bytes a second for each reader.
    bytes: f64,
}

impl Pace {
    fn of(p: &Pipeline, actors: &[Actor]) -> Self {
        let (mut wanted, mut readers) = (p.neighbours, 0.0);
        for actor in actors {
            match actor.doing {
                Doing::Running(_, parallel) => wanted += parallel,
                Doing::Reading(_) => readers += 1.0,
                Doing::Nothing | Doing::Blocked(_) => {}
            }
        }
        let share = if wanted > p.cores { p.cores / wanted } else { 1.0 };
        Self {
            core: share * p.speed(wanted.min(p.cores)),
            bytes: p.bandwidth.unwrap_or(f64::INFINITY) / f64::max(readers, 1.0),
        }
    }

    /// Seconds until it is done.
    fn left(&self, doing: Doing) -> Option<f64> {
        match doing {
            Doing::Nothing => None,
            Doing::Blocked(left) => Some(left),
            Doing::Reading(left) => Some(left / self.bytes),
            Doing::Running(left, parallel) => Some(left / (parallel * self.core)),
        }
    }

    fn after(&self, doing: Doing, time: f64) -> Doing {
        // What is left after rounding is nothing.
        let rest =
            |left: f64, done: f64| if left - done <= left * 1e-12 + 1e-15 { None } else { Some(left - done) };
        match doing {
            Doing::Nothing => Doing::Nothing,
            Doing::Blocked(left) => rest(left, time).map_or(Doing::Nothing, Doing::Blocked),
            Doing::Reading(left) => rest(left, time * self.bytes).map_or(Doing::Nothing, Doing::Reading),
            Doing::Running(left, parallel) => rest(left, time * parallel * self.core)
                .map_or(Doing::Nothing, |left| Doing::Running(left, parallel)),
        }
    }
}
