//! The layer on links and servers that are played in virtual time: what it gets of them, and how much it asks for.
//!
//! Everything is a function of the link and of numbers drawn by a hash, so that each run is the same.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::{Extent, Located, Need, layer::Layer, line::MOST};
use crate::{
    Error, ErrorKind, Result, lock,
    meter::RequestStats,
    store::{Done, Entry, Pending, Remote, Request, Retry, Stat, Store},
};

/// A link, and the server at its end.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Seconds there and back.
    latency: f64,
    /// Parts of the latency that it may take longer.
    jitter: f64,
    bytes_per_second: f64,
    /// Requests that the server works on at once, and seconds that it takes for one. Others wait.
    slots: usize,
    service: f64,
    /// Requests a second that it accepts. Others are asked to slow down.
    accepts: f64,
    /// One request in so many hangs for 2 s.
    hangs: u64,
}

const FAR: Link = Link {
    latency: 0.02,
    jitter: 0.1,
    bytes_per_second: 200e6,
    slots: 100_000,
    service: 0.0,
    accepts: f64::INFINITY,
    hangs: u64::MAX,
};

/// How long a client waits that was asked to slow down, in seconds.
const PAUSE: f64 = 0.2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(u64),
    Answered(u64),
}

struct World {
    link: Link,
    start: Instant,
    /// Seconds since the start.
    now: f64,
    /// When the link is free again, and each of the server's slots.
    free: f64,
    slots: BinaryHeap<Reverse<u64>>,
    /// Requests that the server would accept now.
    accepts: (f64, f64),
    paused: f64,
    throttled: u64,
    number: u64,
    open: BTreeMap<u64, (Request, Option<Done>)>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
}

/// Nanoseconds, which have an order.
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn drawn(number: u64, what: u64) -> f64 {
    let key = [number.to_le_bytes(), what.to_le_bytes()].concat();
    (rapidhash::v3::rapidhash_v3(&key) >> 11) as f64 / (1_u64 << 53) as f64
}

impl World {
    fn instant(&self) -> Instant {
        self.start + Duration::from_secs_f64(self.now)
    }

    fn begin(&mut self, request: Request, done: Done) -> u64 {
        self.number += 1;
        self.open.insert(self.number, (request, Some(done)));
        let pause = if self.paused > self.now { PAUSE * drawn(self.number, 0) } else { 0.0 };
        let at = self.paused.max(self.now) + pause + self.link.latency / 2.0;
        self.events.push(Reverse((nanos(at), Event::Arrives(self.number))));
        self.number
    }

    fn arrives(&mut self, number: u64) {
        let Some((request, _)) = self.open.get(&number) else { return };
        let range = request.range.clone().unwrap();
        let Link { latency, jitter, bytes_per_second, slots, service, accepts, hangs } = self.link;
        if accepts.is_finite() {
            let (tokens, at) = self.accepts;
            // A tenth of a second is saved up.
            let tokens = (tokens + (self.now - at) * accepts).min((accepts / 10.0).max(1.0));
            self.accepts = ((tokens - 1.0).max(0.0), self.now);
            if tokens < 1.0 {
                self.accepts.0 = tokens;
                let back = self.now + latency / 2.0;
                if self.paused <= back {
                    self.throttled += 1;
                    self.paused = back + PAUSE;
                }
                let at = self.paused + PAUSE * drawn(number, self.throttled) + latency / 2.0;
                self.events.push(Reverse((nanos(at), Event::Arrives(number))));
                return;
            }
        }
        while self.slots.len() < slots.min(1000) {
            self.slots.push(Reverse(0));
        }
        let slot = self.slots.pop().map_or(0, |Reverse(at)| at) as f64 * 1e-9;
        let ready = slot.max(self.now) + service;
        self.slots.push(Reverse(nanos(ready)));
        self.free = self.free.max(ready) + (range.end - range.start) as f64 / bytes_per_second;
        let hang = if drawn(number, 2) * (hangs as f64) < 1.0 { 2.0 } else { 0.0 };
        let at = self.free + latency / 2.0 + latency * jitter * drawn(number, 1) + hang;
        self.events.push(Reverse((nanos(at), Event::Answered(number))));
    }
}

#[derive(Clone)]
struct Played(Arc<Mutex<World>>);

impl std::fmt::Debug for Played {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Played")
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Internal, "this store is only for the I/O layer"))
}

impl Store for Played {
    fn stat(&self, _: &str) -> Result<Stat> {
        refused()
    }

    fn read(&self, _: &str, _: u64, _: &mut Vec<u8>) -> Result<()> {
        refused()
    }

