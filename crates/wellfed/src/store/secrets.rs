//! Options of stores in URLs, and secrets among them.
//!
//! `s3://bucket/train?endpoint_url=http%3A%2F%2Fhost&key=…&secret=…`: options are pairs of names and percent-encoded
//! values after the last `?`, or after `#` where the query belongs to the resource (`http`, `https`). Whoever opens a
//! source calls [`seal`] first: it moves what is secret into the memory of this process, and leaves `sealed=` with a
//! random number in its place. So names, plans, messages and states that quote a URL say nothing of it. [`options`] puts
//! both together again. A pickled data set carries what its plan refers to ([`referred`], [`put`]); a plan that is opened
//! elsewhere needs the secrets anew.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{LazyLock, Mutex},
};

use super::registry;
use crate::{Error, Result, lock};

/// Name of the option that refers to what is kept here.
const SEALED: &str = "sealed";

/// Pairs of names and values, both percent-encoded, with `&` between: by their number.
static KEPT: LazyLock<Mutex<BTreeMap<String, String>>> = LazyLock::new(Mutex::default);

/// What an option is called if it is secret: a part of its name. One that only looks like it is sealed all the same.
const SECRET: [&str; 11] =
    ["secret", "token", "password", "key", "sas", "sig", "cred", "auth", "headers", "connection", "cookie"];

/// Whether the query of URLs of `scheme` belongs to the resource.
fn is_web(scheme: &str) -> bool {
    scheme == "http" || scheme == "https"
}

/// The URL without its options, and these. A `?` that no pairs of names and values follow belongs to the path.
pub fn split(url: &str) -> (&str, &str) {
    let Some((scheme, rest)) = registry::split(url) else { return (url, "") };
    split_rest(is_web(scheme), rest).map_or((url, ""), |(base, options)| {
        // The rest is the end of the URL.
        (&url[..url.len() - rest.len() + base.len()], options)
    })
}

/// As [`split`], of what stands after `://`; `web` says that the query belongs to the resource.
pub fn split_rest(web: bool, rest: &str) -> Option<(&str, &str)> {
    let (base, options) = rest.rsplit_once(if web { '#' } else { '?' })?;
    let named = |pair: &str| {
        let name = pair.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'%'))
    };
    options.split('&').all(named).then_some((base, options))
}

/// `url` as messages show it: without options, passwords and the values of its query.
pub fn shown(url: &str) -> String {
    let Some((scheme, _)) = registry::split(url) else { return url.to_owned() };
    let (base, _) = split(url);
    let rest = &base[scheme.len() + 3..];
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    // A container and its account have the same form as a user, but no password.
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => host,
        _ => authority,
    };
    let path = if is_web(scheme) { path.split('?').next().unwrap_or_default() } else { path };
    format!("{scheme}://{authority}{path}")
}

/// `url` without what is secret in it.
pub fn masked(url: &str) -> String {
    take_apart(url).map_or_else(|| url.to_owned(), |parts| with_options(&parts.base, &parts.open.join("&")))
}

/// What `url` names, however one gets there: without options, passwords, and a query that is signed, as that is another one
/// tomorrow.
pub fn identity(url: &str) -> String {
    match take_apart(url) {
        None => url.to_owned(),
        Some(parts) if parts.secret.iter().any(|pair| pair.starts_with("query=")) => shown(url),
        // Of a sealed one it was the secret that was taken away: the rest of such a query says as little.
        Some(parts) if parts.open.iter().any(|pair| pair.starts_with(SEALED)) => shown(url),
        Some(parts) => parts.base,
    }
}

/// `url` with all that is secret in it kept in this process. Paths and URLs without secrets are given back as they are.
pub fn seal(url: &str) -> String {
    let Some(mut parts) = take_apart(url).filter(|parts| !parts.secret.is_empty()) else {
        return url.to_owned();
    };
    parts.open.push(format!("{SEALED}={}", keep(parts.secret.join("&"))));
    with_options(&parts.base, &parts.open.join("&"))
}

