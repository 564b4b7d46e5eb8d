//! A headless Chromium, spoken to over two pipes in the DevTools protocol.
//!
//! Every wait has an end, and the browser goes with the value that stands for it.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// Longer than anything takes on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Browser {
    child: Child,
    home: PathBuf,
    to: File,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// Events since they were taken.
    events: Vec<Value>,
}

impl Browser {
    /// Starts one; `None` if none is installed.
    pub(crate) fn start() -> Option<Self> {
        let named = env::var_os("CHROMIUM").map(PathBuf::from);
        let folders: Vec<_> = env::split_paths(&env::var_os("PATH")?).collect();
        let find = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        let program = named.or_else(|| {
            ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
                .into_iter()
                .find_map(find)
        })?;
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{}", std::process::id()));
        if home.exists() {
            fs::remove_dir_all(&home).unwrap();
        }
        fs::create_dir_all(home.join("profile")).unwrap();
        let pipes = [home.join("in"), home.join("out")];
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        // Opened for both directions, so that neither side waits for the other here.
        let both = |path: &PathBuf| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (to, from) = (both(&pipes[0]), both(&pipes[1]));
        let child = Command::new("sh")
            .args([
                "-c",
                "program=$1 in=$2 out=$3; shift 3; exec \"$program\" \"$@\" 3<\"$in\" 4>\"$out\"",
                "sh",
            ])
            .arg(program)
            .args(&pipes)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", home.join("profile").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(home.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser =
            Self { child, home, to, from: receiver, next: 0, session: None, events: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    fn receive(&mut self, until: Instant, wanted: &str) -> Value {
        let left = until.saturating_duration_since(Instant::now());
        self.from.recv_timeout(left).unwrap_or_else(|_| {
            let errors = fs::read_to_string(self.home.join("stderr")).unwrap_or_default();
            panic!("no {wanted} within {PATIENCE:?}; the browser wrote:\n{errors}")
        })
    }

    /// Calls a method and gives its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let mut message = self.receive(until, method);
            if message["id"] == json!(self.next) {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    /// Opens a page and gives the events up to the end of its loading.
    pub(crate) fn open(&mut self, url: &str) -> Vec<Value> {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}));
        let until = Instant::now() + PATIENCE;
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive(until, "end of loading");
            self.events.push(event);
        }
        // Two frames: what a script draws after loading has been drawn, and its errors have arrived.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))");
        std::mem::take(&mut self.events)
    }

    /// The value of an expression, awaited if it is a promise.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may be gone already, and a test that fails must not fail again here.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.home));
    }
}

/// Bytes of a base64 text.
pub(crate) fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for c in text.bytes().filter(|c| *c != b'=') {
        let digit = DIGITS.iter().position(|d| *d == c).expect("base64");
        bits = bits << 6 | u32::try_from(digit).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
