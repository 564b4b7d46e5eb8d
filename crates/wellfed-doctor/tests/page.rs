//! The page in a real browser: it renders, asks for nothing, complains of nothing, fits a phone and a wide screen, and
//! can be read in the light and in the dark.
//!
//! `PAGE_SHOTS=DIR` keeps pictures. Needs Chromium; without one the test says that it did nothing.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use wellfed_doctor::{report::Report, show::html::html};

use crate::browser::{Browser, base64};

mod browser;

/// What a page is asked for. Text must stand out from its ground as WCAG 2 wants it (AA).
const LOOK: &str = r#"(() => {
  const rgb = (text) => { const n = text.match(/[\d.]+/g).map(Number); return n.length === 3 ? [...n, 1] : n; };
  const light = (c) => { const [r, g, b] = c.map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  const pale = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement;
    if (!node.textContent.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) || !e.checkVisibility()) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) pale.push(node.textContent.trim() + " " + ((a + .05) / (b + .05)).toFixed(2));
  }
  const headings = [...document.querySelectorAll("h1,h2,h3")].map((h) => Number(h.tagName[1]));
  return {
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    outside: [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, .plot, head, script") && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80)),
    charts: [...document.querySelectorAll("canvas")].map((c) => new Set(new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer)).size),
    plots: document.querySelectorAll(".plot").length,
    pale, headings,
    unnamed: document.querySelectorAll(".plot:not([aria-label]), .plot:not([role=img])").length,
    headless: [...document.querySelectorAll("table")].filter((t) => !t.querySelector("th[scope=col]")).length,
    dark: light(rgb(getComputedStyle(document.documentElement).backgroundColor)) < .2,
    title: document.querySelector("h1").textContent,
    evil: String(window.evil),
  };
})()"#;

fn kept(name: &str) -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/reports/{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A report in which all that a script can choose is hostile, and long.
fn hostile() -> Report {
    let mut report = kept("input_bound");
    let evil =
        "</script><script>evil=1</script><img src=x onerror=evil=2><b onclick='evil=3'>\"'&amp;{{evil}}";
    let long = format!("{}{evil}", "x".repeat(300));
    report.command.push(long.clone());
    report.exit.exception = Some(long.clone());
    report.software.insert(evil.to_owned(), long.clone());
    report.notes.push(long.clone());
    report.verdict.title += evil;
    let fix = report.verdict.fix.as_mut().unwrap();
    fix.change += &long;
    let place = fix.place.as_mut().unwrap();
    place.file = format!("/{long}.py");
    place.code = long.clone();
    for stage in &mut report.stages {
        stage.name += evil;
        stage.functions.iter_mut().for_each(|function| function.call = long.clone());
    }
    for loader in &mut report.loaders {
        loader.dataset = long.clone();
        loader.settings.push(long.clone());
    }
    report
}

/// What is wrong with how a page loaded.
fn complaints(events: &[Value], url: &str) -> Vec<String> {
    let asked = |event: &Value| {
        let asked = event["params"]["request"]["url"].as_str().unwrap_or_default();
        (asked != url && !asked.starts_with("data:")).then(|| format!("asked for {asked}"))
    };
    let complaint = |event: &Value| match event["method"].as_str()? {
        "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => Some(event.to_string()),
        "Network.requestWillBeSent" | "Network.webSocketCreated" => asked(event),
        _ => None,
    };
    events.iter().filter_map(complaint).collect()
}

struct Shots(Option<PathBuf>);

impl Shots {
    fn keep(&self, name: &str, bytes: &[u8]) {
        if let Some(folder) = &self.0 {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), bytes).unwrap();
        }
    }
}

#[test]
fn the_page_in_a_browser() {
    let Some(mut browser) = Browser::start() else {
        // Not through the macros, whose output the test harness keeps to itself.
        let message =
            "SKIPPED the_page_in_a_browser: no Chromium is installed, the report's page was not looked at\n";
        io::stderr().write_all(message.as_bytes()).unwrap();
        return;
    };
    let shots = Shots(env::var_os("PAGE_SHOTS").map(PathBuf::from));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut reports: Vec<_> =
        ["input_bound", "healthy", "failed", "two_ranks"].map(|name| (name, kept(name))).into();
    reports.push(("hostile", hostile()));
    for (name, report) in reports {
        let path = folder.join(format!("{name}.html"));
        fs::write(&path, html(&report)).unwrap();
        let url = format!("file://{}", path.display());
        for (width, height, mobile) in [(360, 740, true), (800, 1000, false), (1400, 900, false)] {
            for dark in [false, true] {
                let what = format!("{name} at {width}, dark {dark}");
                let metrics =
                    json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
                browser.call("Emulation.setDeviceMetricsOverride", metrics);
                let scheme = if dark { "dark" } else { "light" };
                let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
                browser.call("Emulation.setEmulatedMedia", json!({"features": features}));
                let events = browser.open(&url);
                assert_eq!(complaints(&events, &url), [""; 0], "{what}");
                let look = browser.evaluate(LOOK);
                assert_eq!(look["overflow"], 0, "{what}: wider than the screen: {}", look["outside"]);
                assert_eq!(look["outside"], json!([]), "{what}");
                assert_eq!(look["pale"], json!([]), "{what}: contrast");
                assert_eq!(look["dark"], dark, "{what}");
                assert_eq!(look["evil"], "undefined", "{what}");
                assert_eq!((&look["unnamed"], &look["headless"]), (&json!(0), &json!(0)), "{what}");
                let charts = look["charts"].as_array().unwrap();
                assert_eq!(charts.len() as u64, look["plots"].as_u64().unwrap(), "{what}");
                assert!(charts.iter().all(|colours| colours.as_u64() > Some(3)), "{what}: {charts:?}");
                assert!(name == "failed" || charts.len() >= 4, "{what}: {charts:?}");
                let headings: Vec<_> =
                    look["headings"].as_array().unwrap().iter().map(|h| h.as_u64().unwrap()).collect();
                assert_eq!(headings.iter().filter(|level| **level == 1).count(), 1, "{what}");
                assert!(headings.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{what}: {headings:?}");
                let size = browser.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].take();
                let clip = json!({"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1});
                let shot = json!({"captureBeyondViewport": true, "clip": clip});
                if shots.0.is_some() {
                    let shot = browser.call("Page.captureScreenshot", shot);
                    shots.keep(
                        &format!("{name}-{width}-{scheme}.png"),
                        &base64(shot["data"].as_str().unwrap()),
                    );
                }
            }
        }
        // From a dark screen, on which paper is light nevertheless.
        let pdf =
            browser.call("Page.printToPDF", json!({"printBackground": false, "preferCSSPageSize": true}));
        let pdf = base64(pdf["data"].as_str().unwrap());
        assert!(pdf.starts_with(b"%PDF"), "{name}");
        shots.keep(&format!("{name}.pdf"), &pdf);
    }
}
