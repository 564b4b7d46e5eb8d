//! tf.data: maps that run one at a time, cores that are all in use by decoding or parsing, reads that are waited for.

use serde_json::json;

use super::{Case, Finding, HELD_UP, Kind, Said, code, fact, fed_in_vain, loading, ms, percent};
use crate::{
    evidence::{Evidence, Flow},
    model::{Cost, Pipeline},
    record::{Loader, Node},
    report::{Apply, Fact, Fix},
};

pub(super) fn find(case: &Case) -> Vec<Finding> {
    let Some(flow) = &case.e.flow else { return Vec::new() };
    let Some(heavy) = flow.heaviest() else { return Vec::new() };
    let parses_csv = decodes(case, "CSV") || decodes(case, "Csv");
    let serial = serial(case, flow, heavy).filter(|_| !parses_csv);
    let busy = match () {
        () if parses_csv => csv(case, flow, heavy),
        () if python(case.e).is_some() => in_python(case, flow, heavy),
        // Elements that are made one after the other first of all want to be made by all cores.
        () if serial.is_none() && !fed_in_vain(case.e) => {
            feed(case, flow, heavy).or_else(|| decode(case, flow, heavy))
        }
        () => decode(case, flow, heavy),
    };
    let latency = latency(case, flow, heavy).filter(|_| !parses_csv);
    [serial, latency, busy].into_iter().flatten().collect()
}

/// Whether the pipeline has an operation that decodes such things.
fn decodes(case: &Case, what: &str) -> bool {
    case.e.loader().is_some_and(|loader| loader.decodes.iter().any(|operation| operation.contains(what)))
}

/// What of a pipeline runs as Python code and is most of its work: a generator, or the functions of its maps.
fn python(e: &Evidence) -> Option<&'static str> {
    if generated(e) {
        return Some("generator");
    }
    let steps = &e.loader()?.pipeline;
    let mut maps =
        steps.iter().filter(|step| step.contains("Map(") && !step.starts_with("FlatMap")).peekable();
    maps.peek()?;
    maps.all(|step| step.contains("py_function")).then_some("py_function")
}

/// Whether elements come from a generator of Python's that takes most of the time. Its node does not count that: what other threads use
/// the processor for beyond what nodes tell is the generator's. One that only names files for a map has little.
pub(super) fn generated(e: &Evidence) -> bool {
    let is_there = |loader: &Loader| loader.pipeline.iter().any(|step| step.contains("generator"));
    e.loader().is_some_and(is_there)
        && e.flow.as_ref().is_some_and(|flow| e.beside_the_step() > 2.0 * flow.work())
}

/// What keeps the cores busy, in a title.
fn keeps_busy(case: &Case, what: &str) -> String {
    format!(
        "{what} keeps the cores busy, and the loop waits {} of the time",
        percent(case.e.steps.wait() / case.e.steps.time())
    )
}

/// The pipeline where making elements costs such a share of what it does, on all cores, ahead of the loop.
fn cheaper(case: &Case, left: f64) -> Pipeline {
    let made = case.p.with_make(|cost| Cost { cpu: left * cost.cpu, ..*cost });
    let workers = (case.p.cores.floor().max(1.0) as usize).max(made.workers);
    Pipeline { restart: restart_with(case, left), workers, prefetch: made.prefetch.max(2), ..made }
}

fn facts(case: &Case, flow: &Flow, heavy: &Node) -> Vec<Fact> {
    let mut facts = loading::waiting(case);
    // A generator's time is not in its node.
    if !generated(case.e) {
        let time = flow.time(heavy);
        facts.push(fact(
            format!("{} takes {} a batch; {} at a time.", heavy.name, ms(time), heavy.parallelism.max(1)),
            time,
            "s",
            "loader",
        ));
    }
    facts.push(loading::busy(case));
    facts
}

fn blocked_share(p: &Pipeline) -> f64 {
    let (blocked, all) = p.make.iter().fold((0.0, 0.0), |(b, a), cost| (b + cost.blocked, a + cost.alone()));
    if all > 0.0 { blocked / all } else { 0.0 }
}

/// The pipeline with so many calls at once, made ahead.
fn parallel(p: &Pipeline, calls: usize) -> Pipeline {
    Pipeline { workers: calls, prefetch: 2, ..p.clone() }
}

/// What an epoch's begin and end take if making elements takes such a share of what it takes. No process is started: where making them
/// is what the loop waits for, an epoch begins with that, too. Where not, it is TensorFlow's own preparations.
fn restart_with(case: &Case, share: f64) -> f64 {
    let waits = case.e.steps.wait() >= HELD_UP * case.e.steps.time();
    if waits { share * case.p.restart } else { case.p.restart }
}

