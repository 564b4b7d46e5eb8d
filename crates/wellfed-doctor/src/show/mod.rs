//! How a report looks: in the terminal, as a page, and live while the script runs.
//!
//! Everything here is a pure function of a [`Report`]. Numbers are written the same way everywhere; text that comes from
//! the script (paths, code, exceptions) can neither steer the terminal nor become part of the page's markup.

use crate::report::{Gain, Report, Stage};

mod charts;
pub mod html;
pub mod live;
#[cfg(test)]
mod schema;
mod style;
pub mod terminal;

pub mod watch;

pub use style::Style;

/// A part of one step, as the loop sees it. Parts do not overlap and add up to the step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// `waiting`, or the name of a stage.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: Kind,
    /// Seconds.
    pub(crate) time: f64,
    /// Share of the step, 0 to 1.
    pub(crate) share: f64,
}

/// See [`Part::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing happens in the loop: data are made elsewhere.
    Wait,
    /// The loop makes the data itself.
    Load,
    /// The loop computes.
    Compute,
}

/// Whether `stage` belongs to the loop's own work rather than to the way of the data.
pub(crate) fn is_loop(stage: &Stage) -> bool {
    crate::stage::LOOP.contains(&stage.name.as_str())
}

/// One step, taken apart. Empty if no steps were seen.
pub(crate) fn parts(report: &Report) -> Vec<Part> {
    let steps = &report.steps;
    if !(steps.time.is_finite() && steps.time > 0.0) {
        return Vec::new();
    }
    let wait = some(steps.wait).min(steps.time);
    let inline = |stage: &&Stage| !is_loop(stage) && stage.runs_in == "main" && stage.name != "receive";
    let mut parts = Vec::new();
    let split = |parts: &mut Vec<Part>, stages: &[&Stage], whole: f64, kind, rest: &str, rest_kind| {
        let sum: f64 = stages.iter().map(|stage| some(stage.time)).sum();
        // Stages that were timed apart from the steps can add up to more than the steps have.
        let scale = if sum > whole { whole / sum } else { 1.0 };
        let mut push = |name: &str, kind, time: f64| {
            if time > 0.0 {
                parts.push(Part { name: name.to_owned(), kind, time, share: time / steps.time });
            }
        };
        for stage in stages {
            push(&stage.name, kind, some(stage.time) * scale);
        }
        // What is less than a hundredth of a step is rounding.
        let left = whole - sum;
        if stages.is_empty() || left > steps.time / 100.0 {
            push(rest, rest_kind, left);
        }
    };
    let loading: Vec<_> = report.stages.iter().filter(inline).collect();
    split(&mut parts, &loading, wait, Kind::Load, "waiting", Kind::Wait);
    let restart = some(steps.restart).min(steps.time - wait);
    // What is less than a hundredth of a step is seen nowhere.
    let restart = if restart > steps.time / 100.0 { restart } else { 0.0 };
    split(&mut parts, &[], restart, Kind::Wait, "epochs begin", Kind::Wait);
    // The device's own times say more than those of its launches, where both are known.
    let on_device = report.stages.iter().any(|stage| is_loop(stage) && stage.runs_in == "device");
    let ours = |stage: &&Stage| is_loop(stage) && (stage.runs_in == "device") == on_device;
    let computing: Vec<_> = report.stages.iter().filter(ours).collect();
    let rest = if computing.is_empty() { "computing" } else { "other" };
    split(&mut parts, &computing, steps.time - wait - restart, Kind::Compute, rest, Kind::Compute);
    parts
}

