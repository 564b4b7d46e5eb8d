//! `wellfed top`: what the loaders of a running process are doing, refreshed until one has seen enough.
//!
//! It only reads: the process it looks at does not notice.

mod attach;
mod rates;
mod view;

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use clap::Args;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};
use wellfed::ErrorKind;

use self::rates::{Look, Report};
use crate::output::{self, Failure};

/// Show what the loaders of a running process are doing (q ends it)
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The process: one of your own that uses a loader of wellfed
    #[arg(value_name = "PID")]
    process: u32,
    /// Look once, over one interval, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, one line a look
    #[arg(long)]
    json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("must be from 0.1 to 3600".to_owned())
    }
}

impl Top {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        // Fails if there is nothing to see; later on that is news, not an error.
        let mut watch = Watch { process: self.process, last: attach::look(self.process)? };
        if self.once {
            std::thread::sleep(self.interval);
            let report = watch.next()?.unwrap_or_else(|| watch.last.since_the_beginning(self.process));
            return self.print(&report);
        }
        if !self.json && std::io::stdout().is_terminal() {
            let mut terminal = ratatui::try_init()?;
            let ended = self.live(&mut terminal, &mut watch);
            ratatui::restore();
            return self.ended(ended?);
        }
        self.print(&watch.last.since_the_beginning(self.process))?;
        loop {
            std::thread::sleep(self.interval);
            let Some(report) = watch.next()? else { return self.ended(true) };
            self.print(&report)?;
        }
    }

    /// Draws until a key ends it; true if the process ended first.
    fn live(&self, terminal: &mut DefaultTerminal, watch: &mut Watch) -> Result<bool, Failure> {
        let mut report = watch.last.since_the_beginning(self.process);
        loop {
            terminal.draw(|frame| view::draw(frame, &report))?;
            let next = Instant::now() + self.interval;
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                if !event::poll(left)? {
                    break;
                }
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        let interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
                        match key.code {
                            KeyCode::Char('q') | KeyCode::Esc => return Ok(false),
                            KeyCode::Char('c') if interrupt => return Ok(false),
                            _ => {}
                        }
                    }
                    Event::Resize(..) => {
                        terminal.draw(|frame| view::draw(frame, &report))?;
                    }
                    _ => {}
                }
            }
            report = match watch.next()? {
                Some(report) => report,
                None => return Ok(true),
            };
        }
    }

    fn ended(&self, ended: bool) -> Result<(), Failure> {
        if ended {
            output::note(format_args!("process {} has ended", self.process));
        }
        Ok(())
    }

    fn print(&self, report: &Report) -> Result<(), Failure> {
        let mut out = output::results();
        if self.json {
            serde_json::to_writer(&mut out, report)?;
            writeln!(out)?;
        } else {
            for line in view::text(report) {
                writeln!(out, "{line}")?;
            }
            if !self.once {
                writeln!(out)?;
            }
        }
        Ok(out.flush()?)
    }
}

/// The loaders of a process, look by look.
struct Watch {
    process: u32,
    last: Look,
}

impl Watch {
    /// What happened since the last look; `None` if the process has ended.
    fn next(&mut self) -> Result<Option<Report>, Failure> {
        let now = match attach::look(self.process) {
            Ok(now) => now,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            // Its loaders may be closed, and others made in their place.
            Err(error) if error.kind() == ErrorKind::State => Look::default(),
            Err(error) => return Err(error.into()),
        };
        let report = now.since(&self.last, self.process);
        self.last = now;
        Ok(Some(report))
    }
}
