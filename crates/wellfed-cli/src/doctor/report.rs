//! `wellfed doctor report`: what is said about a run, now or again.

use std::{
    env, fs,
    io::{self, Write},
    path::{self, Path, PathBuf},
};

use clap::Args;
use wellfed::Error;
use wellfed_doctor::{
    diagnose, patch,
    report::Report,
    run_dir::RunDir,
    show::{Style, html::html, terminal::terminal},
};

use super::launch;
use crate::output;

/// Exit status if `--fail-under` is not met.
pub(crate) const NOT_MET: i32 = 3;

/// Where the report goes besides standard error, and what it must say.
#[derive(Debug, Default, Args)]
pub(crate) struct Output {
    /// Write the report as a page for browsers
    #[arg(long, value_name = "FILE", value_parser = target)]
    pub(crate) html: Option<PathBuf>,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_parser = target)]
    pub(crate) json: Option<PathBuf>,
    /// Write the fix as a diff that git apply takes; - is standard output
    #[arg(long, value_name = "FILE", value_parser = target)]
    pub(crate) patch: Option<PathBuf>,
    /// Exit with status 3 unless steps run at X of the speed they would have if data were always there (0.9 or 90%)
    #[arg(long, value_name = "X", value_parser = share)]
    pub(crate) fail_under: Option<f64>,
}

/// A file to write. One whose name was left out must not cost the script that comes next.
pub(super) fn target(text: &str) -> Result<PathBuf, String> {
    if text.ends_with(".py") {
        return Err("a script is not overwritten: name the file to write first, or -".to_owned());
    }
    Ok(text.into())
}

fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if (0.0..=unit).contains(&number) => Ok(number / unit),
        Ok(_) => Err("must be from 0 to 1, or from 0% to 100%".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Report on a run that was kept, again
#[derive(Debug, Args)]
pub(crate) struct Again {
    /// Folder that was given to --keep
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

impl Again {
    /// Reports; gives the exit status.
    pub(crate) fn run(self) -> i32 {
        if let Err(error) = self.output.check() {
            output::note(format_args!("error: {error}"));
            return 2;
        }
        match launch::read(&self.directory).and_then(|run| self.output.show(&run)) {
            Ok(true) => 0,
            Ok(false) => NOT_MET,
            Err(error) => output::status(Err(error.into())),
        }
    }
}

impl Output {
    /// Whether the files can be written, before a run that may take hours.
    ///
    /// # Errors
    ///
    /// The first option whose file cannot be written, and why.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let all = [("--html", &self.html), ("--json", &self.json), ("--patch", &self.patch)];
        for (option, path) in all.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?))) {
            writable(path).map_err(|why| {
                Error::config(format!("{option} {}: {why}", path.display()))
                    .with_hint("name a file in a folder that is there and may be written to, or -")
            })?;
        }
        Ok(())
    }

    /// Shows what there is to say of `run`; whether `--fail-under` is met.
    pub(crate) fn show(&self, run: &RunDir) -> Result<bool, Error> {
        let report = diagnose(run);
        let mut err = io::stderr();
        let text = terminal(&report, Style::of_stderr(&err));
        // Without a standard error there is nobody to tell.
        drop(writeln!(err, "{}", text.trim_end()));
        if let Some(problem) = without_steps(run, &report) {
            output::note(format_args!("note: {problem}"));
        }
        if let Some(path) = &self.html {
            save(path, html(&report).as_bytes())?;
        }
        if let Some(path) = &self.json {
            let mut text = serde_json::to_vec_pretty(&report)
                .map_err(|error| Error::io("write", "the report", error.into()))?;
            text.push(b'\n');
            save(path, &text)?;
        }
        if let Some(path) = &self.patch {
            Self::write_patch(&report, path)?;
        }
        let Some(least) = self.fail_under else { return Ok(true) };
        let efficiency = report.steps.efficiency;
        let met = report.steps.count > 0 && efficiency >= least;
        if !met {
            let seen = if report.steps.count > 0 {
                format!("steps run at {:.1} % of what they could", efficiency * 100.0)
            } else {
                "no steps were seen".to_owned()
            };
            output::note(format_args!("--fail-under {:.1} % is not met: {seen}", least * 100.0));
        }
        Ok(met)
    }
}

