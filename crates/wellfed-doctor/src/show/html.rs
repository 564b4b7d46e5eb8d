//! The report as one page that needs nothing else: `templates/report.html` with its style, its script and the code that
//! draws charts inside of it.
//!
//! All text goes through `Style::clean` and the template's escaping; what is marked safe there is our own, or JSON without
//! any character that means something in markup.

use askama::Template;

use super::{
    Kind, Style, at, bytes, ceiling, charts,
    charts::Chart,
    circumstances, ending, parts, percent, plural, rate, seconds,
    terminal::{healthy_title, loading, pace, per_second, promise, replaces},
};
use crate::{
    record::Place,
    report::{Fix, Gain, Report, Verdict},
};

/// Part of a meter's width that stands for the ceiling, in percent; rates above it go on to the right.
const CEILING_AT: f64 = 200.0 / 3.0;

#[derive(Template)]
#[template(path = "report.html")]
struct Page {
    version: &'static str,
    chart_style: &'static str,
    chart_script: &'static str,
    chart_licence: &'static str,
    style: &'static str,
    script: &'static str,
    data: String,
    title: String,
    command: String,
    circumstances: String,
    ending: Option<String>,
    failed: bool,
    /// What the script's time goes into.
    shares: String,
    fix: Option<FixView>,
    cap: String,
    pace: String,
    /// What the loop spends its time on, and the widths of that in percent.
    sides: Vec<(String, String)>,
    parts: Vec<PartView>,
    stages: Vec<StageView>,
    stages_note: String,
    unit: &'static str,
    has_ceiling: bool,
    evidence: Vec<FactView>,
    charts: Vec<Chart>,
    others: Vec<OtherView>,
    environment: Vec<(String, String)>,
    loaders: Vec<LoaderView>,
    notes: Vec<String>,
}

struct FixView {
    title: String,
    place: String,
    lines: Vec<Line>,
    why: String,
    can_try: bool,
    gain: Option<GainView>,
}

struct Line {
    sign: &'static str,
    text: String,
}

struct GainView {
    factor: String,
    interval: String,
    /// Where things lie on the scale from 1 to the limit, in percent.
    at: String,
    low_at: String,
    band: String,
    limit: String,
    meaning: String,
}

struct PartView {
    name: String,
    class: &'static str,
    time: String,
    share: String,
    width: String,
}

struct StageView {
    name: String,
    runs_in: String,
    rate: String,
    compared: String,
    time: String,
    cpu: String,
    width: String,
    short: bool,
    functions: Vec<FunctionView>,
}

struct FunctionView {
    share: String,
    name: String,
    place: String,
}

struct FactView {
    text: String,
    source: String,
}

struct OtherView {
    title: String,
    fix: String,
    gain: String,
    change: Vec<String>,
}

struct LoaderView {
    name: String,
    dataset: String,
    settings: String,
    place: String,
    steps: String,
    share: String,
    subject: bool,
}

/// The report as a page of HTML.
pub fn html(report: &Report) -> String {
    let charts = charts::charts(report);
    let verdict = &report.verdict;
    let title =
        if verdict.family == "healthy" { healthy_title(&verdict.title) } else { verdict.title.clone() };
    let (_, unit) = per_second(report);
    let page = Page {
        version: env!("CARGO_PKG_VERSION"),
        chart_style: include_str!("../../vendor/uplot/uPlot.min.css"),
        chart_script: include_str!("../../vendor/uplot/uPlot.iife.min.js"),
        chart_licence: include_str!("../../vendor/uplot/LICENSE"),
        style: include_str!("../../templates/report.css"),
        script: include_str!("../../templates/report.js"),
        data: in_script(&serde_json::to_string(&charts).expect("numbers and words")),
        title: if title.is_empty() { "No verdict".to_owned() } else { clean(&title) },
        command: clean(&report.command.join(" ")),
        circumstances: clean(&circumstances(report)),
        ending: ending(report).map(|text| clean(&text)),
        failed: report.exit.reason == "exception" || report.exit.exception.is_some(),
        shares: super::shares(report),
        fix: verdict.fix.as_ref().map(|fix| fix_view(report, verdict, fix)),
        cap: clean(&verdict.cap),
        pace: pace(report) + ".",
        sides: sides(report),
        parts: part_views(report),
        stages: stage_views(report),
        stages_note: match ceiling(report) {
            Some(ceiling) => {
                let rate = rate(ceiling * per_second(report).0);
                format!(
                    "Alone, with the cores and workers there are. The mark is what the step can take: {rate} {unit}."
                )
            }
            None => "Alone, with the cores and workers there are.".to_owned(),
        },
        unit,
        has_ceiling: ceiling(report).is_some(),
        evidence: (verdict.evidence.iter())
            .map(|fact| FactView { text: clean(&fact.text), source: clean(&fact.source) })
            .collect(),
        charts,
        others: report.runner_up.iter().chain(&report.others).map(other_view).collect(),
        environment: environment(report),
        loaders: loader_views(report),
        notes: report.notes.iter().map(|note| clean(note)).collect(),
    };
    page.render().expect("strings take all")
}

