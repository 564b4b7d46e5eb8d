//! Azure Blob Storage. Options are called as adlfs calls them; credentials are looked for in the environment as Azure's own
//! tools do it: `AZURE_STORAGE_…`, a service principal, workload and managed identities.

use std::{collections::HashMap, sync::Arc};

use object_store::{
    ObjectStore,
    azure::{AzureConfigKey as Key, MicrosoftAzureBuilder},
};
use wellfed::{Error, Result};

use crate::{
    bucket::Make,
    client::Connector,
    options::{Common, Options, env},
    s3::refused,
};

/// Account and key of Microsoft's emulator, which are the same everywhere.
const EMULATOR: (&str, &str) = (
    "devstoreaccount1",
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
);

/// The container that `host` names: `container`, or `container@account.dfs.core.windows.net`.
pub(crate) fn open(host: &str, options: &mut Options, secrets: Arc<Vec<String>>) -> Result<(Common, Make)> {
    let (container, server) =
        host.split_once('@').map_or((host, None), |(name, server)| (name, Some(server)));
    let named = options.take(&["account_name"])?;
    let anonymous = options.flag(&["anon", "skip_signature"])?.unwrap_or(false);
    let emulator = options.flag(&["use_emulator"])?.unwrap_or(false);
    let endpoint = options.take(&["endpoint_url", "endpoint", "account_host"])?;
    let connection = options.take(&["connection_string"])?;
    let mut given: Vec<(Key, String)> = Vec::new();
    for (names, key) in [
        (&["account_key", "access_key"][..], Key::AccessKey),
        (&["sas_token", "sas_key"], Key::SasKey),
        (&["tenant_id"], Key::AuthorityId),
        (&["client_id"], Key::ClientId),
        (&["client_secret"], Key::ClientSecret),
        (&["bearer_token", "token"], Key::Token),
    ] {
        given.extend(options.take(names)?.map(|value| (key, value)));
    }
    let own = !given.is_empty();
    let connection =
        connection.or_else(|| env("AZURE_STORAGE_CONNECTION_STRING").filter(|_| !own && !anonymous));
    let parts = connection.as_deref().map(parse).transpose()?.unwrap_or_default();
    let part = |name: &str| parts.get(name).cloned();
    given.extend(part("accountkey").map(|key| (Key::AccessKey, key)));
    given.extend(part("sharedaccesssignature").map(|key| (Key::SasKey, key)));
    let emulator = emulator || part("usedevelopmentstorage").is_some_and(|value| value == "true");
    // abfss://container@account.dfs.core.windows.net
    let of_host = server.map(|server| server.split('.').next().unwrap_or(server).to_owned());
    let account = of_host
        .or(named)
        .or_else(|| part("accountname"))
        .or_else(|| env("AZURE_STORAGE_ACCOUNT_NAME"))
        .or_else(|| env("AZURE_STORAGE_ACCOUNT"));
    if account.is_none() && !emulator {
        return Err(Error::config(format!("the account of container {container} is not known"))
            .with_hint("give account_name, or write abfss://container@account.dfs.core.windows.net/"));
    }
    let suffix = part("endpointsuffix").filter(|suffix| suffix != "core.windows.net");
    let endpoint = endpoint
        .or_else(|| part("blobendpoint"))
        .or_else(|| env("AZURE_STORAGE_ENDPOINT"))
        .or_else(|| Some(format!("https://{}.blob.{}", account.as_deref()?, suffix?)))
        .map(|endpoint| if endpoint.contains("://") { endpoint } else { format!("https://{endpoint}") });
    let plain = emulator || endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let mut common = Common::take(options, plain)?;
    // A container's name says nothing without its account.
    common.endpoint = [endpoint.as_deref(), account.as_deref()].map(Option::unwrap_or_default).join(" ");
    // An emulator at an address of its own: `object_store` knows one at the usual address only.
    let (emulator, account) = match (emulator, &endpoint) {
        (true, Some(_)) => (false, account.or_else(|| Some(EMULATOR.0.to_owned()))),
        _ => (emulator, account),
    };
    if account.as_deref() == Some(EMULATOR.0) && given.is_empty() && !anonymous {
        given.push((Key::AccessKey, EMULATOR.1.to_owned()));
    }
    if given.is_empty() && !anonymous {
        given.extend(of_environment());
    }
    let mut all = secrets.to_vec();
    all.extend(given.iter().map(|(_, value)| value.clone()));
    let secrets = Arc::new(all);
    let (client, silence, container) = (common.client.clone(), common.silence, container.to_owned());
    let make: Make = Box::new(move |pace| {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_container_name(&container)
            .with_client_options(client.clone())
            .with_retry(Common::no_retry())
            .with_http_connector(Connector { pace, secrets: secrets.clone(), silence })
            .with_use_emulator(emulator)
            .with_skip_signature(anonymous);
        builder = account.iter().fold(builder, |builder, account| builder.with_account(account));
        builder = endpoint.iter().fold(builder, |builder, endpoint| builder.with_endpoint(endpoint.clone()));
        builder = given.iter().fold(builder, |builder, (key, value)| builder.with_config(*key, value));
        let store = builder.build().map_err(|e| refused("az", &e))?;
        Ok(Arc::new(store) as Arc<dyn ObjectStore>)
    });
    Ok((common, make))
}

/// What the environment says of credentials, in the order in which `object_store` prefers it.
fn of_environment() -> Vec<(Key, String)> {
    let known = [
        ("AZURE_STORAGE_ACCOUNT_KEY", Key::AccessKey),
        ("AZURE_STORAGE_KEY", Key::AccessKey),
        ("AZURE_STORAGE_SAS_TOKEN", Key::SasKey),
        ("AZURE_TENANT_ID", Key::AuthorityId),
        ("AZURE_CLIENT_ID", Key::ClientId),
        ("AZURE_CLIENT_SECRET", Key::ClientSecret),
        ("AZURE_AUTHORITY_HOST", Key::AuthorityHost),
        ("AZURE_FEDERATED_TOKEN_FILE", Key::FederatedTokenFile),
        ("IDENTITY_ENDPOINT", Key::MsiEndpoint),
    ];
    known.into_iter().filter_map(|(name, key)| Some((key, env(name)?))).collect()
}

/// The parts of a connection string, names in lower case.
fn parse(text: &str) -> Result<HashMap<String, String>> {
    let part = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    };
    let parts: Option<_> = text.split(';').filter(|text| !text.trim().is_empty()).map(part).collect();
    parts.ok_or_else(|| {
        Error::config("the connection string of az:// is not of the form AccountName=…;AccountKey=…")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_have_parts() {
        let parts = parse("AccountName=a; AccountKey=b==;").unwrap();
        assert_eq!((parts["accountname"].as_str(), parts["accountkey"].as_str()), ("a", "b=="));
        assert!(!parse("hush").unwrap_err().to_string().contains("hush"));
    }
}
