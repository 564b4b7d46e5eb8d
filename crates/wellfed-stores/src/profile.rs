//! Profiles of AWS's own tools: `~/.aws/credentials` and `~/.aws/config`.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

use wellfed::{Error, Result};

/// Names and values of one profile, those of the credentials file before those of the config file.
pub(crate) type Profile = BTreeMap<String, String>;

/// The profile `name`, or what is the default one. `None`, if it was not named and there is none.
pub(crate) fn find(name: Option<&str>) -> Result<Option<Profile>> {
    let home = || env::home_dir().map(|home| home.join(".aws"));
    let place = |variable: &str, file: &str| -> Option<PathBuf> {
        let named = env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        named.or_else(|| home().map(|folder| folder.join(file)))
    };
    let read = |path: Option<PathBuf>| path.map_or_else(|| Ok(String::new()), |path| text(&path));
    let credentials = read(place("AWS_SHARED_CREDENTIALS_FILE", "credentials"))?;
    let config = read(place("AWS_CONFIG_FILE", "config"))?;
    let of_environment = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]
        .iter()
        .find_map(|name| env::var(name).ok().filter(|name| !name.is_empty()));
    let wanted = name.map(str::to_owned).or(of_environment);
    let found = section(&credentials, &config, wanted.as_deref().unwrap_or("default"));
    match (found, wanted) {
        (None, Some(name)) => Err(Error::config(format!("there is no profile {name} in AWS's files"))
            .with_hint("look at ~/.aws/credentials and ~/.aws/config, or what AWS_CONFIG_FILE names")),
        (found, _) => Ok(found),
    }
}

/// The text of a file, empty if there is none.
fn text(path: &Path) -> Result<String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(Error::io("read", path.display(), e)),
    }
}

/// The profile `name` of both files. The config file calls all but the default one `profile NAME`.
fn section(credentials: &str, config: &str, name: &str) -> Option<Profile> {
    let long = format!("profile {name}");
    let of_config = entries(config, &|title| title == long || (name == "default" && title == name));
    let of_credentials = entries(credentials, &|title| title == name);
    if of_config.is_none() && of_credentials.is_none() {
        return None;
    }
    let mut all = of_config.unwrap_or_default();
    all.extend(of_credentials.unwrap_or_default());
    Some(all)
}

/// The entries of the sections that are wanted, if there are any. Lines that are indented belong to the entry above.
fn entries(text: &str, wanted: &dyn Fn(&str) -> bool) -> Option<Profile> {
    let (mut found, mut inside) = (None::<Profile>, false);
    for line in text.lines() {
        let plain = line.trim();
        if plain.is_empty() || plain.starts_with(['#', ';']) {
            continue;
        }
        if let Some(title) = plain.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = wanted(title.split_whitespace().collect::<Vec<_>>().join(" ").as_str());
            if inside {
                found.get_or_insert_default();
            }
            continue;
        }
        let nested = line.starts_with([' ', '\t']);
        if let (true, false, Some((name, value))) = (inside, nested, plain.split_once('=')) {
            // What follows a blank and a mark is a comment.
            let value =
                value.split(" #").next().and_then(|value| value.split(" ;").next()).unwrap_or_default();
            let profile = found.get_or_insert_default();
            profile.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_found_in_both_files() {
        let credentials = "[default]\naws_access_key_id = A\naws_secret_access_key=b=c # no\n\n[ work ]\naws_access_key_id=W\n";
        let config = "# x\n[default]\nregion = eu-west-1\ns3 =\n  region = no\n[profile work]\nregion=us-east-2\nAWS_ACCESS_KEY_ID=no\n[work]\nregion=no\n";
        let default = section(credentials, config, "default").unwrap();
        assert_eq!(default["aws_secret_access_key"], "b=c");
        assert_eq!(default["region"], "eu-west-1");
        let work = section(credentials, config, "work").unwrap();
        assert_eq!((work["aws_access_key_id"].as_str(), work["region"].as_str()), ("W", "us-east-2"));
        assert_eq!(section(credentials, config, "other"), None);
    }
}
