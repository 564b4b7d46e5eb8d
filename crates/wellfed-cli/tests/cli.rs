//! The binary as users run it: what it prints where, and its exit status. Numbers that vary are redacted.

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio, id},
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::Value;

/// A folder that vanishes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("wellfed-cli-{}-{number}", id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Three classes of 4, 3 and 0 intact photographs, and a damaged file in each of the last two.
    fn photos() -> Self {
        let this = Self::new();
        for number in 0..4 {
            this.write(&format!("data/cat/{number}.jpg"), &jpeg(40 + number, 30, false));
        }
        for number in 0..3 {
            this.write(&format!("data/dog/{number}.jpg"), &jpeg(64, 48, true));
        }
        let whole = jpeg(40, 30, false);
        this.write("data/dog/cut.jpg", &whole[..whole.len() / 2]);
        this.write("data/emu/empty.jpg", b"");
        this
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn jpeg(width: u16, height: u16, progressive: bool) -> Vec<u8> {
    let pixels: Vec<u8> =
        (0..usize::from(width) * usize::from(height) * 3).map(|i| (i * 37 % 251) as u8).collect();
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    encoder.set_progressive(progressive);
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wellfed"));
    command.current_dir(folder).args(args);
    command
}

/// Exit status, standard output and standard error.
fn run(folder: &Folder, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(&folder.0, args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn json(folder: &Folder, args: &[&str]) -> Value {
    let (status, stdout, stderr) = run(folder, args);
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    let bad = args[0] == "inspect" && report["bad_samples"] != serde_json::json!([]);
    assert_eq!(status, Some(i32::from(bad)), "{stderr}");
    report
}

/// Every number becomes `#`, every run of blanks one.
fn redact(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let c = match c {
            '0'..='9' => '#',
            '.' if out.ends_with('#') => '#',
            c => c,
        };
        if !(out.ends_with(c) && (c == '#' || c == ' ')) {
            out.push(c);
        }
    }
    out
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn bench_prints_rates_stages_and_bad_samples() {
    let folder = Folder::photos();
    let args = ["bench", "data", "--workers", "1", "--batch-size", "4", "--epochs", "2"];
    let (status, stdout, stderr) = run(&folder, &args);
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(stderr, "data: a folder of class folders, 9 samples, 3 classes\n");
    let shown = redact(&stdout);
    assert!(shown.starts_with("# img/s (median epoch; #, #)\npipeline imagenet-train, batches of #, # samples an epoch\n# CPU-seconds per #,# images\n"), "{shown}");
    assert!(stdout.contains("14 samples in "), "{stdout}");
    for stage in ["read", "decode", "write", "idle"] {
        assert!(shown.contains(&format!("\n{stage} # #% # #")), "{shown}");
    }
    let bad = stdout.split_once("bad samples, left out: 2\n").unwrap().1;
    assert!(bad.contains("  dog/cut.jpg: ") && bad.contains("  emu/empty.jpg: file is empty"), "{bad}");
}

#[test]
fn bench_json_has_stable_keys() {
    let folder = Folder::photos();
    let args = ["bench", "data", "--json", "--samples", "5", "--seed", "3", "--pipeline", "imagenet-eval"];
    let report = json(&folder, &args);
    assert_eq!(report["decode"], "exact");
    assert_eq!(json(&folder, &[&args[..], &["--decode", "fast"]].concat())["decode"], "fast");
    assert_eq!(
        keys(&report),
        [
            "bad_samples",
            "batch_size",
            "consumer_wait",
            "cpu_seconds_per_1000_images",
            "cpu_seconds_per_1000_samples",
            "decode",
            "epochs",
            "format",
            "images_per_second",
            "path",
            "pipeline",
            "samples",
            "samples_per_second",
            "seed",
            "stats",
            "version"
        ]
    );
    let of_epoch = ["images_per_second", "samples", "samples_per_second", "seconds"];
    assert_eq!(keys(&report["epochs"][0]), of_epoch);
    assert_eq!(keys(&report["bad_samples"]), ["count", "listed"]);
    assert_eq!((&report["samples"], &report["seed"]), (&5.into(), &3.into()));
    assert_eq!((&report["format"], &report["pipeline"]), (&"image_folder".into(), &"imagenet-eval".into()));
    assert!(report["images_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(report["epochs"].as_array().unwrap().len(), 3);
}

#[test]
fn bench_runs_on_what_has_no_images() {
    let folder = Folder::new();
    folder.write("t.csv", b"a,b,word\n1,2.5,x\n2,3.5,y\n3,oops,z\n");
    let (status, stdout, stderr) = run(&folder, &["bench", "t.csv", "--epochs", "1"]);
    assert_eq!(status, Some(0), "{stderr}");
    let shown = redact(&stdout);
    assert!(
        shown.starts_with("# samples/s (median epoch; #)\nbatches of #, # samples an epoch\n"),
        "{shown}"
    );
    let report = json(&folder, &["bench", "t.csv", "--epochs", "1", "--json"]);
    assert!(report["samples_per_second"].as_f64().unwrap() > 0.0);
    assert!(report["images_per_second"].is_null() && report["pipeline"].is_null());
    let (status, _, stderr) = run(&folder, &["bench", "t.csv", "--pipeline", "cifar"]);
    assert!(status == Some(1) && stderr.contains("no field of images"), "{stderr}");
}

#[test]
fn bench_runs_on_arrays_patterns_and_shards() {
    let folder = Folder::new();
    // CIFAR-10: a label, then 3 planes of 32x32; MNIST: a header, then rows.
    for number in 1..=5 {
        folder.write(&format!("cifar/data_batch_{number}.bin"), &[1; 2 * 3073]);
    }
    let idx = |header: &[u8], rest: usize| [header, &vec![7; rest]].concat();
    folder.write(
        "mnist/train-images-idx3-ubyte",
        &idx(&[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28], 3 * 28 * 28),
    );
    folder.write("mnist/train-labels-idx1-ubyte", &idx(&[0, 0, 8, 1, 0, 0, 0, 3], 3));
    let photo = jpeg(50, 40, false);
    folder.write("flat/a.jpg", &photo);
    folder.write("flat/b.jpg", &photo);
    let mut shard = tar::Builder::new(Vec::new());
    for number in 0..3 {
        for (name, bytes) in [("jpg", photo.as_slice()), ("cls", b"1")] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            shard.append_data(&mut header, format!("{number}.{name}"), bytes).unwrap();
        }
    }
    folder.write("shards/s-0.tar", &shard.into_inner().unwrap());
    for (path, format, pipeline, samples) in [
        ("cifar", "cifar10", "cifar", 10),
        ("mnist", "mnist", "cifar", 3),
        ("flat", "flat_folder", "imagenet-train", 2),
        ("flat/*.jpg", "glob", "imagenet-train", 2),
        ("shards", "webdataset", "imagenet-train", 3),
        ("shards/s-{0..0}.tar", "webdataset", "imagenet-train", 3),
    ] {
        let report = json(&folder, &["bench", path, "--json", "--epochs", "1"]);
        let got = (&report["format"], &report["pipeline"], &report["epochs"][0]["samples"]);
        assert_eq!(got, (&format.into(), &pipeline.into(), &samples.into()), "{path}");
        let report = json(&folder, &["inspect", path, "--json", "--full"]);
        assert_eq!((&report["format"], &report["samples"]), (&format.into(), &samples.into()), "{path}");
        assert_eq!(report["bad_samples"], serde_json::json!([]), "{path}");
        let images: u64 =
            report["codecs"].as_array().unwrap().iter().map(|c| c["images"].as_u64().unwrap()).sum();
        assert_eq!(images, samples, "{path}");
    }
}

#[test]
fn index_is_made_once_and_completed_after_changes() {
    let folder = Folder::photos();
    let (status, stdout, stderr) = run(&folder, &["index", "data"]);
    assert_eq!(status, Some(0), "{stderr}");
    let shown = stdout.split_once(" s\n").unwrap();
    assert!(shown.0.starts_with("indexed: 4 in 0."), "{stdout}");
    let rest = "indexed before: 0\nprogressive, always decoded as a whole: 3\nkept in data/.wfrows\n\nbad samples: 2\n";
    assert!(shown.1.starts_with(rest), "{stdout}");
    assert!(stdout.contains("bad samples: 2\n  dog/cut.jpg: "), "{stdout}");
    folder.write("data/cat/1.jpg", &jpeg(60, 50, false));
    folder.write("data/cat/more.jpg", &jpeg(60, 50, false));
    let report = json(&folder, &["index", "data", "--json", "--workers", "3"]);
    assert_eq!((&report["new"], &report["known"]), (&2.into(), &3.into()));
    assert_eq!((&report["without_rows"], &report["others"]), (&3.into(), &0.into()));
    assert_eq!(report["bad_samples"].as_array().unwrap().len(), 2);
    let report = json(&folder, &["index", "data/cat", "--json", "--into", "kept"]);
    assert_eq!((&report["new"], &report["known"]), (&5.into(), &0.into()));
    assert!(report["files"][0].as_str().unwrap().starts_with("kept/cat-"), "{report}");
    let (status, _, stderr) = run(&folder, &["index", "data/**/*.jpg"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("is a pattern"), "{stderr}");
}

#[test]
fn inspect_prints_what_there_is() {
    let folder = Folder::photos();
    let (status, stdout, stderr) = run(&folder, &["inspect", "data", "--full"]);
    assert_eq!(status, Some(1), "samples are bad: {stderr}");
    assert_eq!(run(&folder, &["inspect", "data/cat", "--full"]).0, Some(0), "these are not");
    let lines: Vec<String> =
        stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "9 samples, image_folder",
        "samples of 3 classes",
        "4 dog",
        "1 emu",
        "JPEG sequential 4 57.1%",
        "JPEG progressive 3 42.9%",
        "size min 5% median 95% max",
        "width 40 40 43 64 64",
        "height 30 30 30 48 48",
        "bad samples: 2 (all images decoded)",
        "emu/empty.jpg: file is empty",
        "3 progressive JPEGs: sequential ones decode faster; jpegtran -copy all rewrites them without loss",
    ] {
        assert!(lines.iter().any(|l| l == line), "no {line:?} in\n{stdout}");
    }
    assert!(lines.iter().any(|l| l.starts_with("dog/cut.jpg: ")), "{stdout}");
}

#[test]
fn inspect_json_has_stable_keys_and_all_reasons() {
    let folder = Folder::photos();
    let report = json(&folder, &["inspect", "data", "--json", "--full"]);
    assert_eq!(
        keys(&report),
        [
            "bad_samples",
            "bytes",
            "classes",
            "codecs",
            "features",
            "fields",
            "format",
            "full",
            "height",
            "path",
            "samples",
            "sounds",
            "suggestions",
            "turned",
            "version",
            "width"
        ]
    );
    assert_eq!(keys(&report["width"]), ["max", "mean", "min", "p5", "p50", "p95"]);
    let bad = &report["bad_samples"];
    assert_eq!(keys(&bad[0]), ["hint", "index", "key", "kind", "message", "offset", "stage"]);
    assert_eq!((&bad[0]["key"], &bad[0]["kind"]), (&"dog/cut.jpg".into(), &"corrupt".into()));
    assert_eq!((&bad[1]["key"], &bad[1]["index"]), (&"emu/empty.jpg".into(), &8.into()));
    assert_eq!(report["classes"][0], serde_json::json!({ "label": 0, "name": "cat", "samples": 4 }));
}

#[test]
fn every_key_is_in_the_guide() {
    fn check(value: &Value, guide: &str) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    assert!(guide.contains(&format!("`{key}`")), "the guide does not explain {key}");
                    // These are explained with the loader.
                    if key != "stats" {
                        check(value, guide);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| check(item, guide)),
            _ => {}
        }
    }
    let guide =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command-line.md")).unwrap();
    let (bench, inspect) = guide.split_once("`inspect --json`").unwrap();
    let folder = Folder::photos();
    check(&json(&folder, &["bench", "data", "--json"]), bench);
    check(&json(&folder, &["inspect", "data", "--json"]), inspect);
}

#[test]
fn images_that_exif_turns_are_counted() {
    let folder = Folder::new();
    // A TIFF header and one entry: orientation (0x0112), one short, 6 (turned by 90 degrees).
    let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    encoder.add_app_segment(1, exif.to_vec()).unwrap();
    encoder.encode(&[9; 8 * 16 * 3], 8, 16, jpeg_encoder::ColorType::Rgb).unwrap();
    folder.write("flat/turned.jpg", &bytes);
    folder.write("flat/upright.jpg", &jpeg(8, 16, false));
    let report = json(&folder, &["inspect", "flat", "--json"]);
    assert_eq!((&report["turned"], &report["suggestions"].as_array().unwrap().len()), (&1.into(), &1));
    assert!(report["suggestions"][0].as_str().unwrap().contains("exif_orientation=True"), "{report}");
}

#[cfg(unix)]
#[test]
fn names_from_the_data_cannot_steer_the_terminal() {
    let folder = Folder::new();
    folder.write("data/a\u{1b}[31m/1\n2.jpg", b"no image");
    folder.write("data/b/1.jpg", &jpeg(8, 8, false));
    for args in [&["inspect", "data"][..], &["bench", "data"], &["bench", "data/a\u{1b}[31m"]] {
        let (_, stdout, stderr) = run(&folder, args);
        assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "{stdout}{stderr}");
        assert!(format!("{stdout}{stderr}").contains(r"1\n2.jpg") || args[1] != "data", "{stdout}{stderr}");
    }
}

#[test]
fn errors_give_the_fact_then_the_hint_and_status_1() {
    let folder = Folder::new();
    let (status, stdout, stderr) = run(&folder, &["bench", "missing"]);
    assert_eq!((status, stdout.as_str()), (Some(1), ""));
    assert!(stderr.starts_with("error: cannot look at missing: "), "{stderr}");
    folder.write("notes/readme.txt", b"");
    let (status, _, stderr) = run(&folder, &["inspect", "notes"]);
    assert_eq!(status, Some(1));
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(
        lines[0] == "error: notes holds no data set that is known" && lines[1].starts_with("hint: "),
        "{stderr}"
    );
    let (status, _, stderr) = run(&folder, &["inspect", "notes/*.jpg"]);
    assert_eq!(status, Some(1));
    assert!(stderr.starts_with("error: no file matches notes/*.jpg\nhint: "), "{stderr}");
    folder.write("bad/1.jpg", b"nothing like a photograph");
    let (status, stdout, stderr) = run(&folder, &["bench", "bad"]);
    assert_eq!((status, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("no known image format") && stderr.contains("1.jpg"), "{stderr}");
}

#[test]
fn usage_is_checked_with_status_2() {
    let folder = Folder::new();
    for args in [
        &[][..],
        &["bench"],
        &["bench", ".", "--workers", "0"],
        &["bench", ".", "--pipeline", "none"],
        &["inspect", ".", "--nonsense"],
        &["unknown"],
    ] {
        let (status, stdout, stderr) = run(&folder, args);
        assert_eq!((status, stdout.as_str()), (Some(2), ""), "{args:?}: {stderr}");
    }
    let (status, stdout, stderr) = run(&folder, &["demo", "--epochs", "1"]);
    assert_eq!((status, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("\nhint: ") && stderr.contains("python -m wellfed demo"), "{stderr}");
    let (status, stdout, _) = run(&folder, &["--version"]);
    assert_eq!((status, redact(&stdout).as_str()), (Some(0), "wellfed #\n"));
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let folder = Folder::photos();
    for name in ["bench", "inspect"] {
        let mut child = command(&folder.0, &[name, "data"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
        assert!(!stderr.contains("panic"), "{stderr}");
    }
}
