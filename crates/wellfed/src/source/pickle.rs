//! Pickles of plain data, read as data: dicts, lists, tuples, whole numbers, texts, and NumPy arrays of bytes.
//!
//! A pickle is a program that can call any function. Nothing is called here: of functions only those are known by which
//! NumPy writes arrays, and they are understood, not run. Everything else is an error that names it.
//!
//! Protocols 2 to 4, as Python 2 and 3 write them. Values lie side by side and know each other by number, so nothing is
//! recursive, however deeply a file nests, and their number is limited before memory is taken.

use crate::{Error, Result};

/// Values that a pickle may have: ten times as many as 50,000 images with names and labels.
const MOST_VALUES: usize = 1 << 21;

/// Number of a value in [`Pickle::values`].
type Id = u32;

/// A value. Texts and bytes are those of the file.
#[derive(Clone, Debug)]
enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// Python 2 writes texts as bytes, so both are one.
    Bytes(&'a [u8]),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Function(Function),
    /// Of NumPy: whether its elements are of `uint8`.
    DType(bool),
    /// One that has no elements yet.
    NewArray,
    Array(ByteArray<'a>),
}

/// What NumPy's arrays are written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Reconstruct,
    NdArray,
    DType,
}

/// An array of uint8, rows first.
#[derive(Clone, Debug)]
pub(super) struct ByteArray<'a> {
    pub(super) shape: Vec<u64>,
    pub(super) bytes: &'a [u8],
}

/// A file of one dict.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: Id,
}

impl<'a> Pickle<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`], with the offset: it is cut, no pickle, or has something other than plain data.
    pub(super) fn parse(file: &'a [u8]) -> Result<Self> {
        let mut reader = Reader {
            file,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
        };
        let mut start = 0;
        loop {
            match reader.step() {
                Ok(None) => start = reader.at,
                Ok(Some(root)) => return Ok(Self { values: reader.values, root }),
                Err(e) => return Err(e.with_offset(start as u64)),
            }
        }
    }

    fn value(&self, id: Id) -> &Value<'a> {
        &self.values[id as usize]
    }

    /// The value of `key` in the dict that the file is; the last one, as in Python.
    fn get(&self, key: &str) -> Option<&Value<'a>> {
        let Value::Dict(items) = self.value(self.root) else { return None };
        let is_key = |id: Id| matches!(self.value(id), Value::Bytes(name) if *name == key.as_bytes());
        items.iter().rev().find(|(name, _)| is_key(*name)).map(|(_, value)| self.value(*value))
    }

    /// The array under `key`.
    pub(super) fn array(&self, key: &str) -> Option<&ByteArray<'a>> {
        if let Some(Value::Array(array)) = self.get(key) { Some(array) } else { None }
    }

    /// The list of whole numbers under `key`.
    pub(super) fn whole_numbers(&self, key: &str) -> Option<Vec<i64>> {
        let Some(Value::List(items)) = self.get(key) else { return None };
        items
            .iter()
            .map(|id| if let Value::Int(number) = self.value(*id) { Some(*number) } else { None })
            .collect()
    }

    /// The list of texts under `key`.
    pub(super) fn texts(&self, key: &str) -> Option<Vec<String>> {
        let Some(Value::List(items)) = self.get(key) else { return None };
        let text = |id: &Id| match self.value(*id) {
            Value::Bytes(text) => String::from_utf8(text.to_vec()).ok(),
            _ => None,
        };
        items.iter().map(text).collect()
    }
}

/// The machine that a pickle is a program for.
struct Reader<'a> {
    file: &'a [u8],
    at: usize,
    values: Vec<Value<'a>>,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
}

