//! What columns of a table become: fields, by the types of their values and by what the metadata of Hugging Face says.

use arrow_schema::{DataType, Schema as ArrowSchema, TimeUnit};
use wellfed::{
    Error, ErrorKind, Result,
    sample::{DType, FieldKind},
};

/// What one column becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Its place among the columns of the file.
    pub(crate) root: usize,
    pub(crate) kind: FieldKind,
    /// Bytes of one element of arrays, and of one scalar; 1 for what has no dtype.
    pub(crate) size: usize,
    pub(crate) data_type: DataType,
}

impl Column {
    /// Of structs of `bytes` and `path`, only `bytes` are read.
    pub(crate) fn is_struct(&self) -> bool {
        matches!(self.data_type, DataType::Struct(_))
    }
}

/// What Hugging Face's `datasets` notes of the columns, under the key `huggingface`.
#[derive(Debug, Default)]
pub(crate) struct Features {
    features: serde_json::Map<String, serde_json::Value>,
}

impl Features {
    /// Those in the metadata of a schema. What is no such note says nothing.
    pub(crate) fn of(schema: &ArrowSchema) -> Self {
        let text = schema.metadata().get("huggingface");
        let note: Option<serde_json::Value> = text.and_then(|text| serde_json::from_str(text).ok());
        let features = note.as_ref().and_then(|note| note.get("info")?.get("features")?.as_object());
        Self { features: features.cloned().unwrap_or_default() }
    }

    fn kind_of(&self, column: &str) -> Option<&str> {
        self.features.get(column)?.get("_type")?.as_str()
    }

    /// The names of classes of `column`.
    fn classes_of(&self, column: &str) -> Option<Vec<String>> {
        let feature = self.features.get(column).filter(|_| self.kind_of(column) == Some("ClassLabel"))?;
        let names = feature.get("names")?.as_array()?;
        names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
    }

    /// The first of these columns that is a class, and the names of its classes.
    pub(crate) fn classes(&self, columns: &[Column]) -> Option<(usize, Vec<String>)> {
        let labels = columns.iter().enumerate().filter(|(_, column)| column.kind == FieldKind::LABEL);
        labels
            .map(|(at, column)| (at, &column.name))
            .find_map(|(at, name)| Some((at, self.classes_of(name)?)))
    }
}

/// The columns `wanted` of `schema`, or all of them. `images` and `sounds` are those that hold encoded images and sounds.
///
/// # Errors
/// [`ErrorKind::Config`] for names that there are not; [`ErrorKind::Unsupported`] for types that cannot be fields.
pub(crate) fn columns(
    schema: &ArrowSchema,
    wanted: Option<&[String]>,
    images: Option<&[String]>,
    sounds: Option<&[String]>,
) -> Result<Vec<Column>> {
    let features = Features::of(schema);
    let all = || schema.fields().iter().map(|field| field.name().as_str());
    let find = |name: &str| {
        let mut found = all().enumerate().filter(|(_, other)| *other == name);
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Ok(at),
            (Some(_), Some(_)) => Err(Error::config(format!("two columns are called {name:?}"))),
            _ => {
                let there: Vec<&str> = all().take(20).collect();
                Err(Error::config(format!("there is no column {name:?}: there are {}", there.join(", "))))
            }
        }
    };
    let roots: Vec<usize> = match wanted {
        Some([]) => return Err(Error::config("no column is asked for")),
        Some(names) => names.iter().map(|name| find(name)).collect::<Result<_>>()?,
        None => all().map(find).collect::<Result<_>>()?,
    };
    let mut columns: Vec<Column> = Vec::with_capacity(roots.len());
    for root in roots {
        let field = schema.field(root);
        let name = field.name();
        if columns.iter().any(|column| column.root == root) {
            return Err(Error::config(format!("column {name:?} is asked for twice")));
        }
        let noted = features.kind_of(name);
        let is_in = |names: Option<&[String]>| names.is_some_and(|names| names.iter().any(|one| one == name));
        let image = match images {
            Some(_) => is_in(images),
            None => {
                noted == Some("Image")
                    || (noted.is_none() && is_bytes_and_path(field.data_type()) && !is_in(sounds))
            }
        };
        let sound = match sounds {
            Some(_) => is_in(sounds),
            None => noted == Some("Audio") && !image,
        };
        let bytes = match (image, sound) {
            (true, true) => {
                return Err(Error::config(format!("column {name:?} is given as images and as sounds")));
            }
            (true, false) => FieldKind::Image,
            (false, true) => FieldKind::Audio,
            (false, false) => FieldKind::Bytes,
        };
        let (kind, size) = kind(field.data_type(), bytes).map_err(|what| {
            Error::new(ErrorKind::Unsupported, format!("column {name:?} is {}: {what}", field.data_type()))
                .with_hint("name the columns to take with columns=[...], without this one")
        })?;
        columns.push(Column { name: name.clone(), root, kind, size, data_type: field.data_type().clone() });
    }
    for named in images.into_iter().chain(sounds).flatten() {
        find(named)?;
    }
    if columns.is_empty() {
        return Err(Error::config("the table has no columns"));
    }
    Ok(columns)
}