/// Text of the report for one line.
fn clean(text: &str) -> String {
    Style::plain(0).clean(text)
}

/// Code, which keeps its lines and their indents.
fn code(text: &str) -> impl Iterator<Item = String> {
    text.trim_end().lines().map(clean)
}

/// JSON in which nothing can end the script element it stands in.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn place(place: &Place) -> String {
    clean(&at(&place.file, place.line))
}

/// A length for a style attribute.
fn css(percent: f64) -> String {
    format!("{:.2}", if percent.is_finite() { percent.clamp(0.0, 100.0) } else { 0.0 })
}

fn fix_view(report: &Report, verdict: &Verdict, fix: &Fix) -> FixView {
    let mut lines = Vec::new();
    let old = fix.place.as_ref().filter(|place| !place.code.trim().is_empty());
    if let Some(old) = old.filter(|_| !fix.change.trim().is_empty()) {
        let sign = if replaces(old, &fix.change) { "-" } else { " " };
        lines.extend(code(&old.code).map(|text| Line { sign, text }));
    }
    let sign = if fix.place.is_some() { "+" } else { " " };
    lines.extend(code(&fix.change).map(|text| Line { sign, text }));
    for more in &verdict.more {
        lines.extend(code(&more.code).map(|text| Line { sign: "-", text }));
        lines.extend(code(&more.change).map(|text| Line { sign: "+", text }));
    }
    FixView {
        title: clean(&fix.title),
        place: fix.place.as_ref().map(place).unwrap_or_default(),
        lines,
        why: clean(&fix.why),
        can_try: fix.apply.is_some() && verdict.measured.is_none(),
        gain: gain_view(report, verdict),
    }
}

fn gain_view(report: &Report, verdict: &Verdict) -> Option<GainView> {
    let gain = verdict.gain?;
    let (factor, interval) = promise(verdict)?;
    let ceiling = report.steps.ceiling_rate / report.steps.rate;
    let bounded = ceiling.is_finite() && ceiling > 1.0;
    // The scale ends at the ceiling, or where the interval does if that is further.
    // What was measured is what there is; the promise comes beside it.
    let there = verdict.measured.map_or(gain, |it| Gain { factor: it.factor, low: it.low, high: it.high });
    let end = if bounded { ceiling.max(there.high) } else { there.high }.max(1.01);
    let at = |factor: f64| ((factor - 1.0) / (end - 1.0) * 100.0).clamp(0.0, 100.0);
    let (factor, interval) = match verdict.measured {
        Some(_) => (super::gain(&there).0, format!("tried; {factor} promised")),
        None => (factor, format!("{interval}, predicted")),
    };
    Some(GainView {
        factor,
        interval,
        at: css(at(there.factor)),
        low_at: css(at(there.low)),
        band: css(at(there.high) - at(there.low)),
        limit: format!("{}x", rate(end)),
        meaning: if bounded && end == ceiling {
            "Interval of 80 %. The scale ends where data are always there.".to_owned()
        } else {
            "Interval of 80 %.".to_owned()
        },
    })
}

