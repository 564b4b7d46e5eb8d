//! [`Window`]: how many requests may be under way at one store, found by trying.
//!
//! Nobody can say beforehand what a link and a server bear, and it changes. So answers are counted in *rounds*, and a
//! round's throughput and median time decide: while more requests bring more, there are more of them; once they only wait
//! longer, fewer will do. A server that asks to slow down gets half as many at once, and then little by little more. Data
//! with time as an argument: nothing here looks at a clock.
//!
//! Bounds, held by `simulation.rs`: at least 95 % of a steady link's bandwidth, with at most four times as many requests as
//! fill it; at least 85 % of what a server accepts that asks to slow down otherwise, which it need not do more often than
//! every five seconds; never more than `most`, never less than one.

use std::time::{Duration, Instant};

/// Requests under way at first.
pub(crate) const FIRST: usize = 32;

/// A round has so many answers at least, and as many as the window is wide,
const ANSWERS: usize = 16;

/// and takes so long at least, so that what threads are doing otherwise is no news of the link.
const SHORTEST: Duration = Duration::from_millis(20);

/// The same of rounds by which a window is changed that has been found.
const STEADY: Duration = Duration::from_millis(100);

/// What a request costs besides its bytes, as bytes: small ones count, too.
const EACH: f64 = 16.0 * 1024.0;

/// At the start a window of twice the size must bring this much more, or it is wide enough.
const RISING: f64 = 1.2;

/// With one that brings less than that, but this much more, the link is full.
const FULL: f64 = 1.05;

/// A step brings enough if throughput grows by this part of what the window grew by.
const WORTH: f64 = 0.4;

/// Fewer requests are as good if they bring this part of the throughput, and answers take this part of the time.
const AS_GOOD: (f64, f64) = (0.97, 0.93);

/// Rounds without a trial: at first, and after trials that brought nothing.
const PATIENCE: (u32, u32) = (4, 64);

/// Rounds after the server asked to slow down in which the window grows by small steps only.
const WARNED: u32 = 300;

/// What a window of some width brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    limit: f64,
    /// Work per second.
    rate: f64,
    /// Answers per second.
    answers: f64,
    /// Median time of an answer in seconds.
    time: f64,
}

impl Seen {
    /// How much more came than of `base`: by bytes and by answers. On a full link bytes are steady and answers are not, as they
    /// differ in size; otherwise it is the other way round.
    fn gains(&self, base: &Seen) -> (f64, f64) {
        (self.rate / base.rate, self.answers / base.answers)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The window doubles until that brings nothing: what a round saw that has not brought enough.
    Start(Option<Seen>),
    /// Nothing is tried for so many rounds.
    Hold(u32),
    /// More requests are tried.
    Up,
    /// Fewer are tried.
    Down,
}

/// The answers of one round.
#[derive(Debug)]
struct Round {
    since: Instant,
    answers: usize,
    /// Of these came while as many requests were under way as may be.
    full: usize,
    failures: usize,
    work: f64,
    times: Vec<f64>,
    /// The window was changed when it began: what comes now was asked for before, and says nothing.
    settling: bool,
}

impl Round {
    fn new(since: Instant, settling: bool) -> Self {
        Self { since, answers: 0, full: 0, failures: 0, work: 0.0, times: Vec::new(), settling }
    }
}

#[derive(Debug)]
pub(super) struct Window {
    limit: f64,
    most: f64,
    phase: Phase,
    /// What is known to be good.
    base: Seen,
    round: Option<Round>,
    /// Rounds to wait before the next trial of more, and of less.
    waits: (u32, u32),
    /// The next trial is one of less.
    down: bool,
    /// Rounds in which growth goes by small steps, and stays below what was too much.
    warned: u32,
    too_much: f64,
}

impl Window {
    /// A window of a store that takes at most `most` requests at once.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1) as f64;
        Self {
            limit: (FIRST as f64).min(most),
            most,
            phase: Phase::Start(None),
            base: Seen::default(),
            round: None,
            waits: (PATIENCE.0, PATIENCE.0),
            down: false,
            warned: 0,
            too_much: f64::INFINITY,
        }
    }

    /// Requests that may be under way.
    pub(super) fn limit(&self) -> usize {
        (self.limit as usize).max(1)
    }

    /// Requests that [`Window::limit`] may come to.
    pub(super) fn most(&self) -> usize {
        self.most as usize
    }

