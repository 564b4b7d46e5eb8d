//! A `tf.train.Example` as bytes: what [`super::example`] reads.
//!
//! ```text
//! Example { 1: Features { 1: entry { 1: name, 2: Feature { 1: BytesList | 2: FloatList | 3: Int64List { 1: values } } } ... } }
//! ```
//!
//! Numbers are packed, as TensorFlow writes them. Entries stay in the order in which they were added.

/// Features that were added, each as an entry.
#[derive(Debug, Default)]
pub(crate) struct Features {
    entries: Vec<u8>,
}

/// The number of the list's field in a feature.
#[derive(Clone, Copy)]
enum List {
    Bytes = 1,
    Float = 2,
    Int64 = 3,
}

impl Features {
    /// A feature with one byte string.
    pub(crate) fn bytes(&mut self, name: &str, value: &[u8]) {
        let list = 1 + length(value.len() as u64) + value.len();
        self.open(name, List::Bytes, list);
        self.field(1, value.len());
        self.entries.extend_from_slice(value);
    }

    /// A feature of floats.
    pub(crate) fn floats(&mut self, name: &str, values: impl Iterator<Item = f32>) {
        let packed: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        self.packed(name, List::Float, &packed);
    }

    /// A feature of whole numbers.
    pub(crate) fn ints(&mut self, name: &str, values: impl IntoIterator<Item = i64>) {
        let mut packed = Vec::new();
        values.into_iter().for_each(|number| varint(number as u64, &mut packed));
        self.packed(name, List::Int64, &packed);
    }

    /// The message.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.entries.len() + 11);
        message.push(1 << 3 | 2);
        varint(self.entries.len() as u64, &mut message);
        message.extend_from_slice(&self.entries);
        message
    }

    fn packed(&mut self, name: &str, kind: List, packed: &[u8]) {
        // A list without values is an empty message.
        let list = if packed.is_empty() { 0 } else { 1 + length(packed.len() as u64) + packed.len() };
        self.open(name, kind, list);
        if !packed.is_empty() {
            self.field(1, packed.len());
            self.entries.extend_from_slice(packed);
        }
    }

    /// All that stands in front of a list of so many bytes.
    fn open(&mut self, name: &str, kind: List, list: usize) {
        let feature = 1 + length(list as u64) + list;
        let entry = 1 + length(name.len() as u64) + name.len() + 1 + length(feature as u64) + feature;
        self.field(1, entry);
        self.field(1, name.len());
        self.entries.extend_from_slice(name.as_bytes());
        self.field(2, feature);
        self.field(kind as u8, list);
    }

    /// The head of a field of so many bytes.
    fn field(&mut self, number: u8, len: usize) {
        self.entries.push(number << 3 | 2);
        varint(len as u64, &mut self.entries);
    }
}

/// Appends a number of 7 bits a byte, the lowest first.
fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Bytes that [`varint`] appends.
fn length(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            example::describe,
            proto_wire::{Part, Wire},
        },
        *,
    };

    #[test]
    fn lengths_are_those_of_the_numbers() {
        for number in (0..64).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits]).chain([u64::MAX]) {
            let mut bytes = Vec::new();
            varint(number, &mut bytes);
            assert_eq!(length(number), bytes.len(), "{number}");
            assert_eq!(Part::whole(&bytes).varint().unwrap(), number);
        }
    }

    #[test]
    fn messages_are_those_of_tensorflow() {
        // tf.train.Example(features=Features(feature={"a": Feature(int64_list=Int64List(value=[1, 300]))}))
        let mut features = Features::default();
        features.ints("a", [1, 300]);
        let expected = [10, 14, 10, 12, 10, 1, b'a', 18, 7, 26, 5, 10, 3, 1, 0xac, 2];
        assert_eq!(features.finish(), expected);
    }

    #[test]
    fn every_length_is_that_of_what_follows() {
        for size in [0, 1, 100, 127, 128, 20_000] {
            let mut features = Features::default();
            features.bytes("image", &vec![7; size]);
            features.floats(&"f".repeat(size.min(300)), (0..size).map(|i| i as f32));
            features.ints("n", (0..size as i64).map(|i| -i));
            let message = features.finish();
            let mut whole = Part::whole(&message);
            let Some((1, Wire::Bytes(mut all))) = whole.field().unwrap() else { panic!() };
            assert!(whole.field().unwrap().is_none());
            let mut entries = 0;
            while let Some((1, Wire::Bytes(_))) = all.field().unwrap() {
                entries += 1;
            }
            assert_eq!(entries, 3);
            let found = describe(&message).unwrap();
            assert!(found.iter().any(|feature| feature.name == "image"), "{found:?}");
        }
    }
}
