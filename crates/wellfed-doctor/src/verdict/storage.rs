//! Waiting for storage or the network: how long each read takes, how many bytes a second there are, how many files, how much memory.

use serde_json::json;

use super::{Case, Finding, Kind, Said, again, code, fact, loading, locks, ms, network, percent};
use crate::{
    evidence::{Culprit, StageTime, mean},
    model::{Cost, Pipeline},
    proof,
    record::Frame,
    report::{Fact, Fix},
    system::Reads,
};

/// Bytes of a file below which opening it costs more than reading it: a local disk opens one in some 20 to 100 microseconds, in which it
/// reads a few tens of kilobytes.
const SMALL: f64 = 32e3;

/// Seconds that opening and reading a small file take at most where its number is to blame: a local disk takes 0.02 to 0.1 ms, a file
/// server on the same network up to about one.
const OPENING: f64 = 1.6e-3;

pub(super) fn find(case: &Case) -> Vec<Finding> {
    if case.e.loading.batches.is_empty() {
        return Vec::new();
    }
    // One cause of waiting for storage is named, not all that it could be.
    memory(case)
        .or_else(|| network::find(case))
        .or_else(|| small_files(case))
        .or_else(|| waiting(case))
        .into_iter()
        .collect()
}

/// Seconds a batch waits for storage: in whatever stage that is, since decoders read, too.
fn blocked(case: &Case) -> f64 {
    let all: f64 = case
        .e
        .stages
        .loading
        .iter()
        .filter(|stage| stage.name != "augment" && stage.name != "network")
        .map(|stage| stage.blocked)
        .sum();
    (all - locks::elsewhere(case)).max(0.0)
}

fn without_blocking(case: &Case, share: f64) -> Pipeline {
    case.p.with_make(|cost| Cost { blocked: cost.blocked * (1.0 - share), ..*cost })
}

fn volume(case: &Case) -> Vec<Fact> {
    let loading = &case.e.loading;
    let samples = loading.samples_per_batch().max(1.0);
    let (bytes, opens) = (loading.mean(|batch| batch.bytes), loading.mean(|batch| batch.opens));
    vec![fact(
        format!(
            "A sample opens {:.1} files and reads {:.0} KB; all together {:.1} MB/s.",
            opens / samples,
            bytes / samples / 1e3,
            case.e.load.rchar / 1e6
        ),
        bytes / samples,
        "bytes",
        "/proc",
    )]
}

fn memory(case: &Case) -> Option<Finding> {
    let load = &case.e.load;
    let read = case.e.loading.mean(|batch| batch.bytes);
    let from_disk = case.e.loading.mean(|batch| batch.disk_bytes);
    let swaps = load.swap_in > 1e6;
    // Bytes that come from the disk again although they were read before: there is no room to keep them.
    let again = case.e.steps.first_epoch.is_some() || load.memory > 0.9;
    if !swaps && (read <= 0.0 || from_disk < 0.1 * read || !again) {
        return None;
    }
    let limited = case.e.machine.memory_limit.is_some_and(|limit| limit < case.e.machine.memory);
    let full = load.memory > 0.85 || swaps;
    let blocked = blocked(case);
    let all: f64 = case.e.loading.mean(crate::evidence::Batch::blocked);
    let changed = without_blocking(case, if all > 0.0 { (blocked / all).min(1.0) } else { 1.0 });
    let mut facts = loading::waiting(case);
    facts.push(fact(
        format!(
            "{} of the bytes read come from the disk, not from the page cache.",
            percent(from_disk / read.max(1.0))
        ),
        from_disk / read.max(1.0),
        "share",
        "/proc",
    ));
    facts.push(fact(
        format!(
            "Memory with page cache is {} full{}.",
            percent(load.memory),
            if limited { ", by the limit of the control group" } else { "" }
        ),
        load.memory,
        "share",
        if limited { "cgroup" } else { "/proc" },
    ));
    if load.disk_latency > 0.0 {
        facts.push(fact(
            format!("A read of the disk takes {}.", ms(load.disk_latency)),
            load.disk_latency,
            "s",
            "/proc",
        ));
    }
    let id = if full { "memory-limit" } else { "page-cache-thrash" };
    let fix = Fix {
        title: if limited { "Raise the memory limit, or make the data fit into it".to_owned() } else { "Make the data fit into memory, or read it in larger pieces".to_owned() },
        change: "# give the job more memory, fewer or smaller samples, or shards that are read in a row".to_owned(),
        place: None,
        why: "What was read is pushed out of the page cache before it is needed again, so that every epoch reads the disk.".to_owned(),
        apply: None,
    };
    let title = format!(
        "The data does not fit into memory: {} of it is read from the disk again",
        percent(from_disk / read.max(1.0))
    );
    Some(case.finding(Kind::Setting, id, "memory", Said { title, facts, fix }, &changed, 0.15))
}

