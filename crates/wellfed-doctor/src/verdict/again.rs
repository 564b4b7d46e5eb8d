//! Work that is done anew for each sample, or by each worker, though once would do: files that are read as a whole, connections, chunks
//! of which little is used, data that every worker reads.

use super::{Case, Finding, Kind, Said, code, fact, loading, ms, percent, pipeline, whole};
use crate::{
    evidence::Work,
    model::{Cost, Pipeline},
    report::{Fact, Fix},
};

/// Share of making a batch below which such work is not worth a look.
const LEAST: f64 = 0.1;

/// Opens for each sample, from which on a file is opened for each.
const EACH: f64 = 0.8;

/// Share of all opens from which on it is one file that is opened again and again.
const SAME: f64 = 0.5;

/// What is left of the time that reading a file as a whole takes, once its content is in memory.
const INDEXED: f64 = 0.03;

/// How unsure it is what is left without opening or connecting: what is opened is also found, mapped and dropped. Of 9 composed scripts
/// two gained more than twice what was promised.
const UNSURE: f64 = 0.25;

/// Share of making a batch from which on connections are made again and again.
const SELDOM: f64 = 0.01;

/// What is left of connecting and asking, once the connection is there.
const ASKED: f64 = 0.1;

/// Share of reading from HDF5 that looks up what a file that is kept open has in memory.
const LOOKED_UP: f64 = 0.3;

/// Bytes read for each byte of a sample, from which on most of a chunk is read in vain.
const WASTED: f64 = 2.0;

pub(super) fn find(case: &Case) -> Vec<Finding> {
    if case.e.loading.batches.is_empty() {
        return Vec::new();
    }
    [load(case), load_each(case), connect(case), open(case), list(case), chunk(case), twice(case)]
        .into_iter()
        .flatten()
        .collect()
}

/// Whether most of what Python does for a sample is such work, of which more is known than that it is Python.
pub(super) fn explain_python(case: &Case) -> bool {
    let python = case.e.stages.cpu("python");
    let known =
        case.e.stages.works.iter().filter(|work| {
            ["load", "connect", "query", "open", "search", "list", "chunk"].contains(&work.kind)
        });
    let known: f64 = known.map(|work| work.cpu).sum();
    !find(case).is_empty() && (known >= MOSTLY * python || twice(case).is_some())
}

/// Share of the time in Python from which on something is most of it.
const MOSTLY: f64 = 0.4;

fn work<'a>(case: &Case<'a>, kind: &str) -> Option<&'a Work> {
    let found = case.e.stages.works.iter().find(|work| work.kind == kind)?;
    let whole = case.e.loading.mean(|batch| batch.cpu + batch.blocked());
    (found.cpu + found.blocked >= LEAST * whole).then_some(found)
}

/// The pipeline with so much of the work left.
fn with_left(case: &Case, work: &Work, left: f64) -> Pipeline {
    let cpu = case.e.loading.mean(|batch| batch.cpu).max(1e-12);
    let blocked = case.e.loading.mean(crate::evidence::Batch::blocked).max(1e-12);
    let gone = |part: f64, whole: f64| 1.0 - (1.0 - left) * (part / whole).min(1.0);
    let (runs, waits) = (gone(work.cpu, cpu), gone(work.blocked, blocked));
    case.p.with_make(|cost| Cost { cpu: cost.cpu * runs, blocked: cost.blocked * waits, ..*cost })
}

/// How much such work takes.
fn takes(case: &Case, work: &Work, does: &str) -> Fact {
    let (time, whole) = (work.cpu + work.blocked, case.e.loading.mean(|batch| batch.cpu + batch.blocked()));
    let text = format!(
        "`{}` ({}) {does}: {} of the {} that a batch takes.",
        work.at.call,
        code::where_is(&work.at),
        ms(time),
        ms(whole)
    );
    fact(text, time, "s", "stacks")
}