/// `url` with further `options`, in the form that [`split`] gives them.
pub fn with_options(url: &str, options: &str) -> String {
    if options.is_empty() {
        return url.to_owned();
    }
    let web = registry::split(url).is_some_and(|(scheme, _)| is_web(scheme));
    let mark = match (split(url).1, web) {
        ("", true) => "#",
        ("", false) => "?",
        _ => "&",
    };
    [url, mark, options].concat()
}

/// A URL in three parts.
struct Parts {
    /// Without options and secrets.
    base: String,
    /// Options that are no secrets, as they are written.
    open: Vec<String>,
    /// Options that are, and what is secret elsewhere in the URL.
    secret: Vec<String>,
}

/// The parts of what is a URL.
fn take_apart(url: &str) -> Option<Parts> {
    let (scheme, _) = registry::split(url)?;
    let (base, options) = split(url);
    let (mut open, mut secret) = (Vec::new(), Vec::new());
    for pair in options.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let hidden = name != SEALED && is_secret(&decode(name), &decode(value));
        if hidden { &mut secret } else { &mut open }.push(pair.to_owned());
    }
    let rest = &base[scheme.len() + 3..];
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let mut base = base.to_owned();
    if let Some((user, host)) = authority.rsplit_once('@').filter(|(user, _)| user.contains(':')) {
        secret.push(format!("userinfo={}", encode(&decode(user))));
        base = format!("{scheme}://{host}{path}");
    }
    if let Some((before, query)) = base.clone().split_once('?').filter(|_| is_web(scheme)) {
        let (hidden, plain): (Vec<&str>, Vec<&str>) = query.split('&').partition(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            is_secret(&decode(name), &decode(value))
        });
        if !hidden.is_empty() {
            // Kept as it is written: a signature may be over the text.
            secret.push(format!("query={}", encode(&hidden.join("&"))));
            let mark = if plain.is_empty() { "" } else { "?" };
            base = format!("{before}{mark}{}", plain.join("&"));
        }
    }
    Some(Parts { base, open, secret })
}

/// The options of `text`, as [`split`] gives them, decoded, those that were sealed among them.
///
/// # Errors
/// [`crate::ErrorKind::Config`] if this process does not have what was sealed.
pub fn options(text: &str) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for (name, value) in pairs(text) {
        if name != SEALED {
            all.push((name, value));
            continue;
        }
        let kept = lock(&KEPT).get(&value).cloned();
        let kept = kept.ok_or_else(|| {
            Error::config("the URL of a store refers to secrets that this process does not have").with_hint(
                "plans do not contain secrets: give storage_options again, or let the store find its credentials in \
                 environment and profiles",
            )
        })?;
        all.extend(pairs(&kept));
    }
    Ok(all)
}

/// What `text` (a plan, say) refers to: numbers and what is kept under them. For those who send it to another process.
pub fn referred(text: &str) -> Vec<(String, String)> {
    let kept = lock(&KEPT);
    let number = |part: &str| part.get(..16).and_then(|number| kept.get_key_value(number));
    let mut found: Vec<_> = text
        .split(&format!("{SEALED}="))
        .skip(1)
        .filter_map(number)
        .map(|(number, pairs)| (number.clone(), pairs.clone()))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Keeps what [`referred`] gave in another process.
pub fn put(number: String, pairs: String) {
    lock(&KEPT).insert(number, pairs);
}

/// `text` with everything encoded that has a meaning in URLs or patterns.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// `text` with `%41` as `A`; what is no such code, or no UTF-8 then, stays as it is.
pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| byte == b'%') {
            Some(code) => {
                decoded.push(code);
                at += 3;
            }
            None => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| text.to_owned())
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect()
}

fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // Proxies and endpoints may have a password.
    SECRET.iter().any(|part| name.contains(part)) || (value.contains("://") && value.contains('@'))
}

