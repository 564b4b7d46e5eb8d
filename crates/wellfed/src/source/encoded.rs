//! Encoded images, or sounds, that lie in memory one after another, as in a column of an Arrow table. Nothing is copied.
//!
//! Invariant: offsets are checked against the data when the source is opened, and again when they are used, since the
//! memory is the caller's.

use serde::{Deserialize, Serialize};

use super::{
    ArrayData, Fingerprint, Source, SourceSpec, beyond_the_end,
    files::{check_labels, image_schema},
    located,
};
use crate::{
    Error, ErrorKind, Result,
    sample::{DType, FieldKind, Record, Schema, Value},
};

/// Encoded images, or sounds, in memory as data. The bytes themselves are no part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncodedImagesSpec {
    /// Number of images.
    pub count: u64,
    /// Number of pieces that the data is in.
    pub chunks: usize,
    /// Whether samples are (image, label).
    pub labels: bool,
    /// Whether they are sounds, and no images. Fields: `audio` in the place of `image`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sounds: bool,
}

/// Images `data[offsets[i]..offsets[i + 1]]`, in one or more pieces. Fields: `image`, and `label` if there are labels.
#[derive(Debug)]
pub struct EncodedImages {
    spec: EncodedImagesSpec,
    schema: Schema,
    chunks: Vec<Chunk>,
    /// Index of the first sample of each chunk.
    starts: Vec<u64>,
    labels: Option<ArrayData>,
}

#[derive(Debug)]
struct Chunk {
    data: ArrayData,
    offsets: ArrayData,
}

impl EncodedImages {
    /// For each chunk data (uint8) and offsets (int64, one more than it has images); then labels (int64).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if arrays are not what `spec` says, offsets fall, or point outside of their data.
    pub fn open(spec: EncodedImagesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        Self::build(spec, arrays).map_err(|e| e.with_source("encoded_images"))
    }

    fn build(spec: EncodedImagesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        let wanted = spec.chunks.saturating_mul(2).saturating_add(usize::from(spec.labels));
        if arrays.len() != wanted {
            let (given, chunks) = (arrays.len(), spec.chunks);
            return Err(Error::config(format!(
                "{given} arrays were given instead of {wanted} for {chunks} chunks"
            )));
        }
        let mut arrays = arrays.into_iter();
        let (mut chunks, mut starts, mut count) = (Vec::new(), Vec::new(), 0);
        for number in 0..spec.chunks {
            let (Some(data), Some(offsets)) = (arrays.next(), arrays.next()) else { break };
            check(&data, &offsets, number)?;
            starts.push(count);
            count += offsets.rows() as u64 - 1;
            chunks.push(Chunk { data, offsets });
        }
        if count != spec.count {
            return Err(Error::config(format!("the offsets are of {count} images, not {}", spec.count)));
        }
        let labels = arrays.next();
        check_labels(labels.as_ref(), spec.labels, count)?;
        let schema = match (spec.sounds, spec.labels) {
            (false, labels) => image_schema(labels),
            (true, false) => Schema::single("audio", FieldKind::Audio),
            (true, true) => Schema::tuple([("audio", FieldKind::Audio), ("label", FieldKind::LABEL)]),
        };
        Ok(Self { spec, schema, chunks, starts, labels })
    }

    fn image(&self, index: u64) -> Option<&[u8]> {
        if index >= self.spec.count {
            return None;
        }
        // Of chunks without images, the last one that starts here is the one that has it.
        let at = self.starts.partition_point(|start| *start <= index).checked_sub(1)?;
        let Chunk { data, offsets } = self.chunks.get(at)?;
        let row = usize::try_from(index - self.starts[at]).ok()?;
        let offset = |row| usize::try_from(offsets.whole(row).ok()?).ok();
        data.bytes().get(offset(row)?..offset(row + 1)?)
    }
}

/// Checks that offsets rise and stay inside of the data.
fn check(data: &ArrayData, offsets: &ArrayData, chunk: usize) -> Result<()> {
    let expected = (DType::UInt8, DType::Int64, 1, 1);
    if (data.dtype(), offsets.dtype(), data.shape().len(), offsets.shape().len()) != expected {
        return Err(Error::config(format!(
            "chunk {chunk} is {data:?} with offsets {offsets:?}, not uint8 [n] with int64 [m]"
        )));
    }
    let mut last = match offsets.whole(0) {
        Ok(first) if first >= 0 => first,
        Ok(first) => return Err(Error::config(format!("offset 0 of chunk {chunk} is {first}, below 0"))),
        Err(_) => {
            return Err(Error::config(format!("chunk {chunk} has no offset"))
                .with_hint("n images have n + 1 offsets"));
        }
    };
    for row in 1..offsets.rows() {
        let offset = offsets.whole(row)?;
        if offset < last {
            return Err(Error::config(format!(
                "offset {row} of chunk {chunk} is {offset}, less than {last} before it"
            )));
        }
        last = offset;
    }
    if last as u64 > data.rows() as u64 {
        return Err(Error::config(format!(
            "the offsets of chunk {chunk} go to {last}, but its data has {} bytes",
            data.rows()
        )));
    }
    Ok(())
}

