//! [`Recordings`]: the sounds that a transform has besides those of the data set, as noise or the responses of rooms.
//!
//! A plan has them as data: the path of a file, or samples as base64 of little-endian float32. Files are read and decoded once, when
//! the first sound of a rate comes, by one thread while others wait; all threads and all loaders of one data set share what was made.

use std::{
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex},
};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;
use wellfed_audio::{Limits, Resample, ResampleOptions, Segment, decode};

use super::{refused, undecodable};
use crate::{Error, ErrorKind, Result, lock};

/// Samples that a plan itself may hold: 64 MiB of float32, 17 minutes at 16 kHz.
const MOST_INLINE: usize = 1 << 24;

/// Samples that there may be once all files are decoded: 256 MiB of float32, 70 minutes at 16 kHz.
const MOST: usize = 1 << 26;

/// Bytes of a file.
const MOST_BYTES: u64 = 1 << 30;

/// Rates that decoded sounds are kept for, as they take memory for each.
const RATES: usize = 4;

/// What was made for a rate, Hz.
type OfRate<T> = (u32, Result<Arc<Vec<T>>>);

/// Sounds of one channel, and what a transform makes of each.
pub(super) struct Recordings<T> {
    items: Vec<Recording>,
    /// Behind a lock that is held while files are decoded, so that they are decoded once.
    made: Arc<Mutex<Vec<OfRate<T>>>>,
}

/// One of them, as a plan has it.
#[derive(Clone, Debug, PartialEq)]
enum Recording {
    /// A file.
    Path(String),
    /// Samples at the rate of whatever sounds come.
    Samples(Arc<[f32]>),
}

impl<T> Recordings<T> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.items.len()
    }

    /// Checks what does not take a look at files. `name` is the parameter's.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are none, and for one without samples, with a sample that is no number, or at a URL;
    /// [`ErrorKind::Limit`] if there are too many samples in the plan.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        if self.items.is_empty() {
            return Err(Error::config(format!("{name} is empty; must have at least one sound")));
        }
        let mut total = 0_usize;
        for (number, item) in self.items.iter().enumerate() {
            let bad = |what: String| Error::config(format!("{name}[{number}] {what}"));
            match item {
                Recording::Path(path) if path.is_empty() => return Err(bad("is an empty path".to_owned())),
                Recording::Path(path) if path.contains("://") => {
                    return Err(bad(format!("is {path}; must be the path of a local file")));
                }
                Recording::Path(_) => {}
                Recording::Samples(samples) => {
                    if samples.is_empty() {
                        return Err(bad("has no samples".to_owned()));
                    }
                    if let Some((at, sample)) = samples.iter().enumerate().find(|(_, s)| !s.is_finite()) {
                        return Err(bad(format!("has {sample} at {at}; must be finite")));
                    }
                    total = total.saturating_add(samples.len());
                }
            }
        }
        if total > MOST_INLINE {
            return Err(Error::limit(name, total as u64, MOST_INLINE as u64, "samples in arrays")
                .with_hint("write them to files and give their paths: plans hold arrays themselves"));
        }
        Ok(())
    }

    /// Checks that files are there, without reading them.
    ///
    /// # Errors
    /// For the first that is not.
    pub(super) fn look(&self) -> Result<()> {
        for item in &self.items {
            if let Recording::Path(path) = item {
                length(path)?;
            }
        }
        Ok(())
    }

    /// What `make` makes of each for sounds of this rate, Hz. What failed once fails again, with the same error.
    ///
    /// # Errors
    /// For a file that cannot be read, is no sound or has no samples, and for more samples than there may be.
    pub(super) fn at(&self, rate: u32, make: impl Fn(Vec<f32>) -> Result<T>) -> Result<Arc<Vec<T>>> {
        let mut made = lock(&self.made);
        if let Some((_, known)) = made.iter().find(|(of, _)| *of == rate) {
            return known.clone();
        }
        let mut left = MOST;
        let each = self.items.iter().map(|item| make(item.samples(rate, &mut left)?));
        let all = each.collect::<Result<Vec<T>>>().map(Arc::new);
        if made.len() >= RATES {
            drop(made.remove(0));
        }
        made.push((rate, all.clone()));
        all
    }
}

