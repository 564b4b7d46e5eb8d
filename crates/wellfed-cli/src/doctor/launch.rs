//! Starts a script with the probes in its environment, watches it until it ends, and leaves everything in a directory.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, ErrorKind},
    os::unix::{fs::DirBuilderExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio, id},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use wellfed::Error;
use wellfed_doctor::{
    edit::{self, Edit},
    exit::Exit,
    proof,
    record::Record,
    run_dir::{EDITS, Run, RunDir},
    show::live::Capture,
    system::{Monitor, monotonic},
};

use super::{Setting, live::View, pictures, signals::Signals};

/// Time between two looks at the machine.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// What a captured script wrote to standard output and standard error.
pub(crate) const OUTPUT: &str = "output.txt";

/// Looks at files for edits, in an interpreter that knows no folder of modules but the one it is given.
const EDIT: &str = "import sys; sys.path.insert(0, sys.argv.pop(1)); from wellfed_probe import edits; edits.main(sys.argv[1:], sys.stdout.write)";

/// What to start, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launch {
    /// Program and arguments.
    pub(crate) command: Vec<OsString>,
    /// Interpreter that parses the script's files.
    pub(crate) python: Option<OsString>,
    /// Folder of the probes.
    pub(crate) inject: Option<PathBuf>,
    /// End after so many steps.
    pub(crate) steps: Option<u64>,
    /// End after so many seconds of steps.
    pub(crate) time: Option<f64>,
    /// Further variables of the environment.
    pub(crate) env: BTreeMap<OsString, OsString>,
    /// Whether the script's output goes to [`OUTPUT`] in the run's directory, and it gets no input.
    pub(crate) captured: bool,
    /// The script is ended after so long.
    pub(crate) deadline: Option<Duration>,
    /// The live view, and what it captures.
    pub(crate) live: Option<Capture>,
}

/// The directory of one run. A private one vanishes with this value.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    kept: bool,
}

/// Whether the first process is Python's, which reads the probes before it runs anything: `train.py`, `-m module`, `python train.py`.
/// With options of Python's that keep the probes out, or behind another program, nobody can say.
pub(crate) fn begins_as_python(words: &[OsString]) -> bool {
    let words: Vec<_> = words.iter().take(3).map(|word| word.to_string_lossy()).collect();
    let runs = |at: usize| words.get(at).is_some_and(|word| word == "-m" || word.ends_with(".py"));
    let name = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    let version = name.strip_prefix("python");
    let python = version.is_some_and(|v| v.chars().all(|c| c.is_ascii_digit() || c == '.'));
    let first = if words.get(1).is_some_and(|word| word == "-u") { 2 } else { 1 };
    runs(0) || python && runs(first)
}

impl Launch {
    /// What `words` stand for: a script or `-m` and a module are run by `python`, anything else as it is.
    pub(crate) fn new(words: &[OsString], python: Option<&OsStr>, setting: &Setting) -> Result<Self, Error> {
        let Some(first) = words.first() else {
            return Err(Error::config("nothing to run")
                .with_hint("wellfed doctor run train.py ARGS…, or -m MODULE ARGS…, or torchrun …"));
        };
        let text = first.to_string_lossy();
        let by_python = text == "-m" || text.ends_with(".py");
        if text.starts_with('-') && text != "-m" {
            return Err(Error::config(format!("no option is called {text}")).with_hint(
                "wellfed doctor run --help lists the options; those of the script come after its name",
            ));
        }
        if text == "-m" && words.len() < 2 {
            return Err(Error::config("-m needs the name of a module"));
        }
        let default = || setting.interpreter.clone().filter(|path| !path.is_empty());
        let python = python.map(OsStr::to_owned).or_else(default).unwrap_or_else(|| "python3".into());
        let command = by_python.then(|| python.clone()).into_iter().chain(words.iter().cloned()).collect();
        Ok(Self { command, python: Some(python), inject: setting.inject.clone(), ..Self::default() })
    }

