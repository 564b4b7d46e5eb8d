//! The final report in the terminal. The answer comes first: a tired reader may stop after the second paragraph.

use super::{
    Kind, Part, at, ceiling, circumstances, ending, gain, is_loop, parts, percent, rate, seconds, shares,
    style::{Ink, Style, columns, cut, cut_front, pad, wrap},
};
use crate::{
    patch::Changed,
    record::Place,
    report::{Fix, Function, Gain, Report, Stage, Verdict},
};

/// Columns of the headings at the left.
const LABEL: usize = 10;
/// Most lines of code shown of a statement.
const CODE_LINES: usize = 8;

/// The report as text, with a line feed at its end.
pub fn terminal(report: &Report, style: Style) -> String {
    let mut page = Page { style, text: String::new() };
    page.head(report);
    page.title(report);
    if report.verdict.family != "healthy" {
        page.script(report);
        page.step(report);
    }
    page.answer(report);
    if report.verdict.family != "healthy" {
        page.stages(report);
    }
    page.evidence(&report.verdict);
    page.next(report);
    page.notes(report);
    page.text
}

struct Page {
    style: Style,
    text: String,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Columns right of the headings.
    fn room(&self) -> usize {
        self.style.width - LABEL
    }

    /// Cleaned lines under a heading, which stands beside the first of them.
    fn under(&mut self, label: &str, lines: &[String]) {
        for (i, line) in lines.iter().enumerate() {
            let label = self.style.ink(Ink::Faint, &pad(if i == 0 { label } else { "" }, LABEL));
            self.line(&format!("{label}{line}"));
        }
    }

    /// Wrapped text under a heading.
    fn words(&mut self, label: &str, ink: Ink, text: &str) {
        let lines: Vec<_> = wrap(&self.style.clean(text), self.room())
            .into_iter()
            .map(|line| self.style.ink(ink, &line))
            .collect();
        self.under(label, &lines);
    }

    fn head(&mut self, report: &Report) {
        let name = "wellfed doctor";
        let command = self.style.clean(&report.command.join(" "));
        let command = cut(&command, self.style.width - name.len() - 2);
        let style = self.style;
        self.line(&format!("{}  {}", style.ink(Ink::Accent, name), style.ink(Ink::Faint, &command)));
        for line in wrap(&style.clean(&circumstances(report)), style.width) {
            self.line(&style.ink(Ink::Faint, &line));
        }
        self.gap();
        if let Some(ending) = ending(report) {
            let failed = report.exit.reason == "exception" || report.exit.exception.is_some();
            let ink = if failed { Ink::Bad } else { Ink::Plain };
            for line in wrap(&style.clean(&ending), style.width) {
                self.line(&style.ink(ink, &line));
            }
            self.gap();
        }
    }

    /// `Script    training 38 %, evaluation 55 %, checkpoints 5 %`, where there is more than one of them.
    fn script(&mut self, report: &Report) {
        let shares = shares(report);
        if !shares.is_empty() {
            self.gap();
            self.words("Script", Ink::Plain, &shares);
        }
    }

    /// The verdict.
    fn title(&mut self, report: &Report) {
        let verdict = &report.verdict;
        let (ink, title) = if verdict.family == "healthy" {
            (Ink::Good, healthy_title(&verdict.title))
        } else {
            (Ink::Strong, verdict.title.clone())
        };
        for line in wrap(&self.style.clean(&title), self.style.width) {
            self.line(&self.style.ink(ink, &line));
        }
        if verdict.family == "healthy" && report.steps.count > 0 {
            for line in wrap(&self.style.clean(&pace(report)), self.style.width) {
                self.line(&line);
            }
        }
    }

