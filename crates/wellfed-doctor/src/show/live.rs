//! The live view: one screen on standard error while the script runs.
//!
//! The script's output stays whole: what it writes to this terminal is kept, its end is shown in the lower part of the
//! screen, and all of it is written where it belonged when the view closes. The terminal stays in its ordinary mode, so
//! Ctrl-C reaches the script as ever.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, IsTerminal, Read, Seek, SeekFrom, Stderr, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

use ratatui::{
    Frame, Terminal,
    backend::{Backend, CrosstermBackend},
    crossterm::{
        cursor::{Hide, Show},
        execute,
        terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen},
    },
    layout::{Constraint, Layout, Rect},
    style::{Color, Style as Ink, Stylize},
    text::{Line, Span},
    widgets::{Block, Paragraph, Sparkline},
};

use super::{
    Style, bytes, percent, plural, rate, seconds,
    style::{columns, cut, pad},
    terminal::meter,
    watch::Snapshot,
};

/// Lines of the script's output that are remembered for the screen.
const TAIL: usize = 200;

/// Which of the script's outputs go through [`Live::output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Whether standard output does: it goes to the same terminal.
    pub stdout: bool,
}

/// Whether there can be a live view, and what it must capture: standard error always, standard output if it goes to the
/// same terminal. Then the view is shown only if it was asked for.
pub fn possible(asked: bool) -> Option<Capture> {
    let (out, err) = (io::stdout(), io::stderr());
    if !err.is_terminal() || std::env::var_os("TERM").is_none_or(|term| term == "dumb") {
        return None;
    }
    let device = |copy: io::Result<OwnedFd>| Some(File::from(copy.ok()?).metadata().ok()?.rdev());
    let same = out.is_terminal()
        && device(out.as_fd().try_clone_to_owned()) == device(err.as_fd().try_clone_to_owned());
    (asked || !same).then_some(Capture { stdout: same })
}

/// Where the script wrote something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// The view. Closes when dropped; [`Live::finish`] also reports errors.
#[derive(Debug)]
pub struct Live<B: Backend> {
    terminal: Terminal<B>,
    style: Style,
    output: Output,
    /// Whether the terminal must be put back.
    open: bool,
}

impl Live<CrosstermBackend<Stderr>> {
    /// Opens the view on standard error.
    pub fn new() -> io::Result<Self> {
        let output = Output::new()?;
        let style = Style::of_stderr(&io::stderr());
        let terminal = Terminal::new(CrosstermBackend::new(io::stderr()))?;
        let live = Self { terminal, style, output, open: true };
        // Not through `Terminal::clear`: it asks where the cursor is, and the answer would come on the script's input.
        execute!(io::stderr(), EnterAlternateScreen, Hide, Clear(ClearType::All))?;
        Ok(live)
    }
}

impl<B: Backend> Live<B> {
    /// Shows a moment.
    pub fn draw(&mut self, snapshot: &Snapshot) -> io::Result<()>
    where
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (style, tail) = (self.style, &self.output.tail);
        let drawn = self.terminal.draw(|frame| screen(frame, snapshot, tail, style));
        drawn.map(drop).map_err(io::Error::other)
    }

    /// Takes what the script wrote.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.output.take(stream, bytes)
    }

    /// Closes the view and writes the script's output where it belonged, in the order in which it came.
    pub fn finish(mut self) -> io::Result<()> {
        self.close()
    }

    fn close(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        let left = execute!(io::stderr(), Show, LeaveAlternateScreen);
        self.output.replay(&mut io::stdout().lock(), &mut io::stderr().lock())?;
        left
    }
}

impl<B: Backend> Drop for Live<B> {
    fn drop(&mut self) {
        // Who wants to know of errors calls `finish`.
        drop(self.close());
    }
}

/// What the script wrote: its end in memory, all of it in a file without a name.
#[derive(Debug)]
struct Output {
    file: File,
    /// Lengths of what came from one stream without a break.
    runs: Vec<(Stream, u64)>,
    tail: Tail,
}