impl<'a> Reader<'a> {
    /// Does one instruction; the last one answers with the value of the whole file.
    fn step(&mut self) -> Result<Option<Id>> {
        match self.byte()? {
            b'.' => return self.pop().map(Some),
            0x80 => {
                let protocol = self.byte()?;
                if !(2..=4).contains(&protocol) {
                    return Err(Error::corrupt(format!(
                        "it is a pickle of protocol {protocol}; 2 to 4 are read"
                    )));
                }
            }
            // A frame only says how many bytes follow.
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Value::None)?,
            code @ (0x88 | 0x89) => self.push(Value::Bool(code == 0x88))?,
            b'K' => self.int(1)?,
            b'M' => self.int(2)?,
            b'J' => {
                let bytes = self.array()?;
                self.push(Value::Int(i64::from(i32::from_le_bytes(bytes))))?;
            }
            0x8a => self.long()?,
            b'U' | b'C' | 0x8c => self.bytes(1)?,
            b'T' | b'B' | b'X' => self.bytes(4)?,
            0x8d | 0x8e => self.bytes(8)?,
            b'}' => self.push(Value::Dict(Vec::new()))?,
            b']' => self.push(Value::List(Vec::new()))?,
            b')' => self.push(Value::Tuple(Vec::new()))?,
            b't' => {
                let items = self.since_mark()?;
                self.push(Value::Tuple(items))?;
            }
            count @ 0x85..=0x87 => {
                let first = self.height(usize::from(count - 0x84))?;
                let items = self.stack.split_off(first);
                self.push(Value::Tuple(items))?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            b's' => {
                let first = self.height(2)?;
                let items = self.stack.split_off(first);
                self.set(&items)?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(&items)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.function(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Bytes(module), Value::Bytes(name)) = (self.value(module), self.value(name))
                else {
                    return Err(damaged("a function has no name"));
                };
                let (module, name) = (*module, *name);
                self.function(module, name)?;
            }
            b'R' => self.call()?,
            b'b' => self.build()?,
            b'q' => {
                let slot = usize::from(self.byte()?);
                self.note(slot)?;
            }
            b'r' => {
                let slot = self.number(4)?;
                self.note(slot)?;
            }
            0x94 => self.note(self.memo.len())?,
            b'h' => {
                let slot = usize::from(self.byte()?);
                self.recall(slot)?;
            }
            b'j' => {
                let slot = self.number(4)?;
                self.recall(slot)?;
            }
            other => {
                return Err(Error::corrupt(format!(
                    "it has the instruction {other:#04x}, which is none for plain data"
                )));
            }
        }
        Ok(None)
    }