fn part_views(report: &Report) -> Vec<PartView> {
    let mut counts = [0usize; 2];
    let view = |part: super::Part| {
        let (class, odd) = match part.kind {
            Kind::Wait => ("wait", "wait"),
            Kind::Load => ("load", "load odd"),
            Kind::Compute => ("compute", "compute odd"),
        };
        let count = &mut counts[usize::from(part.kind == Kind::Compute)];
        *count += 1;
        PartView {
            name: clean(&part.name),
            class: if *count % 2 == 0 { odd } else { class },
            time: seconds(part.time),
            share: percent(part.share),
            width: css(part.share * 100.0),
        }
    };
    parts(report).into_iter().map(view).collect()
}

/// Words above the parts of a step, where they are wide enough for words.
fn sides(report: &Report) -> Vec<(String, String)> {
    let parts = parts(report);
    let inline = parts.iter().any(|part| part.kind == Kind::Load);
    let computing = |part: &&super::Part| part.kind == Kind::Compute;
    let compute: f64 = parts.iter().filter(computing).map(|part| part.share).sum();
    let wait = 1.0 - compute;
    let words = |share: f64, words: &str| {
        let words = if share < 0.2 { String::new() } else { format!("{words} {}", percent(share)) };
        (words, css(share * 100.0))
    };
    vec![words(wait, if inline { "loading" } else { "waiting" }), words(compute, "computing")]
}

fn stage_views(report: &Report) -> Vec<StageView> {
    let stages = loading(report);
    let ceiling = ceiling(report);
    let fastest = stages.iter().map(|stage| stage.rate).filter(|rate| rate.is_finite()).fold(1e-12, f64::max);
    let view = |stage: &crate::report::Stage| {
        let share = ceiling.map(|ceiling| stage.rate / ceiling);
        let functions = stage.functions.iter().take(3).map(|function| {
            let place = at(&function.file, function.line);
            let call =
                if function.call.is_empty() { String::new() } else { format!("for {}, ", function.call) };
            FunctionView {
                share: percent(function.share),
                name: clean(&function.name),
                place: clean(&format!("{call}{place}")),
            }
        });
        StageView {
            name: clean(&stage.name),
            runs_in: clean(&stage.runs_in),
            rate: rate(stage.rate * per_second(report).0),
            compared: share
                .map(|share| format!("{} of what the step can take", percent(share)))
                .unwrap_or_default(),
            time: seconds(stage.time),
            cpu: seconds(stage.cpu),
            width: css(match share {
                Some(share) => share * CEILING_AT,
                None => stage.rate / fastest * 100.0,
            }),
            short: share.is_some_and(|share| share < 1.0),
            functions: functions.collect(),
        }
    };
    stages.iter().map(view).collect()
}

fn other_view(verdict: &Verdict) -> OtherView {
    OtherView {
        title: clean(&verdict.title),
        fix: verdict.fix.as_ref().map(|fix| clean(&fix.title)).unwrap_or_default(),
        gain: promise(verdict)
            .map(|(factor, interval)| format!("{factor} as fast, {interval}"))
            .unwrap_or_default(),
        change: verdict.fix.iter().flat_map(|fix| code(&fix.change)).collect(),
    }
}

fn environment(report: &Report) -> Vec<(String, String)> {
    let machine = &report.machine;
    let mut items = Vec::new();
    let mut add = |name: &str, text: String| {
        if !text.is_empty() {
            items.push((clean(name), clean(&text)));
        }
    };
    add("Processor", machine.processor.clone());
    let mut cores = format!("{} usable of {}", rate(machine.cores), machine.cores_online);
    if let Some(quota) = machine.cores_quota {
        cores += &format!(", the control group grants {}", rate(quota));
    }
    if u64::from(machine.cores_affinity) < u64::from(machine.cores_online) {
        cores += &format!(", the affinity allows {}", machine.cores_affinity);
    }
    add("Cores", if machine.cores > 0.0 { cores } else { String::new() });
    let limit =
        machine.memory_limit.map(|limit| format!(", limited to {}", bytes(limit))).unwrap_or_default();
    add("Memory", if machine.memory > 0 { bytes(machine.memory) + &limit } else { String::new() });
    add("Shared memory", machine.shm.map(bytes).unwrap_or_default());
    for gpu in &machine.gpus {
        add("GPU", format!("{}, {}, driver {}", gpu.name, bytes(gpu.memory), gpu.driver));
    }
    if machine.gpus.is_empty() {
        add(
            "GPU",
            format!("none{}", machine.no_gpu.iter().map(|why| format!(": {why}")).collect::<String>()),
        );
    }
    let software: Vec<_> =
        report.software.iter().map(|(name, version)| format!("{name} {version}")).collect();
    add("Software", software.join(", "));
    let exit = &report.exit;
    let status = exit.code.map(|code| format!(", status {code}"));
    let signal = exit.signal.map(|signal| format!(", signal {signal}"));
    add("End of the script", format!("{}{}", exit.reason, signal.or(status).unwrap_or_default()));
    if report.steps.epoch_start > 0.0 {
        add("From the begin of an epoch to its first batch", seconds(report.steps.epoch_start));
    }
    items
}

