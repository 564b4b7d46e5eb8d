//! The thread that walks ahead along the order and lets the I/O layer get the bytes of samples, and those of groups that others
//! ask for ([`crate::groups`]).
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
    schedule::{AHEAD, Ticket},
    shared::{Shared, guard},
    threads::in_storage,
};
use crate::{
    Result,
    groups::{Key, Want},
    io::{
        Bytes, Located,
        cache::moment,
        layer::{Layer, Mailbox},
        line::MOST,
    },
    lock,
    meter::{Lane, Phase, Probe, RequestStats},
    order::Pick,
};

/// Samples are asked for so many at a time, so that neighbours are seen together.
const GROUP: usize = 32;

/// What a sample is thought to have before one has come, in bytes.
const GUESS: f64 = 256.0 * 1024.0;

/// One sample under way.
#[derive(Debug)]
struct Sample {
    ticket: Ticket,
    picks: Vec<Pick>,
    fetched: Fetched,
}

/// What is under way.
#[derive(Debug)]
enum Flight {
    Sample(Sample),
    /// A group of samples, and how many bytes are under way for it.
    Group(Key, u64),
}

/// What wants bytes, and which.
type Wanted = Vec<(Flight, Vec<Located>)>;

impl Shared {
    /// The loop of the I/O thread, until shutdown.
    pub(crate) fn run_io(&self, mailbox: &Arc<Mailbox>) {
        let lane = self.meter.lane("reader io");
        let layer = Layer::new(self.executor.remote_stores(), MOST, mailbox.clone());
        let mut layer = layer.with_keeper(self.keeper.clone());
        let (mut generation, mut mean) = (0, GUESS);
        // Bytes under way for groups, whose room is theirs.
        let mut grouped = 0;
        let samples = self.executor.is_remote();
        // Of which epoch the cache was told last.
        let mut told = None;
        loop {
            let (arrived, budget) = {
                let schedule = self.lock();
                if schedule.shutdown {
                    // With the layer go its requests.
                    return;
                }
                if schedule.generation() != generation {
                    generation = schedule.generation();
                    layer.retain(|flight| match flight {
                        Flight::Sample(sample) => sample.ticket.is_of(generation),
                        Flight::Group(..) => true,
                    });
                    told = None;
                }
                (schedule.read_bytes, schedule.read_budget)
            };
            let under_way = layer.bytes().0.saturating_sub(grouped);
            let room = budget.saturating_sub(arrived.saturating_add(under_way));
            layer.keep(room);
            let settled = layer.poll(Instant::now(), room);
            // Before the samples are handed over: whoever has them finds them counted.
            *lock(&self.requests) = RequestStats { ahead: budget, ..layer.stats() };
            let idle = settled.is_empty();
            for (flight, pieces) in settled {
                match flight {
                    Flight::Sample(sample) => self.arrive(sample, pieces, &lane, &mut mean),
                    Flight::Group(key, bytes) => {
                        grouped = grouped.saturating_sub(bytes);
                        self.arrive_group(key, pieces, &lane);
                    }
                }
            }
            let mut wanted = self.depart_groups(&mut layer, &mut grouped, &mut told);
            if samples {
                wanted.extend(self.depart(&layer, &mut mean, &mut told));
            }
            if !wanted.is_empty() {
                layer.submit(wanted, Instant::now());
            } else if idle {
                let (flying, kept) = layer.bytes();
                let cache = self.keeper.as_ref().map_or(0, |keeper| keeper.bytes());
                self.io_bytes.store(flying.saturating_sub(grouped) + kept + cache, Relaxed);
                mailbox.wait(layer.next());
            }
        }
    }

    /// The groups that others have asked for. Those that nobody wants any more are cancelled.
    fn depart_groups(&self, layer: &mut Layer<Flight>, grouped: &mut u64, told: &mut Option<u64>) -> Wanted {
        let Some(groups) = self.executor.kept_groups() else { return Wanted::new() };
        let (wants, given_up) = groups.wanted();
        if !given_up.is_empty() {
            let mut left = 0;
            let left_of = |flight: &Flight| match flight {
                Flight::Group(key, bytes) => {
                    let stays = !given_up.contains(key);
                    (stays, if stays { *bytes } else { 0 })
                }
                Flight::Sample(_) => (true, 0),
            };
            layer.retain(|flight| left_of(flight).0);
            layer.flights().for_each(|flight| left += left_of(flight).1);
            *grouped = left;
        }
        if wants.is_empty() {
            return Wanted::new();
        }
        let place = self.lock().next_place().map(|(position, _)| position);
        let (epoch, next) = place.map_or((0, 0), |position| (position.epoch, position.number));
        self.tell(epoch, next, told);
        let ahead = lock(&self.ahead);
        let locate = |want: Want| {
            let key = want.key;
            // Batches that are open want what was not found ahead of them.
            let batch = ahead.batch_of((want.leaf, key.1)).unwrap_or(next);
            let located = self.executor.locate_group(want, moment(epoch, batch));
            let ranges = located.iter().filter_map(|located| located.extent.range.as_ref());
            let bytes = ranges.map(|range| range.end - range.start).sum();
            *grouped += bytes;
            (Flight::Group(key, bytes), located)
        };
        wants.into_iter().map(locate).collect()
    }

