//! S3, and what speaks its protocol. Options are called as s3fs and boto3 call them; credentials are looked for where AWS's
//! own tools look, in their order.

use std::sync::Arc;

use object_store::{
    ObjectStore,
    aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, resolve_bucket_region},
};
use wellfed::{Error, ErrorKind, Result};

use crate::{
    bucket::Make,
    client::Connector,
    cloud,
    options::{Common, Options, env},
    profile::{self, Profile},
    trouble,
};

/// What of a profile stands for credentials that are got by other means than a key.
const INDIRECT: [&str; 4] = ["role_arn", "credential_process", "sso_session", "sso_start_url"];

/// Where credentials come from.
#[derive(Debug)]
enum Credentials {
    /// A key, its secret and perhaps a token.
    Keys(String, String, Option<String>),
    Anonymous,
    /// A token of the platform, a container's or a machine's role: environment and machine say which.
    Role,
}

/// The S3 bucket `name`.
pub(crate) fn open(name: &str, options: &mut Options, secrets: Arc<Vec<String>>) -> Result<(Common, Make)> {
    let key = options.take(&["key", "aws_access_key_id", "access_key_id"])?;
    let secret = options.take(&["secret", "aws_secret_access_key", "secret_access_key"])?;
    let token = options.take(&["token", "aws_session_token", "session_token"])?;
    let anonymous = options.flag(&["anon", "skip_signature"])?.unwrap_or(false);
    let named = options.take(&["profile"])?;
    let endpoint = options.take(&["endpoint_url", "endpoint"])?;
    let region = options.take(&["region", "region_name"])?;
    let pays = options.flag(&["requester_pays", "request_payer"])?.unwrap_or(false);
    let style = options.take(&["addressing_style"])?;
    let use_ssl = options.flag(&["use_ssl"])?;

    let explicit = match (key, secret) {
        (Some(key), Some(secret)) => Some(Credentials::Keys(key, secret, token)),
        (None, None) => None,
        _ => return Err(Error::config("of the options key and secret of s3:// one is missing")),
    };
    let looks = !anonymous && explicit.is_none() || named.is_some();
    // Region and endpoint may stand in a profile, too; one that cannot be read matters where it is needed.
    let profile = match profile::find(named.as_deref()) {
        Err(e) if looks => return Err(e),
        found => found.ok().flatten().unwrap_or_default(),
    };
    let credentials = match explicit {
        _ if anonymous => Credentials::Anonymous,
        Some(keys) => keys,
        None => find(&profile, named.as_deref())?,
    };
    let endpoint = endpoint
        .or_else(|| env("AWS_ENDPOINT_URL_S3"))
        .or_else(|| env("AWS_ENDPOINT_URL"))
        .or_else(|| env("AWS_ENDPOINT"))
        .or_else(|| profile.get("endpoint_url").cloned());
    let endpoint = match (endpoint, use_ssl) {
        (Some(endpoint), Some(false)) if !endpoint.contains("://") => Some(format!("http://{endpoint}")),
        (Some(endpoint), _) if !endpoint.contains("://") => Some(format!("https://{endpoint}")),
        (endpoint, _) => endpoint,
    };
    let region = region
        .or_else(|| env("AWS_REGION"))
        .or_else(|| env("AWS_DEFAULT_REGION"))
        .or_else(|| profile.get("region").cloned());
    let virtual_host = match style.as_deref() {
        Some("virtual") => true,
        Some("path") => false,
        // A name with dots fits no certificate.
        None | Some("auto") => endpoint.is_none() && !name.contains('.'),
        Some(_) => {
            return Err(Error::config("option addressing_style of s3:// must be auto, path or virtual"));
        }
    };
    let plain = endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let mut common = Common::take(options, plain)?;
    common.endpoint = endpoint.clone().unwrap_or_default();
    let (client, silence, name) = (common.client.clone(), common.silence, name.to_owned());
    let mut secrets = secrets.to_vec();
    if let Credentials::Keys(key, secret, token) = &credentials {
        secrets.extend([key.clone(), secret.clone()].into_iter().chain(token.clone()));
    }
    let secrets = Arc::new(secrets);
    let make: Make = Box::new(move |pace| {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&name)
            .with_client_options(client.clone())
            .with_retry(Common::no_retry())
            .with_http_connector(Connector { pace, secrets: secrets.clone(), silence })
            .with_request_payer(pays)
            .with_virtual_hosted_style_request(virtual_host);
        builder = match &credentials {
            Credentials::Anonymous => builder.with_skip_signature(true),
            Credentials::Keys(key, secret, token) => {
                let builder = builder.with_access_key_id(key).with_secret_access_key(secret);
                token.iter().fold(builder, |builder, token| builder.with_token(token))
            }
            Credentials::Role => roles(builder),
        };
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(match (virtual_host, endpoint.split_once("://")) {
                (true, Some((scheme, host))) => format!("{scheme}://{name}.{host}"),
                _ => endpoint.clone(),
            });
        }
        let region = match (&region, &endpoint) {
            (Some(region), _) => region.clone(),
            (None, Some(_)) => "us-east-1".to_owned(),
            (None, None) => region_of(&name, &client)?,
        };
        let store = builder.with_region(region).build().map_err(|e| refused("s3", &e))?;
        Ok(Arc::new(store) as Arc<dyn ObjectStore>)
    });
    Ok((common, make))
}