    /// Runs the script to its end. Files of the run are in `directory` then.
    ///
    /// # Errors
    ///
    /// If it cannot be started, or the directory cannot be written.
    pub(crate) fn run(&self, directory: &Directory) -> Result<ExitStatus, Error> {
        let (program, arguments) =
            self.command.split_first().ok_or_else(|| Error::config("nothing to run"))?;
        let mut command = Command::new(program);
        command.args(arguments).envs(&self.env).env("WELLFED_DOCTOR_DIR", directory.path());
        if let Some(inject) = &self.inject {
            let rest = env::var_os("PYTHONPATH").filter(|rest| !rest.is_empty());
            let paths = [inject.clone().into_os_string()].into_iter().chain(rest);
            command.env("PYTHONPATH", paths.collect::<Vec<_>>().join(OsStr::new(":")));
        }
        // A doctor in a doctor's script must not end at the outer one's limits.
        command.env_remove("WELLFED_DOCTOR_STEPS").env_remove("WELLFED_DOCTOR_TIME");
        if let Some(steps) = self.steps {
            command.env("WELLFED_DOCTOR_STEPS", steps.to_string());
        }
        if let Some(time) = self.time {
            command.env("WELLFED_DOCTOR_TIME", time.to_string());
        }
        if self.captured {
            let path = directory.path().join(OUTPUT);
            let io = |error| Error::io("write", path.display().to_string(), error);
            let file = fs::File::create(&path).map_err(io)?;
            let both = file.try_clone().map_err(io)?;
            command.stdin(Stdio::null()).stdout(file).stderr(both);
        } else if let Some(capture) = self.live {
            command.stderr(Stdio::piped());
            if capture.stdout {
                command.stdout(Stdio::piped());
            }
        }
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();

        let signals = Signals::handle();
        let t0 = monotonic();
        let mut child = command.spawn().map_err(|error| self.cannot_start(error))?;
        let monitor = Monitor::start(child.id(), INTERVAL, Some(directory.path()));
        let (mut monitor, problem) = match monitor {
            Ok(monitor) => (Some(monitor), None),
            Err(error) => (None, Some(format!("the machine: {error}"))),
        };
        let live = self.live.is_some() && !self.captured;
        let view =
            live.then(|| View::open(&mut child, words.clone(), directory.path().to_owned(), monitor.take()));
        let (ended, over) = mpsc::channel::<()>();
        let watch = self.deadline.map(|deadline| {
            thread::spawn(move || {
                if over.recv_timeout(deadline) == Err(mpsc::RecvTimeoutError::Timeout) {
                    Signals::kill_script();
                }
            })
        });
        let status = signals.wait(&mut child).map_err(|error| Error::io("wait for", self.name(), error));
        drop(ended);
        if let Some(watch) = watch {
            drop(watch.join());
        }
        let status = status?;
        let t1 = monotonic();
        let monitor = view.map_or(monitor, View::close);
        let mut trace = monitor.map(Monitor::stop).unwrap_or_default();
        trace.missing.extend(problem);
        drop(signals);
        trace.machine.measure_scaling();
        let exit = exit(status, child.id(), directory.path());
        let run = Run { command: words, pid: child.id(), t0, t1, exit };
        write(&directory.path().join("run.json"), &run)?;
        let system = directory.path().join("system.json");
        write(&system, &trace)?;
        // What is missing or broken in the directory is told by whoever judges it.
        let Ok(run) = directory.read() else { return Ok(status) };
        trace.storage = proof::storage(&run);
        trace.pictures = pictures::of(&run);
        if !trace.storage.is_empty() || !trace.pictures.is_empty() {
            write(&system, &trace)?;
        }
        if let Some(edits) = self.edits(&run) {
            write(&directory.path().join(EDITS), &edits)?;
        }
        Ok(status)
    }

    /// Changes that the syntax trees of the script's files allow. Without them the report has comments in place of lines.
    fn edits(&self, run: &RunDir) -> Option<Vec<Edit>> {
        let files = edit::files(run);
        let (inject, python) = (self.inject.as_ref()?, self.python.as_ref()?);
        if files.is_empty() {
            return None;
        }
        let mut command = Command::new(python);
        command.args(["-I", "-S", "-c", EDIT]).arg(inject);
        command.args(files.iter().map(|(_, path)| path)).stdin(Stdio::null()).stderr(Stdio::null());
        let done = command.output().ok().filter(|done| done.status.success())?;
        let mut edits: Vec<Edit> = serde_json::from_slice(&done.stdout).ok()?;
        for edit in &mut edits {
            // As frames have it.
            if let Some((name, _)) = files.iter().find(|(_, path)| path.to_str() == Some(&edit.file)) {
                edit.file.clone_from(name);
            }
        }
        Some(edits)
    }