/// How Hugging Face stores images and sounds.
fn is_bytes_and_path(data_type: &DataType) -> bool {
    let DataType::Struct(fields) = data_type else { return false };
    let has = |name: &str| fields.iter().find(|field| field.name() == name).map(|field| field.data_type());
    // Where no image has a path, its type is that of nulls.
    let path = |data_type: &DataType| is_text(data_type) || *data_type == DataType::Null;
    fields.len() == 2 && has("bytes").is_some_and(is_binary) && has("path").is_some_and(path)
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    )
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Field and bytes of one element, or what is in the way. Of bytes the field is `bytes`.
fn kind(data_type: &DataType, bytes: FieldKind) -> std::result::Result<(FieldKind, usize), &'static str> {
    if let DataType::Dictionary(_, values) = data_type {
        return match &**values {
            DataType::Dictionary(..) | DataType::Struct(_) => Err("such dictionaries are not supported"),
            values => kind(values, bytes),
        };
    }
    if is_binary(data_type) || is_bytes_and_path(data_type) {
        return Ok((bytes, 1));
    }
    if bytes != FieldKind::Bytes {
        return Err("images and sounds are binary, or structs of bytes and path");
    }
    if is_text(data_type) {
        return Ok((FieldKind::Text, 1));
    }
    if let Some(dtype) = dtype(data_type) {
        return Ok((FieldKind::Scalar { dtype }, dtype.size()));
    }
    let mut sides = Vec::new();
    let mut inner = data_type;
    loop {
        inner = match inner {
            DataType::List(field) | DataType::LargeList(field) => {
                sides.push(None);
                field.data_type()
            }
            DataType::FixedSizeList(field, size) => {
                sides.push(Some(usize::try_from(*size).unwrap_or(0)));
                field.data_type()
            }
            _ => break,
        };
    }
    match (dtype(inner), data_type) {
        (Some(dtype), _) if !sides.is_empty() => Ok((FieldKind::Array { dtype, shape: sides }, dtype.size())),
        _ if !sides.is_empty() => Err("lists hold numbers only"),
        (
            _,
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..),
        ) => Err("decimals have no dtype; cast them to float64 or to whole numbers when the file is written"),
        (_, DataType::Struct(_)) => Err("structs are not supported, but for those of bytes and path"),
        _ => Err("values of this type are not supported"),
    }
}