fn serial(case: &Case, flow: &Flow, heavy: &Node) -> Option<Finding> {
    let cores = case.p.cores.floor().max(1.0) as usize;
    if (heavy.parallelism > 1 && flow.prefetches()) || blocked_share(&case.p) > 0.5 {
        return None;
    }
    let python = python(case.e);
    // One thread of Python at a time: another can only be ahead of the loop.
    let calls = if python.is_some() { 1 } else { cores };
    if calls <= case.p.workers {
        return None;
    }
    let mut changed = parallel(&case.p, calls);
    changed.restart = restart_with(case, case.p.workers.max(1) as f64 / calls as f64);
    let mut facts = facts(case, flow, heavy);
    facts.extend(python.map(one_thread));
    let (title, change, why, apply) = if python.is_some() {
        (
            "Make the next elements while the step computes",
            "# prefetch(tf.data.AUTOTUNE) at the end",
            "Without it Python makes an element when it is asked for, and the step waits for it.",
            vec![("prefetch", json!(-1))],
        )
    } else {
        (
            "Map in parallel and prefetch",
            "# map(..., num_parallel_calls=tf.data.AUTOTUNE), and prefetch(tf.data.AUTOTUNE) at the end",
            "Elements are made one after the other, or only when they are asked for.",
            vec![("num_parallel_calls", json!(-1)), ("prefetch", json!(-1))],
        )
    };
    let fix = Fix {
        title: title.to_owned(),
        change: change.to_owned(),
        place: case.e.loader().and_then(|loader| loader.place.clone()),
        why: why.to_owned(),
        apply: Some(code::apply_loader(&apply)),
    };
    let title = format!(
        "tf.data makes one element at a time: the loop waits {} of the time",
        percent(case.e.steps.wait() / case.e.steps.time())
    );
    Some(case.finding(Kind::Setting, "serial-loading", "loading", Said { title, facts, fix }, &changed, 0.15))
}

fn one_thread(what: &str) -> Fact {
    fact(
        format!("Python code makes elements ({what}), which only one thread at a time can do."),
        1.0,
        "threads",
        "loader",
    )
}

/// What is left of making elements in Python once it is done by arrays or by TensorFlow.
const IN_ARRAYS: f64 = 0.1;

/// Python code that makes elements: calls at once would wait for each other.
fn in_python(case: &Case, flow: &Flow, heavy: &Node) -> Option<Finding> {
    if blocked_share(&case.p) > 0.5 {
        return None;
    }
    let what = python(case.e)?;
    let mut facts = facts(case, flow, heavy);
    facts.push(one_thread(what));
    let fix = Fix {
        title: "Make elements from arrays, or by TensorFlow's operations".to_owned(),
        change: "# what Python computes, once before training; then from_tensor_slices, or a map of TensorFlow's operations".to_owned(),
        place: case.e.loader().and_then(|loader| loader.place.clone()),
        why: "Python makes one element at a time, whatever num_parallel_calls says.".to_owned(),
        apply: None,
    };
    let said = Said { title: keeps_busy(case, "Python code for each element"), facts, fix };
    Some(case.finding(Kind::Work, "python-overhead", "cpu", said, &cheaper(case, IN_ARRAYS), 0.3))
}

fn latency(case: &Case, flow: &Flow, heavy: &Node) -> Option<Finding> {
    let share = blocked_share(&case.p);
    if share <= 0.5 {
        return None;
    }
    let most = loading::most_workers(&case.p).max(case.p.workers);
    let (calls, _) = parallel(&case.p, 1).best_workers(most);
    let changed = parallel(&case.p, calls.max(case.p.workers));
    let mut facts = facts(case, flow, heavy);
    facts.push(fact(
        format!("{} of the time of making a batch needs no core: it waits for storage.", percent(share)),
        share,
        "share",
        "/proc",
    ));
    let fix = Fix {
        title: format!("{calls} reads at once"),
        change: format!(
            "# map(..., num_parallel_calls={calls}), with tf.data.Options whose threading.private_threadpool_size is {calls}"
        ),
        place: case.e.loader().and_then(|loader| loader.place.clone()),
        // Measured with calls that sleep, on two cores: 7 calls at once are as slow as 2 without a pool of their own.
        why: "While one call waits for its file, others read theirs. Calls run on a pool with one thread a core, unless the data set has its own.".to_owned(),
        apply: Some(code::apply_loader(&[
            ("num_parallel_calls", json!(calls)),
            ("private_threadpool_size", json!(calls)),
        ])),
    };
    let title = format!(
        "Reads are waited for, {} at a time: the loop waits {} of the time",
        case.p.workers.max(1),
        percent(case.e.steps.wait() / case.e.steps.time())
    );
    Some(case.finding(Kind::Work, "storage-latency", "storage", Said { title, facts, fix }, &changed, 0.12))
}

