//! Work that takes long: decoding, augmenting, decompressing, collating, Python for each sample. Each is named with the function that costs it.

use super::{
    Case, Finding, Kind, Said, again, allocation, code, fact, garbage, loading, ms, percent, pipeline,
    storage,
};
use crate::{
    evidence::{self, StageTime, mean},
    model::Cost,
    report::{Apply, Fact, Fix},
};

/// What is left of the cost of photographs made by torchvision when the engine makes them: a ninth to a twelfth (`ImageFolder`, VOC,
/// timm and webdataset in `benches/scripts`).
const NATIVE: f64 = 0.11;

/// The same where the engine does more than crops and colour to each image, or puts targets or several images together with it:
/// automatic augmentations and detection came to 6.7 to 9.9 times as fast (`benches/scripts`).
const NATIVE_MUCH: f64 = 0.13;

/// The same where OpenCV or torchvision decodes, which take less time than Pillow does (`torchvision_io` 4.2, `cv2_dataset` 3.9,
/// `albumentations_folder` 5.7 times as fast).
const NATIVE_WHOLE: f64 = 0.22;

/// The same of samples without images, which are copied from where they lie (`texts`, `tensors`, `hdf5`).
const NATIVE_ROWS: f64 = 0.05;

/// Seconds until the engine begins with an epoch's first batch: its threads are there already.
const NATIVE_START: f64 = 0.0015;

/// Seconds that taking up one of its batches costs: nothing is rebuilt or mapped.
const NATIVE_RECEIVE: f64 = 0.0001;

/// What makes it that, by name.
const MUCH: [&str; 8] = [
    "RandAugment",
    "AutoAugment",
    "TrivialAugment",
    "AugMix",
    "GaussianBlur",
    "Elastic",
    "Coco",
    "Perspective",
];

/// What is left of decoding and resizing where a data set of one's own opens photographs by Pillow in wellfed's workers:
/// somewhat less than a third (`benches/scripts`, `python_step`), and all of it where Python asks for every pixel.
const LAZY: f64 = 0.3;

/// The same of images that OpenCV or torchvision decodes, whose pixels are all needed (`cv2_dataset`, `torchvision_io`).
const WHOLE: f64 = 0.72;

pub(super) fn find(case: &Case) -> Vec<Finding> {
    if case.e.loading.batches.is_empty() {
        return Vec::new();
    }
    let explained = again::explain_python(case) || of_memory(case);
    let stages = case.e.stages.loading.iter().filter(|stage| !(explained && stage.name == "python"));
    stages.filter_map(|stage| of_stage(case, stage)).chain(larger_images(case)).collect()
}

/// Share of the time in Python from which on what it does with memory is more to the point than that it is Python.
const MOSTLY: f64 = 0.4;

/// Whether most of what Python does for samples is looking for garbage and asking for memory, which are causes of their own.
fn of_memory(case: &Case) -> bool {
    let whole = case.e.loading.mean(|batch| batch.cpu);
    (garbage::of_making(case) + allocation::of_making(case)) * whole >= MOSTLY * case.e.stages.cpu("python")
}

/// Pixels of an image file for each one of a batch, from which on its decoding is for pixels that nobody sees.
const LARGER: f64 = 1.5;

/// What is left of an image's decoding besides what its pixels take.
const OPENED: f64 = 0.05;

/// Files of images that are larger than batches have them.
fn larger_images(case: &Case) -> Option<Finding> {
    let decode = case.e.stages.get("decode")?;
    let (file, used) = case.e.pixels()?;
    if file < LARGER * used {
        return None;
    }
    let left = used / file + OPENED;
    // What makes them smaller has nothing left to do.
    let resizes = |name: &str| ["resize", "thumbnail"].iter().any(|word| name.to_lowercase().contains(word));
    let resized = case.e.stages.get("augment").map_or(0.0, |stage| {
        let of = stage.culprits.iter().filter(|culprit| resizes(&culprit.frame.func));
        stage.cpu * (of.map(|culprit| culprit.time).sum::<f64>() / stage.time().max(1e-12)).min(1.0)
    });
    let total = case.e.loading.mean(|batch| batch.cpu).max(1e-12);
    let gone = (1.0 - left) * ((decode.cpu + resized) / total).min(1.0);
    // Smaller images are fewer bytes, too.
    let waits = if storage::by_bytes(case) { left } else { 1.0 };
    let mut changed = case.p.with_make(|cost| Cost {
        cpu: cost.cpu * (1.0 - gone),
        blocked: cost.blocked * waits,
        ..*cost
    });
    changed.receive = pipeline::receive_on_idle_cores(case.e, &case.p);
    let side = |pixels: f64| pixels.sqrt();
    let mut facts = loading::waiting(case);
    facts.push(fact(
        format!(
            "A file has {:.2} megapixels, an image of a batch {:.2}: {:.1} times as many are decoded as used.",
            file / 1e6,
            used / 1e6,
            file / used
        ),
        file / used,
        "pixels/pixel",
        "files",
    ));
    facts.extend(functions(decode));
    let culprit = decode.culprits.first();
    let fix = Fix {
        title: format!("Store images at about {:.0} x {:.0} pixels, once", side(used), side(used)),
        change: "# read images that were made smaller once: of the size that is used, or somewhat larger for random crops".to_owned(),
        place: culprit.map(|culprit| code::place_of(culprit.call.as_ref().unwrap_or(&culprit.frame))),
        why: "Decoding takes time by pixels; those that a resize leaves out need not be decoded in each epoch.".to_owned(),
        apply: None,
    };
    let title = format!(
        "Images are decoded at {:.1} times the pixels that batches have: decoding takes {} of making one",
        file / used,
        percent((decode.cpu / total).min(1.0))
    );
    let gain = case.gain_of_idle_cores(&changed, 0.15);
    let said = Said { title, facts, fix };
    Some(said.into_finding(Kind::Work, "decode", "cpu", gain, case.cap(&changed)))
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
    /// What is replaced.
    takes: Takes,
}