    /// The fix with what it gains.
    fn answer(&mut self, report: &Report) {
        let verdict = &report.verdict;
        if verdict.family == "healthy" {
            return;
        }
        let Some(fix) = &verdict.fix else { return };
        self.gap();
        self.fix_line("Fix", fix, verdict);
        self.change(fix, verdict);
        if !fix.why.is_empty() {
            self.words("Why", Ink::Plain, &fix.why);
        }
        if !verdict.cap.is_empty() {
            self.words("Then", Ink::Plain, &verdict.cap);
        }
        if let Some(measured) = verdict.measured {
            let (before, after) = (seconds(measured.before), seconds(measured.after));
            let text = format!(
                "The samples of a step take {before} without it, {after} with it; tried for {} after the run.",
                seconds(measured.seconds)
            );
            self.words("Tried", Ink::Plain, &text);
        } else if fix.apply.is_none() && verdict.gain.is_some() {
            let text = if Changed::of(verdict).is_some() {
                "The gain is a prediction: these lines were not tried."
            } else {
                "The gain is a prediction: only you can make this edit."
            };
            self.words("Note", Ink::Faint, text);
        } else if fix.apply.is_some() {
            self.words(
                "Try",
                Ink::Faint,
                "The gain is a prediction: `wellfed doctor try` in place of `run` measures it.",
            );
        }
    }

    /// `Fix       Load in 2 worker processes: 1.8x as fast (1.6-1.9)`
    fn fix_line(&mut self, label: &str, fix: &Fix, verdict: &Verdict) {
        let title = self.style.clean(&fix.title);
        let promised = promise(verdict);
        let style = self.style;
        let Some((factor, interval)) = promised else {
            return self.words(label, Ink::Strong, &title);
        };
        let tail = format!("{factor} as fast ({interval})");
        let tail = match verdict.measured {
            // The promise comes second: what was measured is what there is.
            Some(measured) => format!("{} as fast, tried ({} promised)", times(measured.factor), factor),
            None => tail,
        };
        let factor = verdict.measured.map_or(factor, |measured| times(measured.factor));
        let tail = match verdict.bound {
            Some(bound) => format!("{tail}, left out: {}", times(bound)),
            None => tail,
        };
        let mut lines = wrap(&format!("{title}: {}", tail.replace(' ', "\u{a0}")), self.room());
        for line in &mut lines {
            *line = match line.split_once(factor.as_str()).filter(|(_, rest)| rest.starts_with('\u{a0}')) {
                Some((title, rest)) => format!(
                    "{}{}{}",
                    style.ink(Ink::Strong, title),
                    style.ink(Ink::Accent, &factor),
                    rest.replace('\u{a0}', " ")
                ),
                None => style.ink(Ink::Strong, line),
            };
        }
        self.under(label, &lines);
    }

    /// The change, like a diff.
    fn change(&mut self, fix: &Fix, verdict: &Verdict) {
        let style = self.style;
        let mut lines = Vec::new();
        let mut code = |sign: &str, text: &str, ink| lines.extend(self.code_lines(sign, text, ink));
        match &fix.place {
            Some(place) => {
                let place_at = style.clean(&at(&place.file, place.line));
                if !place.code.trim().is_empty() {
                    let (sign, ink) =
                        if replaces(place, &fix.change) { ("-", Ink::Bad) } else { (" ", Ink::Plain) };
                    code(sign, &place.code, ink);
                }
                code("+", &fix.change, Ink::Good);
                lines.insert(0, style.ink(Ink::Faint, &cut_front(&place_at, self.room())));
            }
            None => code(" ", &fix.change, Ink::Good),
        }
        for more in &verdict.more {
            let file = fix.place.as_ref().map_or("", |place| place.file.as_str());
            lines.push(style.ink(Ink::Faint, &cut_front(&style.clean(&at(file, more.line)), self.room())));
            let mut lines_of = |sign: &str, text: &str, ink| lines.extend(self.code_lines(sign, text, ink));
            lines_of("-", &more.code, Ink::Bad);
            lines_of("+", &more.change, Ink::Good);
        }
        if !fix.change.trim().is_empty() {
            self.under("", &lines);
        }
    }