fn loader_views(report: &Report) -> Vec<LoaderView> {
    let several = report.loaders.len() > 1;
    let view = |(i, loader): (usize, &crate::report::Loader)| LoaderView {
        name: clean(&loader.name),
        dataset: clean(&loader.dataset),
        settings: clean(&loader.settings.join(", ")),
        place: loader.place.as_ref().map(place).unwrap_or_default(),
        steps: format!("{} in {}", plural(loader.steps, "step"), plural(loader.epochs.into(), "epoch")),
        share: percent(loader.share),
        subject: several && report.subject == Some(i),
    };
    report.loaders.iter().enumerate().map(view).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::kept, *};

    #[test]
    fn the_answer_comes_first() {
        let page = html(&kept("input_bound"));
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
        let order = [
            "<h1 id=\"verdict\">Loading runs in the training process; the GPU waits 62 % of the time</h1>",
            "<p class=\"factor\">1.8x</p>",
            "<h2>Load in 2 worker processes</h2>",
            "src/photos/train.py:31",
            "<del>loader = DataLoader(train_set",
            "<ins>loader = DataLoader(train_set",
            "One step",
            "What each stage could sustain",
            "Evidence",
            "Over time",
            "After that",
            "Environment",
        ];
        let places: Vec<_> = order.iter().map(|text| at(text)).collect();
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn what_comes_from_the_script_is_no_markup() {
        let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u{0}\u{202e}";
        let text = serde_json::to_string(&kept("input_bound")).unwrap();
        let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
        fn spoil(value: &mut serde_json::Value, evil: &str) {
            match value {
                serde_json::Value::String(text) => text.push_str(evil),
                serde_json::Value::Array(list) => list.iter_mut().for_each(|value| spoil(value, evil)),
                serde_json::Value::Object(object) => object.values_mut().for_each(|value| spoil(value, evil)),
                _ => {}
            }
        }
        spoil(&mut report, evil);
        let mut report: Report = serde_json::from_value(report).unwrap();
        report.software.insert(evil.to_owned(), evil.to_owned());
        let page = html(&report);
        let plain = html(&kept("input_bound"));
        assert!(page.contains("alert(1)"));
        for text in ["<script", "</script", "<img", "onerror=\"", "<style"] {
            assert_eq!(page.matches(text).count(), plain.matches(text).count(), "{text}");
        }
        assert!(!page.contains(['\u{0}', '\u{202e}']));
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        let page = html(&kept("two_ranks"));
        for text in ["src=", "@import", "url(", "<link rel=\"stylesheet", "fetch(", "XMLHttpRequest"] {
            assert!(!page.contains(text), "{text}");
        }
        assert!(page.contains("default-src 'none'"));
        assert!(page.contains("Permission is hereby granted"), "the licence of the charts travels with them");
    }

    #[test]
    fn pages_without_steps_have_no_empty_sections() {
        let page = html(&kept("failed"));
        assert!(page.contains("FileNotFoundError"));
        for text in ["One step", "Evidence", "After that", "What each stage"] {
            assert!(!page.contains(text), "{text}");
        }
        assert!(html(&Report::default()).contains("No verdict"));
    }

    #[test]
    fn the_healthy_are_told_so() {
        let page = html(&kept("healthy"));
        assert!(page.contains("<h1 id=\"verdict\">Nothing to fix: data are always there"));
        assert!(!page.contains("class=\"factor\""));
    }

    #[test]
    fn json_cannot_end_its_script() {
        assert_eq!(in_script("[\"</script>&\"]"), "[\"\\u003c/script\\u003e\\u0026\"]");
    }
}