/// The error of options that make no store.
pub(crate) fn refused(scheme: &str, error: &object_store::Error) -> Error {
    Error::config(format!("{scheme}:// cannot be used as its options are: {}", trouble::innermost(error)))
}

/// Asks AWS for the region of a bucket. Where that does not work, the first one is as good as any: answers of others name
/// themselves.
fn region_of(name: &str, client: &object_store::ClientOptions) -> Result<String> {
    let (bucket, client) = (name.to_owned(), client.clone());
    let found = cloud::wait(async move { Ok(resolve_bucket_region(&bucket, &client).await) })?;
    Ok(found.unwrap_or_else(|_| "us-east-1".to_owned()))
}

/// Credentials as botocore finds them: environment, tokens of the platform, profile, container, machine. A profile that is
/// named comes before the environment.
fn find(profile: &Profile, named: Option<&str>) -> Result<Credentials> {
    if named.is_none() {
        if let (Some(key), Some(secret)) = (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")) {
            return Ok(Credentials::Keys(key, secret, env("AWS_SESSION_TOKEN")));
        }
        if env("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() && env("AWS_ROLE_ARN").is_some() {
            return Ok(Credentials::Role);
        }
    }
    let of = |name: &str| profile.get(name).filter(|value| !value.is_empty()).cloned();
    if let (Some(key), Some(secret)) = (of("aws_access_key_id"), of("aws_secret_access_key")) {
        return Ok(Credentials::Keys(key, secret, of("aws_session_token")));
    }
    let shown = named.unwrap_or("default");
    if let Some(indirect) = INDIRECT.iter().find(|name| profile.contains_key(**name)) {
        return Err(Error::config(format!("AWS's profile {shown} gets its credentials by {indirect}, which is not supported"))
            .with_hint(format!(
                "put them into the environment: eval \"$(aws configure export-credentials --profile {shown} --format env)\""
            )));
    }
    if named.is_some() {
        return Err(Error::config(format!("AWS's profile {shown} has no credentials")));
    }
    let container = ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
    let machine = !env("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if machine || container.iter().any(|name| env(name).is_some()) {
        return Ok(Credentials::Role);
    }
    Err(Error::new(
        ErrorKind::Io,
        "there are no credentials for s3://, neither in storage_options nor in environment or profile",
    )
    .with_hint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; anon=true reads what is public"))
}

/// Takes from the environment what says which role is asked for.
fn roles(builder: AmazonS3Builder) -> AmazonS3Builder {
    let known = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", Key::WebIdentityTokenFile),
        ("AWS_ROLE_ARN", Key::RoleArn),
        ("AWS_ROLE_SESSION_NAME", Key::RoleSessionName),
        ("AWS_ENDPOINT_URL_STS", Key::StsEndpoint),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", Key::ContainerCredentialsRelativeUri),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", Key::ContainerCredentialsFullUri),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Key::ContainerAuthorizationTokenFile),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", Key::MetadataEndpoint),
    ];
    known.into_iter().fold(builder, |builder, (name, key)| match env(name) {
        Some(value) => builder.with_config(key, value),
        None => builder,
    })
}