fn small_files(case: &Case) -> Option<Finding> {
    let loading = &case.e.loading;
    let samples = loading.samples_per_batch().max(1.0);
    let (opens, bytes) = (loading.mean(|batch| batch.opens), loading.mean(|batch| batch.bytes));
    let read = case.e.stages.get("read")?;
    let make = loading.mean(|batch| batch.wall);
    if again::loads_each(case).is_some() {
        return None;
    }
    // Milliseconds for each file are the latency of the storage, not the cost of opening many.
    let listed = case.e.stages.works.iter().find(|work| work.kind == "list");
    let listing = listed.map_or(0.0, |work| work.cpu + work.blocked);
    let per_open = (read.time() - listing).max(0.0) / opens.max(1.0);
    if opens < 0.8 * samples
        || bytes / opens.max(1.0) > SMALL
        || read.time() < 0.3 * make
        || per_open > OPENING
    {
        return None;
    }
    // Where there are no files, there is no folder to list, either.
    let parsed = case.e.stages.works.iter().find(|work| work.kind == "load").map_or(0.0, |work| work.cpu);
    let reading = listed.map_or(read.cpu, |work| work.cpu + (read.cpu - at_line(read, &work.at)).max(parsed));
    let cpu = loading.mean(|batch| batch.cpu);
    let all = loading.mean(crate::evidence::Batch::blocked);
    let changed = case.p.with_make(|cost| Cost {
        cpu: cost.cpu * (1.0 - 0.9 * (reading / cpu.max(1e-12)).min(1.0)),
        blocked: cost.blocked * (1.0 - (read.blocked / all.max(1e-12)).min(1.0)),
        ..*cost
    });
    let mut facts = loading::waiting(case);
    facts.push(fact(
        format!(
            "{:.0} files a second are opened, {:.1} KB each; opening and reading takes {} of making a batch.",
            opens / case.e.steps.time().max(1e-12),
            bytes / opens.max(1.0) / 1e3,
            percent(read.time() / make)
        ),
        opens,
        "files",
        "workers",
    ));
    facts.extend(super::costs::functions(read));
    let fix = Fix {
        title: "Pack the samples into few large files".to_owned(),
        change: "# tar shards, as webdataset and wellfed.webdataset read them, or one array in memory"
            .to_owned(),
        place: read
            .culprits
            .first()
            .map(|culprit| code::place_of(culprit.call.as_ref().unwrap_or(&culprit.frame))),
        why: "Each file costs a look-up, an open and a close, which take longer than its bytes.".to_owned(),
        apply: None,
    };
    let title = format!(
        "Many small files: {:.0} opens a second of {:.1} KB each",
        opens / case.e.steps.time().max(1e-12),
        bytes / opens.max(1.0) / 1e3
    );
    Some(case.finding(Kind::Work, "small-files", "storage", Said { title, facts, fix }, &changed, 0.15))
}

/// Seconds that a stage takes for what a line of the script calls.
fn at_line(stage: &StageTime, line: &Frame) -> f64 {
    let called = |culprit: &&Culprit| {
        let from = culprit.call.as_ref().unwrap_or(&culprit.frame);
        from.file == line.file && from.line == line.line
    };
    stage.culprits.iter().filter(called).map(|culprit| culprit.time).sum()
}

