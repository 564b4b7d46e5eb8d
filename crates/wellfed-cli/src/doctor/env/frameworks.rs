//! What an interpreter's torch and TensorFlow are built for, without importing them unless there is a device to try.

use std::{
    ffi::OsStr,
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// Longest time the interpreter may take: importing torch from a cold disk takes half a minute.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads the small files in which both say what they are built for. Its one line of output has a mark, since what is
/// imported may print as well.
const PROGRAM: &str = r#"
import importlib.util, json, os, runpy, sys
def built(package, file):
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return runpy.run_path(os.path.join(list(spec.submodule_search_locations)[0], *file))
found = []
try:
    torch = built("torch", ["version.py"])
    if torch is not None:
        usable = None
        if "device" in sys.argv and torch.get("cuda"):
            import torch as module
            usable = bool(module.cuda.is_available())
        found.append({"name": "torch", "version": torch["__version__"], "cuda": torch.get("cuda"), "usable": usable})
except Exception as error:
    found.append({"name": "torch", "problem": repr(error)})
try:
    info = built("tensorflow", ["python", "platform", "build_info.py"])
    if info is not None:
        from importlib.metadata import distributions
        names = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")
        version = next((d.version for d in distributions() if d.metadata["Name"] in names), "")
        found.append({"name": "tensorflow", "version": version, "cuda": info["build_info"].get("cuda_version"), "usable": None})
except Exception as error:
    found.append({"name": "tensorflow", "problem": repr(error)})
print("\nwellfed:" + json.dumps(found))
"#;

/// A library that trains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Framework {
    pub(super) name: &'static str,
    pub(super) version: String,
    /// CUDA it is built for: major and minor.
    pub(super) cuda: Option<(i32, i32)>,
    /// Whether it can use the device, if it was asked.
    pub(super) device_usable: Option<bool>,
}

#[derive(Deserialize)]
struct Said {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    cuda: Option<String>,
    #[serde(default)]
    usable: Option<bool>,
    #[serde(default)]
    problem: Option<String>,
}

/// Asks `python`; whether they can use the device only if `device`.
pub(super) fn ask(python: &OsStr, device: bool) -> Result<Vec<Framework>, String> {
    let name = python.to_string_lossy();
    let mut command = Command::new(python);
    command.args(["-c", PROGRAM]).args(device.then_some("device"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
    let mut pipe = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        // What was said until it broke off is looked at all the same.
        pipe.as_mut().map(|pipe| pipe.read_to_end(&mut text));
        text
    });
    let begin = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(_)) => break true,
            Ok(None) if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => break false,
        }
    };
    if !ended {
        drop(child.kill());
        drop(child.wait());
        return Err(format!("{name} did not answer within {} s", PATIENCE.as_secs()));
    }
    let text = reader.join().unwrap_or_default();
    parse(&String::from_utf8_lossy(&text)).ok_or_else(|| format!("{name} cannot run a small program"))
}

fn parse(text: &str) -> Option<Vec<Framework>> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("wellfed:"))?;
    let said: Vec<Said> = serde_json::from_str(line).ok()?;
    let known = said.into_iter().filter_map(|said| {
        let name = ["torch", "tensorflow"].into_iter().find(|name| *name == said.name)?;
        let version = said.problem.map_or(said.version, |problem| format!("broken: {problem}"));
        Some(Framework {
            name,
            version,
            cuda: said.cuda.as_deref().and_then(version_of),
            device_usable: said.usable,
        })
    });
    Some(known.collect())
}

fn version_of(text: &str) -> Option<(i32, i32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}

impl Framework {
    pub(super) fn describe(&self) -> String {
        let cuda = match self.cuda {
            Some((major, minor)) => format!("built for CUDA {major}.{minor}"),
            None => "built without CUDA".to_owned(),
        };
        let usable = match self.device_usable {
            Some(true) => ", can use the device",
            Some(false) => ", cannot use the device",
            None => "",
        };
        format!("{}, {cuda}{usable}", self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_among_other_output() {
        let text = "a banner\n\nwellfed:[{\"name\":\"torch\",\"version\":\"2.9.0+cu128\",\"cuda\":\"12.8\",\"usable\":true}]\n";
        let found = parse(text).unwrap();
        assert_eq!(found[0].cuda, Some((12, 8)));
        assert_eq!(found[0].describe(), "2.9.0+cu128, built for CUDA 12.8, can use the device");
        let broken = parse("wellfed:[{\"name\":\"tensorflow\",\"problem\":\"OSError()\"}]").unwrap();
        assert_eq!(broken[0].describe(), "broken: OSError(), built without CUDA");
        assert_eq!(parse("wellfed:[]"), Some(vec![]));
        assert_eq!(parse("nothing"), None);
        assert_eq!((version_of("13"), version_of("x")), (Some((13, 0)), None));
    }

    #[test]
    fn an_interpreter_that_is_none_is_a_sentence() {
        assert!(ask("/no such/python".as_ref(), false).unwrap_err().contains("cannot be started"));
        assert!(ask("true".as_ref(), false).unwrap_err().contains("cannot run a small program"));
    }
}