    /// Lines of code behind a sign; those that are too long in parts.
    fn code_lines(&self, sign: &str, text: &str, ink: Ink) -> Vec<String> {
        let style = self.style;
        let mut lines = Vec::new();
        let all: Vec<_> = text.trim_end().lines().collect();
        let mut open = 0;
        for line in all.iter().take(CODE_LINES) {
            let room = self.room() - sign.len() - 1;
            let inner = style.clean(line.trim_start());
            let indent = (line.len() - line.trim_start().len()).min(room / 3);
            let mut parts = wrap(&inner, room - indent - 4);
            if sign == "+" && !breaks(&parts, open) {
                parts = vec![inner];
            }
            open += opened(line);
            for (i, part) in parts.into_iter().enumerate() {
                let indent = " ".repeat(indent + if i == 0 { 0 } else { 4 });
                lines.push(style.ink(ink, &format!("{sign} {indent}{part}")));
            }
        }
        if all.len() > CODE_LINES {
            lines.push(style.ink(Ink::Faint, &format!("{sign} ({} more lines)", all.len() - CODE_LINES)));
        }
        lines
    }

    fn step(&mut self, report: &Report) {
        let parts = parts(report);
        if parts.is_empty() {
            return;
        }
        self.gap();
        self.words("Step", Ink::Plain, &pace(report));
        let style = self.style;
        let room = self.room();
        let mut bar = String::new();
        let mut key = Vec::new();
        let mut done = 0.0;
        let mut computed = 0;
        for part in &parts {
            let (glyph, ink) = self.glyph(part, &mut computed);
            // Ends are rounded, not lengths: so the parts fill the bar.
            let begin = (done * room as f64).round() as usize;
            done += part.share;
            let end = ((done * room as f64).round() as usize).min(room);
            bar += &style.ink(ink, &glyph.repeat(end.saturating_sub(begin)));
            let text = format!("{} {} {}", part.name, seconds(part.time), percent(part.share));
            key.push((style.ink(ink, glyph), style.clean(&text)));
        }
        let mut lines = vec![bar];
        // The key in columns of one width, as many as fit.
        let widest = key.iter().map(|(_, text)| columns(text)).max().unwrap_or(0) + 5;
        let across = (room / widest).max(1);
        for row in key.chunks(across) {
            let cells: Vec<_> =
                row.iter().map(|(glyph, text)| format!("{glyph} {}", pad(text, widest - 2))).collect();
            lines.push(cells.concat());
        }
        self.under("", &lines);
    }

    fn glyph(&self, part: &Part, computed: &mut usize) -> (&'static str, Ink) {
        *computed += 1;
        let odd = *computed % 2 == 1;
        match (part.kind, self.style.unicode) {
            (Kind::Wait, true) => ("·", Ink::Bad),
            (Kind::Wait, false) => (".", Ink::Bad),
            (Kind::Load, true) => (if odd { "▒" } else { "░" }, Ink::Bad),
            (Kind::Load, false) => (if odd { "-" } else { "~" }, Ink::Bad),
            (Kind::Compute, true) => (if odd { "█" } else { "▓" }, Ink::Plain),
            (Kind::Compute, false) => (if odd { "#" } else { "=" }, Ink::Plain),
        }
    }

