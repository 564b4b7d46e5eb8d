//! Reads a struct from JSON so that an error names the field and its value.

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor, value::StrDeserializer,
};
use serde_json::{Error, Map, Value, map::Iter};

/// The fields of one struct.
pub(super) struct Fields<'a> {
    rest: Iter<'a>,
    current: Option<(&'a str, &'a Value)>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(fields: &'a Map<String, Value>) -> Self {
        Self { rest: fields.iter(), current: None }
    }
}

impl<'de, 'a> MapAccess<'de> for Fields<'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.current = self.rest.next().map(|(name, value)| (name.as_str(), value));
        let Some((name, _)) = self.current else { return Ok(None) };
        let name: StrDeserializer<'a, Error> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.current.take().ok_or_else(|| Error::custom("value before key"))?;
        // An owned copy, because the struct does not borrow from the JSON; configuration is small.
        seed.deserialize(value.clone()).map_err(|e| match value.to_string() {
            text if text.len() <= 60 && !text.contains('{') => {
                Error::custom(format_args!("{name} is {text}; {e}"))
            }
            _ => Error::custom(format_args!("{name}: {e}")),
        })
    }
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
