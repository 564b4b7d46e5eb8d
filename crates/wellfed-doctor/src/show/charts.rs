//! The page's charts as data: what is drawn, what it means in words, and the same as a table.

use serde::Serialize;

use super::{percent, rate, seconds};
use crate::report::{Report, Timeline};

/// Rows of the table beside a chart.
const ROWS: usize = 12;

/// Curves over one axis of time.
#[derive(Serialize)]
pub(super) struct Chart {
    pub(super) id: &'static str,
    /// Seconds since the start.
    x: Vec<f64>,
    pub(super) series: Vec<Series>,
    unit: &'static str,
    /// End of the vertical axis, if it is not where the data end.
    top: Option<f64>,
    /// Whether a value holds until the next one, rather than being joined to it.
    pub(super) stepped: bool,
    #[serde(skip)]
    pub(super) wide: bool,
    #[serde(skip)]
    pub(super) title: String,
    /// What someone is told who does not see the chart.
    #[serde(skip)]
    pub(super) summary: String,
    #[serde(skip)]
    pub(super) note: String,
    #[serde(skip)]
    pub(super) rows: Vec<Row>,
}

/// One curve.
#[derive(Serialize)]
pub(super) struct Series {
    pub(super) name: &'static str,
    /// Colour, as the style sheet names it.
    pub(super) tone: &'static str,
    fill: bool,
    values: Vec<f64>,
    /// Mean, as text.
    #[serde(skip)]
    pub(super) shown: String,
}

/// One row of the table.
pub(super) struct Row {
    pub(super) time: String,
    pub(super) cells: Vec<String>,
}

/// What there is to draw. Curves that are all zero or of another length than their axis are left out.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let line = &report.timeline;
    let mut charts = Vec::new();
    charts.extend(steps(line));
    let share = |values: &[f64]| values.iter().map(|value| value * 100.0).collect::<Vec<_>>();
    let mut use_of = vec![
        ("waiting for data", "accent", true, share(&line.wait)),
        ("processor", "c1", false, share(&line.cpu)),
        ("GPU", "c2", false, share(&line.gpu)),
    ];
    // A trace of other processes is always there and says nothing.
    if line.foreign_cpu.iter().any(|share| *share > 0.1) {
        use_of.push(("other processes", "c3", false, share(&line.foreign_cpu)));
    }
    charts.extend(chart("use", "Use", "%", Some(100.0), &line.t, use_of));
    let ceiling = report.steps.ceiling_rate;
    let mut speed = vec![("samples/s", "accent", true, line.rate.clone())];
    if ceiling.is_finite() && ceiling > 0.0 {
        speed.push(("if data were always there", "c2", false, vec![ceiling; line.t.len()]));
    }
    if line.rate.iter().any(|rate| *rate > 0.0) {
        charts.extend(chart("speed", "Speed", "", None, &line.t, speed));
    }
    let traffic =
        vec![("disk", "accent", true, line.disk.clone()), ("network", "c2", false, line.network.clone())];
    charts.extend(chart("traffic", "Read", "MB/s", None, &line.t, traffic));
    charts.extend(chart(
        "memory",
        "Memory",
        "GB",
        None,
        &line.t,
        vec![("script", "accent", true, line.memory.clone())],
    ));
    charts
}

fn steps(line: &Timeline) -> Option<Chart> {
    if line.steps.len() < 2 {
        return None;
    }
    let t: Vec<_> = line.steps.iter().map(|step| step[0]).collect();
    let wait: Vec<_> = line.steps.iter().map(|step| step[1] * 1e3).collect();
    let whole: Vec<_> = line.steps.iter().map(|step| (step[1] + step[2]) * 1e3).collect();
    // A few long steps would make all others a line at the bottom.
    let mut sorted = whole.clone();
    sorted.sort_by(f64::total_cmp);
    let (most, longest) = (sorted[sorted.len() * 95 / 100], sorted[sorted.len() - 1]);
    let top = (longest > 3.0 * most && most > 0.0).then_some(2.0 * most);
    let series =
        vec![("waiting and computing", "c2", true, whole.clone()), ("waiting", "accent", true, wait)];
    let mut chart = chart("steps", "Step by step", "ms", top, &t, series)?;
    chart.stepped = true;
    chart.wide = true;
    if let Some(top) = top {
        let outside = whole.iter().filter(|step| **step > top).count() as u64;
        let noun = if outside == 1 { "step is" } else { "steps are" };
        chart.note =
            format!("{outside} {noun} longer than the chart is high, up to {}.", seconds(longest / 1e3));
    }
    Some(chart)
}