    fn read_range(&self, _: &str, _: u64, _: usize, _: &mut Vec<u8>) -> Result<()> {
        refused()
    }

    fn list(&self, _: &str, _: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        refused()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for Played {
    fn begin(&self, request: Request, done: Done) -> Pending {
        let number = lock(&self.0).begin(request, done);
        let world = self.0.clone();
        Pending::new(move || drop(lock(&world).open.remove(&number)))
    }

    fn throttled(&self) -> u64 {
        lock(&self.0).throttled
    }
}

/// A layer that always has something to ask for, and its link.
struct Play {
    world: Arc<Mutex<World>>,
    layer: Layer<u64>,
    size: u64,
    /// Parts of the size by which objects are smaller or larger.
    spread: f64,
    asked: u64,
    /// Seconds from asking to bytes, of all samples since the last report.
    waits: Vec<f64>,
    since: BTreeMap<u64, f64>,
}

/// What happened in some time.
#[derive(Debug)]
struct Report {
    bytes_per_second: f64,
    requests_per_second: f64,
    /// Mean number of requests under way, and the most.
    under_way: (f64, usize),
    /// The longest wait for a sample in seconds.
    longest: f64,
    stats: RequestStats,
}

impl Play {
    fn new(link: Link, size: u64) -> Self {
        let world = World {
            link,
            start: Instant::now(),
            now: 0.0,
            free: 0.0,
            slots: BinaryHeap::new(),
            accepts: (0.0, 0.0),
            paused: 0.0,
            throttled: 0,
            number: 0,
            open: BTreeMap::new(),
            events: BinaryHeap::new(),
        };
        let world = Arc::new(Mutex::new(world));
        let store: Arc<dyn Store> = Arc::new(Played(world.clone()));
        let layer = Layer::new(vec![(store, Retry::default())], MOST, Arc::default());
        Self { world, layer, size, spread: 0.0, asked: 0, waits: Vec::new(), since: BTreeMap::new() }
    }

    fn run(&mut self, seconds: f64) -> Report {
        let begin = lock(&self.world).now;
        let (mut came, mut area, mut most) = (0_u64, 0.0, 0);
        self.waits.clear();
        loop {
            let (now, instant) = {
                let world = lock(&self.world);
                (world.now, world.instant())
            };
            if now >= begin + seconds {
                break;
            }
            for (tag, pieces) in self.layer.poll(instant, 0) {
                came += pieces.unwrap()[0].len() as u64;
                self.waits.push(now - self.since.remove(&tag).unwrap());
            }
            while self.layer.wanted() < 2 * MOST {
                self.asked += 1;
                self.since.insert(self.asked, now);
                let part = 1.0 + self.spread * (2.0 * drawn(self.asked, 3) - 1.0);
                let extent = Extent::range(self.asked.to_string(), 0, (self.size as f64 * part) as u64);
                self.layer.submit(
                    [(self.asked, vec![Located { store: 0, extent, need: Need::default() }])],
                    instant,
                );
            }
            let open = self.layer.stats().in_flight;
            most = most.max(open);
            area += open as f64 * self.advance();
        }
        let stats = self.layer.stats();
        Report {
            bytes_per_second: came as f64 / seconds,
            requests_per_second: came as f64 / seconds / self.size as f64,
            under_way: (area / seconds, most),
            longest: self.waits.iter().copied().fold(0.0, f64::max),
            stats,
        }
    }

    /// Lets the next thing happen; says how long that took.
    fn advance(&self) -> f64 {
        let mut world = lock(&self.world);
        let before = world.now;
        let timer = self.layer.next().map(|at| at.saturating_duration_since(world.start).as_secs_f64());
        let event = world.events.peek().map(|Reverse((at, _))| *at as f64 * 1e-9);
        match (event, timer) {
            (Some(event), timer) if timer.is_none_or(|timer| event <= timer) => {
                world.now = event.max(before);
                let happens = world.events.pop();
                match happens {
                    Some(Reverse((_, Event::Arrives(number)))) => world.arrives(number),
                    Some(Reverse((_, Event::Answered(number)))) => {
                        let open = world.open.get_mut(&number);
                        let (size, done) = open.map_or((0, None), |(request, done)| {
                            let range = request.range.clone().unwrap();
                            ((range.end - range.start) as usize, done.take())
                        });
                        let spent = world.now - before;
                        drop(world);
                        if let Some(done) = done {
                            done(Ok(vec![0; size]));
                        }
                        return spent;
                    }
                    None => {}
                }
            }
            (_, Some(timer)) => world.now = timer.max(before + 1e-9),
            _ => panic!("nothing is under way"),
        }
        world.now - before
    }
}

#[test]
fn a_link_is_filled_with_no_more_than_four_times_the_requests_that_fill_it() {
    for (latency, bytes_per_second, size) in
        [(0.02, 200e6, 100_000), (0.001, 200e6, 20_000), (0.1, 500e6, 300_000), (0.2, 10e6, 50_000)]
    {
        let link = Link { latency, bytes_per_second, ..FAR };
        let mut play = Play::new(link, size);
        let start = play.run(3.0);
        let rest = play.run(7.0);
        let fill = (latency * bytes_per_second / size as f64).max(8.0);
        let case = format!("{link:?} of {size} bytes: {start:?} {rest:?}");
        assert!(start.bytes_per_second >= 0.8 * bytes_per_second, "{case}");
        assert!(rest.bytes_per_second >= 0.95 * bytes_per_second, "{case}");
        assert!(rest.under_way.0 <= 4.0 * fill, "{fill} fill {case}");
    }
}

#[test]
fn photographs_fill_a_link_within_the_first_seconds() {
    // They differ in size, and so does what comes in a moment. An epoch of 4,000 takes 2.2 s at best.
    for jitter in [0.1, 0.5, 1.0] {
        for spread in [0.0, 0.5, 0.9] {
            let mut play = Play::new(Link { jitter, ..FAR }, 110_000);
            play.spread = spread;
            let start = play.run(2.4);
            let rest = play.run(10.0);
            let case = format!("jitter {jitter}, spread {spread}: {start:?} {rest:?}");
            assert!(start.bytes_per_second >= 0.92 * FAR.bytes_per_second, "{case}");
            assert!(rest.bytes_per_second >= 0.95 * FAR.bytes_per_second, "{case}");
            assert!(rest.under_way.0 <= 4.0 * 37.0 * (1.0 + jitter), "{case}");
        }
    }
}

#[test]
fn a_server_with_few_hands_is_kept_at_work_without_a_crowd_before_it() {
    // Sixteen hands with ten milliseconds each: 1600 requests a second, and 48 under way for that.
    let link = Link { slots: 16, service: 0.01, bytes_per_second: 10e9, ..FAR };
    let mut play = Play::new(link, 10_000);
    play.run(3.0);
    let rest = play.run(10.0);
    assert!(rest.requests_per_second >= 0.95 * 1600.0, "{rest:?}");
    assert!(rest.under_way.0 <= 4.0 * 48.0, "{rest:?}");
}

#[test]
fn a_server_that_asks_to_slow_down_is_not_asked_for_more_again_and_again() {
    for accepts in [200.0, 1000.0] {
        let mut play = Play::new(Link { accepts, bytes_per_second: 10e9, ..FAR }, 10_000);
        let start = play.run(10.0);
        let rest = play.run(30.0);
        assert!(rest.requests_per_second >= 0.85 * accepts, "{accepts}: {start:?} {rest:?}");
        let pauses = rest.stats.throttled - start.stats.throttled;
        assert!(start.stats.throttled >= 1 && pauses <= 6, "{pauses} in 30 s: {rest:?}");
        assert_eq!(rest.stats.retried, 0, "it is no failure");
        assert!(rest.stats.hedged <= start.stats.hedged + 3, "{rest:?}");
    }
}

#[test]
fn a_link_that_changes_is_found_again() {
    let mut play = Play::new(FAR, 100_000);
    play.run(5.0);
    lock(&play.world).link.bytes_per_second = 20e6;
    play.run(20.0);
    let slow = play.run(5.0);
    assert!(slow.bytes_per_second >= 0.95 * 20e6, "{slow:?}");
    assert!(slow.under_way.0 <= 4.0 * 8.0, "{slow:?}");
    lock(&play.world).link.bytes_per_second = 200e6;
    play.run(20.0);
    let fast = play.run(5.0);
    assert!(fast.bytes_per_second >= 0.95 * 200e6, "{fast:?}");
}

#[test]
fn what_hangs_is_asked_for_twice_and_nobody_waits_for_it() {
    // One in five hundred hangs: 2 s of waiting where 50 ms are usual.
    let link = Link { hangs: 500, ..FAR };
    let mut play = Play::new(link, 100_000);
    play.run(3.0);
    let before = play.layer.stats();
    let rest = play.run(10.0);
    let (requests, hedged) = (rest.stats.requests - before.requests, rest.stats.hedged - before.hedged);
    assert!(hedged > 0 && hedged * 100 <= requests + 400, "{hedged} of {requests}");
    assert!(rest.longest < 1.0, "{rest:?}");
    assert!(rest.bytes_per_second >= 0.95 * 200e6, "{rest:?}");
}
