//! The HTTP client under all stores: notes what goes wrong, and slows down where a server asks for it.

use std::{
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
        HttpService, ReqwestConnector,
    },
};

use crate::trouble::{self, Trouble};

/// Bodies of answers that are errors are read so far.
const MAX_ERROR: usize = 64 << 10;

/// First pause when a server asks to slow down without saying for how long. It doubles each time, up to 16 times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Longest pause, whatever a server says.
const MOST_PAUSE: Duration = Duration::from_secs(60);

/// A request that is only ever answered by `slow down` is given up after so long.
const PATIENCE: Duration = Duration::from_secs(240);

/// When requests to one server may begin again after it asked to slow down.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// No request begins before.
    until: Option<Instant>,
    /// How long the last pause was to be.
    last: Duration,
    /// Pauses, less answers since.
    pauses: u32,
    /// Pauses in all.
    count: u64,
    /// For jitter.
    drawn: u64,
}

impl Pace {
    /// How long a request that is to begin now waits.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let left = state.until?.checked_duration_since(now).filter(|left| !left.is_zero())?;
        // Not all at once when the pause is over.
        state.drawn += 1;
        let key = [state.drawn, u64::from(std::process::id())].map(u64::to_le_bytes).concat();
        let part = (rapidhash::v3::rapidhash_v3(&key) >> 11) as f64 / (1_u64 << 53) as f64;
        Some(left + state.last.mul_f64(part))
    }

    /// The server asked to slow down, for `asked` if it said so.
    fn slow_down(&self, asked: Option<Duration>, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = asked.unwrap_or(FIRST_PAUSE * (1 << state.pauses.min(4))).min(MOST_PAUSE);
        let until = now + pause;
        state.last = pause;
        // Answers to requests that were under way together are one pause.
        if state.until.is_none_or(|before| before <= now) {
            state.pauses += 1;
            state.count += 1;
        }
        state.until = Some(state.until.map_or(until, |before| before.max(until)));
    }

    /// The server answered: the next pause may be shorter again.
    fn fine(&self, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pauses = state.pauses.saturating_sub(1);
        if state.until.is_some_and(|until| until <= now) {
            state.until = None;
        }
    }

    /// Pauses so far.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).count
    }
}

/// Makes clients that note and slow down.
pub(crate) struct Connector {
    pub(crate) pace: Arc<Pace>,
    /// Texts that no message may quote, should a server repeat them.
    pub(crate) secrets: Arc<Vec<String>>,
    /// A request that is not answered for so long has failed.
    pub(crate) silence: Duration,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        let (pace, secrets) = (self.pace.clone(), self.secrets.clone());
        Ok(HttpClient::new(Watched { inner, pace, secrets, silence: self.silence }))
    }
}

struct Watched {
    inner: HttpClient,
    pace: Arc<Pace>,
    secrets: Arc<Vec<String>>,
    silence: Duration,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let host = request.uri().host().unwrap_or_default();
        let metadata =
            matches!(host, "169.254.169.254" | "169.254.170.2" | "metadata.google.internal" | "metadata");
        // Without what else an address may hold: names and passwords.
        let server = request.uri().port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let since = Instant::now();
        loop {
            while let Some(pause) = self.pace.pause(Instant::now()) {
                tokio::time::sleep(pause).await;
            }
            let answer = tokio::time::timeout(self.silence, self.inner.execute(request.clone())).await;
            let answer = answer.unwrap_or_else(|_| {
                let text = format!("nothing came for {} s", self.silence.as_secs_f64());
                Err(HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, text)))
            });
            let answer = match answer {
                Ok(answer) => answer,
                Err(e) => {
                    let connection = Some(self.redacted(&reason(&e, &server)));
                    trouble::note(Trouble { connection, metadata, ..Trouble::default() });
                    return Err(e);
                }
            };
            let status = answer.status();
            if status.is_success() || status == StatusCode::NOT_MODIFIED {
                self.pace.fine(Instant::now());
                trouble::note(Trouble { status: Some(status), ..Trouble::default() });
                return Ok(answer);
            }
            let asked = retry_after(answer.headers());
            // What Azure says where an answer has no body.
            let code = answer.headers().get("x-ms-error-code").and_then(|code| code.to_str().ok());
            let code = code.map(str::to_owned);
            let (parts, body) = answer.into_parts();
            let body = tokio::time::timeout(self.silence, beginning(body)).await.unwrap_or_default();
            let mut seen = Trouble::of(status, &String::from_utf8_lossy(&body));
            seen.code = seen.code.or(code);
            seen.message = seen.message.map(|message| self.redacted(&message));
            seen.metadata = metadata;
            let throttled =
                seen.is_throttling() || (status == StatusCode::SERVICE_UNAVAILABLE && asked.is_some());
            trouble::note(seen);
            if !throttled || since.elapsed() > PATIENCE {
                return Ok(HttpResponse::from_parts(parts, body.into()));
            }
            self.pace.slow_down(asked, Instant::now());
        }
    }
}

