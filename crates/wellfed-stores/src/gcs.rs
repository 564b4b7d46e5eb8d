//! Google Cloud Storage. Options are called as gcsfs calls them; credentials are looked for where Google's own tools look:
//! `GOOGLE_APPLICATION_CREDENTIALS`, what `gcloud auth application-default login` left, the machine's role.

use std::{path::Path, sync::Arc};

use http::{HeaderMap, HeaderValue};
use object_store::{
    ObjectStore,
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as Key},
};
use wellfed::{Error, Result};

use crate::{
    bucket::Make,
    client::Connector,
    options::{Common, Options, env},
    s3::refused,
};

/// The bucket `name`.
pub(crate) fn open(name: &str, options: &mut Options, secrets: Arc<Vec<String>>) -> Result<(Common, Make)> {
    let token = options.take(&["token", "service_account_key", "service_account"])?;
    let anonymous =
        options.flag(&["anon", "skip_signature"])?.unwrap_or(false) || token.as_deref() == Some("anon");
    let project = options.take(&["project"])?;
    let pays = options.take(&["requester_pays"])?;
    let given = options.take(&["endpoint_url", "endpoint", "base_url"])?;
    // A server for tests, as Google's own libraries have it.
    let emulator = env("STORAGE_EMULATOR_HOST").map(|host| match host.contains("://") {
        true => host,
        false => format!("http://{host}"),
    });
    let anonymous = anonymous || (given.is_none() && emulator.is_some());
    let endpoint = given.or(emulator);
    let plain = endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let mut common = Common::take(options, plain)?;
    common.endpoint = endpoint.clone().unwrap_or_default();
    let payer = match pays.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("false") => None,
        Some("true") => Some(project.or_else(|| env("GOOGLE_CLOUD_PROJECT")).ok_or_else(|| {
            Error::config("option requester_pays of gs:// needs a project").with_hint("give project=NAME")
        })?),
        Some(_) => pays,
    };
    if let Some(payer) = payer {
        let value =
            HeaderValue::from_str(&payer).map_err(|_| Error::config("project of gs:// is no name"))?;
        common.client = common.client.with_default_headers(HeaderMap::from_iter([(
            http::HeaderName::from_static("x-goog-user-project"),
            value,
        )]));
    }
    let (client, silence, name) = (common.client.clone(), common.silence, name.to_owned());
    let make: Make = Box::new(move |pace| {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&name)
            .with_client_options(client.clone())
            .with_retry(Common::no_retry())
            .with_http_connector(Connector { pace, secrets: secrets.clone(), silence })
            .with_skip_signature(anonymous);
        if let Some(endpoint) = &endpoint {
            builder = builder.with_base_url(endpoint.trim_end_matches('/'));
        }
        match token.as_deref() {
            _ if anonymous => {}
            None | Some("google_default" | "cloud") => {
                for (name, key) in [
                    ("GOOGLE_SERVICE_ACCOUNT", Key::ServiceAccount),
                    ("GOOGLE_SERVICE_ACCOUNT_KEY", Key::ServiceAccountKey),
                    ("GOOGLE_APPLICATION_CREDENTIALS", Key::ApplicationCredentials),
                ] {
                    if let Some(value) = env(name) {
                        builder = builder.with_config(key, value);
                    }
                }
            }
            // A key as JSON, the file of one, or a token by itself.
            Some(json) if json.trim_start().starts_with('{') => {
                builder = builder.with_service_account_key(json)
            }
            Some(path) if Path::new(path).is_file() => builder = builder.with_application_credentials(path),
            Some(bearer) => builder = builder.with_bearer_token(bearer),
        }
        let store = builder.build().map_err(|e| refused("gs", &e))?;
        Ok(Arc::new(store) as Arc<dyn ObjectStore>)
    });
    Ok((common, make))
}
