//! What `wellfed top` shows: the same lines in colour on a terminal, and as plain text elsewhere.

use ratatui::{
    Frame,
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::rates::{Rates, Report};
use crate::output::printable;

/// Width of a full bar.
const BAR: usize = 40;

/// A consumer that waits for more than this share of the time would train faster with a faster loader.
const STARVING: f64 = 0.03;

/// Draws the report over the whole terminal.
pub(super) fn draw(frame: &mut Frame<'_>, report: &Report) {
    let mut lines = lines(report);
    lines.push(Line::from("q ends this view; the process goes on".dim()));
    frame.render_widget(Paragraph::new(lines), frame.area());
}

/// The report as plain text.
pub(super) fn text(report: &Report) -> Vec<String> {
    lines(report).iter().map(|line| line.to_string().trim_end().to_owned()).collect()
}

fn lines(report: &Report) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if report.loaders.is_empty() {
        lines.push(Line::from(format!("process {}: no loader at work now", report.process)));
    }
    for (number, loader) in report.loaders.iter().enumerate() {
        if number > 0 {
            lines.push(Line::default());
        }
        let title = printable(&loader.source).into_owned();
        let count = report.loaders.len();
        let of = if count > 1 { format!(", loader {} of {count}", number + 1) } else { String::new() };
        lines.push(Line::from(vec![title.bold(), format!("  process {}{of}", report.process).dim()]));
        one(loader, &mut lines);
    }
    lines
}

fn one(loader: &Rates, lines: &mut Vec<Line<'static>>) {
    let stats = &loader.stats;
    let waits = format!("consumer waits {:.1} %", 100.0 * loader.wait_share);
    let starving = loader.wait_share > STARVING;
    lines.push(Line::from(vec![
        Span::raw("  "),
        format!("{:.0} samples/s", loader.samples_per_second).green().bold(),
        Span::raw(format!("  {:.1} batches/s  ", loader.batches_per_second)),
        if starving { waits.yellow() } else { Span::raw(waits) },
        over(loader).dim(),
    ]));
    let filled = loader.ready.min(stats.prefetch);
    lines.push(Line::from(vec![
        Span::raw(format!("  {} workers  {} readers  ", stats.num_workers, stats.read_ahead)),
        Span::raw(format!("{filled} of {} batches ready  ", stats.prefetch)),
        Span::raw(format!("{:.1} of {:.1} MB", mb(stats.memory), mb(stats.memory_budget))),
    ]));
    let errors = format!("{} bad samples", stats.errors);
    lines.push(Line::from(vec![
        Span::raw(format!("  {} samples in {} batches so far  ", stats.samples, stats.batches)),
        if stats.errors > 0 { errors.red().bold() } else { Span::raw(errors) },
    ]));
    let kept = stats.row_index.as_ref().map(ToString::to_string);
    let kept = kept.into_iter().chain(stats.cache.as_ref().map(ToString::to_string));
    let kept = kept.chain(stats.requests.as_ref().map(ToString::to_string));
    for text in kept.chain(stats.remote_cache.as_ref().map(ToString::to_string)) {
        lines.push(Line::from(format!("  {}", printable(&text))));
    }
    lines.push(Line::from(format!("  {:<10} {:>10} {:>8}", "stage", "us/sample", "share").dim()));
    for phase in &loader.phases {
        let filled = (phase.share * BAR as f64).round() as usize;
        let color = if phase.name == "idle" { Color::DarkGray } else { Color::Cyan };
        lines.push(Line::from(vec![
            Span::raw(format!(
                "  {:<10} {:>10.1} {:>6.1} %  ",
                phase.name,
                phase.us_per_sample,
                100.0 * phase.share
            )),
            Span::styled("#".repeat(filled.min(BAR)), Style::new().fg(color)),
        ]));
    }
}

/// What the rates are over, where that is not the interval one expects.
fn over(loader: &Rates) -> String {
    if loader.seconds > 0.0 {
        return format!("  over {:.1} s", loader.seconds);
    }
    "  standing still".to_owned()
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::{
        super::rates::{
            Look,
            tests::{attached, snapshot},
        },
        *,
    };
    use ratatui::{Terminal, backend::TestBackend};
    use wellfed::meter::RequestStats;

    #[test]
    fn text_and_terminal_show_the_same() {
        let (first, mut last) = (attached(1, snapshot(10.0, 100, 1.0)), snapshot(12.0, 300, 4.0));
        last.stats.requests = Some(RequestStats {
            requests: 320,
            bytes: 5_000_000,
            in_flight: 40,
            limit: 64,
            p50: 0.0205,
            p95: 0.04,
            p99: 0.9,
            ..RequestStats::default()
        });
        let report = attached(3, last).since(&first, 77);
        let plain = text(&report);
        assert_eq!(plain[0], "files\\u{1b}[2J  process 77");
        assert_eq!(plain[1], "  100 samples/s  10.0 batches/s  consumer waits 25.0 %  over 2.0 s");
        assert_eq!(plain[2], "  2 workers  0 readers  3 of 4 batches ready  3.0 of 4.0 MB");
        assert_eq!(plain[3], "  300 samples in 30 batches so far  1 bad samples");
        assert_eq!(
            plain[4],
            "  320 requests, 5.0 MB; 40 of 64 under way; 20.5 / 40.0 / 900.0 ms (50 / 95 / 99 %); 0 retried, 0 hedged, \
             0 times throttled"
        );
        assert!(plain[6].starts_with("  decode        15000.0   75.0 %  ####"), "{}", plain[6]);
        let mut terminal = Terminal::new(TestBackend::new(130, 20)).unwrap();
        terminal.draw(|frame| draw(frame, &report)).unwrap();
        let screen = terminal.backend().to_string();
        for line in plain {
            assert!(screen.contains(&line), "{line}\n{screen}");
        }
        // A terminal of any size will do.
        let mut tiny = Terminal::new(TestBackend::new(3, 2)).unwrap();
        tiny.draw(|frame| draw(frame, &report)).unwrap();
    }

    #[test]
    fn what_is_not_there_is_told() {
        let nothing = Look::default().since_the_beginning(7);
        assert_eq!(text(&nothing), ["process 7: no loader at work now"]);
        let still = attached(1, snapshot(10.0, 100, 1.0));
        assert!(text(&still.since(&still, 7))[1].ends_with("standing still"));
    }
}