/// `value`, or 0 if it is no number of seconds.
fn some(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// What a stage's rate is compared with: batches a second the loop could take.
pub(crate) fn ceiling(report: &Report) -> Option<f64> {
    let ceiling = report.steps.ceiling;
    (ceiling.is_finite() && ceiling > 0.0).then(|| 1.0 / ceiling)
}

/// How the script ended, if that was no ordinary end.
pub(crate) fn ending(report: &Report) -> Option<String> {
    let exit = &report.exit;
    let after = format!("after {}", seconds(report.duration));
    let status = match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit status {code}"),
        (None, None) => String::new(),
    };
    let status = if status.is_empty() { status } else { format!(" ({status})") };
    match exit.reason.as_str() {
        "interrupt" => Some(format!("The script was interrupted {after}; this is what was seen until then.")),
        "running" => Some(format!("The script is still running; this is what was seen {after}.")),
        _ if exit.exception.is_some() || exit.reason == "exception" => {
            let exception = exit.exception.as_deref().unwrap_or("an exception");
            Some(format!("The script failed {after}: {exception}{status}"))
        }
        "steps" | "time" => None,
        _ if exit.signal.is_some() || exit.code.is_some_and(|code| code != 0) => {
            Some(format!("The script ended {after} with {}.", status.trim_matches([' ', '(', ')'])))
        }
        _ => None,
    }
}

/// `41 s, 310 steps of 64 samples, 2 cores, 1 GPU (NVIDIA L4)`
pub(crate) fn circumstances(report: &Report) -> String {
    let mut parts = vec![format!("{} watched", seconds(report.duration))];
    if report.steps.count > 0 {
        let batch = if report.steps.batch_size > 0.0 {
            format!(" of {} samples", rounded(report.steps.batch_size))
        } else {
            String::new()
        };
        parts.push(format!("{}{batch}", plural(report.steps.count, "step")));
    }
    if report.ranks > 1 {
        parts.push(format!("{} ranks", report.ranks));
    }
    if report.machine.cores > 0.0 {
        let cores = report.machine.cores;
        let unit = if cores == 1.0 { "core" } else { "cores" };
        let plain = if cores.fract() == 0.0 { format!("{cores:.0}") } else { format!("{cores:.1}") };
        parts.push(format!("{plain} {unit}"));
    }
    parts.push(match report.machine.gpus.as_slice() {
        [] => "no GPU".to_owned(),
        [gpu] => gpu.name.clone(),
        [gpu, ..] => format!("{} x {}", report.machine.gpus.len(), gpu.name),
    });
    parts.join(", ")
}

/// `training 38 %, evaluation 55 %, checkpoints 7 %`: what the script's time goes into; empty where that is one thing.
pub(crate) fn shares(report: &Report) -> String {
    let told: Vec<_> = report.script.iter().filter(|part| part.share >= 0.01).collect();
    if told.len() < 2 {
        return String::new();
    }
    told.iter().map(|part| format!("{} {}", part.name, percent(part.share))).collect::<Vec<_>>().join(", ")
}

/// A time span with three digits at most: `1.24 s`, `69.4 ms`, `410 us`.
pub(crate) fn seconds(value: f64) -> String {
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    match value.abs() {
        0.0 => "0 s".to_owned(),
        v if v >= 3600.0 => {
            let minutes = (value / 60.0).round();
            format!("{} h {} min", (minutes / 60.0).floor(), minutes % 60.0)
        }
        v if v >= 99.5 => {
            let whole = value.round();
            let left = if whole % 60.0 == 0.0 { String::new() } else { format!(" {} s", whole % 60.0) };
            format!("{} min{left}", (whole / 60.0).floor())
        }
        v if v >= 0.9995 => format!("{} s", digits(value)),
        v if v >= 0.000_999_5 => format!("{} ms", digits(value * 1e3)),
        _ => format!("{} us", rounded(value * 1e6)),
    }
}

/// Three digits at most, for numbers of any size above 0.1.
fn digits(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 99.95 => return rounded(value),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whole number with its thousands apart: `12,345`.
pub(crate) fn rounded(value: f64) -> String {
    let plain = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, c) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    if value < 0.0 && plain != "0" { format!("-{text}") } else { text }
}

/// A rate: whole above 100, three digits below.
pub(crate) fn rate(value: f64) -> String {
    if value.is_finite() { digits(value) } else { "unlimited".to_owned() }
}

/// `62 %`, `0.4 %`.
pub(crate) fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "unknown".to_owned();
    }
    let value = share * 100.0;
    if value != 0.0 && value.abs() < 0.95 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

/// `1.8x` and `1.6-1.9`, to the same digit.
pub(crate) fn gain(gain: &Gain) -> (String, String) {
    let places = match gain.factor {
        f if f < 1.195 => 2,
        f if f < 9.95 => 1,
        _ => 0,
    };
    let factor = format!("{:.places$}x", gain.factor);
    (factor, format!("{:.places$}-{:.places$}", gain.low, gain.high))
}