impl Output {
    fn new() -> io::Result<Self> {
        let mut attempt = 0u32;
        let (path, file) = loop {
            let name = format!("wellfed-doctor-{}-{attempt}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
                Err(error) => {
                    let text = format!("cannot keep the script's output in {}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        };
        fs::remove_file(path)?;
        Ok(Self { file, runs: Vec::new(), tail: Tail::default() })
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.tail.take(bytes);
        self.file.write_all(bytes)?;
        match self.runs.last_mut() {
            Some((last, length)) if *last == stream => *length += bytes.len() as u64,
            _ => self.runs.push((stream, bytes.len() as u64)),
        }
        Ok(())
    }

    fn replay(&mut self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        for (stream, length) in std::mem::take(&mut self.runs) {
            let to: &mut dyn Write = if stream == Stream::Out { &mut *out } else { &mut *err };
            io::copy(&mut (&self.file).take(length), to)?;
            to.flush()?;
        }
        Ok(())
    }
}

/// The last lines of a terminal's output, as they would stand there: a carriage return begins the line anew.
#[derive(Debug, Default)]
struct Tail {
    lines: std::collections::VecDeque<String>,
    line: Vec<u8>,
    /// A carriage return came last: what follows replaces the line, unless it is a line feed.
    back: bool,
}

impl Tail {
    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\r' => self.back = true,
                b'\n' => {
                    self.back = false;
                    if self.lines.len() == TAIL {
                        self.lines.pop_front();
                    }
                    self.lines.push_back(String::from_utf8_lossy(&self.line).into_owned());
                    self.line.clear();
                }
                byte => {
                    if std::mem::take(&mut self.back) {
                        self.line.clear();
                    }
                    // A line without an end is no reason to keep all of it.
                    if self.line.len() < 4096 {
                        self.line.push(byte);
                    }
                }
            }
        }
    }

    /// The last `count` lines, without sequences that steer a terminal.
    fn last(&self, count: usize, width: usize, style: Style) -> Vec<String> {
        let open = (!self.line.is_empty()).then(|| String::from_utf8_lossy(&self.line).into_owned());
        let all: Vec<_> = self.lines.iter().map(String::as_str).chain(open.as_deref()).collect();
        let begin = all.len().saturating_sub(count);
        all[begin..].iter().map(|line| cut(&style.clean(&plain(line)), width)).collect()
    }
}

/// `text` without escape sequences: progress bars are full of them.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            plain.push(c);
        } else if chars.next_if_eq(&'[').is_some() {
            // Parameters, then one letter.
            while chars.next_if(|c| !('@'..='~').contains(c)).is_some() {}
            chars.next();
        } else {
            chars.next();
        }
    }
    plain
}

/// Lays out one screen.
fn screen(frame: &mut Frame<'_>, now: &Snapshot, tail: &Tail, style: Style) {
    let stages = u16::try_from(now.stages.len()).unwrap_or(u16::MAX).saturating_add(2);
    let rows = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(stages),
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(1),
        Constraint::Min(0),
    ])
    .horizontal_margin(1)
    .split(frame.area());
    head(frame, rows[0], now, style);
    pipeline(frame, rows[1], now, style);
    steps(frame, rows[3], now, style);
    machine(frame, rows[5], now, style);
    output(frame, rows[7], tail, style);
}

fn head(frame: &mut Frame<'_>, area: Rect, now: &Snapshot, style: Style) {
    let width = usize::from(area.width);
    let right = format!("{}, {}", seconds((now.elapsed * 10.0).round() / 10.0), plural(now.steps, "step"));
    let name = "wellfed doctor  ";
    let room = width.saturating_sub(name.len() + right.len() + 2);
    let command = pad(&cut(&style.clean(&now.command), room), room);
    let line = Line::from(vec![name.bold(), command.dim(), "  ".into(), right.into()]);
    frame.render_widget(Paragraph::new(line), area);
}