    /// A request was answered with so many bytes after `took`. `full`: as many were under way as may be.
    pub(super) fn answered(&mut self, now: Instant, bytes: u64, took: Duration, full: bool) {
        let round = self.round.get_or_insert_with(|| Round::new(now, true));
        round.answers += 1;
        round.full += usize::from(full);
        round.work += bytes as f64 + EACH;
        round.times.push(took.as_secs_f64());
        self.look(now);
    }

    /// A request failed in a way that may pass, or was not answered at all.
    pub(super) fn failed(&mut self, now: Instant) {
        let round = self.round.get_or_insert_with(|| Round::new(now, true));
        round.failures += 1;
        // A few failures are nobody's fault. Of a server that fails often, less is asked.
        if round.failures >= 8 && round.failures * 4 > round.answers {
            self.throttled(now);
        }
    }

    /// The server asked to slow down.
    pub(super) fn throttled(&mut self, now: Instant) {
        // What it says of requests that began before the window was made smaller is known already.
        if self.warned == WARNED && self.round.as_ref().is_some_and(|round| round.settling) {
            return;
        }
        self.base = Seen::default();
        self.waits = (PATIENCE.0, PATIENCE.0);
        (self.warned, self.too_much) = (WARNED, self.limit);
        self.set(self.limit / 2.0, Phase::Hold(PATIENCE.0), now);
    }

    /// Makes the window so wide, and lets what is under way settle.
    fn set(&mut self, limit: f64, phase: Phase, now: Instant) {
        self.limit = limit.clamp(1.0, self.most);
        self.phase = phase;
        self.round = Some(Round::new(now, true));
    }

    /// Ends the round, if it is over.
    fn look(&mut self, now: Instant) {
        let enough = self.limit().max(ANSWERS);
        let steady = if matches!(self.phase, Phase::Start(_)) { SHORTEST } else { STEADY };
        let Some(round) = &mut self.round else { return };
        let took = now.saturating_duration_since(round.since);
        if round.answers < enough || took < if round.settling { SHORTEST } else { steady } {
            return;
        }
        let middle = round.times.len() / 2;
        let time = *round.times.select_nth_unstable_by(middle, f64::total_cmp).1;
        let took = took.as_secs_f64();
        let seen =
            Seen { limit: self.limit, rate: round.work / took, answers: round.answers as f64 / took, time };
        // Where there was not enough to ask for, it does not matter how wide the window is.
        let counts = !round.settling && round.full * 10 >= round.answers * 9;
        self.round = Some(Round::new(now, false));
        if counts {
            self.warned = self.warned.saturating_sub(1);
            self.decide(seen, now);
        }
    }

    fn decide(&mut self, seen: Seen, now: Instant) {
        let base = self.base;
        let (bytes, answers) = seen.gains(&base);
        let (more, less) = (bytes.max(answers), bytes.min(answers));
        match self.phase {
            Phase::Start(_) if more > RISING || base.rate == 0.0 => {
                self.base = seen;
                match self.limit < self.most {
                    true => self.set(self.limit * 2.0, Phase::Start(None), now),
                    false => self.phase = Phase::Hold(self.waits.0),
                }
            }
            // Once more: one round may have been an unlucky one.
            Phase::Start(None) => self.phase = Phase::Start(Some(seen)),
            Phase::Start(Some(other)) => {
                let best = if seen.rate > other.rate { seen } else { other };
                // What fills the link lies between the two: too many requests wait a little longer, too few leave it empty.
                if best.rate > base.rate * FULL {
                    self.base = best;
                    (self.phase, self.down) = (Phase::Hold(self.waits.0), true);
                } else {
                    self.set(base.limit * 1.25, Phase::Hold(self.waits.0), now);
                }
            }
            Phase::Hold(left) => {
                if base.limit != seen.limit || !(0.7..1.4).contains(&(seen.rate / base.rate)) {
                    // A level that is new, or the link has changed.
                    self.base = seen;
                    self.waits = (PATIENCE.0, PATIENCE.0);
                } else {
                    self.base.rate += (seen.rate - base.rate) / 4.0;
                    self.base.answers += (seen.answers - base.answers) / 4.0;
                    self.base.time += (seen.time - base.time) / 4.0;
                }
                match left {
                    0 if self.down && self.limit >= 2.0 => self.less(now),
                    0 => self.more(now),
                    _ => self.phase = Phase::Hold(left - 1),
                }
            }
            Phase::Up if more - 1.0 >= WORTH * (seen.limit / base.limit - 1.0) => {
                self.base = seen;
                self.waits = (PATIENCE.0, PATIENCE.0);
                self.more(now);
            }
            Phase::Up => {
                self.waits.0 = (self.waits.0 * 2).min(PATIENCE.1);
                self.down = true;
                self.set(base.limit, Phase::Hold(self.waits.0.min(self.waits.1)), now);
            }
            Phase::Down if less >= AS_GOOD.0 && seen.time <= base.time * AS_GOOD.1 => {
                self.base = seen;
                self.less(now);
            }
            Phase::Down => {
                self.waits.1 = (self.waits.1 * 2).min(PATIENCE.1);
                self.down = false;
                self.set(base.limit, Phase::Hold(self.waits.0.min(self.waits.1)), now);
            }
        }
    }

