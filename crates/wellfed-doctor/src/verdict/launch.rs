//! Steps whose kernels are too short for the device: it waits for launches. Told by the kernels themselves, since to its driver a device
//! that runs one tiny kernel after the other is busy.

use super::{
    Case, Finding, Kind, Said, WORTH, code, fact, ms, percent,
    training::{LARGER, without_share},
};
use crate::{
    evidence::Kernels,
    report::{Fact, Fix},
};

/// Share of a step in which kernels run from which on the device is not called idle. Loops that compute have 0.9 and more; below this,
/// gaps are what a step consists of, or nearly, even if kernels were half as long again as they seem.
pub(super) const BUSY: f64 = 0.6;

/// Seconds of the host for each kernel up to which that is launching: an operation of eager torch takes 5 to 40 us, with its module,
/// autograd and optimizer, up to twice of it on a slow core. Where it is more, the loop does something else meanwhile.
const PER_KERNEL: f64 = 100e-6;

/// Share of a step that goes into passes and updates, and what the loop does besides, from which on that is what a step consists of.
const LAUNCHING: f64 = 0.5;

/// Share of a step spent waiting for the device from which on that comes first: the device is idle after each wait because of it, and
/// what is waited for can be in no graph.
const SYNCS: f64 = 0.1;

/// Seconds of a kernel that computes next to nothing; so much of each does not grow with the batch.
const TINY: f64 = 2e-6;

/// Share of a step in which the device only copies from which on that is told.
const COPIES: f64 = 0.15;

/// Share of a step that kernels and copies together fill from which on it is the device that a step takes, and not what feeds it.
const FILLED: f64 = 0.8;

/// What kernels do in a step.
pub(super) fn kernels_of(case: &Case, kernels: &Kernels) -> Fact {
    let step = case.e.steps.time();
    fact(
        format!(
            "In a step of {} the device computes {} ({}): {:.0} kernels of {} each.",
            ms(step),
            ms(kernels.busy),
            percent(kernels.share(step)),
            kernels.count,
            ms(kernels.each)
        ),
        kernels.share(step),
        "share",
        "profiler",
    )
}

/// The device waits for launches; `sync`: what is found of waiting for it.
pub(super) fn find(case: &Case, kernels: &Kernels, sync: Option<&Finding>) -> Option<Finding> {
    let e = case.e;
    let (step, wait) = (e.steps.compute(), e.steps.wait());
    if kernels.count <= 0.0 || kernels.share(e.steps.time()) >= BUSY {
        return None;
    }
    let spent = |name: &str| e.stages.time(name);
    let launching: f64 = ["forward", "backward", "optimizer", "compute"].into_iter().map(spent).sum();
    let launching = launching.min(step);
    let per_kernel = launching / kernels.count;
    if launching < LAUNCHING * step || per_kernel > PER_KERNEL {
        return None;
    }
    let first = |sync: &Finding| sync.sure() && sync.factor() >= WORTH;
    if spent("sync") >= SYNCS * step && sync.is_some_and(first) {
        return None;
    }
    // A batch of so many: launches are as many as before, kernels take longer by what is no overhead of theirs. The rest of a step, and
    // what is waited for, grow with it.
    let time = |tiny: f64| {
        let fixed = (kernels.count * tiny).min(kernels.busy);
        let device = fixed + LARGER * (kernels.busy - fixed);
        launching.max(device) / LARGER + (step - launching) + wait
    };
    let unsure = (0.5 * (time(0.0) / time(f64::INFINITY)).ln()).clamp(0.15, 0.4);
    let gain = case.gain_of(case.now * time(TINY) / (step + wait).max(1e-12), unsure);
    let batch = e.batch_size();
    let mut facts = vec![
        kernels_of(case, kernels),
        fact(
            format!(
                "The processor takes {} for each of them, to launch it and for the Python around it.",
                ms(per_kernel)
            ),
            per_kernel,
            "s",
            "stacks",
        ),
    ];
    if let Some(busy) = e.load.gpu_busy.filter(|&busy| busy > 0.8) {
        facts.push(fact(
            format!(
                "The driver calls the device busy {} of the time, as it does while any kernel runs.",
                percent(busy)
            ),
            busy,
            "share",
            "nvml",
        ));
    }
    let (change, place) = code::loader_with(e, &[("batch_size", format!("{:.0}", batch * LARGER))]);
    let fix = Fix {
        title: format!(
            "A larger batch ({:.0} samples), torch.compile(mode=\"reduce-overhead\") or CUDA graphs",
            batch * LARGER
        ),
        change,
        place,
        why: "Each operation costs its launch, whatever the batch; with more samples a step launches are shared, and a graph launches all of its kernels at once. The gain is the larger batch's, in samples a second."
            .to_owned(),
        apply: None,
    };
    let title = format!(
        "Steps are too small: the device computes {} of the time, and waits for the launches of {:.0} kernels a step",
        percent(kernels.share(e.steps.time())),
        kernels.count
    );
    let said = Said { title, facts, fix };
    Some(said.into_finding(Kind::Work, "launch-bound", "loop", gain, String::new()))
}

/// Copies that the loop does not wait for, but kernels: they are in the same stream.
pub(super) fn copies(case: &Case, kernels: &Kernels) -> Option<Finding> {
    let e = case.e;
    let (step, alone) = (e.steps.time(), kernels.copies_alone);
    if alone < COPIES * step || kernels.busy + alone < FILLED * step {
        return None;
    }
    let changed = without_share(case, alone / e.steps.compute().max(1e-12));
    let mut facts = vec![
        kernels_of(case, kernels),
        fact(
            format!("{} of a step the device copies, and computes nothing meanwhile.", ms(alone)),
            alone,
            "s",
            "profiler",
        ),
    ];
    if let Some(batch) = &e.batch {
        let bytes = batch.bytes as f64;
        facts.push(fact(format!("A batch has {:.1} MB.", bytes / 1e6), bytes, "bytes", "loader"));
    }
    let fix = Fix {
        title: "Copy the next batch in a stream of its own while this one is computed".to_owned(),
        change: "# with torch.cuda.stream(copying): upcoming = next(batches).to(device, non_blocking=True)\n\
                 # and before it is used: torch.cuda.current_stream().wait_stream(copying)"
            .to_owned(),
        place: e.loader().and_then(|loader| loader.place.clone()),
        why: "Work of one stream is done in turn, copies too. Fewer bytes take less: images as uint8, made float by the device."
            .to_owned(),
        apply: None,
    };
    let title = format!(
        "Copies keep the device from computing {} of the time, though the loop does not wait for them",
        percent(alone / step.max(1e-12))
    );
    Some(case.finding(Kind::Work, "h2d-copy", "loop", Said { title, facts, fix }, &changed, 0.1))
}