impl Source for EncodedImages {
    fn name(&self) -> String {
        if self.spec.sounds {
            return format!("encoded_sounds({} sounds)", self.spec.count);
        }
        format!("encoded_images({} images)", self.spec.count)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Encoded(self.spec)
    }

    fn len(&self) -> u64 {
        self.spec.count
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        if index < self.spec.count { index.to_string() } else { String::new() }
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        if index >= self.spec.count {
            return Err(beyond_the_end(self, index));
        }
        let place = |e| located(e, self, index);
        let Some(image) = self.image(index) else {
            return Err(place(Error::new(
                ErrorKind::State,
                "its offsets have changed since they were checked",
            )));
        };
        record.limits.check_bytes("the image", image.len() as u64).map_err(place)?;
        record.reset(self.schema.fields.len());
        record.values[0] = Value::Resident;
        if let (Some(value), Some(labels)) = (record.values.get_mut(1), &self.labels) {
            *value = Value::Int(labels.whole(index as usize).map_err(place)?);
        }
        Ok(())
    }

    fn resident(&self, index: u64, field: usize) -> Option<&[u8]> {
        if field == 0 { self.image(index) } else { None }
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.spec.count);
        for chunk in &self.chunks {
            let mut last = 0;
            for row in 0..chunk.offsets.rows() {
                let offset = chunk.offsets.whole(row).unwrap_or(0);
                hash.number(offset.wrapping_sub(last).cast_unsigned());
                last = offset;
            }
        }
        hash.finish()
    }

    fn in_memory(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, source::conformance};

    fn bytes(data: &[u8]) -> ArrayData {
        ArrayData::from_vec(data.to_vec(), DType::UInt8, vec![data.len()]).unwrap()
    }

    fn whole(numbers: &[i64]) -> ArrayData {
        let data = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        ArrayData::from_vec(data, DType::Int64, vec![numbers.len()]).unwrap()
    }

    fn open(count: u64, chunks: &[(&[u8], &[i64])], labels: Option<&[i64]>) -> Result<EncodedImages> {
        let spec = EncodedImagesSpec { count, chunks: chunks.len(), labels: labels.is_some(), sounds: false };
        let arrays = chunks.iter().flat_map(|(data, offsets)| [bytes(data), whole(offsets)]);
        EncodedImages::open(spec, arrays.chain(labels.map(whole)).collect())
    }

    #[test]
    fn images_lie_between_offsets_in_any_number_of_chunks() {
        let chunks: [(&[u8], &[i64]); 4] =
            [(b"aabbb", &[0, 2, 5]), (b"", &[0]), (b"xxcxx", &[2, 3]), (b"dd", &[0, 0, 2])];
        let source = open(5, &chunks, Some(&[1, 2, 3, 4, 5])).unwrap();
        conformance::check(&source);
        let images: Vec<&[u8]> = (0..5).filter_map(|i| source.resident(i, 0)).collect();
        assert_eq!(images, [&b"aa"[..], b"bbb", b"c", b"", b"dd"]);
        let mut record = Record::default();
        source.fetch(4, &mut record).unwrap();
        assert_eq!(record.values, [Value::Resident, Value::Int(5)]);
        record.limits = Limits { max_bytes: 2, ..Limits::default() };
        assert_eq!(source.fetch(1, &mut record).unwrap_err().kind(), ErrorKind::Limit);
        conformance::check(&open(2, &[(b"aabbb", &[0, 2, 5])], None).unwrap());
        conformance::check(&open(0, &[], None).unwrap());
        let spec = EncodedImagesSpec { count: 1, chunks: 1, labels: false, sounds: true };
        let sounds = EncodedImages::open(spec, vec![bytes(b"aa"), whole(&[0, 2])]).unwrap();
        conformance::check(&sounds);
        assert_eq!(
            (sounds.schema(), sounds.resident(0, 0)),
            (&Schema::single("audio", FieldKind::Audio), Some(&b"aa"[..]))
        );
    }

    #[test]
    fn offsets_are_checked_before_use() {
        let message = |count, chunk: (&[u8], &[i64])| open(count, &[chunk], None).unwrap_err().to_string();
        assert!(message(1, (b"aa", &[0, 3])).contains("go to 3, but its data has 2"));
        assert!(message(2, (b"aa", &[0, 2, 1])).contains("offset 2 of chunk 0 is 1, less than 2"));
        assert!(message(1, (b"aa", &[-1, 2])).contains("is -1, below 0"));
        assert!(message(0, (b"aa", &[])).contains("no offset"));
        assert!(message(5, (b"aa", &[0, 2])).contains("of 1 images, not 5"));
        let labels = open(1, &[(b"aa", &[0, 2])], Some(&[1, 2])).unwrap_err();
        assert!(labels.message().contains("int64 [2] instead of int64 [1]"), "{labels}");
        let spec = EncodedImagesSpec { count: 1, chunks: 1, labels: false, sounds: false };
        assert!(EncodedImages::open(spec, vec![whole(&[0, 1]), whole(&[0, 1])]).is_err());
        assert!(EncodedImages::open(spec, vec![bytes(b"a")]).is_err());
    }
}