/// The dtype of numbers. Dates, times and durations are int64, in the unit that the file has them in.
fn dtype(data_type: &DataType) -> Option<DType> {
    Some(match data_type {
        DataType::Boolean => DType::Bool,
        DataType::Int8 => DType::Int8,
        DataType::UInt8 => DType::UInt8,
        DataType::Int16 => DType::Int16,
        DataType::UInt16 => DType::UInt16,
        DataType::Int32 => DType::Int32,
        DataType::UInt32 => DType::UInt32,
        DataType::UInt64 => DType::UInt64,
        DataType::Float16 => DType::Float16,
        DataType::Float32 => DType::Float32,
        DataType::Float64 => DType::Float64,
        DataType::Int64
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(TimeUnit::Second | TimeUnit::Millisecond)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => DType::Int64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, Fields};

    use super::*;

    fn schema(fields: Vec<Field>, note: Option<&str>) -> ArrowSchema {
        let metadata = note.map(|note| ("huggingface".to_owned(), note.to_owned()));
        ArrowSchema::new_with_metadata(
            fields,
            metadata.into_iter().collect::<std::collections::HashMap<_, _>>(),
        )
    }

    fn image() -> DataType {
        DataType::Struct(Fields::from(vec![
            Field::new("bytes", DataType::Binary, true),
            Field::new("path", DataType::Utf8, true),
        ]))
    }

    #[test]
    fn types_become_kinds() {
        let list = |inner| DataType::List(Arc::new(Field::new("item", inner, true)));
        let fixed = |inner, n| DataType::FixedSizeList(Arc::new(Field::new("item", inner, true)), n);
        let array = |dtype, shape: &[Option<usize>]| Some(FieldKind::Array { dtype, shape: shape.to_vec() });
        for (data_type, expected) in [
            (DataType::Int64, Some(FieldKind::LABEL)),
            (DataType::Date32, Some(FieldKind::LABEL)),
            (DataType::Boolean, Some(FieldKind::Scalar { dtype: DType::Bool })),
            (DataType::LargeUtf8, Some(FieldKind::Text)),
            (DataType::Binary, Some(FieldKind::Bytes)),
            (image(), Some(FieldKind::Image)),
            (list(DataType::Float32), array(DType::Float32, &[None])),
            (list(list(DataType::Int32)), array(DType::Int32, &[None, None])),
            (list(fixed(DataType::Int8, 4)), array(DType::Int8, &[None, Some(4)])),
            (fixed(fixed(DataType::Float64, 2), 3), array(DType::Float64, &[Some(3), Some(2)])),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), Some(FieldKind::Text)),
            (DataType::Decimal128(10, 2), None),
            (list(DataType::Utf8), None),
            (DataType::Null, None),
            (DataType::Struct(Fields::from(vec![Field::new("x", DataType::Int8, true)])), None),
        ] {
            let schema = schema(vec![Field::new("x", data_type.clone(), true)], None);
            match (columns(&schema, None, None, None), expected) {
                (Ok(columns), Some(expected)) => assert_eq!(columns[0].kind, expected, "{data_type}"),
                (Err(e), None) => {
                    assert_eq!(e.kind(), ErrorKind::Unsupported);
                    assert!(e.message().contains("\"x\""), "{e}");
                }
                (found, _) => panic!("{data_type}: {found:?}"),
            }
        }
    }

    #[test]
    fn notes_of_hugging_face_say_what_is_an_image_and_how_classes_are_called() {
        let note = r#"{"info": {"features": {"a": {"_type": "Image"}, "b": {"_type": "Audio"},
            "c": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "d": {"dtype": "binary", "_type": "Value"}}}}"#;
        let fields = vec![
            Field::new("a", image(), true),
            Field::new("b", image(), true),
            Field::new("c", DataType::Int64, true),
            Field::new("d", DataType::Binary, true),
        ];
        let schema = schema(fields, Some(note));
        let all = columns(&schema, None, None, None).unwrap();
        let kinds: Vec<FieldKind> = all.iter().map(|column| column.kind.clone()).collect();
        assert_eq!(kinds, [FieldKind::Image, FieldKind::Audio, FieldKind::LABEL, FieldKind::Bytes]);
        assert_eq!(
            Features::of(&schema).classes(&all).unwrap(),
            (2, vec!["cat".to_owned(), "dog".to_owned()])
        );
        let own = columns(&schema, None, Some(&["d".to_owned()]), Some(&[])).unwrap();
        let kinds: Vec<&FieldKind> = own.iter().map(|column| &column.kind).collect();
        assert_eq!(kinds, [&FieldKind::Bytes, &FieldKind::Bytes, &FieldKind::LABEL, &FieldKind::Image]);
        // A struct without notes is an image, unless it is said to be a sound.
        let plain = self::schema(vec![Field::new("a", image(), true), Field::new("b", image(), true)], None);
        let (sounds, both) = (["b".to_owned()], ["a".to_owned(), "b".to_owned()]);
        let own = columns(&plain, None, None, Some(&sounds)).unwrap();
        assert_eq!((&own[0].kind, &own[1].kind), (&FieldKind::Image, &FieldKind::Audio));
        let twice = columns(&plain, None, Some(&both), Some(&sounds)).unwrap_err().to_string();
        assert!(twice.contains("column \"b\" is given as images and as sounds"), "{twice}");
        assert!(columns(&plain, None, None, Some(&["c".to_owned()])).is_err());
        for (wanted, images) in
            [(Some(&["e"][..]), None), (None, Some(&["e"][..])), (Some(&["a", "a"]), None), (Some(&[]), None)]
        {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let (wanted, images) = (wanted.map(owned), images.map(owned));
            assert!(
                columns(&schema, wanted.as_deref(), images.as_deref(), None).is_err(),
                "{wanted:?} {images:?}"
            );
        }
    }
}
