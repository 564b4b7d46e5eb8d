//! What went wrong with a request, and what error that is.
//!
//! `object_store` has few kinds of errors, and texts that may quote URLs with signatures. So the client notes what it saw
//! of each request ([`note`]), where the task that runs it finds it ([`watch`]); texts are of that, and of the server's
//! own code and message.

use std::{cell::RefCell, future::Future};

use http::StatusCode;
use object_store::Error as StoreError;
use wellfed::{Error, ErrorKind};

tokio::task_local! {
    static SEEN: RefCell<Trouble>;
}

/// What was seen of the requests of one operation: of the last one that failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// Status of the answer, if one came.
    pub(crate) status: Option<StatusCode>,
    /// The server's code, such as `AccessDenied`.
    pub(crate) code: Option<String>,
    /// The server's message.
    pub(crate) message: Option<String>,
    /// How the connection failed.
    pub(crate) connection: Option<String>,
    /// The request was one for credentials of the machine's role.
    pub(crate) metadata: bool,
}

/// Runs `operation`; gives what the client noted meanwhile.
pub(crate) async fn watch<T>(operation: impl Future<Output = T>) -> (T, Trouble) {
    SEEN.scope(RefCell::default(), async {
        let result = operation.await;
        (result, SEEN.with(|seen| seen.take()))
    })
    .await
}

/// Notes what happened to a request of the running operation.
pub(crate) fn note(trouble: Trouble) {
    // Outside of an operation nobody asks.
    let _ = SEEN.try_with(|seen| seen.replace(trouble));
}

impl Trouble {
    /// Of an answer with this status and body.
    pub(crate) fn of(status: StatusCode, body: &str) -> Self {
        let within = |open: &str, close: &str| {
            let (_, rest) = body.split_once(open)?;
            let (text, _) = rest.split_once(close)?;
            let text = text.trim().replace(['\n', '\r'], " ");
            (!text.is_empty()).then(|| text.chars().take(300).collect::<String>())
        };
        let code = within("<Code>", "</Code>");
        let message = within("<Message>", "</Message>").or_else(|| within("\"message\": \"", "\""));
        Self { status: Some(status), code, message, ..Self::default() }
    }

    /// The facts as text: `503 Service Unavailable, SlowDown: Please reduce your request rate`.
    fn text(&self) -> String {
        if let Some(connection) = &self.connection {
            return connection.clone();
        }
        let status =
            self.status.map_or_else(|| "an answer that makes no sense".to_owned(), |s| s.to_string());
        let code = self.code.as_ref().map(|code| format!(", {code}")).unwrap_or_default();
        let message = self.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        format!("{status}{code}{message}")
    }

    /// Whether the server says that it has too much to do.
    pub(crate) fn is_throttling(&self) -> bool {
        const CODES: [&str; 6] = [
            "SlowDown",
            "ServerBusy",
            "Throttling",
            "ThrottlingException",
            "RequestLimitExceeded",
            "TooManyRequests",
        ];
        self.status == Some(StatusCode::TOO_MANY_REQUESTS)
            || self.code.as_deref().is_some_and(|code| CODES.contains(&code))
    }
}