/// How much of making a batch a remedy replaces.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    /// The stage.
    Stage,
    /// Decoding, and what is done to images by libraries.
    Images,
    /// All of it.
    All,
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
    let replaced = match remedy.takes {
        Takes::Stage => share,
        Takes::Images => {
            let images = case.e.stages.cpu("decode") + case.e.stages.cpu("augment");
            (images.max(stage.cpu) / total).min(1.0)
        }
        Takes::All => 1.0,
    };
    let factor = 1.0 - replaced * (1.0 - remedy.left);
    let mut changed = case.p.with_make(|cost| Cost { cpu: cost.cpu * factor, ..*cost });
    changed.receive = pipeline::receive_on_idle_cores(case.e, &case.p);
    if remedy.takes == Takes::All {
        // There are no processes to be started and to take batches from. The first batch is made by all cores.
        let first = mean(case.p.make.iter().map(|cost| cost.cpu)) * remedy.left / case.p.cores.max(1.0);
        changed.receive = changed.receive.min(NATIVE_RECEIVE);
        changed.restart = changed.restart.min(NATIVE_START + first);
    } else if stage.name == "collate" && loading::torch_collates(case) {
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
            match case.p.workers {
                0 => "The training process itself makes".to_owned(),
                1 => "One worker makes".to_owned(),
                workers => format!("{workers} workers make"),
            },
            case.e.load.busy,
            case.p.cores
        ),
        case.e.load.busy,
        "cores",
        "/proc",
    ));
    let (change, place) = if remedy.apply.as_ref().is_some_and(|apply| apply.feed) {
        code::fed(case.e)
    } else {
        let place = culprit.map(|culprit| code::place_of(culprit.call.as_ref().unwrap_or(&culprit.frame)));
        (remedy.change, place)
    };
    let fix = Fix { title: remedy.fix, change, place, why: remedy.why.to_owned(), apply: remedy.apply };
    let title = if at.is_empty() { remedy.title } else { format!("{} ({name}, {at})", remedy.title) };
    let gain = case.gain_of_idle_cores(&changed, remedy.unsure);
    let fed = fix.apply.is_some();
    let finding =
        Said { title, facts, fix }.into_finding(Kind::Work, remedy.id, "cpu", gain, case.cap(&changed));
    let kind = if stage.name == "collate" { "pad" } else { "rows" };
    Some(match code::known(case.e, &[kind], &[stage]) {
        Some(edit) if !fed && kind == "pad" => finding.edited(
            edit,
            "Pad by pad_sequence".to_owned(),
            "It pads all sequences of a batch in one call, with the same values.",
        ),
        Some(edit) if !fed => finding.edited(
            edit,
            "Take rows from an array that is made once".to_owned(),
            "`.iloc[i]` makes a Series of each row, which takes a hundred times as long as the row of an array.",
        ),
        _ => finding,
    })
}

/// What is left of all of a batch's cost when the engine makes it.
fn native_left(case: &Case) -> f64 {
    let much = case.e.loader().is_some_and(|loader| {
        let texts = [&loader.transform, &loader.dataset, &loader.collate];
        MUCH.iter().any(|name| texts.iter().any(|text| text.contains(name)))
    });
    match case.e.stages.get("decode") {
        None if case.e.stages.cpu("augment") == 0.0 => NATIVE_ROWS,
        Some(decode) if lazy_left(decode) == Some(WHOLE) => NATIVE_WHOLE,
        _ if much => NATIVE_MUCH,
        _ => NATIVE,
    }
}