    /// Rates of the loader's stages against what the loop could take.
    fn stages(&mut self, report: &Report) {
        let stages = loading(report);
        if stages.is_empty() {
            return;
        }
        self.gap();
        let (scale, unit) = per_second(report);
        let ceiling = ceiling(report);
        let heading = match ceiling {
            Some(ceiling) => {
                format!("what each could sustain; the step can take {} {unit}", rate(ceiling * scale))
            }
            None => format!("what each could sustain, in {unit}"),
        };
        self.words("Stages", Ink::Plain, &heading);
        let whole = ceiling.unwrap_or_else(|| stages.iter().map(|s| finite(s.rate)).fold(0.0, f64::max));
        let slowest = stages.iter().map(|stage| finite(stage.rate)).fold(f64::INFINITY, f64::min);
        let name = stages.iter().map(|stage| columns(&stage.name)).max().unwrap_or(0).min(14);
        let numbers: Vec<_> = stages
            .iter()
            .map(|stage| (rate(stage.rate * scale), format!("{} a batch", seconds(stage.time))))
            .collect();
        let rates = numbers.iter().map(|(rate, _)| rate.len()).max().unwrap_or(0);
        let times = numbers.iter().map(|(_, time)| time.len()).max().unwrap_or(0);
        let bar = self.room().saturating_sub(name + rates + times + 8 + 3 * 2).min(50);
        let style = self.style;
        let mut lines = Vec::new();
        for (stage, (rate, time)) in stages.iter().zip(&numbers) {
            let short = ceiling.is_some_and(|ceiling| finite(stage.rate) < ceiling);
            let slow = finite(stage.rate) <= slowest;
            let ink = if short {
                Ink::Bad
            } else if slow {
                Ink::Plain
            } else {
                Ink::Faint
            };
            lines.push(format!(
                "{} {}  {} {}  {}",
                pad(&cut(&style.clean(&stage.name), name), name),
                style.ink(Ink::Faint, &pad(&cut(&style.clean(&stage.runs_in), 6), 6)),
                style.ink(ink, &meter(finite(stage.rate) / whole, bar, style.unicode)),
                style.ink(if short || slow { Ink::Strong } else { Ink::Plain }, &format!("{rate:>rates$}")),
                style.ink(Ink::Faint, &pad(time, times)),
            ));
            if short || slow {
                lines
                    .extend(stage.functions.iter().take(2).map(|function| self.function(function, name + 1)));
            }
        }
        self.under("", &lines);
    }

    /// `93 % PIL.ImageFile.ImageFile.load, for img.convert("RGB")`
    fn function(&self, function: &Function, indent: usize) -> String {
        let mut text = format!("{} {}", percent(function.share), function.name);
        if !function.call.is_empty() {
            text += &format!(", for {}", function.call);
        }
        let text = cut(&self.style.clean(&text), self.room() - indent);
        format!("{}{}", " ".repeat(indent), self.style.ink(Ink::Faint, &text))
    }

    fn evidence(&mut self, verdict: &Verdict) {
        if verdict.evidence.is_empty() {
            return;
        }
        self.gap();
        let style = self.style;
        let source =
            verdict.evidence.iter().map(|fact| columns(&style.clean(&fact.source))).max().unwrap_or(0);
        let room = self.room() - source - 2;
        let mut lines = Vec::new();
        for fact in &verdict.evidence {
            let source = style.ink(Ink::Faint, &style.clean(&fact.source));
            for (i, line) in wrap(&style.clean(&fact.text), room).into_iter().enumerate() {
                lines.push(if i == 0 { format!("{}  {source}", pad(&line, room)) } else { line });
            }
        }
        self.under("Evidence", &lines);
    }

    fn next(&mut self, report: &Report) {
        let Some(next) = &report.runner_up else { return };
        self.gap();
        self.words("Next", Ink::Plain, &next.title);
        if let Some(fix) = &next.fix {
            self.fix_line("", fix, next);
            self.change(fix, next);
        }
        for other in report.others.iter().take(3) {
            let gain = promise(other).map(|(factor, interval)| format!(": {factor} ({interval})"));
            self.words("Also", Ink::Faint, &format!("{}{}", other.title, gain.unwrap_or_default()));
        }
    }

    fn notes(&mut self, report: &Report) {
        if !report.notes.is_empty() {
            self.gap();
        }
        for (i, note) in report.notes.iter().enumerate() {
            self.words(if i == 0 { "Notes" } else { "" }, Ink::Faint, note);
        }
    }
}

/// `182 ms, 352 samples/s; with data always there 69.4 ms, 922 samples/s`
pub(crate) fn pace(report: &Report) -> String {
    let steps = &report.steps;
    let (_, unit) = per_second(report);
    let rates = |time: f64, samples: f64| {
        if steps.batch_size > 0.0 {
            format!("{} a step, {} {unit}", seconds(time), rate(samples))
        } else {
            format!("{} a step", seconds(time))
        }
    };
    let now = rates(steps.time, steps.rate);
    if steps.ceiling > 0.0 {
        format!("{now}; with data always there {}", rates(steps.ceiling, steps.ceiling_rate))
    } else {
        now
    }
}

