//! [`WebStore`]: files of an HTTP server, by their URLs.
//!
//! Servers have no list of files, so those are named. Ranges must be answered as ranges: a server that always sends the
//! whole file would be asked for it again and again. Paths are whole URLs; the query belongs to them, and what follows `#`
//! are options: of the connection for all files of a server, of the request (passwords, signatures, headers) for one.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use base64::prelude::{BASE64_STANDARD, Engine};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, HttpResponse};
use tokio::sync::Semaphore;
use wellfed::{
    Error, ErrorKind, Result,
    store::{
        Done, Entry, EntryKind, Pending, Remote, Request, Retry, Stat, Store, Version, registry::Located,
        secrets,
    },
};

use crate::{
    client::{Connector, Pace},
    cloud::{self, append, ends, same},
    options::{Common, Options},
    process::{PerProcess, runtime},
    seen::Seen,
    transfer,
    trouble::{self, classify},
};

/// Opens what `scheme://rest` names.
pub(crate) fn open(scheme: &str, rest: &str) -> Result<Located> {
    let (base, text) = secrets::split_rest(true, rest).unwrap_or((rest, ""));
    let host = base.split(['/', '?']).next().unwrap_or_default();
    if host.is_empty() {
        return Err(Error::config(format!("{scheme}:// names no server")));
    }
    let mut options = Options::parse(text)?;
    let values = options.values();
    let of_request = Extras::take(&mut options)?;
    let common = Common::take(&mut options, scheme == "http")?;
    options.finish(scheme)?;
    // Sealed options go with the path: of one server, files may have different ones.
    let (sealed, open): (Vec<&str>, Vec<&str>) =
        text.split('&').filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("sealed="));
    let root = format!("{scheme}://{host}");
    let store = WebStore::new(root.clone(), common, of_request, Arc::new(values), true);
    Ok(Located {
        store: Arc::new(store),
        path: secrets::with_options(&format!("{scheme}://{base}"), &sealed.join("&")),
        address: format!("{root}#{}", open.join("&")),
    })
}

/// What goes with a request besides its URL.
#[derive(Clone, Default)]
struct Extras {
    headers: HeaderMap,
    /// The part of the query that is secret.
    query: Option<String>,
}

impl Extras {
    fn take(options: &mut Options) -> Result<Self> {
        let mut headers = HeaderMap::new();
        let query = options.take(&["query"])?;
        if let Some(user) = options.take(&["userinfo"])? {
            let mut value = secret(&format!("Basic {}", BASE64_STANDARD.encode(&user)))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        if let Some(json) = options.take(&["headers"])? {
            let bad = || Error::config("option headers of https:// must be names and texts, as JSON");
            let given: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(&json).map_err(|_| bad())?;
            for (name, value) in given {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
                headers.insert(name, secret(value.as_str().ok_or_else(bad)?)?);
            }
        }
        Ok(Self { headers, query })
    }
}

fn secret(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Error::config("a header of https:// has characters that none may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A server.
struct Site {
    root: String,
    common: Common,
    of_request: Extras,
    secrets: Arc<Vec<String>>,
    /// Requests say which tag a file must have. A hub answers for another server, whose tags it does not know.
    conditional: bool,
    client: PerProcess<Client>,
}

struct Client {
    http: HttpClient,
    pace: Arc<Pace>,
    turns: Semaphore,
}

/// Files of a server.
#[derive(Clone)]
pub(crate) struct WebStore {
    site: Arc<Site>,
    seen: Arc<Seen>,
}

impl fmt::Debug for WebStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebStore({})", self.site.root)
    }
}

impl WebStore {
    fn new(
        root: String,
        common: Common,
        of_request: Extras,
        secrets: Arc<Vec<String>>,
        conditional: bool,
    ) -> Self {
        let site = Site { root, common, of_request, secrets, conditional, client: PerProcess::new() };
        Self { site: Arc::new(site), seen: Arc::default() }
    }

