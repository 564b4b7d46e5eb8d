//! What is asked for: a transform's name and parameters.

use std::{collections::HashMap, error::Error, str::FromStr};

/// What a request says.
pub(crate) struct Request {
    pub(crate) name: String,
    values: HashMap<String, String>,
}

impl Request {
    pub(crate) fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let values = words.filter_map(|word| word.split_once('='));
        Self { name, values: values.map(|(key, value)| (key.to_owned(), value.to_owned())).collect() }
    }

    /// A parameter, where it is given and not `None`.
    pub(crate) fn get<T: FromStr<Err: Error + 'static>>(
        &self,
        key: &str,
    ) -> Result<Option<T>, Box<dyn Error>> {
        match self.values.get(key).map(String::as_str) {
            None | Some("None") => Ok(None),
            Some("True") => Ok(Some("true".parse()?)),
            Some("False") => Ok(Some("false".parse()?)),
            Some(value) => Ok(Some(value.parse()?)),
        }
    }

    /// A parameter, or what it is by default.
    pub(crate) fn or<T: FromStr<Err: Error + 'static>>(
        &self,
        key: &str,
        default: T,
    ) -> Result<T, Box<dyn Error>> {
        Ok(self.get(key)?.unwrap_or(default))
    }
}