/// Keeps `pairs` under a number that no other process gives. The same pairs have one number, so that what is opened
/// twice shares its connections.
fn keep(pairs: String) -> String {
    let mut kept = lock(&KEPT);
    if let Some((number, _)) = kept.iter().find(|(_, known)| **known == pairs) {
        return number.clone();
    }
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_usize(kept.len());
    let number = format!("{:016x}", hasher.finish());
    kept.insert(number.clone(), pairs);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_leave_the_url_and_come_back_as_options() {
        for (url, base, wanted) in [
            (
                "s3://bucket/train?endpoint_url=http%3A%2F%2Fh&key=AK%2FIA&secret=hu%26sh",
                "s3://bucket/train?endpoint_url=http%3A%2F%2Fh&sealed=",
                vec![("endpoint_url", "http://h"), ("key", "AK/IA"), ("secret", "hu&sh")],
            ),
            (
                "https://me:hu%26sh@host/a.tar?part=1&X-Amz-Signature=hush#verify=false",
                "https://host/a.tar?part=1#verify=false&sealed=",
                vec![("verify", "false"), ("userinfo", "me:hu&sh"), ("query", "X-Amz-Signature=hush")],
            ),
            (
                "az://c/x?proxy_url=http%3A%2F%2Fme%3Ahush%40p",
                "az://c/x?sealed=",
                vec![("proxy_url", "http://me:hush@p")],
            ),
        ] {
            let sealed = seal(url);
            assert!(sealed.starts_with(base) && !sealed.contains("hu"), "{sealed}");
            assert_eq!(seal(url), sealed, "the same secrets have one number");
            assert_eq!(seal(&sealed), sealed, "what is sealed stays so");
            let found = options(split(&sealed).1).unwrap();
            let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(found, wanted);
            assert_eq!(referred(&format!("{{\"root\":\"{sealed}\"}}")).len(), 1);
        }
        let e = options("sealed=0000000000000000").unwrap_err();
        assert!(e.hint().unwrap().contains("storage_options"), "{e}");
        put("00000000000000ab".to_owned(), "key=7".to_owned());
        assert_eq!(options("sealed=00000000000000ab").unwrap(), [("key".to_owned(), "7".to_owned())]);
    }

    #[test]
    fn what_has_no_secret_stays_as_it_is() {
        for url in [
            "data/train",
            "/a?key=1",
            "s3://b/img-?.jpg",
            "s3://b/x?region=eu",
            "https://h/a?b=c",
            "file:///a",
        ] {
            assert_eq!(seal(url), url);
        }
        assert_eq!(split("s3://b/img-?.jpg"), ("s3://b/img-?.jpg", ""));
        assert_eq!(split("s3://b/img-?.jpg?region=eu"), ("s3://b/img-?.jpg", "region=eu"));
        assert_eq!(split("abfss://c@a.dfs.core.windows.net/x"), ("abfss://c@a.dfs.core.windows.net/x", ""));
    }

    #[test]
    fn messages_show_no_options() {
        for (url, text) in [
            ("s3://b/train?key=hush&secret=hush", "s3://b/train"),
            ("https://me:hush@h/a.tar?sig=hush#x=hush", "https://h/a.tar"),
            ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
            ("data/a?b", "data/a?b"),
        ] {
            assert_eq!(shown(url), text);
        }
        assert_eq!(
            masked("https://me:hush@h/a?id=1&sig=hush#key=hush&verify=false"),
            "https://h/a?id=1#verify=false"
        );
        assert_eq!(masked("s3://b/a?id"), "s3://b/a?id");
        let signed = "https://h/a.tar?X-Amz-Date=1&X-Amz-Signature=hush";
        for url in [signed, &seal(signed), "https://h/a.tar#verify=false", "https://me:hush@h/a.tar"] {
            assert_eq!(identity(url), "https://h/a.tar");
        }
        assert_eq!(identity("https://h/a?id=1"), "https://h/a?id=1");
        assert_eq!(identity("a/b?c"), "a/b?c");
    }
}