fn pipeline(frame: &mut Frame<'_>, area: Rect, now: &Snapshot, style: Style) {
    let mut lines = vec![Line::from(said(now, style)).bold()];
    let (scale, unit) = if now.batch_size > 0.0 { (now.batch_size, "samples/s") } else { (1.0, "batches/s") };
    let step = if now.compute > 0.0 { 1.0 / now.compute } else { 0.0 };
    let whole = now.stages.iter().map(|stage| stage.rate).fold(step, f64::max).min(step * 2.0).max(1e-12);
    let bar = usize::from(area.width).saturating_sub(49).clamp(6, 60);
    let place = match now.workers {
        0 => "in the loop".to_owned(),
        n => plural(n.into(), "worker"),
    };
    let rows = now.stages.iter().map(|stage| (stage.name.as_str(), place.as_str(), stage.rate, stage.time));
    let step_row = (step > 0.0).then_some(("step", "main", step, now.compute));
    for (name, place, sustained, time) in rows.chain(step_row) {
        let short = name != "step" && sustained < step;
        let ink = if short { Ink::new().fg(Color::Red) } else { Ink::new() };
        lines.push(Line::from(vec![
            Span::raw(format!("{name:<8} ")),
            Span::raw(format!("{place:<12}")).dim(),
            Span::styled(meter(sustained / whole, bar, style.unicode), ink),
            Span::styled(format!(" {:>8}", rate(sustained * scale)), ink),
            Span::raw(format!(" {unit}")).dim(),
            Span::raw(format!(" {:>8}", seconds(time))).dim(),
        ]));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Who waits for whom.
fn said(now: &Snapshot, style: Style) -> String {
    let whole = now.wait + now.compute;
    if now.recent.is_empty() || whole <= 0.0 {
        return if now.steps == 0 { "No step yet".to_owned() } else { "First steps".to_owned() };
    }
    let speed = if now.batch_size > 0.0 {
        format!("{} samples/s", rate(now.batch_size / whole))
    } else {
        format!("{} batches/s", rate(1.0 / whole))
    };
    let share = now.wait / whole;
    let who = match share {
        s if s >= 0.05 => format!("the step waits for data {} of the time", percent(s)),
        _ => "data are there when the step wants them".to_owned(),
    };
    style.clean(&format!("{speed}: {who}"))
}

fn steps(frame: &mut Frame<'_>, area: Rect, now: &Snapshot, style: Style) {
    let rows = Layout::vertical([Constraint::Length(1), Constraint::Length(3)]).split(area);
    let text = format!(
        "Last steps, {} waiting and {} computing on average",
        seconds(now.wait),
        seconds(now.compute)
    );
    frame.render_widget(Paragraph::new(text).dim(), rows[0]);
    let count = usize::from(area.width).min(now.recent.len());
    let recent = &now.recent[now.recent.len() - count..];
    let micros = |seconds: f64| (seconds * 1e6) as u64;
    let most = recent.iter().map(|step| micros(step[0] + step[1])).max().unwrap_or(0).max(1);
    let set = if style.unicode { ratatui::symbols::bar::NINE_LEVELS } else { ASCII_BARS };
    // Waiting is drawn over the whole step.
    let whole: Vec<_> = recent.iter().map(|step| micros(step[0] + step[1])).collect();
    let wait: Vec<_> = recent.iter().map(|step| micros(step[0])).collect();
    let chart =
        |data: Vec<u64>, ink: Ink| Sparkline::default().data(data).max(most).style(ink).bar_set(set.clone());
    let halves =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]).split(rows[1]);
    let fit =
        |data: Vec<u64>, area: Rect| data[data.len().saturating_sub(usize::from(area.width))..].to_vec();
    frame.render_widget(
        chart(fit(wait, halves[0]), Ink::new().fg(Color::Red)).block(titled("waiting")),
        halves[0],
    );
    frame.render_widget(chart(fit(whole, halves[2]), Ink::new()).block(titled("whole step")), halves[2]);
}

fn titled(title: &str) -> Block<'_> {
    Block::new().title_bottom(Line::from(title).dim())
}

const ASCII_BARS: ratatui::symbols::bar::Set<'static> = ratatui::symbols::bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "#",
    five_eighths: "=",
    half: "=",
    three_eighths: "-",
    one_quarter: "-",
    one_eighth: ".",
    empty: " ",
};