impl Recording {
    /// Its samples at this rate. `left` is how many there may be, and what is left of that.
    fn samples(&self, rate: u32, left: &mut usize) -> Result<Vec<f32>> {
        let samples = match self {
            Self::Samples(samples) => samples.to_vec(),
            Self::Path(path) => read(path, rate, *left)?,
        };
        *left = left.checked_sub(samples.len()).ok_or_else(too_many)?;
        Ok(samples)
    }
}

fn too_many() -> Error {
    Error::new(ErrorKind::Limit, format!("the sounds of a transform have more than {MOST} samples together"))
        .with_hint("give fewer files, or shorter ones: all are kept decoded in memory")
}

/// Bytes of a file that is not too large.
fn length(path: &str) -> Result<u64> {
    let found = fs::metadata(Path::new(path)).map_err(|e| Error::io("read", path, e))?;
    if !found.is_file() {
        return Err(Error::config(format!("{path} is no file")));
    }
    if found.len() > MOST_BYTES {
        return Err(Error::limit(path, found.len(), MOST_BYTES, "bytes"));
    }
    Ok(found.len())
}

/// The mean of all channels of a file at this rate, of at most so many samples.
fn read(path: &str, rate: u32, most: usize) -> Result<Vec<f32>> {
    length(path)?;
    let bytes = fs::read(Path::new(path)).map_err(|e| Error::io("read", path, e))?;
    let of_file = |error: Error| Error::new(error.kind(), format!("{path}: {}", error.message()));
    let limits = Limits { max_samples: MOST as u64, ..Limits::default() };
    let sound = decode(&bytes, Segment::default(), &limits).map_err(|e| of_file(undecodable(e)))?;
    drop(bytes);
    let from = sound.sample_rate;
    let samples = sound.mono().channels.pop().unwrap_or_default();
    if samples.is_empty() {
        return Err(Error::new(ErrorKind::Shape, format!("{path} has no samples")));
    }
    if from == rate {
        return Ok(samples);
    }
    let filter = Resample::new(from, rate, ResampleOptions::default()).map_err(|e| of_file(refused(e)))?;
    if filter.len_of(samples.len()) > most {
        return Err(too_many());
    }
    let (mut padded, mut out) = (Vec::new(), Vec::new());
    filter.apply(&samples, &mut padded, &mut out);
    Ok(out)
}

impl<T> Clone for Recordings<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), made: self.made.clone() }
    }
}

impl<T> PartialEq for Recordings<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

/// As it is shown in plans.
impl<T> fmt::Display for Recordings<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sounds = if self.items.len() == 1 { "sound" } else { "sounds" };
        write!(f, "[{} {sounds}]", self.items.len())
    }
}

impl<T> fmt::Debug for Recordings<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recordings({self})")
    }
}

impl<T> From<Vec<Recording>> for Recordings<T> {
    fn from(items: Vec<Recording>) -> Self {
        Self { items, made: Arc::default() }
    }
}

/// Of samples, for tests of transforms.
#[cfg(test)]
impl<T> Recordings<T> {
    pub(super) fn of(samples: &[&[f32]]) -> Self {
        samples.iter().map(|samples| Recording::Samples((*samples).into())).collect::<Vec<_>>().into()
    }

    pub(super) fn of_files(paths: &[&str]) -> Self {
        paths.iter().map(|path| Recording::Path((*path).to_owned())).collect::<Vec<_>>().into()
    }
}

impl<T> Serialize for Recordings<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.items.iter().map(|item| match item {
            Recording::Path(path) => Value::from(path.as_str()),
            Recording::Samples(samples) => {
                let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
                serde_json::json!({ "float32": BASE64_STANDARD.encode(&bytes) })
            }
        }))
    }
}

impl<'de, T> Deserialize<'de> for Recordings<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Vec::<Value>::deserialize(deserializer)?;
        let items = given.into_iter().enumerate().map(|(number, value)| match value {
            Value::String(path) => Ok(Recording::Path(path)),
            Value::Object(fields) if fields.len() == 1 => fields
                .get("float32")
                .and_then(Value::as_str)
                .and_then(floats)
                .map(Recording::Samples)
                .ok_or_else(|| D::Error::custom(format_args!("{number} has no samples in float32"))),
            _ => Err(D::Error::custom(format_args!("{number} must be a path, or samples"))),
        });
        items.collect::<Result<Vec<_>, _>>().map(Into::into)
    }
}