    // The file.

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.file.len());
        let Some(end) = end else {
            let left = self.file.len() - self.at;
            return Err(Error::corrupt(format!("it ends after {left} of {count} bytes that should follow"))
                .with_hint("the file was cut"));
        };
        let taken = &self.file[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// An unsigned number of `width` bytes, up to 8.
    fn number(&mut self, width: usize) -> Result<usize> {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.take(width)?);
        // What does not fit is longer than any file.
        Ok(usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX))
    }

    fn line(&mut self) -> Result<&'a [u8]> {
        let rest = &self.file[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("a name has no end"))?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    // Values.

    fn push(&mut self, value: Value<'a>) -> Result<()> {
        if self.values.len() == MOST_VALUES {
            return Err(Error::corrupt(format!("it has more than {MOST_VALUES} values")));
        }
        // There are fewer of them than an Id can number.
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
        Ok(())
    }

    fn int(&mut self, width: usize) -> Result<()> {
        // Two bytes fit.
        let number = self.number(width)? as i64;
        self.push(Value::Int(number))
    }

    fn long(&mut self) -> Result<()> {
        let width = usize::from(self.byte()?);
        let digits = self.take(width)?;
        if width > 8 {
            return Err(damaged("a whole number has more than 64 bits"));
        }
        let negative = digits.last().is_some_and(|top| top & 0x80 != 0);
        let mut bytes = [if negative { 0xff } else { 0 }; 8];
        bytes[..width].copy_from_slice(digits);
        self.push(Value::Int(i64::from_le_bytes(bytes)))
    }

    fn bytes(&mut self, width: usize) -> Result<()> {
        let length = self.number(width)?;
        let bytes = self.take(length)?;
        self.push(Value::Bytes(bytes))
    }

    fn value(&self, id: Id) -> &Value<'a> {
        &self.values[id as usize]
    }

    // The stack.

    /// Height of the stack without its last `count` values, which must not lie below a mark.
    fn height(&self, count: usize) -> Result<usize> {
        let low = self.marks.last().copied().unwrap_or(0);
        self.stack
            .len()
            .checked_sub(count)
            .filter(|height| *height >= low)
            .ok_or_else(|| damaged("a value is missing"))
    }

    fn pop(&mut self) -> Result<Id> {
        self.height(1)?;
        self.stack.pop().ok_or_else(|| damaged("a value is missing"))
    }

    fn top(&self) -> Result<Id> {
        self.height(1)?;
        self.stack.last().copied().ok_or_else(|| damaged("a value is missing"))
    }

    fn since_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(|| damaged("a mark is missing"))?;
        Ok(self.stack.split_off(mark))
    }

    fn append(&mut self, new: Vec<Id>) -> Result<()> {
        let list = self.top()?;
        let Value::List(items) = &mut self.values[list as usize] else {
            return Err(damaged("something is appended to what is no list"));
        };
        items.extend(new);
        Ok(())
    }

    fn set(&mut self, new: &[Id]) -> Result<()> {
        let dict = self.top()?;
        let (pairs, rest) = new.as_chunks::<2>();
        let Value::Dict(items) = &mut self.values[dict as usize] else {
            return Err(damaged("something is set in what is no dict"));
        };
        if !rest.is_empty() {
            return Err(damaged("a key has no value"));
        }
        items.extend(pairs.iter().map(|[key, value]| (*key, *value)));
        Ok(())
    }

    fn note(&mut self, slot: usize) -> Result<()> {
        let id = self.top()?;
        if slot >= MOST_VALUES {
            return Err(damaged("a note has a number above that of values"));
        }
        if slot >= self.memo.len() {
            self.memo.resize(slot + 1, None);
        }
        self.memo[slot] = Some(id);
        Ok(())
    }

    fn recall(&mut self, slot: usize) -> Result<()> {
        let id = self.memo.get(slot).copied().flatten().ok_or_else(|| damaged("a note is missing"))?;
        self.stack.push(id);
        Ok(())
    }

    // Functions.

    fn function(&mut self, module: &[u8], name: &[u8]) -> Result<()> {
        let function = match (module, name) {
            (b"numpy.core.multiarray" | b"numpy._core.multiarray", b"_reconstruct") => Function::Reconstruct,
            (b"numpy", b"ndarray") => Function::NdArray,
            (b"numpy", b"dtype") => Function::DType,
            _ => {
                let [module, name] =
                    [module, name].map(|text| String::from_utf8_lossy(text).escape_debug().to_string());
                return Err(Error::corrupt(format!(
                    "it has {module}.{name}, which is none of the functions that arrays are written with"
                ))
                .with_hint("nothing of it was run; is it the file as it was published?"));
            }
        };
        self.push(Value::Function(function))
    }

    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Function(function), Value::Tuple(arguments)) =
            (self.value(function), self.value(arguments))
        else {
            return Err(damaged("something is called that is no function"));
        };
        let first = arguments.first().map(|id| self.value(*id));
        let made = match (function, first) {
            (Function::Reconstruct, Some(Value::Function(Function::NdArray))) => Value::NewArray,
            (Function::DType, Some(Value::Bytes(name))) => {
                Value::DType(matches!(*name, b"u1" | b"|u1" | b"uint8"))
            }
            _ => return Err(damaged("an array is not written as NumPy writes it")),
        };
        self.push(made)
    }

    /// Gives an array its elements. What a dtype is given says how bytes follow each other, of which these have one.
    fn build(&mut self) -> Result<()> {
        let (state, id) = (self.pop()?, self.top()?);
        let Value::Tuple(state) = self.value(state) else {
            return Err(damaged("an array is not written as NumPy writes it"));
        };
        match self.value(id) {
            Value::DType(_) => Ok(()),
            Value::NewArray => {
                let array = self.elements(state)?;
                self.values[id as usize] = Value::Array(array);
                Ok(())
            }
            _ => Err(damaged("something is given contents that is no array")),
        }
    }

    /// The array with the state (version, shape, dtype, columns first?, bytes).
    fn elements(&self, state: &[Id]) -> Result<ByteArray<'a>> {
        let [_, shape, dtype, turned, bytes] = state else {
            return Err(damaged("an array is not written as NumPy writes it"));
        };
        let (Value::Tuple(shape), Value::DType(dtype), Value::Bytes(bytes)) =
            (self.value(*shape), self.value(*dtype), self.value(*bytes))
        else {
            return Err(damaged("an array is not written as NumPy writes it"));
        };
        let side = |id: &Id| match self.value(*id) {
            Value::Int(side) => u64::try_from(*side).ok(),
            _ => None,
        };
        let shape: Option<Vec<u64>> = shape.iter().map(side).collect();
        let shape = shape.ok_or_else(|| damaged("an array has no shape"))?;
        if !*dtype || !matches!(self.value(*turned), Value::Int(0) | Value::Bool(false)) {
            return Err(Error::corrupt("its array is none of uint8, rows first"));
        }
        let size = shape.iter().try_fold(1_u64, |size, side| size.checked_mul(*side));
        if size != Some(bytes.len() as u64) {
            return Err(Error::corrupt(format!("its array of shape {shape:?} has {} bytes", bytes.len())));
        }
        Ok(ByteArray { shape, bytes })
    }
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!("it is no intact pickle: {what}"))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `bytes` as Python 2 writes a text: short or long.
    fn text(bytes: &[u8]) -> Vec<u8> {
        let length = (bytes.len() as u32).to_le_bytes();
        let head = if bytes.len() < 256 { vec![b'U', length[0]] } else { [&b"T"[..], &length].concat() };
        [&head, bytes].concat()
    }

    /// An array `[rows, columns]` of uint8 as NumPy writes it under Python 2.
    fn array(rows: u32, columns: u32, bytes: &[u8]) -> Vec<u8> {
        let side = |side: u32| [&b"J"[..], &side.to_le_bytes()].concat();
        let mut file =
            b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\0\x85U\x01b\x87R(K\x01"
                .to_vec();
        file.extend([side(rows), side(columns)].concat());
        file.extend_from_slice(b"\x86cnumpy\ndtype\nU\x02u1K\0K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89");
        file.extend(text(bytes));
        file.extend_from_slice(b"tb");
        file
    }

    fn numbers(numbers: &[u8]) -> Vec<u8> {
        let items: Vec<u8> = numbers.iter().flat_map(|number| [b'K', *number]).collect();
        [&b"]q\x01("[..], &items, b"e"].concat()
    }

    fn texts(names: &[&str]) -> Vec<u8> {
        let items: Vec<u8> = names.iter().flat_map(|name| text(name.as_bytes())).collect();
        [&b"]("[..], &items, b"e"].concat()
    }

    fn dict(items: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let items: Vec<u8> =
            items.iter().flat_map(|(key, value)| [text(key.as_bytes()), value.clone()].concat()).collect();
        [&b"\x80\x02}("[..], &items, b"u."].concat()
    }

    /// A file of images and their labels as CIFAR's Python version has them.
    pub(in crate::source) fn batch(labels: &[(&str, &[u8])], images: &[u8]) -> Vec<u8> {
        let count = (images.len() / 3072) as u32;
        let mut items = vec![("batch_label", text(b"a batch")), ("data", array(count, 3072, images))];
        items.extend(labels.iter().map(|(key, labels)| (*key, numbers(labels))));
        dict(&items)
    }

    /// A file of names.
    pub(in crate::source) fn names(key: &str, names: &[&str]) -> Vec<u8> {
        dict(&[("num_vis", b"M\0\x0c".to_vec()), (key, texts(names))])
    }

    #[test]
    fn arrays_lists_and_texts_are_read() {
        let images: Vec<u8> = (0..2 * 3072).map(|i| i as u8).collect();
        let file = batch(&[("labels", &[7, 0])], &images);
        let pickle = Pickle::parse(&file).unwrap();
        let data = pickle.array("data").unwrap();
        assert_eq!((data.shape.as_slice(), data.bytes), (&[2, 3072][..], images.as_slice()));
        assert_eq!(pickle.whole_numbers("labels"), Some(vec![7, 0]));
        assert!(pickle.whole_numbers("data").is_none() && pickle.array("labels").is_none());
        assert!(pickle.texts("fine_labels").is_none());
        let file = names("label_names", &["cat", "dog"]);
        assert_eq!(
            Pickle::parse(&file).unwrap().texts("label_names"),
            Some(vec!["cat".into(), "dog".into()])
        );
    }

    #[test]
    fn numbers_and_notes_are_those_of_python() {
        // pickle.dumps({"x": [-1, 300, 70000, 1 << 40, -(1 << 40)], "y": the same list}, 4), by hand.
        let file =
            b"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94(\x8c\x01x\x94]\x94(J\xff\xff\xff\xffM\x2c\x01J\x70\x11\x01\0\
            \x8a\x06\0\0\0\0\0\x01\x8a\x06\0\0\0\0\0\xffe\x8c\x01y\x94h\x02u.";
        let pickle = Pickle::parse(file).unwrap();
        let expected = Some(vec![-1, 300, 70000, 1 << 40, -(1 << 40)]);
        assert_eq!((pickle.whole_numbers("x"), pickle.whole_numbers("y")), (expected.clone(), expected));
    }

    #[test]
    fn functions_are_refused_by_name() {
        for file in [
            &b"\x80\x02cos\nsystem\nU\x04true\x85R."[..],
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        ] {
            let e = Pickle::parse(file).unwrap_err();
            assert!(e.message().contains("os.system") && e.offset().is_some(), "{e}");
        }
        // NumPy's own, with other arguments.
        assert!(Pickle::parse(b"\x80\x02cnumpy\ndtype\ncnumpy\nndarray\n\x85R.").is_err());
    }

    #[test]
    fn what_is_no_plain_pickle_is_an_error_at_its_place() {
        let e = Pickle::parse(b"\x80\x05}.").unwrap_err();
        assert!(e.message().contains("protocol 5") && e.offset() == Some(0), "{e}");
        let array = array(2, 3, b"abcde");
        let e = Pickle::parse(&dict(&[("data", array)])).unwrap_err();
        assert!(e.message().contains("[2, 3] has 5 bytes"), "{e}");
        for file in [
            &b""[..],
            b".",
            b"\x80\x02.",
            b"}a.",
            b"Na.",
            b"(.",
            b"(u.",
            b"}(Nu.",
            b"h\0.",
            b"q\0.",
            b"Nr\xff\xff\xff\xff.",
            b"NR.",
            b"Nb.",
            b"\xff",
        ] {
            assert!(Pickle::parse(file).is_err(), "{file:?}");
        }
        let many = [vec![b'N'; MOST_VALUES + 1], vec![b'.']].concat();
        assert!(Pickle::parse(&many).unwrap_err().message().contains("more than"));
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error() {
        let file = batch(&[("labels", &[7])], &[5; 3072]);
        for end in (0..file.len()).filter(|end| *end < 400 || file.len() - end < 100) {
            let e = Pickle::parse(&file[..end]).unwrap_err();
            assert!(e.offset().is_some_and(|offset| offset <= end as u64), "{e}");
        }
    }

    #[test]
    fn nesting_has_no_end_to_fear() {
        let mut file = vec![b']'; 500_000];
        file.extend(vec![b'a'; 499_999]);
        file.push(b'.');
        Pickle::parse(&file).unwrap();
    }

    proptest! {
        #[test]
        fn whatever_is_changed_in_a_file_breaks_nothing(at in 0_usize..300, to: u8, cut in 0_usize..64) {
            let mut file = batch(&[("labels", &[7])], &[5; 3072]);
            let end = file.len() - cut;
            file[at] = to;
            if let Ok(pickle) = Pickle::parse(&file[..end])
                && let Some(data) = pickle.array("data")
            {
                prop_assert_eq!(data.shape.iter().product::<u64>(), data.bytes.len() as u64);
            }
        }
    }
}
