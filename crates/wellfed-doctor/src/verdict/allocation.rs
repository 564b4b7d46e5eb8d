//! Memory that is given back to the kernel and asked for again: each of its pages is a fault, and is filled with zeros.
//!
//! glibc's `malloc` asks the kernel anew for what is larger than a threshold, 128 KB at first, and gives it back when it is freed. The
//! threshold follows what is freed, but never beyond 32 MB (`mallopt(3)`, `M_MMAP_THRESHOLD`): arrays that are larger cost their
//! faults each time. Pages above the heap's last one are given back, too (`M_TRIM_THRESHOLD`).

use super::{Case, Finding, Kind, Said, code, fact, loading, percent};
use crate::{
    evidence::Use,
    model::Cost,
    report::{Apply, Fix},
};

/// Kernel time of a fault at most, with what freeing the page takes: of 4 KB, and of 2 MB, which NumPy asks for. Measured 1 us to 2 us, and
/// 230 us to 280 us. What they take is bounded by the kernel's whole time.
const SMALL: f64 = 2e-6;
const HUGE: f64 = 300e-6;

/// Kernel time of a byte that is read from the page cache, seconds: 10 GB/s.
const READ: f64 = 1e-10;

/// Bytes of a page.
const PAGE: f64 = 4096.0;

/// What is left of the time of faults where memory is kept. Measured with arrays of 40 MB: nothing with NumPy, a third with torch.
const LEFT: f64 = 0.3;

/// How unsure that is, as a standard deviation of a logarithm.
const UNSURE: f64 = 0.15;

/// Share of the processor time from which on it is told.
const TOLD: f64 = 0.1;

/// Bytes that are kept: larger arrays are still given back.
const KEPT: &str = "1073741824";

/// Share of the processor time of some processes that goes into faults, of which `huge` are of large pages, and `unavoidable` of small
/// ones are no allocation's.
fn share(used: &Use, huge: f64, unavoidable: f64) -> f64 {
    if used.cpu <= 0.0 {
        return 0.0;
    }
    let small = (used.faults - huge).max(0.0);
    let time = SMALL * small + HUGE * huge;
    let theirs = 1.0 - SMALL * unavoidable.min(small) / time.max(1e-12);
    let kernel = (used.system - READ * used.read).max(0.0);
    (time.min(kernel) * theirs / used.cpu).min(1.0)
}

/// Shares of the processor time of training and of making batches that go into faults.
fn shares(case: &Case) -> (f64, f64) {
    let load = &case.e.load;
    let step = case.e.steps.whole().max(1e-12);
    let in_workers = case.e.loading.in_workers;
    // A worker puts each batch into memory that it shares with the training process, whose pages are always new.
    let shared = case.e.batch.as_ref().map_or(0.0, |batch| batch.bytes as f64 / PAGE / step);
    // The kernel counts huge pages for the whole machine.
    let huge = |used: &Use| load.huge_faults * (used.system / load.system.max(1e-12)).min(1.0);
    let of = |used: &Use, unavoidable: f64| share(used, huge(used), unavoidable);
    let training = of(&load.training, if in_workers { shared } else { 0.0 });
    let making = if in_workers { of(&load.making, shared) } else { training };
    (training, making)
}

/// Share of the processor time of making batches that goes into faults.
pub(super) fn of_making(case: &Case) -> f64 {
    shares(case).1
}

pub(super) fn find(case: &Case) -> Option<Finding> {
    let (load, in_workers) = (&case.e.load, case.e.loading.in_workers);
    let step = case.e.steps.whole().max(1e-12);
    let (training, making) = shares(case);
    if training.max(making) < TOLD {
        return None;
    }
    let spared = |share: f64| 1.0 - share * (1.0 - LEFT);
    let changed = case
        .p
        .with_make(|cost| Cost { cpu: cost.cpu * spared(making), ..*cost })
        .with_step(|cost| Cost { cpu: cost.cpu * spared(training), ..*cost });
    let (who, used, share) = if making > training || !in_workers {
        (if in_workers { "the workers" } else { "the script" }, &load.making, making)
    } else {
        ("the training process", &load.training, training)
    };
    let used = if used.cpu > 0.0 { used } else { &load.training };
    let mut facts = vec![fact(
        format!(
            "Of the processor time of {who}, {} is the kernel's, and most of that goes into page faults: {:.0} a step.",
            percent(used.system / used.cpu.max(1e-12)),
            used.faults * step
        ),
        used.faults,
        "faults/s",
        "/proc",
    )];
    facts.extend(loading::waiting(case));
    let names = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"];
    let fix = Fix {
        title: "Keep freed memory, up to 1 GB, instead of asking the kernel for it again".to_owned(),
        change: format!(
            "MALLOC_MMAP_THRESHOLD_={KEPT} MALLOC_TRIM_THRESHOLD_={KEPT} {}",
            code::command(case.e)
        ),
        place: None,
        why: "Arrays of more than 32 MB are given back to the kernel when they are freed, and each page of the next one is a fault and is filled with zeros. \
              Kept, the memory of the largest moment stays with the process."
            .to_owned(),
        apply: Some(Apply {
            env: names.iter().map(|name| ((*name).to_owned(), KEPT.to_owned())).collect(),
            ..Apply::default()
        }),
    };
    let title =
        format!("New memory for large arrays takes {} of the processor time of {who}", percent(share));
    Some(case.finding(Kind::Setting, "page-faults", "memory", Said { title, facts, fix }, &changed, UNSURE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(system: f64, faults: f64, read: f64) -> Use {
        Use { cpu: 1.0, system, faults, read, ..Use::default() }
    }

    #[test]
    fn kernel_time_is_that_of_faults_where_there_are_enough() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        close(share(&used(0.6, 6e5, 0.0), 0.0, 0.0), 0.6);
        close(share(&used(0.6, 3e3, 0.0), 3e3, 0.0), 0.6);
        // Too few for so much time.
        close(share(&used(0.6, 5e3, 0.0), 0.0, 0.0), 0.01);
        // Reading takes its part, and what is handed over has to be new.
        close(share(&used(0.6, 6e5, 2e9), 0.0, 0.0), 0.4);
        close(share(&used(0.6, 6e5, 0.0), 0.0, 3e5), 0.3);
        close(share(&used(0.6, 1e3, 0.0), 0.0, 3e5), 0.0);
        close(share(&Use::default(), 0.0, 0.0), 0.0);
    }
}