impl Watched {
    fn redacted(&self, text: &str) -> String {
        // What is as short as a word is no secret, and may be one of the message's.
        let long = self.secrets.iter().filter(|secret| secret.len() >= 6);
        long.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "…"))
    }
}

/// The first bytes of a body; what comes after an error in it is nobody's.
async fn beginning(body: HttpResponseBody) -> Bytes {
    use futures_util::StreamExt;
    let (mut stream, mut bytes) = (body.bytes_stream(), Vec::new());
    while let Some(Ok(chunk)) = stream.next().await {
        bytes.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR - bytes.len())]);
        if bytes.len() == MAX_ERROR {
            break;
        }
    }
    bytes.into()
}

/// Why a connection to `server` failed: the innermost cause, which names no URL.
fn reason(error: &HttpError, server: &str) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let text = inner.to_string();
    let outer = match error.kind() {
        HttpErrorKind::Connect => format!("cannot connect to {server}"),
        HttpErrorKind::Timeout => format!("no answer from {server} in time"),
        _ => format!("the connection to {server} failed"),
    };
    format!("{outer}: {text}")
}

/// Seconds, or a date, of which only those near are taken.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse::<f64>() {
        Ok(seconds) if seconds >= 0.0 => Some(Duration::from_secs_f64(seconds.min(MOST_PAUSE.as_secs_f64()))),
        // A date: clocks differ, so that it only says that there is to be a pause.
        _ => Some(Duration::from_secs(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_to_slow_down_waits_and_forgets_it_later() {
        let (pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.pause(now), None);
        pace.slow_down(Some(Duration::from_secs(2)), now);
        pace.slow_down(None, now);
        assert_eq!(pace.count(), 1, "answers that come together are one pause");
        let pause = pace.pause(now).unwrap();
        assert!(pause >= Duration::from_secs(2) && pause < Duration::from_secs(4), "{pause:?}");
        pace.fine(now);
        assert!(pace.pause(now).is_some(), "an answer to an earlier request ends no pause");
        let later = now + Duration::from_secs(3);
        assert_eq!(pace.pause(later), None);
        let mut last = Duration::ZERO;
        for number in 0..4 {
            let now = later + Duration::from_secs(100 * number);
            pace.slow_down(None, now);
            let pause = pace.state.lock().unwrap().until.unwrap() - now;
            assert!(pause > last, "pauses grow");
            last = pause;
        }
        pace.slow_down(Some(Duration::from_secs(86400)), later + Duration::from_secs(1000));
        assert!(pace.state.lock().unwrap().until.unwrap() <= later + Duration::from_secs(1000) + MOST_PAUSE);
        for _ in 0..10 {
            pace.fine(later + Duration::from_secs(5000));
        }
        assert_eq!(pace.state.lock().unwrap().pauses, 0);
        assert_eq!(pace.pause(later), None);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let of = |text: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]));
        assert_eq!(of("2"), Some(Duration::from_secs(2)));
        assert_eq!(of("1e300"), Some(MOST_PAUSE));
        assert_eq!(of("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::from_secs(1)));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