impl Output {
    /// Writes the fix of the verdict as a diff, or says why there is none.
    fn write_patch(report: &Report, path: &Path) -> Result<(), Error> {
        let cwd = env::current_dir().map_err(|error| Error::io("find", "the current directory", error))?;
        match patch::patch(&report.verdict, &cwd) {
            Ok(patch) => {
                save(path, &patch.diff)?;
                if path.as_os_str() == "-" {
                    return Ok(());
                }
                let here = patch.base == cwd;
                let folder = if here { String::new() } else { format!("-C {} ", patch.base.display()) };
                let path = if here { path.to_owned() } else { path::absolute(path).unwrap_or_default() };
                output::note(format_args!("the fix as a diff: git {folder}apply {}", path.display()));
            }
            Err(why) => output::note(format_args!("no patch: {why}")),
        }
        Ok(())
    }
}

/// Whether a file can be written, which stays as it is. Pipes and devices are not tried: opening one may wait for its reader.
fn writable(path: &Path) -> Result<(), String> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => Err("it is a folder".to_owned()),
        Ok(about) if !about.is_file() => Ok(()),
        Ok(_) => fs::OpenOptions::new().write(true).open(path).map(drop).map_err(|error| error.to_string()),
        Err(_) if path.file_name().is_none() => Err("it names no file".to_owned()),
        Err(_) if !parent.exists() => Err(format!("there is no folder {}", parent.display())),
        Err(_) if !parent.is_dir() => Err(format!("{} is no folder", parent.display())),
        // A link to a file that is not there yet: it would be the link that is removed.
        Err(_) if path.is_symlink() => Ok(()),
        Err(_) => {
            // Only making it tells: a disk may be read-only whoever asks. What another process made meanwhile is not touched.
            let made = fs::OpenOptions::new().write(true).create_new(true).open(path);
            made.and_then(|_| fs::remove_file(path)).map_err(|error| error.to_string())
        }
    }
}

/// Writes a file; `-` is standard output.
fn save(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let written = if path.as_os_str() == "-" {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush())
    } else {
        fs::write(path, bytes)
    };
    match written {
        // Who closes the pipe has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io("write", path.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

/// Why there is nothing to judge, where the report cannot know it.
fn without_steps(run: &RunDir, report: &Report) -> Option<String> {
    if report.steps.count > 0 {
        return None;
    }
    if let Some(problem) = run.processes.iter().find_map(|process| process.error.as_ref()) {
        let last = problem.trim_end().lines().last().unwrap_or_default();
        return Some(format!("the probes failed ({last}): please report this; the script ran without them"));
    }
    run.processes.is_empty().then(|| {
        "no Python process was seen: the command runs none, or runs it with -I, -E or an environment of its own"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_not_overwritten() {
        assert!(target("train.py").is_err() && target("-").is_ok() && target("report.json").is_ok());
    }

    #[test]
    fn files_are_tried_before_the_run_and_stay_as_they_are() {
        let folder = launch::Directory::private().unwrap();
        let at = |name: &str| writable(&folder.path().join(name));
        fs::write(folder.path().join("old"), "kept").unwrap();
        assert_eq!((at("new"), at("old"), writable(Path::new("-"))), (Ok(()), Ok(()), Ok(())));
        assert!(!folder.path().join("new").exists());
        assert_eq!(fs::read_to_string(folder.path().join("old")).unwrap(), "kept");
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink("new", &link).unwrap();
            assert_eq!(writable(&link), Ok(()));
            assert!(link.is_symlink() && !folder.path().join("new").exists());
        }
        assert!(at("none/new").unwrap_err().contains("there is no folder"));
        assert!(at("old/new").unwrap_err().contains("is no folder"));
        assert!(writable(folder.path()).unwrap_err().contains("it is a folder"));
        assert!(writable(Path::new("")).is_err());
        let output = Output { patch: Some(folder.path().join("none/new")), ..Output::default() };
        assert!(output.check().unwrap_err().to_string().contains("--patch"));
    }

    #[test]
    fn shares_and_percentages() {
        assert_eq!(share("0.9"), Ok(0.9));
        assert_eq!(share("90%"), Ok(0.9));
        assert!(share("90").is_err() && share("-1").is_err() && share("x").is_err() && share("NaN").is_err());
    }
}