fn waiting(case: &Case) -> Option<Finding> {
    // Whatever is waited for within a lock is waited for by one worker at a time.
    if locks::held(case).is_some() {
        return None;
    }
    let blocked = blocked(case);
    let all = case.e.loading.mean(crate::evidence::Batch::blocked);
    // Waiting that is the smaller part of making a batch is not what makes it slow: more workers would help as they help others.
    if blocked <= 0.0 || all <= 0.0 || blocked < 0.3 * case.e.loading.mean(|batch| batch.wall) {
        return None;
    }
    if by_bytes(case) { bandwidth(case, blocked, all) } else { latency(case, blocked, all) }
}

/// Whether the wait of a read grows with its bytes, or with how many read at once, rather than being the same for each.
pub(super) fn by_bytes(case: &Case) -> bool {
    let opens = case.e.loading.mean(|batch| batch.opens).max(1.0);
    if let Some(narrow) = proof::narrow(&case.e.storage, blocked(case) / opens) {
        return narrow;
    }
    let samples: Vec<(f64, f64)> = case
        .e
        .loading
        .samples
        .iter()
        .filter_map(|sample| Some((sample.bytes?, (sample.wall - sample.cpu).max(0.0))))
        .filter(|&(bytes, _)| bytes > 0.0)
        .collect();
    let by_size = (samples.len() >= 30).then(|| explained(&samples)).flatten();
    let by_company = explained(&company(case));
    match (by_size, by_company) {
        (Some(size), Some(company)) => size + 0.5 * company > 0.6,
        (Some(size), None) => size > 0.5,
        (None, Some(company)) => company > 0.5,
        // Nothing varies: large reads take long because they are large.
        (None, None) => {
            let loading = &case.e.loading;
            loading.mean(|batch| batch.bytes) / loading.mean(|batch| batch.opens).max(1.0) > 1e6
        }
    }
}

/// How many batches were being made while each was, and how long it was blocked.
pub(super) fn company(case: &Case) -> Vec<(f64, f64)> {
    let batches = &case.e.loading.batches;
    batches
        .iter()
        .filter(|batch| batch.t1 > batch.t0)
        .map(|batch| {
            let together: u64 = batches
                .iter()
                .map(|other| other.t1.min(batch.t1).saturating_sub(other.t0.max(batch.t0)))
                .sum();
            (together as f64 / (batch.t1 - batch.t0) as f64, batch.blocked())
        })
        .collect()
}

/// Which share of the mean of y a line through the points gives to x rather than to the constant, if x varies enough to tell.
pub(super) fn explained(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 20 {
        return None;
    }
    let (mx, my) = (mean(points.iter().map(|p| p.0)), mean(points.iter().map(|p| p.1)));
    let var = mean(points.iter().map(|p| (p.0 - mx).powi(2)));
    if mx <= 0.0 || my <= 0.0 || var.sqrt() < 0.1 * mx {
        return None;
    }
    let slope = mean(points.iter().map(|p| (p.0 - mx) * (p.1 - my))) / var;
    Some((slope * mx / my).clamp(0.0, 1.0))
}

fn bandwidth(case: &Case, blocked: f64, all: f64) -> Option<Finding> {
    let bytes = case.e.loading.mean(|batch| batch.bytes);
    let changed = without_blocking(case, (blocked / all).min(1.0));
    let mut facts = loading::waiting(case);
    facts.extend(volume(case));
    facts.push(fact(
        format!("Of the {} that a batch takes to make, {} are waiting for bytes, and the wait grows with their number: {:.1} MB/s is all there is.", ms(case.e.loading.mean(|batch| batch.wall)), ms(blocked), case.e.load.rchar / 1e6),
        blocked,
        "s",
        "workers",
    ));
    let fix = Fix {
        title: "Read fewer bytes, or from a faster disk".to_owned(),
        change: "# smaller or compressed samples, a local copy, or a cache in memory".to_owned(),
        place: culprit(case).map(|culprit| code::place_of(culprit.call.as_ref().unwrap_or(&culprit.frame))),
        why: format!(
            "More workers share the same {:.1} MB/s. Half the bytes ({:.1} MB a batch) take half the time.",
            case.e.load.rchar / 1e6,
            bytes / 2e6
        ),
        apply: None,
    };
    let title = format!(
        "Storage gives {:.1} MB/s, and that is less than the step could use",
        case.e.load.rchar / 1e6
    );
    Some(case.finding(Kind::Work, "storage-bandwidth", "storage", Said { title, facts, fix }, &changed, 0.1))
}