    /// Tries more requests.
    fn more(&mut self, now: Instant) {
        // A server that asked to slow down is not brought to it again soon.
        let (factor, most) = match self.warned {
            0 => (1.25, self.most),
            _ => (1.1, self.most.min(self.too_much * 0.9)),
        };
        let wider = (self.limit * factor).max(self.limit + 1.0).min(most);
        if wider as usize <= self.limit() {
            self.down = true;
            self.phase = Phase::Hold(self.waits.1);
            return;
        }
        self.set(wider, Phase::Up, now);
    }

    /// Tries fewer.
    fn less(&mut self, now: Instant) {
        if self.limit < 2.0 {
            self.down = false;
            self.phase = Phase::Hold(self.waits.0);
            return;
        }
        self.set((self.limit * 0.8).min(self.limit - 1.0), Phase::Down, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of answers that all take `time(limit)`, as many at once as the window allows, for `seconds`.
    fn run(window: &mut Window, now: &mut Instant, seconds: f64, full: bool, time: impl Fn(f64) -> f64) {
        let end = *now + Duration::from_secs_f64(seconds);
        while *now < end {
            let limit = window.limit() as f64;
            let took = time(limit);
            *now += Duration::from_secs_f64(took / limit);
            window.answered(*now, 100_000, Duration::from_secs_f64(took), full);
        }
    }

    #[test]
    fn it_widens_while_more_comes_and_narrows_when_answers_only_wait() {
        let (mut window, mut now) = (Window::new(512), Instant::now());
        // 100 requests fill the link.
        let link = |limit: f64| 0.02_f64.max(0.02 * limit / 100.0);
        run(&mut window, &mut now, 5.0, true, link);
        assert!((100..=160).contains(&window.limit()), "{window:?}");
        // A tenth of the link is left.
        run(&mut window, &mut now, 60.0, true, |limit| 0.02_f64.max(0.02 * limit / 10.0));
        assert!((9..=40).contains(&window.limit()), "{window:?}");
        run(&mut window, &mut now, 60.0, true, link);
        assert!((95..=160).contains(&window.limit()), "{window:?}");
    }

    #[test]
    fn bounds_hold() {
        let (mut window, mut now) = (Window::new(100), Instant::now());
        run(&mut window, &mut now, 20.0, true, |_| 0.05);
        assert_eq!(window.limit(), 100);
        for _ in 0..50 {
            window.throttled(now);
            assert!(window.limit() >= 1);
            run(&mut window, &mut now, 0.5, true, |_| 0.001);
        }
        assert_eq!(Window::new(0).limit(), 1);
        assert_eq!(Window::new(5).limit(), 5);
    }

    #[test]
    fn who_is_asked_for_little_learns_nothing() {
        let (mut window, mut now) = (Window::new(512), Instant::now());
        run(&mut window, &mut now, 20.0, false, |_| 0.02);
        assert_eq!(window.limit(), FIRST);
    }

    #[test]
    fn being_asked_to_slow_down_halves_it_once() {
        let (mut window, mut now) = (Window::new(512), Instant::now());
        run(&mut window, &mut now, 5.0, true, |limit| 0.02_f64.max(0.02 * limit / 200.0));
        let before = window.limit();
        for _ in 0..30 {
            window.throttled(now);
        }
        assert_eq!(window.limit(), before / 2, "answers of one episode");
        run(&mut window, &mut now, 0.2, true, |_| 0.02);
        window.throttled(now);
        assert!(window.limit() <= before / 4 + 10);
        // Failures of one request in ten are no sign of a server that has too much to do.
        let before = window.limit();
        for _ in 0..100 {
            window.failed(now);
            run(&mut window, &mut now, 0.01, true, |_| 0.02);
        }
        assert!(window.limit() * 2 > before, "{window:?}");
        for _ in 0..200 {
            window.failed(now);
        }
        assert!(window.limit() <= before, "{window:?}");
    }
}