    /// Files of the hub at `root`.
    pub(crate) fn of_hub(
        root: &str,
        common: Common,
        token: Option<&str>,
        secrets: Arc<Vec<String>>,
    ) -> Result<Self> {
        let mut of_request = Extras::default();
        if let Some(token) = token {
            of_request.headers.insert(header::AUTHORIZATION, secret(&format!("Bearer {token}"))?);
        }
        Ok(Self::new(root.to_owned(), common, of_request, secrets, false))
    }

    /// The bytes of an answer that may be another one the next time, and the URL of what it goes on with.
    pub(crate) async fn page(&self, path: &str, max_bytes: u64) -> Result<(Vec<u8>, Option<String>)> {
        let place = secrets::shown(path);
        let _turn = self.client()?.turns.acquire().await;
        let answer = self.send("list", path, self.request(Method::GET, path, None)?).await?;
        let next = answer.headers().get(header::LINK).and_then(|link| next_page(link.to_str().ok()?));
        let expected = length(answer.headers());
        let stream = answer.into_body().bytes_stream();
        let lost = |_| Error::transient(format!("cannot list {place}: the connection was lost on the way"));
        let page = transfer::collect(&place, stream, expected, max_bytes, self.silence(), lost).await?;
        Ok((page, next))
    }

    fn client(&self) -> Result<&Client> {
        let site = &self.site;
        site.client.get(|| {
            runtime()?;
            let pace = Arc::<Pace>::default();
            let connector =
                Connector { pace: pace.clone(), secrets: site.secrets.clone(), silence: site.common.silence };
            let http = connector.connect(&site.common.client).map_err(|e| crate::s3::refused("https", &e))?;
            Ok(Client { http, pace, turns: Semaphore::new(site.common.connections) })
        })
    }

    fn silence(&self) -> Duration {
        self.site.common.silence
    }

    /// The request for `path`.
    fn request(&self, method: Method, path: &str, range: Option<&Range<u64>>) -> Result<HttpRequest> {
        let (url, text) = secrets::split(path);
        let mut options = Options::parse(text)?;
        let own = Extras::take(&mut options)?;
        let mut url = escape(url);
        let below = url.strip_prefix(self.site.root.as_str());
        if !below.is_some_and(|below| below.is_empty() || below.starts_with(['/', '?'])) {
            return Err(Error::config(format!(
                "{} does not lie at {}",
                secrets::shown(path),
                self.site.root
            )));
        }
        if let Some(query) = &own.query {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(query);
        }
        let mut request = http::Request::builder()
            .method(method)
            .uri(url)
            .body(HttpRequestBody::empty())
            .map_err(|_| Error::config(format!("{} is no URL", secrets::shown(path))))?;
        let headers = request.headers_mut();
        headers.extend(self.site.of_request.headers.clone());
        headers.extend(own.headers);
        // Bytes as they lie there, whatever could be done to them on the way.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(range) = range {
            headers.insert(header::RANGE, number(&format!("bytes={}-{}", range.start, range.end - 1))?);
        }
        if self.site.conditional
            && let Some(tag) = self.seen.expected(path).and_then(|tag| HeaderValue::from_str(&tag).ok())
            // What stands for a tag where a server has none.
            && !tag.as_bytes().starts_with(b"\"modified ")
        {
            headers.insert(header::IF_MATCH, tag);
        }
        Ok(request)
    }

    /// The answer to a request, if it is not an error.
    async fn send(&self, what: &str, path: &str, request: HttpRequest) -> Result<HttpResponse> {
        let (result, seen) = trouble::watch(self.client()?.http.execute(request)).await;
        let place = secrets::shown(path);
        match result {
            Ok(answer) if answer.status().is_success() => Ok(answer),
            Ok(_) | Err(_) => Err(classify(what, &place, None, &seen)),
        }
    }