fn floats(text: &str) -> Option<Arc<[f32]>> {
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    let (floats, rest) = bytes.as_chunks::<4>();
    rest.is_empty().then(|| floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Plain = Recordings<Vec<f32>>;

    #[test]
    fn plans_hold_samples_and_paths() {
        let json = r#"[{"float32":"AAAAPwAAgL8="},"noise/a.wav"]"#;
        let read: Plain = serde_json::from_str(json).unwrap();
        assert_eq!(read.items[0], Recording::Samples([0.5, -1.0].into()));
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
        assert_eq!((read.to_string(), read.count()), ("[2 sounds]".to_owned(), 2));
        for (json, message) in [
            (r#"[{"float32":"AAAA"}]"#, "0 has no samples in float32"),
            (r#"[{"int16":"AAAA"}]"#, "0 has no samples in float32"),
            (r#"["a", 5]"#, "1 must be a path, or samples"),
        ] {
            let error = serde_json::from_str::<Plain>(json).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        let message = |items: Plain| items.check("noise").unwrap_err().message().to_owned();
        assert_eq!(message(Plain::of(&[])), "noise is empty; must have at least one sound");
        assert_eq!(message(Plain::of(&[&[1.0], &[]])), "noise[1] has no samples");
        assert_eq!(message(Plain::of(&[&[0.0, f32::NAN]])), "noise[0] has NaN at 1; must be finite");
        let url = "noise[0] is s3://a/b.wav; must be the path of a local file";
        assert_eq!(message(Plain::of_files(&["s3://a/b.wav"])), url);
        let large = vec![0.0; MOST_INLINE / 2 + 1];
        let error = Plain::of(&[&large, &large]).check("noise").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.message().contains("16777218 samples in arrays"), "{error}");
        assert!(Plain::of(&[&large, &large[2..]]).check("noise").is_ok());
    }

    #[test]
    fn files_are_decoded_once_for_each_rate() {
        let folder = crate::testing::TempFolder::new();
        let path = folder.write("a.wav", &wav(2, 8_000, &[[3_000_i16, -1_000]; 400].concat()));
        let both = Plain::of_files(&[&path]);
        assert!(both.check("noise").is_ok() && both.look().is_ok());
        let calls = AtomicUsize::new(0);
        let at = |of: &Plain, rate| {
            of.at(rate, |samples| {
                calls.fetch_add(1, Ordering::Relaxed);
                Ok(samples)
            })
            .unwrap()
        };
        let same = at(&both, 8_000);
        // The mean of both channels.
        assert_eq!(same[0], [1_000.0 / 32_768.0; 400]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(at(&both.clone(), 16_000)[0].len(), 800));
            }
        });
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn files_that_are_none_are_told() {
        let folder = crate::testing::TempFolder::new();
        let missing = Plain::of_files(&[&folder.join("none.wav")]);
        assert_eq!(missing.look().unwrap_err().kind(), ErrorKind::NotFound);
        assert!(Plain::of_files(&[folder.path()]).look().unwrap_err().message().ends_with("is no file"));
        let path = folder.write("a.wav", b"no sound at all");
        let broken = Plain::of_files(&[&path]);
        for _ in 0..2 {
            let error = broken.at(8_000, Ok).unwrap_err();
            assert!(error.message().contains("a.wav: "), "{error}");
        }
        folder.write("a.wav", &wav(1, 8_000, &[]));
        let error = Plain::of_files(&[&path]).at(8_000, Ok).unwrap_err();
        assert!(error.message().ends_with("has no samples"), "{error}");
    }

    /// A WAV file of 16-bit samples.
    fn wav(channels: u16, rate: u32, samples: &[i16]) -> Vec<u8> {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let len = bytes.len() as u32;
        let mut file = Vec::new();
        file.extend_from_slice(b"RIFF");
        file.extend_from_slice(&(36 + len).to_le_bytes());
        file.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0");
        file.extend_from_slice(&channels.to_le_bytes());
        file.extend_from_slice(&rate.to_le_bytes());
        file.extend_from_slice(&(rate * u32::from(channels) * 2).to_le_bytes());
        file.extend_from_slice(&(channels * 2).to_le_bytes());
        file.extend_from_slice(b"\x10\0data");
        file.extend_from_slice(&len.to_le_bytes());
        file.extend_from_slice(&bytes);
        file
    }
}