fn latency(case: &Case, blocked: f64, all: f64) -> Option<Finding> {
    let opens = case.e.loading.mean(|batch| batch.opens).max(1.0);
    let most = loading::most_workers(&case.p).max(case.p.workers);
    let (workers, _) = loading::with_workers(&case.p, 1).best_workers(most);
    let more = loading::with_workers(&case.p, workers);
    let gain = case.gain(&more, 0.08);
    let mut facts = loading::waiting(case);
    facts.extend(volume(case));
    facts.extend(tried(case));
    facts.push(fact(
        format!(
            "Of the {} that a batch takes to make, {} are waiting for storage: {} a file, whatever its size.",
            ms(case.e.loading.mean(|batch| batch.wall)),
            ms(blocked),
            ms(blocked / opens)
        ),
        blocked,
        "s",
        "workers",
    ));
    if let Some(read) = case.e.stages.get("read") {
        facts.extend(super::costs::functions(read));
    }
    let title = format!(
        "Storage takes {} to answer a read, and the loop waits {} of the time",
        ms(blocked / opens),
        percent(case.e.steps.wait() / case.e.steps.time())
    );
    if workers > case.p.workers
        && (workers <= 1 || loading::shares(case))
        && gain.factor >= super::WORTH
        && case.e.loader().is_some_and(|loader| loader.framework == "torch")
    {
        let (change, place) = code::loader_with(case.e, &[("num_workers", workers.to_string())]);
        let fix = Fix {
            title: format!(
                "Read more files at once: {workers} workers, which mostly wait and need {:.1} cores",
                mean(case.p.make.iter().map(|cost| cost.cpu)) / case.now.max(1e-12) * gain.factor
            ),
            change,
            place,
            why: "While one worker waits for its file, others read theirs; the storage answers many at once."
                .to_owned(),
            apply: Some(code::apply_loader(&[("num_workers", json!(workers))])),
        };
        return Some(case.finding(
            Kind::Work,
            "storage-latency",
            "storage",
            Said { title, facts, fix },
            &more,
            0.08,
        ));
    }
    let changed = without_blocking(case, (blocked / all).min(1.0));
    let fix = Fix {
        title: "Read from a disk that answers sooner".to_owned(),
        change: "# a local copy, or shards that are read in a row".to_owned(),
        place: None,
        why: "Each file is waited for.".to_owned(),
        apply: None,
    };
    Some(case.finding(Kind::Work, "storage-latency", "storage", Said { title, facts, fix }, &changed, 0.12))
}

/// What reading the script's files again showed.
fn tried(case: &Case) -> Option<Fact> {
    let [alone, together] = case.e.storage.as_slice() else { return None };
    let rate = |reads: &Reads| reads.bytes as f64 / reads.seconds.max(1e-9) / 1e6;
    Some(fact(
        format!(
            "Tried after the run: one reader gets {:.1} MB/s ({} a file), {} together {:.1} MB/s ({} a file).",
            rate(alone),
            ms(alone.time),
            together.readers,
            rate(together),
            ms(together.time)
        ),
        rate(together) * 1e6,
        "bytes/s",
        "reads",
    ))
}

fn culprit<'a>(case: &Case<'a>) -> Option<&'a crate::evidence::Culprit> {
    let stage: &StageTime = case.e.stages.loading.iter().max_by(|a, b| a.blocked.total_cmp(&b.blocked))?;
    stage.culprits.first()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_grows_with_bytes_is_told_from_a_constant_one() {
        let sizes = (0..100).map(|i| 1e4 + 1e3 * f64::from(i));
        let constant: Vec<(f64, f64)> =
            sizes.clone().map(|bytes| (bytes, 0.01 + 1e-9 * (bytes % 7.0))).collect();
        let paced: Vec<(f64, f64)> = sizes.map(|bytes| (bytes, bytes / 1e7)).collect();
        assert!(explained(&constant).unwrap() < 0.1);
        assert!(explained(&paced).unwrap() > 0.9);
        let equal = vec![(1e4, 0.01); 100];
        assert!(explained(&equal).is_none());
    }
}