    async fn get(&self, path: &str, range: Option<Range<u64>>, max_bytes: u64) -> Result<Vec<u8>> {
        if range.as_ref().is_some_and(Range::is_empty) {
            return Ok(Vec::new());
        }
        let place = secrets::shown(path);
        let _turn = self.client()?.turns.acquire().await;
        let request = self.request(Method::GET, path, range.as_ref())?;
        let start = range.as_ref().map_or(0, |range| range.start);
        let answer = self.send("read", path, request).await.map_err(|e| match e.kind() {
            ErrorKind::Corrupt => e.with_offset(start),
            _ => e,
        })?;
        self.check(path, &place, answer.headers())?;
        let expected = match &range {
            None => length(answer.headers()),
            Some(range) => {
                if answer.status() != StatusCode::PARTIAL_CONTENT {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!("cannot read a part of {place}: the server only sends the whole of it"),
                    )
                    .with_hint(
                        "copy the data to a local folder, or serve it by a server that knows ranges",
                    ));
                }
                match content_range(answer.headers()) {
                    Some((got, _)) if got == *range => {}
                    Some((got, _)) if got.start == range.start && got.end < range.end => {
                        return Err(ends(&place, start));
                    }
                    _ => {
                        return Err(Error::transient(format!(
                            "cannot read {place}: the answer is of other bytes than were asked for"
                        )));
                    }
                }
                Some(range.end - range.start)
            }
        };
        let stream = answer.into_body().bytes_stream();
        let lost = |_| Error::transient(format!("cannot read {place}: the connection was lost on the way"));
        transfer::collect(&place, stream, expected, max_bytes, self.silence(), lost).await
    }

    /// Refuses what is another file than before, or comes in a form that is not asked for.
    fn check(&self, path: &str, place: &str, headers: &HeaderMap) -> Result<()> {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        if let Some(encoding) = text(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("cannot read {place}: the server sends it as {encoding}, which was not asked for"),
            ));
        }
        let modified = || text(header::LAST_MODIFIED).map(|date| format!("\"modified {date}\""));
        let tag = text(header::ETAG).map(str::to_owned).or_else(modified);
        let size = match headers.get(header::CONTENT_RANGE) {
            Some(_) => content_range(headers).and_then(|(_, size)| size),
            None => length(headers),
        };
        same(place, self.seen.compare(path, tag.as_deref(), size))
    }

    async fn look(&self, path: &str) -> Result<Stat> {
        let _turn = self.client()?.turns.acquire().await;
        let asked = self.send("look at", path, self.request(Method::HEAD, path, None)?).await;
        let (size, headers) = match asked {
            Ok(answer) => (length(answer.headers()), answer.headers().clone()),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Transient | ErrorKind::Changed) => {
                return Err(e);
            }
            // Signatures are often for GET only, and some servers know no HEAD.
            Err(_) => (None, HeaderMap::new()),
        };
        let (size, headers) = match size {
            Some(size) => (size, headers),
            None => {
                let answer =
                    self.send("look at", path, self.request(Method::GET, path, Some(&(0..1)))?).await?;
                let size = content_range(answer.headers()).and_then(|(_, size)| size);
                let size = size.or_else(|| {
                    length(answer.headers()).filter(|_| answer.status() != StatusCode::PARTIAL_CONTENT)
                });
                let place = secrets::shown(path);
                let unknown = || {
                    Error::new(ErrorKind::Unsupported, format!("the server does not say how long {place} is"))
                };
                (size.ok_or_else(unknown)?, answer.headers().clone())
            }
        };
        let modified =
            headers.get(header::LAST_MODIFIED).and_then(|date| date.to_str().ok()).and_then(seconds);
        Ok(Stat {
            kind: EntryKind::File,
            size,
            modified: modified.map_or(0, |seconds| i128::from(seconds) * 1_000_000_000),
            identity: None,
        })
    }
}

/// The URL of a `Link` header that is called `next` (RFC 8288).
fn next_page(link: &str) -> Option<String> {
    link.split(',').find_map(|one| {
        let (url, rest) = one.trim().strip_prefix('<')?.split_once('>')?;
        rest.split(';').any(|word| matches!(word.trim(), "rel=\"next\"" | "rel=next")).then(|| url.to_owned())
    })
}

fn number(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(|_| Error::new(ErrorKind::Internal, "a range is no header"))
}