/// A file that is read as a whole for each sample.
fn load(case: &Case) -> Option<Finding> {
    let loading = &case.e.loading;
    let work = work(case, "load")?;
    let (path, size, share) = loading.most_opened()?;
    let opens = loading.mean(|batch| batch.opens) / loading.samples_per_batch().max(1.0);
    if share < SAME || opens * share < EACH * SAME || loading.files.len() < 10 {
        return None;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut facts = loading::waiting(case);
    facts.push(takes(case, work, "reads a file into memory"));
    facts.push(fact(
        format!("{name} ({:.1} MB) is opened {opens:.1} times for each sample.", size as f64 / 1e6),
        opens,
        "opens",
        "workers",
    ));
    let change = if path.ends_with(".npy") {
        "# np.load(path, mmap_mode=\"r\") once in each worker: then a sample reads its own rows"
    } else if path.ends_with(".npz") {
        "# np.load(path)[name] once in __init__, and index it here; or one .npy for each array, with mmap_mode=\"r\""
    } else {
        "# read it once, in __init__ or in each worker's first sample, and index it here"
    };
    let fix = Fix {
        title: format!("Read {name} once, not for each sample"),
        change: change.to_owned(),
        place: Some(code::place_of(&work.at)),
        why: "All of the file is read and unpacked for each sample, of which it uses a part.".to_owned(),
        apply: None,
    };
    let title = format!(
        "{name} is read as a whole for each sample ({}): {} of making a batch",
        code::where_is(&work.at),
        percent((work.cpu + work.blocked) / loading.mean(|batch| batch.cpu + batch.blocked()).max(1e-12))
    );
    let changed = with_left(case, work, INDEXED);
    let finding =
        case.finding(Kind::Work, "read-again", "storage", Said { title, facts, fix }, &changed, 0.15);
    // Where only parts of it are used, which its lines show, they can stay where they are.
    let mapped = case.e.edits.iter().find(|edit| edit.kind == "map" && edit.is_at(&work.at));
    Some(match mapped {
        Some(edit) => finding.edited(edit, whole::TITLE.to_owned(), whole::WHY),
        None => finding,
    })
}

/// Reading a file of its own into arrays for each sample, and how often one is opened for each.
pub(super) fn loads_each<'a>(case: &Case<'a>) -> Option<(&'a Work, f64)> {
    let loading = &case.e.loading;
    // Bytes are not parsed there, but by what follows.
    let work = work(case, "load").filter(|work| !work.at.call.contains("read_bytes("))?;
    let same = loading.most_opened().map_or(0.0, |(.., share)| share);
    let opens = loading.mean(|batch| batch.opens) / loading.samples_per_batch().max(1.0);
    (same < SAME && opens >= EACH).then_some((work, opens))
}

/// A file of its own that is opened and parsed for each sample.
fn load_each(case: &Case) -> Option<Finding> {
    let (work, opens) = loads_each(case)?;
    let mut facts = loading::waiting(case);
    facts.push(takes(case, work, "opens and parses a file"));
    facts.push(fact(format!("{opens:.1} files are opened for each sample."), opens, "opens", "workers"));
    let fix = Fix {
        title: "Write all samples into one array once, and map it".to_owned(),
        change: "# once: np.save(\"all.npy\", np.stack(samples)); then np.load(\"all.npy\", mmap_mode=\"r\") in __init__, and index it here".to_owned(),
        place: Some(code::place_of(&work.at)),
        why: "Opening a file and parsing its headers takes longer than copying a row. Samples of different sizes: one array for each size, or one long array and where each begins.".to_owned(),
        apply: None,
    };
    let title = format!(
        "A file is opened and parsed for each sample ({}): {} of making a batch",
        code::where_is(&work.at),
        percent(
            (work.cpu + work.blocked) / case.e.loading.mean(|batch| batch.cpu + batch.blocked()).max(1e-12)
        )
    );
    // Where there are no files, there is no folder to list, either.
    let listed = case.e.stages.works.iter().find(|work| work.kind == "list");
    let (cpu, blocked) = listed.map_or((0.0, 0.0), |work| (work.cpu, work.blocked));
    let both = Work { cpu: work.cpu + cpu, blocked: work.blocked + blocked, ..work.clone() };
    let changed = with_left(case, &both, INDEXED);
    Some(case.finding(Kind::Work, "small-files", "storage", Said { title, facts, fix }, &changed, 0.15))
}

/// What keeps a connection, in words.
const KEPT: &str = "Keep the connection, one for each worker";

/// Why that helps.
const KEPT_WHY: &str = "Connecting opens files and reads the schema, or greets a server, before the first row is there. Made on first use, it is not shared by workers.";

