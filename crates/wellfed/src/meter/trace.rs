//! Spans of work, kept in memory and written as Chrome trace-event JSON (`chrome://tracing`, Perfetto).
//!
//! Format: "Trace Event Format", complete events (`"ph": "X"`), times in microseconds.

use std::{
    io::{BufWriter, Write},
    path::Path,
    sync::Mutex,
    time::Instant,
};

use crate::{Error, Result, lock};

/// Spans kept per thread (24 bytes each); later ones are dropped, and their number is written to the file.
const MAX_SPANS: usize = 1 << 20;

#[derive(Debug)]
struct Span {
    name: &'static str,
    start_nanos: u64,
    nanos: u32,
}

#[derive(Debug, Default)]
struct Spans {
    kept: Vec<Span>,
    dropped: u64,
}

/// Spans of one thread.
#[derive(Debug)]
pub(crate) struct Trace {
    start: Instant,
    spans: Mutex<Spans>,
}

impl Trace {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, spans: Mutex::default() }
    }

    pub(crate) fn span(&self, name: &'static str, from: Instant, to: Instant) {
        let mut spans = lock(&self.spans);
        if spans.kept.len() == MAX_SPANS {
            spans.dropped += 1;
            return;
        }
        let start_nanos = from.saturating_duration_since(self.start).as_nanos() as u64;
        let nanos = u32::try_from((to - from).as_nanos()).unwrap_or(u32::MAX);
        spans.kept.push(Span { name, start_nanos, nanos });
    }
}

/// Writes the spans of (thread name, trace) pairs to `path`.
pub(crate) fn write<'a>(path: &Path, lanes: impl Iterator<Item = (&'a str, &'a Trace)>) -> Result<()> {
    let failed = |error| Error::io("write trace to", path.display(), error);
    let mut out = BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    write_events(&mut out, lanes).and_then(|()| out.flush()).map_err(failed)
}

fn write_events<'a>(
    out: &mut impl Write,
    lanes: impl Iterator<Item = (&'a str, &'a Trace)>,
) -> std::io::Result<()> {
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let mut separator = "";
    for (thread, (name, trace)) in lanes.enumerate() {
        let spans = lock(&trace.spans);
        write!(
            out,
            "{separator}\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{thread},\"name\":\"thread_name\",\
             \"args\":{{\"name\":\"{name}\",\"dropped_spans\":{}}}}}",
            spans.dropped
        )?;
        separator = ",";
        for span in &spans.kept {
            write!(
                out,
                ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{thread},\"name\":\"{}\",\"ts\":{}.{:03},\"dur\":{}.{:03}}}",
                span.name,
                span.start_nanos / 1000,
                span.start_nanos % 1000,
                span.nanos / 1000,
                span.nanos % 1000
            )?;
        }
    }
    writeln!(out, "\n]}}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_file_is_json_with_named_threads_and_microseconds() {
        let start = Instant::now();
        let trace = Trace::new(start);
        trace.span("decode", start + Duration::from_nanos(1_500), start + Duration::from_nanos(4_000));
        let mut out = Vec::new();
        write_events(&mut out, [("worker 0", &trace)].into_iter()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["traceEvents"][0]["args"]["name"], "worker 0");
        assert_eq!(json["traceEvents"][1]["ts"], 1.5);
        assert_eq!(json["traceEvents"][1]["dur"], 2.5);
    }
}
