//! What [`crate::Loader::stats`] gives: a snapshot of all counters, as data and as a table.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::Phase;
use crate::memory::PageLockStats;

/// One phase, over all threads since the loader was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseStats {
    /// `read`, `decode`, `transform`, `write` or `idle`.
    pub name: &'static str,
    /// Seconds of thread time.
    pub seconds: f64,
    /// How often (samples, for all but `idle`).
    pub count: u64,
    /// Bytes it produced.
    pub bytes: u64,
}

/// A phase as it is read, whose name is not known to be one.
#[derive(Deserialize)]
struct AnyPhase {
    name: String,
    seconds: f64,
    count: u64,
    bytes: u64,
}

impl<'de> Deserialize<'de> for PhaseStats {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let AnyPhase { name, seconds, count, bytes } = AnyPhase::deserialize(from)?;
        let known = Phase::ALL.into_iter().map(Phase::name).find(|known| *known == name);
        let name = known.ok_or_else(|| D::Error::custom(format!("there is no phase {name:?}")))?;
        Ok(Self { name, seconds, count, bytes })
    }
}

/// What became of row indexes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowIndexStats {
    /// Images whose index is kept.
    pub images: u64,
    /// Decodes that had one.
    pub used: u64,
    /// Bytes they take in memory.
    pub bytes: u64,
    /// Bytes they may take: an eighth of the memory budget.
    pub limit: u64,
    /// Decodes whose index was not kept, for want of room.
    pub refused: u64,
    /// Why they could not be written to files, if they could not.
    pub problem: Option<String>,
}

/// What became of `cache`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheStats {
    /// The folder, or `None` for memory.
    pub path: Option<String>,
    /// Samples that are kept (of those on disk: that were asked for).
    pub samples: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes that they may take.
    pub limit: u64,
    /// Samples that have nothing to keep: no JPEG, or a damaged one.
    pub passed: u64,
    /// Samples for which there is no room: they are made as without a cache.
    pub left_out: u64,
    /// Samples that were made from the cache.
    pub hits: u64,
    /// Why writing ended, if it did.
    pub problem: Option<String>,
}

/// Requests of the I/O layer, to all stores of a loader that answer later. What opened the data set is not among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Requests that were begun, those that were made again included.
    pub requests: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Requests under way now.
    pub in_flight: usize,
    /// Requests that may be under way now: as many as link and servers have been found to bear.
    pub limit: usize,
    /// Requests that `limit` may come to: what the stores are opened with (`max_pool_connections`), and what one loader makes.
    #[serde(default)]
    pub connections: usize,
    /// Bytes that may be under way or wait for workers: their share of the memory budget.
    #[serde(default)]
    pub ahead: u64,
    /// Seconds that all answered requests took together: over the time that went by, how many were under way.
    #[serde(default)]
    pub seconds: f64,
    /// Requests that were made again because they failed.
    pub retried: u64,
    /// Second requests for what was among the slowest percent.
    pub hedged: u64,
    /// How often a server asked to slow down.
    pub throttled: u64,
    /// Median time of the recent requests (some thousands) in seconds, from the beginning to the last byte; 0 before there
    /// was one.
    pub p50: f64,
    /// The time that 95 % of them did not exceed.
    pub p95: f64,
    /// The time that 99 % of them did not exceed.
    pub p99: f64,
}

/// What became of `remote_cache`: ranges of remote objects on local disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteCacheStats {
    /// The folder.
    pub path: String,
    /// Bytes that it takes on the disk, whoever put them there.
    pub bytes: u64,
    /// Bytes that it may take.
    pub limit: u64,
    /// Ranges that came from the folder.
    pub hits: u64,
    /// Their bytes.
    pub hit_bytes: u64,
    /// Ranges that came from the store.
    pub misses: u64,
    /// Their bytes.
    pub missed_bytes: u64,
    /// Ranges that were put into the folder.
    pub written: u64,
    /// Ranges that were not, as all that is there is needed sooner.
    pub left_out: u64,
    /// Ranges that were not, as they came faster than the disk takes them.
    pub dropped: u64,
    /// Why it grows no more, or is not used, if so.
    pub problem: Option<String>,
}