/// What is left of decoding where wellfed's workers open the images of a data set that stays in Python, by the library that does it
/// now; nothing if it is none that they know.
fn lazy_left(stage: &StageTime) -> Option<f64> {
    stage.culprits.iter().find_map(|culprit| {
        let of = |names: &[&str]| {
            let call = culprit.call.as_ref().map_or("", |call| call.call.as_str());
            let texts =
                [culprit.frame.file.as_str(), culprit.frame.call.as_str(), culprit.frame.func.as_str(), call];
            names.iter().any(|name| texts.iter().any(|text| text.contains(name)))
        };
        if of(&[
            "imread",
            "imdecode",
            "torchvision/io",
            "torchvision.io",
            "read_image",
            "decode_image",
            "decode_jpeg",
        ]) {
            Some(WHOLE)
        } else if of(&["PIL", "Image.open", "convert(", "pil_loader"]) {
            Some(LAZY)
        } else {
            None
        }
    })
}

fn remedy(case: &Case, stage: &StageTime, name: &str) -> Option<Remedy> {
    let loader = case.e.loader()?;
    // What the engine can take over as a whole. Where that was not asked, torchvision's data sets of files with torchvision's transforms.
    let known = match &case.e.fed {
        Some(fed) => fed.plan == "native" || fed.plan == "tensors",
        None => loader.dataset.starts_with("torchvision.") || loader.framework == "wellfed.torch",
    };
    // Its images can be made faster, and the rest stays.
    let images = !known && case.e.fed.as_ref().is_some_and(|fed| fed.images || fed.plan == "hybrid");
    let hybrid = case.e.fed.as_ref().is_some_and(|fed| fed.plan == "hybrid");
    let lazy = images.then(|| lazy_left(stage).or(hybrid.then_some(LAZY))).flatten();
    let decoding = case.e.stages.cpu("decode");
    // The engine takes over all of it; the largest part gives the name.
    let largest = case.e.stages.loading.iter().max_by(|a, b| a.cpu.total_cmp(&b.cpu)).map(|stage| stage.name);
    if known && largest != Some(stage.name) {
        return None;
    }
    let feed = || Some(Apply { feed: true, ..Apply::default() });
    let in_library = stage.culprits.first().is_some_and(|culprit| crate::stage::library(&culprit.frame));
    let wait = percent(case.e.steps.wait() / case.e.steps.time());
    let keeps = |what: &str| format!("{what} keeps the cores busy, and the loop waits {wait} of the time");
    let native = |id: &'static str, title: String, fix: &str, why: &'static str| Remedy {
        id,
        left: native_left(case),
        unsure: 0.15,
        title,
        fix: fix.to_owned(),
        change: String::new(),
        why,
        apply: feed(),
        takes: Takes::All,
    };
    let edit =
        |id: &'static str, left: f64, title: String, fix: String, change: String, why: &'static str| Remedy {
            id,
            left,
            unsure: 0.15,
            title,
            fix,
            change: format!("# {change}"),
            why,
            apply: None,
            takes: Takes::Stage,
        };
    Some(match stage.name {
        "decode" if known => native(
            "decode",
            keeps("Decoding"),
            "Decode and augment in wellfed's engine",
            "The engine decodes only what a crop looks at and writes it into the batch; the data set and its transforms stay as they are.",
        ),
        "decode" if lazy.is_some() => Remedy {
            id: "decode",
            left: lazy.unwrap_or(1.0),
            unsure: 0.25,
            title: keeps("Decoding"),
            fix: "Open images in wellfed's workers".to_owned(),
            change: String::new(),
            why: "They decode no more than what is asked for, with the library's own pixels; the data set and its transforms stay as they are.",
            apply: feed(),
            takes: if lazy == Some(LAZY) { Takes::Images } else { Takes::Stage },
        },
        // Where their sizes are known, `larger_images` says what can be spared.
        "decode" if case.e.pixels().is_some() => return None,
        "decode" => edit(
            "decode",
            0.1,
            keeps("Decoding"),
            format!(
                "Decode less: store images at the size they are used, or decode natively instead of in {name}"
            ),
            format!("{name}: read images that were made smaller once"),
            "Decoding takes time by pixels; images that are made smaller once need not be decoded large each epoch.",
        ),
        "augment" if known => native(
            "augment",
            keeps("Augmentation"),
            "Augment in wellfed's engine",
            "Crops, resizing, flips and colour run as one pass over the pixels that are needed.",
        ),
        // It is done with the decoding, whose remedy says so.
        "augment" if in_library && images && decoding > 0.0 && decoded_by_pillow(case) => return None,
        "augment" => Remedy {
            unsure: 0.1,
            ..edit(
                "augment",
                0.05,
                keeps("The transform"),
                format!(
                    "Make {name} cheaper: whole arrays instead of loops, once per batch, or on the device"
                ),
                format!("{name}: vectorize, or replace by a transform of a library"),
                "It runs in Python for every sample.",
            )
        },
        "read" | "decompress" if known => Remedy {
            unsure: 0.3,
            ..native(
                "stock-loader",
                keeps("Reading"),
                "Have wellfed make whole batches",
                "The engine reads what a batch needs straight into it; the data set stays as it is.",
            )
        },
        "decompress" => Remedy {
            unsure: 0.12,
            ..edit(
                "decompress",
                0.05,
                keeps("Decompression"),
                "Store the data uncompressed, or with a format that unpacks faster (lz4, zstd)".to_owned(),
                format!("{name}: write the files without compression once"),
                "The same bytes are unpacked in every epoch; disk space is what it costs to spare that.",
            )
        },
        "collate" => {
            let taken = percent(stage.cpu / case.e.loading.mean(|batch| batch.wall).max(1e-12));
            let title =
                format!("Collation takes {taken} of making a batch, and the loop waits {wait} of the time");
            if known {
                let why =
                    "The engine writes samples where the batch has them, so that nothing is left to collate.";
                return Some(native("collate", title, "Have wellfed make whole batches", why));
            }
            // Where samples stay in Python and are made in the training process, wellfed collates them as torch does.
            let apply = if case.p.workers > 0 && loading::collates(case) { feed() } else { None };
            let own = !loading::torch_collates(case);
            let (fix, change) = if own {
                (
                    "Collate whole arrays instead of looping in Python: pad_sequence pads, torch.stack stacks",
                    "whole arrays",
                )
            } else if apply.is_some() {
                ("Return few large tensors a sample instead of many small ones, or let wellfed collate", "")
            } else {
                ("Return few large tensors a sample instead of many small ones", "one array a sample")
            };
            let (fix, change) = (fix.to_owned(), change.to_owned());
            Remedy {
                unsure: 0.18,
                apply,
                ..edit(
                    "collate",
                    0.1,
                    title,
                    fix,
                    change,
                    if own {
                        "The script's collate function runs in Python for every batch."
                    } else {
                        "Each tensor of a sample is stacked and sent by itself."
                    },
                )
            }
        }
        "python" if known => native(
            "python-overhead",
            keeps("Python code for each sample"),
            "Have wellfed make whole batches",
            "No Python runs for a sample then; the data set stays as it is.",
        ),
        "python" => match native_call(case, stage) {
            Some(call) => Remedy {
                unsure: 0.3,
                ..edit(
                    "python-overhead",
                    0.1,
                    keeps(&format!("`{call}` for each sample")),
                    format!("Compute it once for all epochs, if it gives the same in each: {call}"),
                    format!("once for each sample, before training, and kept: {call}"),
                    "Native code works there, not the interpreter: for a whole batch at a time it would take as long.",
                )
            },
            // What its rewriting leaves is for its author to see. Of 14 composed scripts this was best on the whole: with 0.2 those that
            // were promised more than twice the speed gained 1.3 to 1.9.
            None => Remedy {
                unsure: 0.3,
                ..edit(
                    "python-overhead",
                    0.3,
                    keeps("Python code for each sample"),
                    format!("Do the work of {name} once for all samples, or for a batch at a time"),
                    format!("{name}: `__getitems__`, or arrays prepared once"),
                    "The interpreter's cost comes with every sample.",
                )
            },
        },
        _ => return None,
    })
}

/// The call of native code that most of a stage's time goes into. Only looks from outside tell: those from inside find the
/// interpreter's lock given up, which is where native code is called.
fn native_call(case: &Case, stage: &StageTime) -> Option<String> {
    let culprit = stage.culprits.first().filter(|culprit| culprit.time > 0.6 * stage.time())?;
    let call = match &culprit.native {
        Some(call) => call,
        // Nothing takes long in a function that does each thing once, but what it calls.
        None if evidence::straight(&culprit.frame, &case.e.edits)
            && culprit.time > ONCE * case.e.loading.samples_per_batch() =>
        {
            &culprit.frame
        }
        None => return None,
    };
    (case.e.stages.outside_looks > 0).then(|| call.call.clone())
}

/// Seconds a sample that the interpreter takes at most for a function without a loop: for some hundred operations.
const ONCE: f64 = 1e-4;

/// Whether images are opened by Pillow, which wellfed's workers make faster together with what is done to them.
fn decoded_by_pillow(case: &Case) -> bool {
    case.e.stages.get("decode").and_then(lazy_left) == Some(LAZY)
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