    /// Tells the cache where in which epoch training is, once an epoch.
    fn tell(&self, epoch: u64, batch: u64, told: &mut Option<u64>) {
        if let Some(keeper) = self.keeper.as_ref().filter(|_| *told != Some(epoch)) {
            keeper.plan(epoch, batch);
            *told = Some(epoch);
        }
    }

    /// Lets those decode a group who want it.
    fn arrive_group(&self, key: Key, pieces: Result<Vec<Bytes>>, lane: &Lane) {
        let mut probe = Probe::start(lane, 1);
        let bytes = pieces.as_ref().map_or(0, |pieces| pieces.iter().map(|piece| piece.len()).sum());
        if let Some(groups) = self.executor.kept_groups() {
            groups.arrived(key, pieces);
        }
        probe.lap(Phase::Read, bytes);
        self.wake_ahead();
    }

    /// Hands a sample to the workers.
    fn arrive(&self, sample: Sample, pieces: Result<Vec<Bytes>>, lane: &Lane, mean: &mut f64) {
        let Sample { ticket, picks, mut fetched } = sample;
        let mut probe = Probe::start(lane, 1);
        let result = match pieces {
            Ok(pieces) => guard("read", || self.executor.assemble(&picks, &pieces, &mut fetched)),
            Err(error) => Err(self.executor.not_arrived(error, &picks)),
        };
        probe.lap(Phase::Read, fetched.len());
        *mean += (fetched.len() as f64 - *mean) / 16.0;
        self.hand_over(ticket, result.map(|()| fetched));
    }

    fn hand_over(&self, ticket: Ticket, result: Result<Fetched>) {
        let late = self.lock().put_read(ticket, Some(result));
        // Freed outside of the lock.
        drop(late);
        self.wake_worker();
    }