/// A connection that is made for each sample. What its first statement takes is mostly the connection's, too: it reads the schema.
fn connect(case: &Case) -> Option<Finding> {
    let of = |kind: &str| case.e.stages.works.iter().find(|work| work.kind == kind);
    let made = of("connect")?;
    let whole = case.e.loading.mean(|batch| batch.cpu + batch.blocked()).max(1e-12);
    let asked = of("query").map_or((0.0, 0.0), |work| (work.cpu, work.blocked));
    let work = Work { cpu: made.cpu + asked.0, blocked: made.blocked + asked.1, ..made.clone() };
    let time = work.cpu + work.blocked;
    // One that each worker makes once is hardly ever seen.
    if made.cpu + made.blocked < SELDOM * whole || time < LEAST * whole {
        return None;
    }
    let mut facts = loading::waiting(case);
    facts.push(takes(case, &work, "connects for each sample, with the statements that follow"));
    let fix = Fix {
        title: KEPT.to_owned(),
        change: kept(&work.at.call, "connect(", "connection"),
        place: Some(code::place_of(&work.at)),
        why: KEPT_WHY.to_owned(),
        apply: None,
    };
    let title = format!(
        "A connection is made for each sample ({}): with its statements {} of making a batch",
        code::where_is(&work.at),
        percent((time / whole).min(1.0))
    );
    let changed = with_left(case, &work, ASKED);
    let said = Said { title, facts, fix };
    let finding = case.finding(Kind::Work, "connect-again", "cpu", said, &changed, UNSURE);
    Some(match case.e.edits.iter().find(|edit| edit.kind == "connect" && edit.is_at(&work.at)) {
        Some(edit) => finding.edited(edit, KEPT.to_owned(), KEPT_WHY),
        None => finding,
    })
}

/// The comment that says how to keep what a line opens, by its call where the line is no more than that.
fn kept(line: &str, opener: &str, name: &str) -> String {
    let call = line.split_once(" = ").map_or(line, |(_, call)| call);
    let call = call.strip_prefix("return ").unwrap_or(call);
    // The line may be one that calls what opens, or at whose end it is given up.
    if call.contains(opener) && !call.starts_with("with ") {
        format!("# once in each process: if self.{name} is None: self.{name} = {call}")
    } else {
        "# open it once in each process, keep it, and use it here".to_owned()
    }
}

/// What keeps an open file, in words.
const KEPT_OPEN: &str = "Keep the file open, in each worker its own";

/// Why that helps.
const KEPT_OPEN_WHY: &str = "Opening reads the file's tables before the first value is there. Opened on first use, it is not shared by workers.";

/// A file of many samples that is opened for each of them: an archive, HDF5, a mapped array. What is looked up in an archive right after
/// reads its list of members, which one that is kept open knows. Whether it is one file, or one for each sample, the script's lines or
/// its opens tell.
fn open(case: &Case) -> Option<Finding> {
    let of = |kind: &str| case.e.stages.works.iter().find(|work| work.kind == kind);
    let opened = of("open")?;
    let edits = || case.e.edits.iter().filter(|edit| edit.is_at(&opened.at));
    let edit = edits().find(|edit| edit.kind == "open");
    let samples = case.e.loading.samples_per_batch().max(1.0);
    let again = case.e.loading.most_opened().is_some_and(|(.., share)| {
        share >= SAME && share * case.e.loading.mean(|batch| batch.opens) >= EACH * samples
    });
    if edit.is_none() && !again && !edits().any(|edit| edit.kind == "same") {
        return None;
    }
    let mut work = opened.clone();
    for (kind, share) in [("search", 1.0), ("chunk", LOOKED_UP)] {
        let (cpu, blocked) = of(kind).map_or((0.0, 0.0), |work| (work.cpu, work.blocked));
        work = Work { cpu: work.cpu + share * cpu, blocked: work.blocked + share * blocked, ..work };
    }
    let whole = case.e.loading.mean(|batch| batch.cpu + batch.blocked()).max(1e-12);
    let time = work.cpu + work.blocked;
    // One that each worker opens once is hardly ever seen.
    if (!again && opened.cpu + opened.blocked < SELDOM * whole) || time < LEAST * whole {
        return None;
    }
    let mut facts = loading::waiting(case);
    facts.push(takes(case, &work, "opens a file for each sample"));
    let title = format!(
        "A file of many samples is opened for each of them ({}): {} of making a batch",
        code::where_is(&work.at),
        percent((time / whole).min(1.0))
    );
    let fix = Fix {
        title: KEPT_OPEN.to_owned(),
        change: kept(&work.at.call, "(", "file"),
        place: Some(code::place_of(&work.at)),
        why: KEPT_OPEN_WHY.to_owned(),
        apply: None,
    };
    let changed = with_left(case, &work, INDEXED);
    let said = Said { title, facts, fix };
    let finding = case.finding(Kind::Work, "connect-again", "cpu", said, &changed, UNSURE);
    Some(match edit {
        Some(edit) => finding.edited(edit, KEPT_OPEN.to_owned(), KEPT_OPEN_WHY),
        None => finding,
    })
}