/// The loader's stages. Where the loop itself loads, a last one is all of them, one after the other: that is what it can sustain.
pub(crate) fn loading(report: &Report) -> Vec<Stage> {
    let mut stages: Vec<_> = report.stages.iter().filter(|stage| !is_loop(stage)).cloned().collect();
    let inline: Vec<_> =
        stages.iter().filter(|stage| stage.runs_in == "main" && stage.name != "receive").collect();
    if inline.len() > 1 {
        let time: f64 = inline.iter().map(|stage| finite(stage.time)).sum();
        let cpu = inline.iter().map(|stage| finite(stage.cpu)).sum();
        let (name, runs_in) = ("in all".to_owned(), "main".to_owned());
        stages.push(Stage { name, runs_in, time, cpu, rate: 1.0 / time.max(1e-12), functions: Vec::new() });
    }
    stages
}

/// What batches a second are multiplied with, and the unit that gives.
pub(crate) fn per_second(report: &Report) -> (f64, &'static str) {
    if report.steps.batch_size > 0.0 { (report.steps.batch_size, "samples/s") } else { (1.0, "batches/s") }
}

/// `Nothing to fix: data are always there`
pub(crate) fn healthy_title(title: &str) -> String {
    if title.to_lowercase().starts_with("nothing to fix") {
        return title.to_owned();
    }
    let mut chars = title.chars();
    let lowered = match (chars.next(), chars.next()) {
        // Not in names such as GPU.
        (Some(first), Some(second)) if first.is_uppercase() && (second.is_lowercase() || second == ' ') => {
            let rest = &title[first.len_utf8()..];
            format!("{}{rest}", first.to_lowercase())
        }
        _ => title.to_owned(),
    };
    if lowered.is_empty() { "Nothing to fix".to_owned() } else { format!("Nothing to fix: {lowered}") }
}

/// `1.8x`.
fn times(factor: f64) -> String {
    gain(&Gain { factor, low: factor, high: factor }).0
}

/// Gain and interval, if one is promised.
pub(crate) fn promise(verdict: &Verdict) -> Option<(String, String)> {
    verdict.gain.as_ref().filter(|gain| gain.factor > 0.0).map(gain)
}

/// Whether `change` stands for `code`, rather than being added to it: it calls the same thing.
pub(crate) fn replaces(place: &Place, change: &str) -> bool {
    if place.call.is_some() {
        return !change.starts_with('#');
    }
    fn callee(text: &str) -> Option<&str> {
        let head = text.split_once('(')?.0;
        let head = head.rsplit(['=', ' ', '\t', '\n']).next().unwrap_or(head);
        head.rsplit('.').next()
    }
    callee(&place.code).is_some_and(|name| !name.is_empty() && callee(change) == Some(name))
}

/// Whether a line of code that is to be pasted may be broken into these parts, where `open` brackets are open before it: only within
/// brackets, and where no string and no comment could get a line feed.
fn breaks(parts: &[String], open: i64) -> bool {
    let plain = |part: &String| !part.contains(['\'', '"', '#']);
    let ends = parts.iter().scan(open, |open, part| {
        *open += opened(part);
        Some(*open)
    });
    parts.len() < 2 || (parts.iter().all(plain) && ends.take(parts.len() - 1).all(|open| open > 0))
}

/// Brackets that a line opens and does not close.
fn opened(line: &str) -> i64 {
    line.chars().map(|c| i64::from("([{".contains(c)) - i64::from(")]}".contains(c))).sum()
}

fn finite(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1e12) }
}