/// Bytes in decimal units: `13.6 GB`.
pub(crate) fn bytes(value: u64) -> String {
    let value = value as f64;
    match value {
        v if v >= 0.9995e12 => format!("{} TB", digits(v / 1e12)),
        v if v >= 0.9995e9 => format!("{} GB", digits(v / 1e9)),
        v if v >= 0.9995e6 => format!("{} MB", digits(v / 1e6)),
        v => format!("{} kB", digits(v / 1e3)),
    }
}

/// `1 step`, `2 steps`.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", rounded(n as f64), if n == 1 { "" } else { "s" })
}

/// File and line, the way editors take them.
pub(crate) fn at(file: &str, line: u32) -> String {
    if line == 0 { file.to_owned() } else { format!("{file}:{line}") }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report that was kept for tests.
    pub(crate) fn kept(name: &str) -> Report {
        let path = format!("{}/tests/reports/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let times = [
            (0.0, "0 s"),
            (4.1e-7, "0 us"),
            (41.4e-6, "41 us"),
            (0.000_999_6, "1 ms"),
            (0.0694, "69.4 ms"),
            (0.182, "182 ms"),
            (0.9999, "1 s"),
            (61.43, "61.4 s"),
            (99.6, "1 min 40 s"),
            (120.3, "2 min"),
            (7260.0, "2 h 1 min"),
        ];
        for (value, text) in times {
            assert_eq!(seconds(value), text, "{value}");
        }
        assert_eq!(seconds(f64::NAN), "unknown");
        assert_eq!(rounded(1_234_567.4), "1,234,567");
        assert_eq!(rounded(-0.2), "0");
        assert_eq!((rate(922.4), rate(14.44), rate(4.0)), ("922".into(), "14.4".into(), "4".into()));
        assert_eq!(
            (percent(0.621), percent(0.0042), percent(0.0)),
            ("62 %".into(), "0.4 %".into(), "0 %".into())
        );
    }

    #[test]
    fn sizes_are_decimal() {
        assert_eq!((bytes(13_616_000_000), bytes(999_900_000)), ("13.6 GB".into(), "1 GB".into()));
        assert_eq!((bytes(67_108_864), bytes(500)), ("67.1 MB".into(), "0.5 kB".into()));
    }

    #[test]
    fn a_gain_and_its_interval_are_written_to_the_same_digit() {
        let text = |factor, low, high| gain(&Gain { factor, low, high });
        assert_eq!(text(1.83, 1.62, 1.94), ("1.8x".into(), "1.6-1.9".into()));
        assert_eq!(text(1.04, 0.99, 1.08), ("1.04x".into(), "0.99-1.08".into()));
        assert_eq!(text(14.2, 11.0, 16.4), ("14x".into(), "11-16".into()));
    }

    #[test]
    fn the_parts_of_a_step_add_up_to_it() {
        for name in ["input_bound", "healthy", "two_ranks"] {
            let report = kept(name);
            let sum: f64 = parts(&report).iter().map(|part| part.share).sum();
            assert!((0.98..1.0 + 1e-9).contains(&sum), "{name}: {sum}");
        }
        assert_eq!(parts(&kept("failed")), []);
    }

    #[test]
    fn stages_that_add_up_to_more_than_the_step_are_scaled_to_it() {
        let mut report = kept("input_bound");
        for stage in &mut report.stages {
            stage.time *= 40.0;
        }
        let parts = parts(&report);
        let wait: f64 = parts.iter().filter(|part| part.kind != Kind::Compute).map(|part| part.time).sum();
        assert!((wait - report.steps.wait).abs() < 1e-9, "{wait}");
        assert!((parts.iter().map(|part| part.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_that_are_none_do_not_break_a_report() {
        let mut report = kept("input_bound");
        report.steps.wait = f64::NAN;
        report.stages[0].time = f64::INFINITY;
        report.stages[1].rate = f64::NAN;
        assert!(parts(&report).iter().all(|part| part.share.is_finite()));
        report.steps.time = f64::NAN;
        assert_eq!(parts(&report), []);
    }
}
