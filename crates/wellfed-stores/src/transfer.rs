//! The bytes of an answer, taken as they come and counted.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::Instant;
use wellfed::{Error, Result};

/// Bytes that must come within one time of silence: fewer are as good as none.
const DRIP: usize = 4096;

fn silent(silence: Duration, place: &str) -> Error {
    Error::transient(format!("cannot read {place}: nothing came for {} s", silence.as_secs_f64()))
        .with_hint("storage is down or overloaded; read_timeout sets how long is waited")
}

/// All bytes of `stream`: exactly `expected`, or, where that is not known, up to `max_bytes`. `fail` makes the error of
/// what the stream ended with.
pub(crate) async fn collect<E>(
    place: &str,
    mut stream: impl Stream<Item = Result<Bytes, E>> + Unpin,
    expected: Option<u64>,
    max_bytes: u64,
    silence: Duration,
    fail: impl FnOnce(E) -> Error,
) -> Result<Vec<u8>> {
    let limit = |size: u64| Error::limit(place, size, max_bytes, "bytes");
    if let Some(size) = expected.filter(|size| *size > max_bytes) {
        return Err(limit(size));
    }
    let mut bytes = Vec::new();
    if let Some(size) = expected {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        bytes.try_reserve_exact(size).map_err(|_| Error::memory(size, place))?;
    }
    // From here on at least DRIP bytes come before `until`.
    let (mut until, mut before) = (Instant::now() + silence, 0);
    loop {
        let Ok(next) = tokio::time::timeout_at(until, stream.next()).await else {
            return Err(silent(silence, place));
        };
        let chunk = match next {
            None => break,
            Some(Ok(chunk)) => chunk,
            Some(Err(e)) => return Err(fail(e)),
        };
        let most = expected.unwrap_or(max_bytes);
        let size = bytes.len() as u64 + chunk.len() as u64;
        if size > most {
            return Err(match expected {
                Some(_) => {
                    Error::transient(format!("cannot read {place}: more than the {most} bytes wanted came"))
                }
                None => limit(size),
            });
        }
        bytes.try_reserve(chunk.len()).map_err(|_| Error::memory(chunk.len(), place))?;
        bytes.extend_from_slice(&chunk);
        if bytes.len() - before >= DRIP {
            (until, before) = (Instant::now() + silence, bytes.len());
        }
    }
    match expected {
        Some(size) if size != bytes.len() as u64 => Err(Error::transient(format!(
            "cannot read {place}: {} of the {size} bytes wanted came",
            bytes.len()
        ))),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use wellfed::ErrorKind;

    use super::*;
    use crate::process;

    fn run(sizes: &[usize], expected: Option<u64>, max_bytes: u64) -> Result<Vec<u8>> {
        let chunks: Vec<Result<Bytes, Error>> = sizes.iter().map(|size| Ok(vec![7; *size].into())).collect();
        let silence = Duration::from_secs(60);
        process::runtime()?.block_on(collect("x", stream::iter(chunks), expected, max_bytes, silence, |e| e))
    }

    #[test]
    fn lengths_are_checked() {
        let kind = |result: Result<Vec<u8>>| result.unwrap_err().kind();
        assert_eq!(run(&[3, 4], Some(7), 100).unwrap(), [7; 7]);
        assert_eq!(run(&[3, 4], None, 7).unwrap(), [7; 7]);
        assert_eq!(kind(run(&[3, 4], Some(8), 100)), ErrorKind::Transient, "cut");
        assert_eq!(kind(run(&[3, 4], Some(6), 100)), ErrorKind::Transient, "too long");
        assert_eq!(kind(run(&[3, 4], Some(7), 6)), ErrorKind::Limit);
        assert_eq!(kind(run(&[3, 4], None, 6)), ErrorKind::Limit);
        assert!(run(&[], Some(0), 0).unwrap().is_empty());
        assert_eq!(kind(run(&[1], Some(u64::MAX), u64::MAX)), ErrorKind::Limit, "no memory is no crash");
    }

    #[test]
    fn silence_and_drips_end() {
        let runtime = process::runtime().unwrap();
        let silence = Duration::from_millis(50);
        let drip = || {
            stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Some((Ok::<_, Error>(Bytes::from_static(b"x")), ()))
            })
        };
        let e = runtime.block_on(collect("x", Box::pin(drip()), Some(1 << 20), 1 << 20, silence, |e| e));
        assert_eq!(e.unwrap_err().kind(), ErrorKind::Transient);
    }
}