    /// The next samples of the order that there is room for. None, if it is better to wait until there are more.
    fn depart(&self, layer: &Layer<Flight>, mean: &mut f64, told: &mut Option<u64>) -> Wanted {
        let mut taken = Vec::new();
        {
            let mut schedule = self.lock();
            let samples = |bytes: u64| (bytes as f64 / mean.max(64.0)) as usize;
            let capacity = samples(schedule.read_budget).min(AHEAD);
            let step = (capacity / 4).clamp(1, GROUP);
            let used = samples(schedule.read_bytes).max(usize::from(schedule.read_bytes > 0));
            let used = used + layer.wanted();
            if used + step > capacity && used > 0 {
                return Wanted::new();
            }
            for _ in used..capacity.max(1) {
                let Some((ticket, job, fetched)) = schedule.read() else { break };
                taken.push((ticket, job, fetched));
            }
        }
        let mut wanted_now = Wanted::with_capacity(taken.len());
        for (ticket, job, mut fetched) in taken {
            let mut picks = Vec::new();
            self.order.pick_in(&job.span, ticket.offset(), &mut picks);
            let at = moment(job.epoch, job.number);
            self.tell(job.epoch, job.number, told);
            // The batch becomes the consumer's when nobody else has a part in it.
            drop(job);
            match guard("read", || in_storage(|| self.executor.locate(&picks, &mut fetched))) {
                Ok(mut wanted) => {
                    wanted.iter_mut().for_each(|located| located.need.at = at);
                    let sizes = wanted.iter().map(|located| located.extent.range.as_ref());
                    let sizes: Option<u64> = sizes.map(|range| Some(range?.end - range?.start)).sum();
                    if let Some(size) = sizes {
                        *mean += (size as f64 - *mean) / 16.0;
                    }
                    let sample = Sample { ticket, picks, fetched };
                    wanted_now.push((Flight::Sample(sample), wanted));
                }
                Err(error) => self.hand_over(ticket, Err(error)),
            }
        }
        wanted_now
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use super::*;
    use crate::{
        Dataset, Error, ErrorKind, Next, Options,
        io::{Extent, FIRST, testing::ManualStore},
        plan::{Auto, OnError},
        sample::{FieldKind, Record, Schema, Value},
        source::Source,
        store::{Request, Store},
    };

    /// Numbers that lie in a store, 8 bytes each, so far from each other that none are neighbours.
    #[derive(Debug)]
    struct Numbers {
        store: Arc<dyn Store>,
        schema: Schema,
        apart: u64,
    }

    impl Numbers {
        fn new(store: &Arc<ManualStore>, apart: u64) -> Self {
            let schema = Schema::single("x", FieldKind::LABEL);
            Self { store: store.clone(), schema, apart }
        }
    }

    impl Source for Numbers {
        fn name(&self) -> String {
            "numbers".to_owned()
        }

        fn len(&self) -> u64 {
            1000
        }

        fn schema(&self) -> &Schema {
            &self.schema
        }

        fn key(&self, index: u64) -> String {
            index.to_string()
        }

        fn fetch(&self, _: u64, _: &mut Record) -> Result<()> {
            Err(Error::new(ErrorKind::Internal, "a worker must not wait for the store"))
        }

        fn store(&self) -> Option<&Arc<dyn Store>> {
            Some(&self.store)
        }

        fn locate(&self, index: u64, _: &crate::Limits, extents: &mut Vec<Extent>) -> Result<()> {
            extents.push(Extent::range("x", index * self.apart, 8));
            Ok(())
        }

        fn assemble(&self, _: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
            record.reset(1);
            let number = i64::from_le_bytes((*pieces[0]).try_into().unwrap());
            if number == 500 {
                return Err(Error::corrupt("no number"));
            }
            record.values[0] = Value::Int(number);
            Ok(())
        }
    }

    /// Every object holds, at each place, the number of the sample that lies there.
    fn content(apart: u64) -> impl Fn(&Request) -> Result<Vec<u8>> {
        move |request| {
            let range = request.range.clone().unwrap();
            let mut bytes = vec![0; (range.end - range.start) as usize];
            for index in range.start.div_ceil(apart)..range.end.div_ceil(apart) {
                let at = (index * apart - range.start) as usize;
                bytes[at..at + 8].copy_from_slice(&index.to_le_bytes());
            }
            Ok(bytes)
        }
    }

    fn dataset(store: &Arc<ManualStore>, apart: u64, on_error: OnError) -> Dataset {
        let options = Options {
            num_workers: Auto::Fixed(2),
            memory_budget: Some(4 << 30),
            on_error,
            ..Options::default()
        };
        Dataset::new(Arc::new(Numbers::new(store, apart))).batch(10, false).with_options(options)
    }

    fn next(loader: &crate::Loader) -> Result<Vec<i64>> {
        match loader.next(Duration::from_secs(60))? {
            Next::Batch(batch) => Ok(batch.columns[0].data.as_i64().unwrap()),
            other => panic!("no batch came: {other:?}"),
        }
    }

    #[test]
    fn many_requests_are_under_way_ahead_of_the_workers() {
        let store = Arc::new(ManualStore::default());
        let options =
            Options { num_workers: Auto::Fixed(2), memory_budget: Some(4 << 30), ..Options::default() };
        let numbers = Dataset::new(Arc::new(Numbers::new(&store, 1 << 20)));
        let loader = numbers.shuffle(3).batch(10, false).with_options(options).loader().unwrap();
        loader.start_epoch().unwrap();
        // Nothing is answered before so many have been asked for.
        store.wait_for(FIRST);
        let mut seen = Vec::new();
        for _ in 0..100 {
            let batch = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| next(&loader));
                while !waiting.is_finished() {
                    for number in store.open() {
                        store.answer(number, content(1 << 20));
                    }
                    std::thread::yield_now();
                }
                waiting.join().unwrap()
            });
            match batch {
                Ok(batch) => seen.extend(batch),
                Err(error) => {
                    assert_eq!((error.kind(), error.index()), (ErrorKind::Corrupt, Some(500)), "{error}");
                    seen.extend([500; 10]);
                }
            }
        }
        assert_eq!(seen.len(), 1000);
        drop(loader);
        assert!(store.open().is_empty(), "what was asked for the next epoch is cancelled");
    }

    #[test]
    fn neighbours_in_the_order_are_one_request() {
        let store = Arc::new(ManualStore::default());
        let loader = dataset(&store, 8, OnError::Skip).loader().unwrap();
        loader.start_epoch().unwrap();
        store.wait_for(1);
        let stop = Mutex::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !*crate::lock(&stop) {
                    for number in store.open() {
                        store.answer(number, content(8));
                    }
                    std::thread::yield_now();
                }
            });
            for batch in 0..100 {
                let found = next(&loader).unwrap();
                let wanted: Vec<i64> = (batch * 10..batch * 10 + 10).filter(|n| *n != 500).collect();
                assert_eq!(found, wanted);
            }
            *crate::lock(&stop) = true;
        });
        assert!(store.begun() < 200, "{} requests for 1000 neighbours", store.begun());
    }

    #[test]
    fn what_hangs_holds_up_only_its_own_samples_and_a_jump_cancels_it() {
        let store = Arc::new(ManualStore::default());
        let loader = dataset(&store, 1 << 20, OnError::Raise).loader().unwrap();
        loader.start_epoch().unwrap();
        store.wait_for(FIRST);
        // Sample 15 never comes; batches before it do, and everything after it is read all the same.
        let hung = store.open()[15];
        for number in store.open() {
            if number != hung {
                store.answer(number, content(1 << 20));
            }
        }
        assert_eq!(next(&loader).unwrap(), (0..10).collect::<Vec<_>>());
        assert!(matches!(loader.next(Duration::ZERO).unwrap(), Next::Pending));
        store.wait_for(FIRST);
        loader.set_epoch(7).unwrap();
        loader.start_epoch().unwrap();
        store.wait_for_cancelled(FIRST as u64);
        store.answer(hung, content(1 << 20));
        drop(loader);
        assert!(store.open().is_empty());
    }
}