type Curve = (&'static str, &'static str, bool, Vec<f64>);

fn chart(
    id: &'static str,
    title: &str,
    unit: &'static str,
    top: Option<f64>,
    t: &[f64],
    curves: Vec<Curve>,
) -> Option<Chart> {
    if t.len() < 2 {
        return None;
    }
    let mean = |values: &[f64]| {
        let known: Vec<_> = values.iter().filter(|value| value.is_finite()).collect();
        known.iter().copied().sum::<f64>() / known.len().max(1) as f64
    };
    let series: Vec<_> = curves
        .into_iter()
        .filter(|(_, _, _, values)| values.len() == t.len() && values.iter().any(|value| *value > 0.0))
        .map(|(name, tone, fill, values)| Series {
            name,
            tone,
            fill,
            shown: figure(mean(&values), unit),
            values,
        })
        .collect();
    if series.is_empty() {
        return None;
    }
    let span = seconds(t[t.len() - 1] - t[0]);
    let means: Vec<_> = series.iter().map(|series| format!("{} {}", series.name, series.shown)).collect();
    let summary = format!("{title} over {span}. On average: {}.", means.join(", "));
    let count = ROWS.min(t.len());
    let rows = (0..count).map(|row| {
        let (begin, end) = (row * t.len() / count, (row + 1) * t.len() / count);
        let cells = series.iter().map(|series| figure(mean(&series.values[begin..end]), unit)).collect();
        Row { time: seconds(t[begin]), cells }
    });
    let rows = rows.collect();
    Some(Chart {
        id,
        x: t.to_vec(),
        series,
        unit,
        top,
        stepped: false,
        wide: false,
        title: title.to_owned(),
        summary,
        note: String::new(),
        rows,
    })
}

fn figure(value: f64, unit: &str) -> String {
    match unit {
        "%" => percent(value / 100.0),
        "ms" => seconds(value / 1e3),
        "" => rate(value),
        unit => format!("{} {unit}", rate(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::kept, *};

    #[test]
    fn curves_without_values_are_left_out() {
        let ids = |report: &Report| charts(report).iter().map(|chart| chart.id).collect::<Vec<_>>();
        let mut report = kept("input_bound");
        assert_eq!(ids(&report), ["steps", "use", "speed", "traffic", "memory"]);
        report.timeline.memory.clear();
        report.timeline.disk.pop();
        report.timeline.network.fill(0.0);
        report.timeline.gpu.clear();
        assert_eq!(ids(&report), ["steps", "use", "speed"]);
        assert_eq!(charts(&report)[1].series.len(), 2);
        assert_eq!(ids(&Report::default()), [""; 0]);
    }

    #[test]
    fn a_few_long_steps_do_not_flatten_the_others() {
        let mut report = kept("input_bound");
        for step in &mut report.timeline.steps {
            *step = [step[0], 0.1, 0.1];
        }
        report.timeline.steps[7][1] = 9.9;
        let chart = charts(&report).remove(0);
        assert_eq!(chart.top, Some(400.0));
        assert_eq!(chart.note, "1 step is longer than the chart is high, up to 10 s.");
        report.timeline.steps[7][1] = 0.1;
        let chart = charts(&report).remove(0);
        assert_eq!((chart.top, chart.note.as_str()), (None, ""));
    }

    #[test]
    fn tables_say_what_charts_show() {
        let chart = charts(&kept("input_bound")).remove(1);
        assert_eq!(chart.rows.len(), ROWS);
        assert_eq!(chart.rows[0].cells.len(), chart.series.len());
        assert!(chart.summary.starts_with("Use over 61"), "{}", chart.summary);
    }
}