fn machine(frame: &mut Frame<'_>, area: Rect, now: &Snapshot, style: Style) {
    let machine = &now.machine;
    let levels = if style.unicode {
        [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"]
    } else {
        [" ", ".", ".", "-", "-", "=", "=", "#", "#"]
    };
    let level = |share: f32| levels[(share.clamp(0.0, 1.0) * 8.0).round() as usize];
    let cores: String =
        machine.cores.iter().take(usize::from(area.width / 2)).map(|share| level(*share)).collect();
    let mut cpu = format!("CPU   [{cores}] {} cores", rate((machine.script * 10.0).round() / 10.0));
    if machine.foreign > 0.05 {
        cpu += &format!(", others {}", rate((machine.foreign * 10.0).round() / 10.0));
    }
    let limit =
        if machine.memory_limit > 0 { format!(" of {}", bytes(machine.memory_limit)) } else { String::new() };
    let traffic = format!(
        "Disk  {}/s, busy {}   Network  {}/s   Memory  {}{limit}",
        bytes(machine.disk as u64),
        percent(machine.disk_busy.into()),
        bytes(machine.network as u64),
        bytes(machine.memory),
    );
    let gpus: Vec<_> = (machine.gpus.iter().enumerate())
        .map(|(i, gpu)| {
            let bar = meter(gpu.busy.into(), 10, style.unicode);
            format!("GPU {i} {bar} {} {}", percent(gpu.busy.into()), bytes(gpu.memory))
        })
        .collect();
    let lines: Vec<_> = [cpu, traffic, gpus.join("   ")]
        .iter()
        .map(|line| Line::from(cut(line, usize::from(area.width))))
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn output(frame: &mut Frame<'_>, area: Rect, tail: &Tail, style: Style) {
    if area.height < 2 {
        return;
    }
    let width = usize::from(area.width);
    let rule = if style.unicode { "─" } else { "-" };
    let title = "The script's output ";
    let mut lines =
        vec![Line::from(format!("{title}{}", rule.repeat(width.saturating_sub(columns(title))))).dim()];
    lines.extend(tail.last(usize::from(area.height) - 1, width, style).into_iter().map(Line::from));
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::{
        show::watch::{LiveStage, MachineNow, Watch},
        system::{GpuTick, Machine},
    };

    fn moment() -> Snapshot {
        let stage = |name: &str, time: f64| LiveStage { name: name.to_owned(), time, rate: 2.0 / time };
        Snapshot {
            command: "python train.py --data /data/photos".to_owned(),
            elapsed: 12.34,
            steps: 310,
            batch_size: 64.0,
            wait: 0.0452,
            compute: 0.0694,
            recent: (0..120).map(|i| [0.02 + f64::from(i % 13) / 250.0, 0.069]).collect(),
            stages: vec![stage("load", 0.205), stage("collate", 0.0052), stage("send", 0.0011)],
            workers: 2,
            machine: MachineNow {
                cores: vec![0.97, 0.62],
                script: 1.58,
                foreign: 0.21,
                memory: 2_140_000_000,
                memory_limit: 13_616_000_000,
                disk: 12_400_000.0,
                disk_busy: 0.11,
                network: 2_300.0,
                gpus: vec![GpuTick { busy: 0.57, memory: 9_120_000_000, ..GpuTick::default() }],
            },
        }
    }

    fn live(width: u16, height: u16, unicode: bool) -> Live<TestBackend> {
        let style = Style { unicode, ..Style::plain(usize::from(width)) };
        let terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        Live { terminal, style, output: Output::new().unwrap(), open: false }
    }

    fn shown(live: &mut Live<TestBackend>, snapshot: &Snapshot) -> String {
        live.draw(snapshot).unwrap();
        live.terminal.backend().to_string()
    }

    #[test]
    fn a_moment_of_training() {
        let mut live = live(90, 26, true);
        live.output(Stream::Out, b"epoch 0\nloss 2.31\n\x1b[32mloss\x1b[0m 2.10\n").unwrap();
        live.output(Stream::Err, b"  4%|    | 12/310\r  5%|#   | 13/310").unwrap();
        insta::assert_snapshot!(shown(&mut live, &moment()));
    }

    #[test]
    fn a_moment_in_ascii() {
        let mut live = live(70, 20, false);
        let text = shown(&mut live, &moment());
        assert!(text.is_ascii(), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn before_the_first_step() {
        let command = ["python".to_owned(), "train.py".to_owned()];
        let snapshot = Watch::new(&command, &Machine::default()).snapshot();
        insta::assert_snapshot!(shown(&mut live(70, 14, true), &snapshot));
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (3, 2), (20, 5), (60, 12), (300, 90)] {
            shown(&mut live(width, height, true), &moment());
        }
        let odd = Snapshot { wait: f64::NAN, recent: vec![[f64::INFINITY, f64::NAN]], ..moment() };
        shown(&mut live(80, 24, true), &odd);
    }

    #[test]
    fn output_comes_back_whole_and_in_order() {
        let mut output = Output::new().unwrap();
        for (stream, text) in
            [(Stream::Out, "a"), (Stream::Out, "b\n"), (Stream::Err, "\u{1b}[1mc\r"), (Stream::Out, "d")]
        {
            output.take(stream, text.as_bytes()).unwrap();
        }
        assert_eq!(output.runs.len(), 3);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        output.replay(&mut out, &mut err).unwrap();
        assert_eq!((out.as_slice(), err.as_slice()), (&b"ab\nd"[..], &b"\x1b[1mc\r"[..]));
    }

    #[test]
    fn the_tail_is_what_a_terminal_would_show() {
        let mut tail = Tail::default();
        tail.take(b"one\r\ntwo\rTWO\nthree\x1b[2K\x1b]x\x07\n10%\r20%\xff");
        let style = Style::plain(80);
        assert_eq!(tail.last(9, 80, style), ["one", "TWO", "threex\\u{7}", "20%\u{fffd}"]);
        assert_eq!(tail.last(1, 3, style), ["2.."]);
        for i in 0..1000 {
            tail.take(format!("{i}\n").as_bytes());
        }
        assert_eq!((tail.lines.len(), tail.last(1, 9, style)), (TAIL, vec!["999".to_owned()]));
    }
}
