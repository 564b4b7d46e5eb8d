//! Options of a store: pairs of names and values, from its URL.

use std::{fmt, path::Path, time::Duration};

use object_store::{Certificate, ClientOptions, RetryConfig};
use wellfed::{
    Error, Result,
    store::{Retry, secrets},
};

/// Options that are taken one by one; what nobody has taken is an error in the end.
#[derive(Clone, Default)]
pub(crate) struct Options {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
}

/// Values may be secret.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.left.iter().map(|(name, _)| name)).finish()
    }
}

impl Options {
    /// Those of a URL, as [`secrets::split`] gives them.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Ok(Self { left: secrets::options(text)?, known: Vec::new() })
    }

    /// The values of all options.
    pub(crate) fn values(&self) -> Vec<String> {
        self.left.iter().map(|(_, value)| value.clone()).collect()
    }

    /// The option of one of these names, which mean the same. An empty value is none.
    pub(crate) fn take(&mut self, names: &[&'static str]) -> Result<Option<String>> {
        self.known.extend(names.first());
        let of = |(name, _): &&(String, String)| names.contains(&name.as_str());
        let found: Vec<_> = self.left.iter().filter(of).cloned().collect();
        self.left.retain(|pair| !of(&pair));
        match found.as_slice() {
            [] => Ok(None),
            [(_, value)] => Ok(Some(value.clone()).filter(|value| !value.is_empty())),
            [(first, one), rest @ ..] => match rest.iter().find(|(_, other)| other != one) {
                Some((second, _)) => Err(Error::config(format!(
                    "options {first} and {second} of a store contradict each other"
                ))),
                None => Ok(Some(one.clone())),
            },
        }
    }

    pub(crate) fn flag(&mut self, names: &[&'static str]) -> Result<Option<bool>> {
        let parse = |value: String| match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" => Ok(true),
            "false" | "0" | "no" => Ok(false),
            _ => Err(Error::config(format!("option {} of a store must be true or false", names[0]))),
        };
        self.take(names)?.map(parse).transpose()
    }

    fn number(&mut self, names: &[&'static str], least: f64, most: f64) -> Result<Option<f64>> {
        let parse = |value: String| {
            value.parse().ok().filter(|number| (least..=most).contains(number)).ok_or_else(|| {
                Error::config(format!(
                    "option {} of a store must be a number from {least} to {most}",
                    names[0]
                ))
            })
        };
        self.take(names)?.map(parse).transpose()
    }

    /// Refuses what nobody has taken.
    pub(crate) fn finish(mut self, scheme: &str) -> Result<()> {
        self.known.sort_unstable();
        self.known.dedup();
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        Err(Error::config(format!("{scheme}:// has no option {name}"))
            .with_hint(format!("its options are {}", self.known.join(", "))))
    }
}

/// A variable of the environment; an empty one is none.
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What all stores over HTTP have in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) client: ClientOptions,
    pub(crate) retry: Retry,
    /// A connection on which nothing (or next to nothing) comes for so long has failed.
    pub(crate) silence: Duration,
    /// Requests under way at most.
    pub(crate) connections: usize,
    /// Where the server is, if that is not the usual place: what else tells apart buckets of one name.
    pub(crate) endpoint: String,
}

/// With pauses that double up to 10 s and are halved at most, a server may be gone for half a minute.
const ATTEMPTS: f64 = 14.0;

impl Common {
    /// Takes what is common from `options`. `allow_http`: plain HTTP is what was asked for.
    pub(crate) fn take(options: &mut Options, allow_http: bool) -> Result<Self> {
        let connect = options.number(&["connect_timeout"], 0.001, 600.0)?.unwrap_or(10.0);
        let silence = options.number(&["read_timeout", "timeout"], 0.01, 3600.0)?.unwrap_or(30.0);
        let attempts = options.number(&["max_attempts"], 1.0, 100.0)?.unwrap_or(ATTEMPTS);
        let total = options.number(&["retry_timeout"], 0.0, 86_400.0)?.unwrap_or(600.0);
        let connections = options.number(&["max_pool_connections"], 1.0, 4096.0)?.unwrap_or(256.0);
        let mut client = ClientOptions::new()
            .with_allow_http(allow_http)
            .with_connect_timeout(Duration::from_secs_f64(connect))
            // Silence is looked at while bytes are taken: a slow transfer is no failed one.
            .with_timeout_disabled();
        if let Some(proxy) = options.take(&["proxy_url", "proxy"])? {
            client = client.with_proxy_url(proxy);
        }
        // As botocore has it: a file of certificates, or false.
        let named = options.take(&["verify"])?;
        let file = match named.as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("false" | "0") => {
                client = client.with_allow_invalid_certificates(true);
                None
            }
            None | Some("true" | "1") => {
                ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"].iter().find_map(|name| env(name))
            }
            Some(_) => named,
        };
        for certificate in file.map(|path| certificates(Path::new(&path))).transpose()?.into_iter().flatten()
        {
            client = client.with_root_certificate(certificate);
        }
        let retry = Retry {
            attempts: attempts as u32,
            first: Duration::from_millis(100),
            most: Duration::from_secs(10),
            total: Duration::from_secs_f64(total),
            // Silence ends a request long before; this ends those that wait for their turn.
            deadline: Duration::from_secs(300),
        };
        Ok(Self {
            client,
            retry,
            silence: Duration::from_secs_f64(silence),
            connections: connections as usize,
            endpoint: String::new(),
        })
    }

    /// The engine tries again, and nobody else.
    pub(crate) fn no_retry() -> RetryConfig {
        RetryConfig { max_retries: 0, ..RetryConfig::default() }
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate>> {
    let pem = std::fs::read(path).map_err(|e| Error::io("read certificates of", path.display(), e))?;
    let found = Certificate::from_pem_bundle(&pem).ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| Error::config(format!("{} holds no certificates in PEM form", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_once_and_unknown_ones_are_errors() {
        let mut options =
            Options::parse("endpoint_url=http%3A%2F%2Fh&anon=True&region=eu&region_name=eu&x=hush").unwrap();
        assert_eq!(options.take(&["endpoint_url", "endpoint"]).unwrap().as_deref(), Some("http://h"));
        assert_eq!(options.flag(&["anon"]).unwrap(), Some(true));
        assert_eq!(options.take(&["region", "region_name"]).unwrap().as_deref(), Some("eu"));
        assert!(!format!("{options:?}").contains("hush"));
        let e = options.finish("s3").unwrap_err();
        assert!(
            e.message().contains("no option x") && e.hint().unwrap().contains("anon, endpoint_url, region"),
            "{e}"
        );
        assert!(!e.to_string().contains("hush"), "{e}");
        let mut options = Options::parse("region=eu&region_name=us&max_attempts=x").unwrap();
        assert!(options.take(&["region", "region_name"]).is_err());
        assert!(Common::take(&mut options, false).is_err());
    }
}
