//! Work that takes long: decoding, augmenting, decompressing, collating, Python for each sample. Each is named with the function that costs it.

use super::{Case, Finding, Kind, Said, code, fact, loading, ms, percent, pipeline};
use crate::{
    evidence::StageTime,
    model::Cost,
    report::{Apply, Fact, Fix},
};

/// What is left of the cost of photographs made by torchvision or Albumentations when the engine makes them: a ninth (README,
/// `ImageFolder` against its best stock setting).
const NATIVE: f64 = 0.12;

/// What is left of decoding and resizing where a data set of one's own opens photographs by Pillow in wellfed's workers:
/// somewhat less than a third (`benches/scripts`, `pil_dataset`), and all of it where Python asks for every pixel.
const LAZY: f64 = 0.4;

pub(super) fn find(case: &Case) -> Vec<Finding> {
    if case.e.loading.batches.is_empty() {
        return Vec::new();
    }
    case.e.stages.loading.iter().filter_map(|stage| of_stage(case, stage)).collect()
}

struct Remedy {
    id: &'static str,
    /// Of the stage's CPU time, what is left.
    left: f64,
    /// How unsure that is, as a standard deviation of the logarithm of the step's time.
    unsure: f64,
    title: String,
    fix: String,
    change: String,
    why: &'static str,
    apply: Option<Apply>,
    /// Whether all stages are replaced, not only this one.
    all: bool,
}

fn of_stage(case: &Case, stage: &StageTime) -> Option<Finding> {
    let total = case.e.loading.mean(|batch| batch.cpu);
    if total <= 0.0 || stage.cpu <= 0.0 {
        return None;
    }
    let culprit = stage.culprits.first();
    let name = culprit.map_or_else(|| stage.name.to_owned(), |culprit| short(&culprit.frame.func));
    let at = culprit.map(|culprit| code::where_is(&culprit.frame)).unwrap_or_default();
    let remedy = remedy(case, stage, &name)?;
    let share = (stage.cpu / total).min(1.0);
    let factor = if remedy.all { NATIVE } else { 1.0 - share * (1.0 - remedy.left) };
    let mut changed = case.p.with_make(|cost| Cost { cpu: cost.cpu * factor, ..*cost });
    changed.receive = pipeline::receive_on_idle_cores(case.e, &case.p);
    if stage.name == "collate" {
        // Fewer tensors are also fewer to hand over: each is a descriptor of its own.
        let tensors = case.e.batch.as_ref().map_or(1.0, |batch| f64::from(batch.tensors.max(1)));
        changed.receive = changed.receive.min(loading::HAND_OVER + changed.receive / tensors);
    }
    let mut facts = loading::waiting(case);
    facts.push(fact(
        format!(
            "{} takes {} of CPU a batch, {} of what making a batch takes.",
            capital(stage.name),
            ms(stage.cpu),
            percent(share)
        ),
        stage.cpu,
        "s",
        "stacks",
    ));
    facts.extend(functions(stage));
    facts.push(fact(
        format!(
            "{} batches, {:.1} of {:.0} cores are busy.",
            if case.p.workers == 0 {
                "The training process itself makes".to_owned()
            } else {
                format!("{} workers make", case.p.workers)
            },
            case.e.load.busy,
            case.p.cores
        ),
        case.e.load.busy,
        "cores",
        "/proc",
    ));
    let fix = Fix {
        title: remedy.fix,
        change: remedy.change,
        place: if remedy.apply.is_some() {
            case.e.loader().and_then(|loader| loader.place.clone())
        } else {
            culprit.map(|culprit| code::place_of(culprit.call.as_ref().unwrap_or(&culprit.frame)))
        },
        why: remedy.why.to_owned(),
        apply: remedy.apply,
    };
    let title = if at.is_empty() { remedy.title } else { format!("{} ({name}, {at})", remedy.title) };
    let gain = case.gain_of_idle_cores(&changed, remedy.unsure);
    Some(Said { title, facts, fix }.into_finding(Kind::Work, remedy.id, "cpu", gain, case.cap(&changed)))
}

