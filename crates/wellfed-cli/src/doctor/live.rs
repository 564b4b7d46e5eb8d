//! The live view while a script runs: takes the script's output from pipes and new records from the run's directory.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::Child,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use wellfed_doctor::{
    record::Record,
    show::{
        live::{Live, Stream},
        watch::Watch,
    },
    system::{Machine, Monitor},
};

/// Time between two pictures.
const EVERY: Duration = Duration::from_millis(300);

/// How long more output is waited for after the end of the script: processes that it left behind may hold the pipes open for
/// days.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long such processes may go on writing.
const END: Duration = Duration::from_secs(10);

/// What the script wrote, that a pipe was closed, or that the script has ended.
enum Event {
    Output(Stream, Vec<u8>),
    Closed,
    Ended,
}

/// The view, on a thread of its own.
#[derive(Debug)]
pub(super) struct View {
    thread: JoinHandle<Option<Monitor>>,
    events: Sender<Event>,
}

impl View {
    /// Opens it for `child`, whose captured outputs are pipes. Keeps the monitor until it is closed.
    pub(super) fn open(
        child: &mut Child,
        command: Vec<String>,
        directory: PathBuf,
        monitor: Option<Monitor>,
    ) -> Self {
        let (events, received) = channel();
        let mut pipes = 0;
        if let Some(pipe) = child.stdout.take() {
            read(pipe, Stream::Out, events.clone());
            pipes += 1;
        }
        if let Some(pipe) = child.stderr.take() {
            read(pipe, Stream::Err, events.clone());
            pipes += 1;
        }
        let work = move || {
            show(&received, &command, &directory, monitor.as_ref(), pipes);
            monitor
        };
        let thread = thread::spawn(work);
        Self { thread, events }
    }

    /// Closes it after the end of the script; its output is where it belonged then.
    pub(super) fn close(self) -> Option<Monitor> {
        // It may have ended by itself.
        drop(self.events.send(Event::Ended));
        self.thread.join().ok().flatten()
    }
}

fn read(mut pipe: impl Read + Send + 'static, stream: Stream, events: Sender<Event>) {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) if events.send(Event::Output(stream, buffer[..len].to_vec())).is_err() => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        // Nobody may be listening any more.
        drop(events.send(Event::Closed));
    });
}

fn show(
    events: &Receiver<Event>,
    command: &[String],
    directory: &Path,
    monitor: Option<&Monitor>,
    mut pipes: usize,
) {
    let mut view = Live::new();
    let mut watch = Watch::new(command, &Machine::this());
    let mut tail = Tail::default();
    let (mut next, mut seen) = (Instant::now() + EVERY, 0);
    let (mut ended, mut end): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let until = end.unwrap_or(next).min(next);
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Output(stream, bytes)) => {
                let kept = view.as_mut().map(|view| view.output(stream, &bytes));
                if !matches!(kept, Ok(Ok(()))) {
                    // Without a view, or a place to keep it, output goes where it belongs at once.
                    view = Err(std::io::ErrorKind::Other.into());
                    pass_on(stream, &bytes);
                }
                end = ended.map(|ended| (Instant::now() + PATIENCE).min(ended + END));
            }
            Ok(Event::Closed) => pipes -= 1,
            Ok(Event::Ended) => {
                ended = Some(Instant::now());
                end = Some(Instant::now() + PATIENCE);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end || pipes == 0) {
            break;
        }
        if now >= next {
            next = now + EVERY;
            if let Some(tick) = monitor.and_then(Monitor::latest).filter(|tick| tick.t > seen) {
                seen = tick.t;
                watch.tick(&tick);
            }
            tail.read(directory, &mut |pid, record| watch.record(pid, &record));
            if let Ok(view) = &mut view {
                // A picture that cannot be drawn is not worth the run.
                drop(view.draw(&watch.snapshot()));
            }
        }
    }
    if let Ok(view) = view {
        drop(view.finish());
    }
}

fn pass_on(stream: Stream, bytes: &[u8]) {
    use std::io::Write;
    drop(match stream {
        Stream::Out => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
        Stream::Err => std::io::stderr().write_all(bytes),
    });
}

/// Files of records, read as they grow.
#[derive(Debug, Default)]
struct Tail {
    /// Where reading goes on, by process id.
    read: HashMap<u32, u64>,
}

impl Tail {
    /// Hands over the whole lines that are new.
    fn read(&mut self, directory: &Path, take: &mut dyn FnMut(u32, Record)) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "jsonl") {
                continue;
            }
            let Some(pid) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok()) else { continue };
            let begin = self.read.entry(pid).or_default();
            let Ok(text) = rest(&path, *begin) else { continue };
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            *begin += whole as u64;
            for line in text[..whole].split(|byte| *byte == b'\n') {
                // What makes no sense is counted when the run is judged.
                if let Ok(record) = serde_json::from_slice(line) {
                    take(pid, record);
                }
            }
        }
    }
}

fn rest(path: &Path, begin: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_handed_over_once_and_whole() {
        let root = std::env::temp_dir().join(format!("wellfed-tail-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let (mut tail, mut seen) = (Tail::default(), Vec::new());
        let module = |name: &str| format!("{{\"k\":\"module\",\"name\":\"{name}\"}}");
        let mut text = module("a") + "\nnonsense\n" + &module("b")[..9];
        fs::write(root.join("7.jsonl"), &text).unwrap();
        fs::write(root.join("x.error"), "x").unwrap();
        let mut read = |tail: &mut Tail| {
            tail.read(&root, &mut |pid, record| {
                let Record::Module(module) = record else { panic!("{record:?}") };
                seen.push((pid, module.name));
            });
        };
        read(&mut tail);
        text += &(module("b")[9..].to_owned() + "\n");
        fs::write(root.join("7.jsonl"), &text).unwrap();
        read(&mut tail);
        read(&mut tail);
        assert_eq!(seen, [(7, "a".to_owned()), (7, "b".to_owned())]);
        fs::remove_dir_all(root).unwrap();
    }
}