/// The error of doing `what` (`read`, `list`) to `place`, by what the client saw and what `object_store` made of it.
pub(crate) fn classify(what: &str, place: &str, error: Option<&StoreError>, seen: &Trouble) -> Error {
    let fact = |kind, text: &str| Error::new(kind, format!("cannot {what} {place}: {text}"));
    let text = seen.text();
    if seen.metadata {
        return fact(ErrorKind::Io, "there are no credentials, and the machine has no role that gives any")
            .with_hint(
                "give them in storage_options, environment or profile; anon=true reads what is public",
            );
    }
    if let Some(connection) = &seen.connection {
        let lower = connection.to_ascii_lowercase();
        if lower.contains("certificate") || lower.contains("unknownissuer") {
            return fact(ErrorKind::Io, connection)
                .with_hint("verify=FILE names certificates to trust besides those of the system");
        }
        return fact(ErrorKind::Transient, connection);
    }
    match seen.status {
        Some(StatusCode::NOT_FOUND | StatusCode::GONE) => fact(
            ErrorKind::NotFound,
            match seen.code.as_deref() {
                Some("NoSuchBucket") => "there is no such bucket",
                Some("ContainerNotFound") => "there is no such container",
                _ => "it does not exist",
            },
        ),
        Some(StatusCode::PRECONDITION_FAILED) => changed(what, place),
        Some(StatusCode::RANGE_NOT_SATISFIABLE) => {
            fact(ErrorKind::Corrupt, "it ends before the bytes that are wanted")
        }
        Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            fact(ErrorKind::Io, &format!("not permitted ({text})")).with_hint(
                "look at the credentials, and at what they may do; anon=true reads what is public without",
            )
        }
        Some(status) if status.is_redirection() => {
            fact(ErrorKind::Config, &format!("it lies elsewhere ({text})"))
                .with_hint("region= names the region of a bucket, endpoint_url= another server")
        }
        Some(status)
            if status.is_server_error()
                || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) =>
        {
            fact(ErrorKind::Transient, &text)
        }
        Some(status) if status.is_client_error() => fact(ErrorKind::Io, &text),
        // The answer began well. What came of it was cut, or makes no sense.
        _ => match error {
            Some(StoreError::NotFound { .. }) => fact(ErrorKind::NotFound, "it does not exist"),
            Some(StoreError::Precondition { .. }) => changed(what, place),
            Some(StoreError::InvalidPath { .. }) => fact(
                ErrorKind::Unsupported,
                "names with empty parts, . or .. between slashes are not supported",
            ),
            // No request was made: it could not be signed, say.
            Some(other) if seen.status.is_none() => fact(ErrorKind::Io, &innermost(other)),
            _ => fact(ErrorKind::Transient, "the answer was cut, or is not what was asked for"),
        },
    }
}

/// The text of what an error came from, which names no URL.
pub(crate) fn innermost(error: &StoreError) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// The error of an object that is not the one it was.
pub(crate) fn changed(what: &str, place: &str) -> Error {
    Error::new(
        ErrorKind::Changed,
        format!("cannot {what} {place}: it has changed since it was listed or first read"),
    )
    .with_hint("open the data set again to use what is there now")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_errors() {
        let kind = |status: u16, body: &str| {
            let seen = Trouble::of(StatusCode::from_u16(status).unwrap(), body);
            classify("read", "s3://b/x", None, &seen)
        };
        let denied = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Access\nDenied</Message></Error>";
        let e = kind(403, denied);
        assert_eq!(e.kind(), ErrorKind::Io);
        assert!(e.message().contains("403 Forbidden, AccessDenied: Access Denied"), "{e}");
        for (status, wanted) in [
            (404, ErrorKind::NotFound),
            (412, ErrorKind::Changed),
            (416, ErrorKind::Corrupt),
            (401, ErrorKind::Io),
            (400, ErrorKind::Io),
            (301, ErrorKind::Config),
            (500, ErrorKind::Transient),
            (503, ErrorKind::Transient),
            (429, ErrorKind::Transient),
            (408, ErrorKind::Transient),
            (200, ErrorKind::Transient),
        ] {
            assert_eq!(kind(status, "").kind(), wanted, "{status}");
        }
        assert!(kind(404, "<Code>NoSuchBucket</Code>").message().ends_with("no such bucket"));
        let lost = Trouble { connection: Some("connection refused".to_owned()), ..Trouble::default() };
        assert_eq!(classify("read", "x", None, &lost).kind(), ErrorKind::Transient);
        let tls = Trouble { connection: Some("invalid peer certificate: UnknownIssuer".to_owned()), ..lost };
        assert_eq!(classify("read", "x", None, &tls).kind(), ErrorKind::Io);
    }

    #[test]
    fn throttling_is_told_from_outages() {
        let of = |status: u16, body| Trouble::of(StatusCode::from_u16(status).unwrap(), body).is_throttling();
        assert!(of(429, "") && of(503, "<Code>SlowDown</Code>") && !of(503, "") && !of(403, ""));
    }
}
