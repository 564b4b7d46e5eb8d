//! Times decoders on request: one process that holds the files in memory and answers line by line, so that a
//! driver can interleave rounds of these decoders with those of other processes.
//!
//! `load SET FOLDER [WINDOWS]` reads a set of files; `contenders` lists names; `measure CONTENDER SET` decodes
//! every file (or each of its windows) once and answers the CPU seconds and the number of decodes.
//! An answer is one line: `ok ...` or `error ...`.

mod ours;
mod peers;

use std::collections::HashMap;
use std::io::{BufRead, Write};

/// x, y, width, height.
type Window = [u32; 4];

struct File {
    bytes: Vec<u8>,
    width: u32,
    height: u32,
    windows: Vec<Window>,
}

/// One decoder and one way of using it.
trait Contender {
    /// Outside the clock: what may be kept beside a file (a row index, packed coefficients).
    fn prepare(&mut self, _files: &[File]) -> Result<(), String> {
        Ok(())
    }

    /// Decodes the file, `index`-th of its set; returns how many images that made.
    fn run(&mut self, index: usize, file: &File) -> Result<usize, String>;
}

#[derive(Default)]
struct Server {
    sets: HashMap<String, Vec<File>>,
    contenders: HashMap<String, Box<dyn Contender>>,
    prepared: HashMap<String, String>,
}

impl Server {
    fn answer(&mut self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["load", name, folder, ref rest @ ..] => {
                let files = load(folder, rest.first().copied())?;
                let size: usize = files.iter().map(|f| f.bytes.len()).sum();
                let answer = format!("{} {size}", files.len());
                self.prepared.clear();
                self.sets.insert(name.into(), files);
                Ok(answer)
            }
            ["contenders"] => Ok([peers::NAMES.join(" "), ours::names().join(" ")].join(" ")),
            ["measure", contender, set] => self.measure(contender, set),
            _ => Err("load SET FOLDER [WINDOWS] | contenders | measure CONTENDER SET".into()),
        }
    }

    fn measure(&mut self, name: &str, set: &str) -> Result<String, String> {
        let files = self.sets.get(set).ok_or("no such set")?;
        if !self.contenders.contains_key(name) {
            self.contenders.insert(
                name.into(),
                peers::contender(name).or_else(|| ours::contender(name)).ok_or("no such contender")?,
            );
        }
        let contender = self.contenders.get_mut(name).expect("was put there");
        if self.prepared.get(name).map(String::as_str) != Some(set) {
            contender.prepare(files)?;
            self.prepared.insert(name.into(), set.into());
        }
        let mut images = 0;
        let start = cpu_seconds();
        for (index, file) in files.iter().enumerate() {
            images += contender.run(index, file)?;
        }
        Ok(format!("{} {images}", cpu_seconds() - start))
    }
}

/// CPU time of this process: it has one thread, and what others do on the machine does not count.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// All files of a folder in order of name; windows from lines `NAME x y width height x y width height ...`.
fn load(folder: &str, windows: Option<&str>) -> Result<Vec<File>, String> {
    let read = |path: &std::path::Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let mut named: HashMap<String, Vec<Window>> = HashMap::new();
    if let Some(path) = windows {
        let text = String::from_utf8(read(path.as_ref())?).map_err(|e| e.to_string())?;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().ok_or("an empty line of windows")?;
            let numbers: Vec<u32> = words.map_while(|w| w.parse().ok()).collect();
            named.insert(name.into(), numbers.as_chunks::<4>().0.to_vec());
        }
    }
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .map_err(|e| format!("{folder}: {e}"))?
        .flatten()
        .map(|e| e.path())
        .collect();
    paths.sort();
    let mut turbo = turbo::Turbo::new();
    let mut files = Vec::new();
    for path in paths {
        let bytes = read(&path)?;
        let header = turbo.header(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let windows = named.remove(&name).unwrap_or_default();
        files.push(File { bytes, width: header.file_width, height: header.file_height, windows });
    }
    Ok(files)
}

fn main() -> std::io::Result<()> {
    let mut server = Server::default();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        match server.answer(&line?) {
            Ok(text) => writeln!(out, "ok {text}")?,
            Err(text) => writeln!(out, "error {text}")?,
        }
        out.flush()?;
    }
    Ok(())
}