/// A snapshot of a loader's counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Seconds since the loader was made.
    pub elapsed: f64,
    /// Batches delivered.
    pub batches: u64,
    /// Samples delivered.
    pub samples: u64,
    /// Bytes of arrays delivered.
    pub bytes: u64,
    /// Seconds the consumer waited for batches.
    pub consumer_wait: f64,
    /// Mean number of finished batches that lay ready when one was taken.
    pub mean_ready: f64,
    /// Worker threads at work now.
    pub num_workers: usize,
    /// Batches made ahead now.
    pub prefetch: usize,
    /// Reader threads now; 0 when workers read for themselves.
    pub read_ahead: usize,
    /// Bytes of batch buffers and samples read ahead that the loader holds now.
    pub memory: u64,
    /// Bytes it may hold.
    pub memory_budget: u64,
    /// Bad samples met.
    pub errors: u64,
    /// Row indexes of JPEGs; `None` where none are made.
    pub row_index: Option<RowIndexStats>,
    /// The verb `cache`, if the plan has it.
    pub cache: Option<CacheStats>,
    /// Page-locked memory of batches; `None` where batches lie in pageable memory.
    pub page_locked: Option<PageLockStats>,
    /// Requests to stores that answer later; `None` where samples lie near.
    pub requests: Option<RequestStats>,
    /// The option `remote_cache`; `None` without it, and where samples lie near.
    #[serde(default)]
    pub remote_cache: Option<RemoteCacheStats>,
    /// Time, count and bytes per phase.
    #[serde(rename = "stages")]
    pub phases: Vec<PhaseStats>,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.samples as f64 / self.elapsed.max(1e-9);
        writeln!(
            f,
            "{} samples in {} batches, {:.1} s, {rate:.0} samples/s; consumer waited {:.1} s; {} bad samples",
            self.samples, self.batches, self.elapsed, self.consumer_wait, self.errors
        )?;
        writeln!(
            f,
            "{} workers, {} batches ahead ({:.1} ready on average), {} readers, {:.1} of {:.1} MB",
            self.num_workers,
            self.prefetch,
            self.mean_ready,
            self.read_ahead,
            self.memory as f64 / 1e6,
            self.memory_budget as f64 / 1e6
        )?;
        if let Some(rows) = &self.row_index {
            writeln!(f, "{rows}")?;
        }
        if let Some(cache) = &self.cache {
            writeln!(f, "{cache}")?;
        }
        if let Some(locked) = &self.page_locked {
            writeln!(f, "{locked}")?;
        }
        if let Some(requests) = &self.requests {
            writeln!(f, "{requests}")?;
        }
        if let Some(cache) = &self.remote_cache {
            writeln!(f, "{cache}")?;
        }
        write!(f, "{:<10} {:>9} {:>7} {:>12} {:>10}", "stage", "seconds", "share", "us/sample", "MB")?;
        let total: f64 = self.phases.iter().map(|s| s.seconds).sum();
        for phase in &self.phases {
            let each = phase.seconds * 1e6 / (phase.count.max(1) as f64);
            write!(
                f,
                "\n{:<10} {:>9.3} {:>6.1}% {each:>12.1} {:>10.1}",
                phase.name,
                phase.seconds,
                100.0 * phase.seconds / total.max(1e-12),
                phase.bytes as f64 / 1e6
            )?;
        }
        Ok(())
    }
}

impl RowIndexStats {
    /// Both together: a loader of several sources has one of each.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            images: self.images + other.images,
            used: self.used + other.used,
            bytes: self.bytes + other.bytes,
            limit: self.limit.saturating_add(other.limit),
            refused: self.refused + other.refused,
            problem: self.problem.or(other.problem),
        }
    }
}

impl CacheStats {
    /// Both together: a loader of several sources has one of each.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            path: self.path.or(other.path),
            samples: self.samples + other.samples,
            bytes: self.bytes + other.bytes,
            limit: self.limit.saturating_add(other.limit),
            passed: self.passed + other.passed,
            left_out: self.left_out + other.left_out,
            hits: self.hits + other.hits,
            problem: self.problem.or(other.problem),
        }
    }
}

impl fmt::Display for RowIndexStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { images, used, bytes, limit, refused, problem } = self;
        let mb = |bytes: u64| bytes as f64 / 1e6;
        write!(
            f,
            "row indexes of {images} images ({:.1} of {:.1} MB), used {used} times",
            mb(*bytes),
            mb(*limit)
        )?;
        if *refused > 0 {
            write!(f, "; no room for {refused} more: raise memory_budget")?;
        }
        if let Some(problem) = problem {
            write!(f, "; not written: {problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RequestStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, bytes, in_flight, limit, retried, hedged, throttled, p50, p95, p99, .. } = self;
        let [p50, p95, p99] = [p50, p95, p99].map(|seconds| seconds * 1e3);
        write!(f, "{requests} requests, {:.1} MB; {in_flight} of {limit} under way; ", *bytes as f64 / 1e6)?;
        write!(f, "{p50:.1} / {p95:.1} / {p99:.1} ms (50 / 95 / 99 %); ")?;
        write!(f, "{retried} retried, {hedged} hedged, {throttled} times throttled")
    }
}

impl fmt::Display for RemoteCacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, bytes, limit, hits, hit_bytes, misses, missed_bytes, problem, .. } = self;
        let mb = |bytes: u64| bytes as f64 / 1e6;
        write!(f, "remote cache in {path}: {:.1} of {:.1} MB; ", mb(*bytes), mb(*limit))?;
        write!(f, "{hits} ranges from disk ({:.1} MB), ", mb(*hit_bytes))?;
        write!(f, "{misses} from the store ({:.1} MB)", mb(*missed_bytes))?;
        match problem {
            Some(problem) => write!(f, "; {problem}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, samples, bytes, limit, left_out, hits, problem, .. } = self;
        write!(f, "cache in {}: {samples} samples, ", path.as_deref().unwrap_or("memory"))?;
        write!(f, "{:.1} MB", *bytes as f64 / 1e6)?;
        if *limit < u64::MAX {
            write!(f, " of {:.1}", *limit as f64 / 1e6)?;
        }
        write!(f, ", used {hits} times")?;
        if *left_out > 0 {
            write!(f, "; {left_out} samples do not fit and are decoded from files: raise max_bytes")?;
        }
        if let Some(problem) = problem {
            write!(f, "; ended: {problem}")?;
        }
        Ok(())
    }
}