fn remedy(case: &Case, stage: &StageTime, name: &str) -> Option<Remedy> {
    let loader = case.e.loader()?;
    // What the engine can take over as a whole: torchvision's data sets of files with torchvision's transforms.
    let known = match &case.e.fed {
        Some(fed) => fed.plan == "native" || fed.plan == "tensors",
        None => loader.dataset.starts_with("torchvision.") || loader.framework == "wellfed.torch",
    };
    // Its images can be made faster, and the rest stays.
    let lazy = !known && case.e.fed.as_ref().is_some_and(|fed| fed.images || fed.plan == "hybrid");
    // The engine takes over both; the larger part gives the name.
    let (decoding, augmenting) = (case.e.stages.cpu("decode"), case.e.stages.cpu("augment"));
    let feed = || Apply { feed: true, ..Apply::default() };
    let in_library = stage.culprits.first().is_some_and(|culprit| crate::stage::library(&culprit.frame));
    let wait = percent(case.e.steps.wait() / case.e.steps.time());
    let line = "loader = wellfed.feed(loader)".to_owned();
    Some(match stage.name {
        "decode" if known && augmenting > decoding => return None,
        "decode" if known => Remedy {
            id: "decode",
            left: NATIVE,
            unsure: 0.12,
            title: format!("Decoding keeps the cores busy, and the loop waits {wait} of the time"),
            fix: "Decode and augment in wellfed's engine".to_owned(),
            change: line,
            why: "The engine decodes only what a crop looks at and writes it into the batch; the data set and its transforms stay as they are.",
            apply: Some(feed()),
            all: true,
        },
        "decode" if lazy => Remedy {
            id: "decode",
            left: LAZY,
            unsure: 0.25,
            title: format!("Decoding keeps the cores busy, and the loop waits {wait} of the time"),
            fix: "Open images in wellfed's workers".to_owned(),
            change: line,
            why: "They decode only what a crop looks at, with Pillow's pixels; the data set and its transforms stay as they are.",
            apply: Some(feed()),
            all: false,
        },
        "decode" => Remedy {
            id: "decode",
            left: 0.1,
            unsure: 0.15,
            title: format!("Decoding keeps the cores busy, and the loop waits {wait} of the time"),
            fix: format!(
                "Decode less: store images at the size they are used, or decode natively instead of in {name}"
            ),
            change: "ds = wellfed.image_folder(...)  # or torchvision's data sets with wellfed.feed(loader)"
                .to_owned(),
            why: "Decoding takes time by pixels; images that are made smaller once need not be decoded large each epoch.",
            apply: None,
            all: false,
        },
        "augment" if known && in_library && decoding >= augmenting => return None,
        "augment" if known && in_library => Remedy {
            id: "augment",
            left: NATIVE,
            unsure: 0.12,
            title: format!("Augmentation keeps the cores busy, and the loop waits {wait} of the time"),
            fix: "Augment in wellfed's engine".to_owned(),
            change: line,
            why: "Crops, resizing, flips and colour run as one pass over the pixels that are needed.",
            apply: Some(feed()),
            all: true,
        },
        "augment" => Remedy {
            id: "augment",
            left: 0.05,
            unsure: 0.1,
            title: format!("The transform keeps the cores busy, and the loop waits {wait} of the time"),
            fix: format!(
                "Make {name} cheaper: whole arrays instead of loops, once per batch, or on the device"
            ),
            change: format!("# {name}: vectorize, or replace by wellfed.transforms"),
            why: "It runs in Python for every sample.",
            apply: None,
            all: false,
        },
        "decompress" => Remedy {
            id: "decompress",
            left: 0.05,
            unsure: 0.12,
            title: format!("Decompression keeps the cores busy, and the loop waits {wait} of the time"),
            fix: "Store the data uncompressed, or with a format that unpacks faster (lz4, zstd)".to_owned(),
            change: format!("# {name}: write the files without compression once"),
            why: "The same bytes are unpacked in every epoch; disk space is what it costs to spare that.",
            apply: None,
            all: false,
        },
        "collate" => Remedy {
            id: "collate",
            left: 0.1,
            unsure: 0.12,
            title: format!(
                "Collation takes {} of making a batch, and the loop waits {wait} of the time",
                percent(stage.cpu / case.e.loading.mean(|batch| batch.wall).max(1e-12))
            ),
            fix: "Return few large tensors a sample instead of many small ones, or let wellfed collate"
                .to_owned(),
            change: line,
            why: "Each tensor of a sample is stacked and sent by itself.",
            apply: Some(feed()),
            all: false,
        },
        "python" => Remedy {
            id: "python-overhead",
            left: 0.1,
            unsure: 0.15,
            title: format!(
                "Python code for each sample keeps the cores busy, and the loop waits {wait} of the time"
            ),
            fix: format!("Do the work of {name} once for all samples, or for a batch at a time"),
            change: format!("# {name}: `__getitems__`, or arrays prepared once"),
            why: "The interpreter's cost comes with every sample.",
            apply: None,
            all: false,
        },
        _ => return None,
    })
}

/// Which functions take a stage's time.
pub(super) fn functions(stage: &StageTime) -> Vec<Fact> {
    stage
        .culprits
        .iter()
        .take(2)
        .filter(|culprit| culprit.time > 0.2 * stage.time())
        .map(|culprit| {
            let from = culprit
                .call
                .as_ref()
                .map(|call| format!(", called by `{}` at {}", call.call, code::where_is(call)))
                .unwrap_or_default();
            fact(
                format!(
                    "{} ({}) takes {}{from}.",
                    short(&culprit.frame.func),
                    code::where_is(&culprit.frame),
                    ms(culprit.time)
                ),
                culprit.time,
                "s",
                "stacks",
            )
        })
        .collect()
}

/// The last two parts of a qualified name.
pub(super) fn short(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').filter(|part| *part != "<locals>").collect();
    parts[parts.len().saturating_sub(2)..].join(".")
}

fn capital(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