/// `url` with what may not stand in one as codes. Codes that are there stay.
fn escape(url: &str) -> String {
    let mut text = String::with_capacity(url.len());
    for byte in url.bytes() {
        match byte {
            b' '
            | b'"'
            | b'<'
            | b'>'
            | b'['
            | b']'
            | b'\\'
            | b'^'
            | b'`'
            | b'{'
            | b'|'
            | b'}'
            | 0..=31
            | 127.. => {
                text.push_str(&format!("%{byte:02X}"));
            }
            _ => text.push(byte as char),
        }
    }
    text
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The range of an answer, and the size of the whole, if it is known.
fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, Option<u64>)> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.trim();
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let end = last.trim().parse::<u64>().ok()?.checked_add(1)?;
    Some((first.trim().parse().ok()?..end, size.trim().parse().ok()))
}

/// Seconds since 1970 of a date as servers write it: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = date.split_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = parts.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| name == month)? as i64 + 1;
    let (day, year): (i64, i64) = (day.parse().ok()?, year.parse().ok()?);
    let mut clock = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1970..10_000).contains(&year) || !(1..32).contains(&day) {
        return None;
    }
    // Days from civil: http://howardhinnant.github.io/date_algorithms.html
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

impl Store for WebStore {
    fn stat(&self, path: &str) -> Result<Stat> {
        let (this, path) = (self.clone(), path.to_owned());
        cloud::wait(async move { this.look(&path).await })
    }

    fn is_folder(&self, _: &str) -> bool {
        false
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        let (this, path) = (self.clone(), path.to_owned());
        append(cloud::wait(async move { this.get(&path, None, max_bytes).await })?, into)
    }

    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        let (this, path) = (self.clone(), path.to_owned());
        let range = offset..offset.saturating_add(len as u64);
        append(cloud::wait(async move { this.get(&path, Some(range), u64::MAX).await })?, into)
    }

    fn list(&self, path: &str, _: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let place = secrets::shown(path);
        Err(Error::new(ErrorKind::Unsupported, format!("cannot list {place}: web servers have no folders"))
            .with_hint("name the files: image_files takes a list, webdataset {000..099}"))
    }

    fn retry(&self) -> Option<Retry> {
        Some(self.site.common.retry)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for WebStore {
    fn begin(&self, request: Request, done: Done) -> Pending {
        let this = self.clone();
        let Request { path, range, max_bytes } = request;
        cloud::begin(async move { this.get(&path, range, max_bytes).await }, done)
    }

    fn retry(&self) -> Retry {
        self.site.common.retry
    }

    fn connections(&self) -> usize {
        self.site.common.connections
    }

    fn version(&self, path: &str) -> Option<Version> {
        let tag = self.seen.version(path)?;
        let name = secrets::identity(path);
        // Where a part of the query is left out of the name, only a tag of its own tells what it led to.
        if name.len() != path.len() && tag.windows(9).any(|part| part == b"modified ") {
            return None;
        }
        Some(Version::new("", &name, &tag))
    }

    fn throttled(&self) -> u64 {
        self.client().map_or(0, |client| client.pace.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!(seconds("soon"), None);
        let link = "<https://h/a?cursor=x>; rel=\"next\", <https://h/>; rel=\"first\"";
        assert_eq!(next_page(link).as_deref(), Some("https://h/a?cursor=x"));
        assert_eq!(next_page("<https://h/>; rel=\"prev\""), None);
        let of = |text: &str| {
            content_range(&HeaderMap::from_iter([(header::CONTENT_RANGE, text.parse().unwrap())]))
        };
        assert_eq!(of("bytes 5-9/100"), Some((5..10, Some(100))));
        assert_eq!(of("bytes 5-9/*"), Some((5..10, None)));
        assert_eq!(of("bytes 5-18446744073709551615/*"), None);
        assert_eq!(of("lines 5-9/100"), None);
        assert_eq!(escape("https://h/a b/ü%20?x={1}"), "https://h/a%20b/%C3%BC%20?x=%7B1%7D");
    }
}