/// What is left of the cost of photographs that are stored at a quarter of the side.
const LEFT: f64 = 0.15;

/// What is left where wellfed makes whole batches, and where TensorFlow goes on from its samples (`benches/tfdata.py`).
const FED: f64 = 0.6;
const FED_IN_PART: f64 = 0.8;

/// What is left of parsing by `make_csv_dataset` (`benches/from_csv.py`: a tenth, and less).
const PARSED: f64 = 0.1;

/// tf.data sets the number of calls by itself as it runs: the same script differs by a third from run to run.
const VARIES: f64 = 0.2;

/// Images that wellfed decodes with TensorFlow's bits.
fn feed(case: &Case, flow: &Flow, heavy: &Node) -> Option<Finding> {
    let fed = case.e.fed.as_ref().filter(|fed| fed.images)?;
    if blocked_share(&case.p) > 0.5 {
        return None;
    }
    let (change, place) = code::fed(case.e);
    let whole = fed.plan == "native";
    let mut facts = facts(case, flow, heavy);
    if let Some(first) = fed.python.first().filter(|_| !whole) {
        facts.push(fact(format!("What stays TensorFlow's: {first}."), 1.0, "steps", "loader"));
    }
    let fix = Fix {
        title: "Give the data set to wellfed".to_owned(),
        change,
        place,
        why: "wellfed makes what it knows of the pipeline, with TensorFlow's own bits; the rest of it stays as it is.".to_owned(),
        apply: Some(Apply { feed: true, ..Apply::default() }),
    };
    let changed = cheaper(case, if whole { FED } else { FED_IN_PART });
    let said = Said { title: keeps_busy(case, "Decoding"), facts, fix };
    Some(case.finding(Kind::Work, "decode", "cpu", said, &changed, VARIES))
}

/// Seconds that handing one of wellfed's batches to TensorFlow takes, by a thread of Python beside the loop's: 4,800 batches of 50 rows and
/// 31 columns took 0.2 ms each, with what the loop does with them.
const HANDED: f64 = 0.0001;
/// Seconds that it takes to begin: 64 batches of 16 rows and 9 columns took that much longer than TensorFlow's own.
const BEGUN: f64 = 0.045;

/// Text that TensorFlow parses record by record.
fn csv(case: &Case, flow: &Flow, heavy: &Node) -> Option<Finding> {
    let (change, place) = code::csv(case.e);
    let fix = Fix {
        title: "Parse with wellfed.csv, which takes make_csv_dataset's arguments".to_owned(),
        change,
        place,
        why: "It parses blocks of rows by column, on all cores; TensorFlow makes a tensor of each field of each row.".to_owned(),
        apply: None,
    };
    let said = Said { title: keeps_busy(case, "Parsing CSV"), facts: facts(case, flow, heavy), fix };
    // What waits in tf.data's threads waits for other threads of it, not for storage.
    let handed = HANDED + BEGUN / case.e.steps.steps.len().max(1) as f64;
    let parsed = case.p.with_make(|cost| Cost { cpu: PARSED * cost.alone() + handed, blocked: 0.0, ..*cost });
    let changed = Pipeline { prefetch: 2, ..parsed };
    Some(case.finding(Kind::Work, "parse", "cpu", said, &changed, VARIES))
}

fn decode(case: &Case, flow: &Flow, heavy: &Node) -> Option<Finding> {
    if blocked_share(&case.p) > 0.5 {
        return None;
    }
    let jpegs = decodes(case, "Jpeg") || decodes(case, "DecodeImage");
    let images = jpegs || ["Png", "Bmp", "Gif"].iter().any(|kind| decodes(case, kind));
    let (title, change) = match (jpegs, images) {
        (true, _) => (
            "Decode less: smaller images, only the part that is used, or a cache",
            "# tf.io.decode_and_crop_jpeg, cache(), or images stored at the size they are used",
        ),
        (_, true) => (
            "Decode less: smaller images, or a cache",
            "# cache(), or images stored at the size they are used",
        ),
        _ => (
            "Do less for each element, or keep what was made",
            "# cache(), or what is the same in each epoch done once before",
        ),
    };
    let fix = Fix {
        title: title.to_owned(),
        change: change.to_owned(),
        place: case.e.loader().and_then(|loader| loader.place.clone()),
        why: "All cores make elements already; only less work makes more of them.".to_owned(),
        apply: None,
    };
    let said = Said { title: keeps_busy(case, &heavy.name), facts: facts(case, flow, heavy), fix };
    let changed = Pipeline {
        restart: restart_with(case, LEFT),
        ..case.p.with_make(|cost| Cost { cpu: LEFT * cost.cpu, ..*cost })
    };
    Some(case.finding(Kind::Work, "decode", "cpu", said, &changed, VARIES))
}