/// A folder that is listed for each sample.
fn list(case: &Case) -> Option<Finding> {
    let work = work(case, "list")?;
    let mut facts = loading::waiting(case);
    facts.push(takes(case, work, "lists a folder for each sample"));
    let fix = Fix {
        title: "List the folder once".to_owned(),
        change: format!("# once, in __init__, and indexed here: {}", work.at.call),
        place: Some(code::place_of(&work.at)),
        why: "Names of all files are read, and sorted, to open one of them.".to_owned(),
        apply: None,
    };
    let title = format!(
        "A folder is listed for each sample ({}): {} of making a batch",
        code::where_is(&work.at),
        percent(
            (work.cpu + work.blocked) / case.e.loading.mean(|batch| batch.cpu + batch.blocked()).max(1e-12)
        )
    );
    let changed = with_left(case, work, INDEXED);
    Some(case.finding(Kind::Work, "list-again", "storage", Said { title, facts, fix }, &changed, 0.15))
}

/// Chunks of HDF5 of which a sample uses a small part.
fn chunk(case: &Case) -> Option<Finding> {
    let work = work(case, "chunk")?;
    // What is read then is mostly what is read to open the file.
    if open(case).is_some() {
        return None;
    }
    let used = case.e.batch.as_ref().map_or(0.0, |batch| batch.bytes as f64);
    let read = case.e.loading.mean(|batch| batch.bytes);
    if used <= 0.0 || read < WASTED * used {
        return None;
    }
    let times = read / used;
    let mut facts = loading::waiting(case);
    facts.push(takes(case, work, "reads from HDF5"));
    facts.push(fact(
        format!(
            "A batch reads {:.1} MB and has {:.1} MB: {times:.0} times what it uses.",
            read / 1e6,
            used / 1e6
        ),
        times,
        "bytes/byte",
        "/proc",
    ));
    let fix = Fix {
        title: "Write chunks of one sample each, or read in the order of chunks".to_owned(),
        change: "# create_dataset(..., chunks=(1, *shape)) once; or shuffle chunks, and samples within them".to_owned(),
        place: Some(code::place_of(&work.at)),
        why: "HDF5 reads and unpacks whole chunks: of one that holds many samples, a sample in random order uses a small part."
            .to_owned(),
        apply: None,
    };
    let title = format!(
        "Each sample unpacks a whole chunk ({}), {times:.0} times the bytes that it uses",
        code::where_is(&work.at)
    );
    let changed = with_left(case, work, 1.0 / times);
    Some(case.finding(Kind::Work, "whole-chunks", "storage", Said { title, facts, fix }, &changed, 0.2))
}

/// Data that every worker reads as a whole, to keep its part.
fn twice(case: &Case) -> Option<Finding> {
    let loader = case.e.loader()?;
    let workers = case.p.workers;
    if !loader.iterable || workers < 2 || !case.e.loading.all_open_the_same() {
        return None;
    }
    let left = 1.0 / workers as f64;
    let share = 1.0 - case.e.stages.cpu("collate") / case.e.loading.mean(|batch| batch.cpu).max(1e-12);
    let by = 1.0 - share.clamp(0.0, 1.0) * (1.0 - left);
    let mut changed = case.p.with_make(|cost| Cost { cpu: cost.cpu * by, ..*cost });
    changed.receive = pipeline::receive_on_idle_cores(case.e, &case.p);
    let mut facts = loading::waiting(case);
    let first = case.e.loading.opened.first().and_then(|list| list.first()).cloned().unwrap_or_default();
    facts.push(fact(
        format!("All {workers} workers open the same files in the same order, {first} first."),
        workers as f64,
        "workers",
        "workers",
    ));
    let heaviest = case.e.stages.loading.iter().max_by(|a, b| a.time().total_cmp(&b.time()));
    let culprit = heaviest.and_then(|stage| stage.culprits.first());
    facts.extend(heaviest.map(super::costs::functions).into_iter().flatten());
    let fix = Fix {
        title: "Give each worker its own part, before the work is done".to_owned(),
        change: "# info = torch.utils.data.get_worker_info(): each worker takes every info.num_workers-th file, or skips lines before it parses them".to_owned(),
        place: culprit.map(|culprit| code::place_of(culprit.call.as_ref().unwrap_or(&culprit.frame))),
        why: "What a worker reads and parses and then leaves to another is work for nothing; without any division each sample is given once by each worker.".to_owned(),
        apply: None,
    };
    let title =
        format!("Each of {workers} workers reads all of the data, so that it is read {workers} times");
    let said = Said { title, facts, fix };
    let finding = case.finding(Kind::Setting, "read-by-each", "cpu", said, &changed, 0.25);
    Some(match case.e.edits.iter().find(|edit| edit.kind == "share" && code::of_data_set(edit, loader)) {
        Some(edit) => finding.edited(
            edit,
            "Leave to each worker its own part, before it is parsed".to_owned(),
            "Lines of other workers are still read, but no longer parsed; the samples stay the same.",
        ),
        None => finding,
    })
}