    fn name(&self) -> String {
        self.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn cannot_start(&self, error: io::Error) -> Error {
        let missing = error.kind() == ErrorKind::NotFound;
        let error = Error::io("start", self.name(), error);
        if missing { error.with_hint("is it installed, and in PATH?") } else { error }
    }
}

/// Exit status of a shell for a command that ended like this.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// How the script ended; its own words, if it left any.
fn exit(status: ExitStatus, pid: u32, directory: &Path) -> Exit {
    let records = wellfed_doctor::record::read(&directory.join(format!("{pid}.jsonl"))).ok();
    let said = records.and_then(|(records, _)| {
        records.into_iter().rev().find_map(|record| match record {
            Record::Exit(exit) => Some(exit),
            _ => None,
        })
    });
    let (code, signal) = (status.code(), status.signal());
    let (reason, exception) = match said {
        Some(exit) => (exit.reason, exit.exception),
        None if signal == Some(libc::SIGINT) => ("interrupt".to_owned(), None),
        // An exception that nobody caught gives status 1.
        None if code.is_some_and(|code| code != 1) => ("finished".to_owned(), None),
        None => ("exception".to_owned(), None),
    };
    Exit { code, signal, reason, exception }
}

fn write(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec(value).map_err(io::Error::from);
    let written = text.and_then(|text| fs::write(path, text));
    written.map_err(|error| Error::io("write", path.display().to_string(), error))
}

impl Directory {
    /// A new one that only this user can read.
    pub(crate) fn private() -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = env::temp_dir();
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("wellfed-doctor-{}-{number}", id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, kept: false }),
                // Of a process that had our number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("make", path.display().to_string(), error)),
            }
        }
    }

    /// The one at `path`, made if it is not there. It must not hold a run yet.
    pub(crate) fn keep(path: &Path) -> Result<Self, Error> {
        let io = |error| Error::io("make", path.display().to_string(), error);
        fs::create_dir_all(path).map_err(io)?;
        let path = path.canonicalize().map_err(io)?;
        let mut entries = fs::read_dir(&path).map_err(io)?.flatten();
        if entries.any(|entry| {
            entry.path().extension().is_some_and(|e| e == "jsonl") || entry.file_name() == "run.json"
        }) {
            return Err(Error::config(format!("{} holds a run already", path.display()))
                .with_hint("choose another folder for --keep, or remove it"));
        }
        Ok(Self { path, kept: true })
    }

    /// Where it is; an absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Everything in it.
    pub(crate) fn read(&self) -> Result<RunDir, Error> {
        read(&self.path)
    }
}

/// The run that lies in `path`.
pub(crate) fn read(path: &Path) -> Result<RunDir, Error> {
    RunDir::read(path).map_err(|error| Error::io("read the run in", path.display().to_string(), error))
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.kept {
            // A process that the script left behind may still write into it.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(words: &[&str]) -> Result<Vec<String>, Error> {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        let setting = Setting { interpreter: Some("/usr/bin/py".into()), inject: None };
        let launch = Launch::new(&words, None, &setting)?;
        Ok(launch.command.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn scripts_and_modules_are_run_by_the_interpreter() {
        assert_eq!(
            launch(&["a b/train.py", "--lr", "1"]).unwrap(),
            ["/usr/bin/py", "a b/train.py", "--lr", "1"]
        );
        assert_eq!(launch(&["-m", "pkg.train", "-m"]).unwrap(), ["/usr/bin/py", "-m", "pkg.train", "-m"]);
        assert_eq!(launch(&["torchrun", "train.py"]).unwrap(), ["torchrun", "train.py"]);
        assert!(launch(&["--step", "5"]).unwrap_err().to_string().contains("--step"));
        assert!(launch(&["-m"]).is_err() && launch(&[]).is_err());
    }

    #[test]
    fn what_begins_as_python_is_told_by_its_words() {
        let python =
            |words: &str| begins_as_python(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        for words in
            ["train.py x", "-m pkg", "python train.py", ".venv/bin/python3.12 -m pkg", "python3 -u train.py"]
        {
            assert!(python(words), "{words}");
        }
        // The probes would not be read, or by others only.
        for words in [
            "",
            "python",
            "python -I train.py",
            "python -c x.py",
            "torchrun train.py",
            "pythonw train.py",
            "sh -m",
        ] {
            assert!(!python(words), "{words}");
        }
    }

    #[test]
    fn private_directories_vanish_and_kept_ones_stay() {
        let private = Directory::private().unwrap();
        let path = private.path().to_owned();
        assert!(path.is_dir());
        let kept = path.join("kept");
        drop(Directory::keep(&kept).unwrap());
        fs::write(kept.join("run.json"), "{}").unwrap();
        assert!(Directory::keep(&kept).unwrap_err().to_string().contains("holds a run"));
        drop(private);
        assert!(!path.exists());
    }
}
