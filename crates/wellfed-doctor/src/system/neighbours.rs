//! Who else uses the processor: processes that are not the script's, by name.
//!
//! Looked at once in a while, since all processes of the machine have to be. A process that cannot be read is left out. Of a command
//! only the program and the first file it runs are told: other words may be secrets.

use std::{collections::HashMap, fs, os::unix::ffi::OsStrExt};

use super::{Foreign, Neighbours, files::tick};

/// Processes that are told, at most.
const MOST: usize = 5;

/// CPU time of one a second below which it is not told, nanoseconds.
const LEAST: u64 = 30_000_000;

/// Characters of a name.
const NAME: usize = 60;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(super) struct Watch {
    t: u64,
    /// When a process began, in the kernel's unit, and its CPU time.
    seen: HashMap<u32, (u64, u64)>,
}

impl Watch {
    /// Looks at the processes of the machine at time `t` but those that `own` tells; nothing at the first look.
    pub(super) fn look(&mut self, t: u64, own: impl Fn(u32) -> bool) -> Option<Neighbours> {
        let before = std::mem::take(&mut self.seen);
        let time = t.saturating_sub(std::mem::replace(&mut self.t, t));
        for pid in pids().filter(|&pid| !own(pid)) {
            if let Some(stat) = stat(pid) {
                self.seen.insert(pid, stat);
            }
        }
        if before.is_empty() {
            return None;
        }
        let mut used: Vec<(u32, u64)> = self
            .seen
            .iter()
            .map(|(&pid, &(start, cpu))| match before.get(&pid) {
                Some(&(same, then)) if same == start => (pid, cpu.saturating_sub(then)),
                _ => (pid, cpu.min(time)),
            })
            .filter(|&(_, cpu)| cpu >= (LEAST as f64 * time as f64 * 1e-9) as u64 && cpu > 0)
            .collect();
        used.sort_by_key(|&(pid, cpu)| (std::cmp::Reverse(cpu), pid));
        used.truncate(MOST);
        let told = |(pid, cpu)| Some(Foreign { pid, name: name(pid)?, cpu });
        Some(Neighbours { time, processes: used.into_iter().filter_map(told).collect() })
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let folder = fs::read_dir("/proc").into_iter().flatten().flatten();
    folder.filter_map(|entry| std::str::from_utf8(entry.file_name().as_bytes()).ok()?.parse().ok())
}

/// When a process began, and its CPU time in nanoseconds.
fn stat(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // Its name, in brackets, may have brackets and spaces.
    let rest = &text[text.iter().rposition(|&byte| byte == b')')? + 1..];
    let words: Vec<&str> = std::str::from_utf8(rest).ok()?.split_ascii_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some((number(19)?, (number(11)? + number(12)?) * tick()))
}

fn name(pid: u32) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let said = named(&words);
    if !said.is_empty() {
        return Some(said);
    }
    // A thread of the kernel has no command.
    let short = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&short).trim().to_owned())
}

/// `python train.py` of `/usr/bin/python -u train.py --token …`: the program, and the first word after it that is no option if it
/// looks like a file or, after `-m`, is a module.
fn named(words: &[u8]) -> String {
    let last = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let words: Vec<String> = words
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let Some((program, rest)) = words.split_first() else { return String::new() };
    let mut name = last(program);
    let script = rest.iter().position(|word| !word.starts_with('-')).filter(|&at| {
        let module = at > 0 && rest[at - 1] == "-m";
        let code = at > 0 && rest[at - 1] == "-c";
        module
            || (!code
                && [".py", ".sh", ".js", ".pl", ".rb", ".jar"].iter().any(|end| rest[at].ends_with(end)))
    });
    if let Some(at) = script {
        name = format!("{name} {}", last(&rest[at]));
    }
    name.chars().take(NAME).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn names_are_programs_and_scripts_without_what_may_be_secret() {
        for (command, said) in [
            ("/usr/bin/python3\0-u\0/home/me/train.py\0--token\0abc\0", "python3 train.py"),
            ("python\0-m\0my.training\0x\0", "python my.training"),
            ("python\0-c\0import a.py\0", "python"),
            ("ffmpeg\0-i\0film.mp4\0", "ffmpeg"),
            ("sh\0-c\0curl secret.sh\0", "sh"),
            ("", ""),
        ] {
            assert_eq!(named(command.as_bytes()), said);
        }
    }

    #[test]
    fn a_busy_process_is_named_and_ours_is_not() {
        let start =
            || Command::new("sh").args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap();
        let (mut theirs, mut ours) = (start(), start());
        let (theirs_pid, ours_pid) = (theirs.id(), ours.id());
        let mut watch = Watch::default();
        let own = |pid| pid == ours_pid;
        assert_eq!(watch.look(1, own), None);
        // Until it had the processor for a while, however loaded the machine is.
        let mut found = None;
        for i in 1..3000u64 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let all = watch.look(1 + i, own).unwrap().processes;
            assert!(all.iter().all(|process| process.pid != ours_pid));
            found = all.into_iter().find(|process| process.pid == theirs_pid);
            if found.is_some() {
                break;
            }
        }
        drop((theirs.kill(), theirs.wait(), ours.kill(), ours.wait()));
        assert_eq!(found.unwrap().name, "sh");
    }
}
