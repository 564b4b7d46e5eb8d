//! Progress on standard error; nothing where that is no terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shortest time between two figures of the rate.
const WINDOW: Duration = Duration::from_millis(500);

/// A bar of samples, with the rate of the last half second: what is going on now, not on average.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Instant,
    counted: u64,
}

impl Progress {
    /// A bar of `total` samples.
    pub(crate) fn new(total: u64) -> Self {
        let style =
            ProgressStyle::with_template("{prefix} {wide_bar} {human_pos}/{human_len}  {msg}  {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: ProgressBar::new(total).with_style(style), since: Instant::now(), counted: 0 }
    }

    /// Begins anew, as `name`.
    pub(crate) fn start(&mut self, name: String) {
        self.bar.reset();
        self.bar.set_prefix(name);
        (self.since, self.counted) = (Instant::now(), 0);
    }

    /// Counts `samples` more.
    pub(crate) fn add(&mut self, samples: u64) {
        self.bar.inc(samples);
        self.counted += samples;
        let elapsed = self.since.elapsed();
        if elapsed >= WINDOW {
            self.bar.set_message(format!("{:.0}/s", self.counted as f64 / elapsed.as_secs_f64()));
            (self.since, self.counted) = (Instant::now(), 0);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