/// A bar of `width` columns, filled to `share`.
pub(crate) fn meter(share: f64, width: usize, unicode: bool) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * width as f64).round() as usize;
    // What is there but too little to show is still shown.
    let filled = if share > 0.0 { filled.max(1) } else { filled }.min(width);
    let (full, empty) = if unicode { ("█", "░") } else { ("#", ".") };
    full.repeat(filled) + &empty.repeat(width - filled)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::kept, *};

    fn shown(name: &str, width: usize) -> String {
        terminal(&kept(name), Style::plain(width))
    }

    #[test]
    fn input_bound() {
        insta::assert_snapshot!(shown("input_bound", 100));
    }

    #[test]
    fn input_bound_narrow() {
        insta::assert_snapshot!(shown("input_bound", 60));
    }

    #[test]
    fn input_bound_in_ascii() {
        let text = terminal(&kept("input_bound"), Style { unicode: false, ..Style::plain(80) });
        assert!(text.is_ascii());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn input_bound_in_colour() {
        let text = terminal(&kept("input_bound"), Style { colour: true, ..Style::plain(80) });
        insta::assert_snapshot!(text.replace('\u{1b}', "<ESC>"));
    }

    #[test]
    fn healthy() {
        insta::assert_snapshot!(shown("healthy", 80));
    }

    #[test]
    fn failed() {
        insta::assert_snapshot!(shown("failed", 80));
    }

    #[test]
    fn two_ranks() {
        insta::assert_snapshot!(shown("two_ranks", 80));
    }

    #[test]
    fn lines_fit_the_terminal() {
        for name in ["input_bound", "healthy", "failed", "two_ranks"] {
            for width in [60, 71, 80, 100, 120] {
                for unicode in [true, false] {
                    let text = terminal(&kept(name), Style { unicode, ..Style::plain(width) });
                    for line in text.lines() {
                        assert!(columns(line) <= width, "{name} at {width}: {line}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_empty_report_is_no_panic() {
        let text = terminal(&Report::default(), Style::plain(60));
        assert!(text.contains("wellfed doctor"), "{text}");
    }

    #[test]
    fn what_comes_from_the_script_cannot_steer_the_terminal() {
        let mut report = kept("input_bound");
        let evil = "\u{1b}]0;x\u{7}\r\n\u{9b}2J";
        let fix = report.verdict.fix.as_mut().unwrap();
        for text in
            [&mut report.command[1], &mut fix.title, &mut fix.change, &mut fix.why, &mut report.notes[0]]
        {
            text.push_str(evil);
        }
        let place = fix.place.as_mut().unwrap();
        place.file.push_str(evil);
        place.code.push_str(evil);
        report.stages[1].name.push_str(evil);
        report.stages[1].functions[0].call.push_str(evil);
        report.verdict.evidence[0].source.push_str(evil);
        report.verdict.title.push_str(evil);
        report.exit.exception = Some(evil.to_owned());
        let text = terminal(&report, Style::plain(80));
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn a_change_that_calls_the_same_thing_replaces_the_code() {
        let parts = |all: &[&str]| all.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let breaks = |all: &[&str], open| super::breaks(&parts(all), open);
        assert!(breaks(&["x = D(a,", "b)"], 0) && breaks(&["for a in b:"], 0) && breaks(&["a,", "b)"], 1));
        assert!(!breaks(&["for a,", "b in D(x)"], 0) && !breaks(&["f('a", "b')"], 0));
        assert!(!breaks(&["f(a,", "b)  # c"], 0) && !breaks(&["f(a),", "b"], 0));
        let place = |code: &str, call| Place { code: code.to_owned(), call, ..Place::default() };
        let replaces = |code: &str, change: &str| super::replaces(&place(code, None), change);
        assert!(replaces("loader = DataLoader(data)", "DataLoader(..., num_workers=2)"));
        assert!(replaces("x = torch.utils.data.DataLoader(\n  d)", "x = DataLoader(d, num_workers=2)"));
        assert!(!replaces("loader = DataLoader(data)", "loader = wellfed.feed(loader)"));
        assert!(!replaces("for x in loader:", "loss.item()"));
        let known = place("x = D(y)", Some([4, 8]));
        assert!(super::replaces(&known, "import wellfed\nx = wellfed.feed(D(y))"));
        assert!(!super::replaces(&known, "# the loader with num_workers=2"));
    }

    #[test]
    fn titles_of_the_healthy_read_as_one_sentence() {
        assert_eq!(healthy_title("Data are there"), "Nothing to fix: data are there");
        assert_eq!(healthy_title("GPU is busy"), "Nothing to fix: GPU is busy");
        assert_eq!(healthy_title("Nothing to fix: a"), "Nothing to fix: a");
        assert_eq!(healthy_title(""), "Nothing to fix");
    }
}
