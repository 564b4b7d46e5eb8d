//! What `wellfed inspect` finds out about sounds: codecs, sample rates, channels and durations.

use std::{collections::BTreeMap, io::Write};

use serde::Serialize;
use wellfed::{Error, ErrorKind, Limits};
use wellfed_audio::{Head, Segment};

/// Kinds that are printed; JSON has all.
const MAX_KINDS: usize = 20;

/// What one thread found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kinds: BTreeMap<Kind, u64>,
    seconds: Vec<f64>,
    /// Encoded sizes.
    bytes: Vec<u64>,
}

/// What sounds of one data set should agree in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Kind {
    codec: &'static str,
    /// Hz.
    sample_rate: u32,
    channels: u32,
}

/// What was found. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Serialize)]
pub(crate) struct Sounds {
    /// The most frequent first.
    kinds: Vec<Counted>,
    /// Seconds of a sound.
    duration: Seconds,
    /// Encoded size of a sound: that of the median.
    bytes_p50: u64,
}

#[derive(Debug, Serialize)]
struct Counted {
    #[serde(flatten)]
    kind: Kind,
    sounds: u64,
}

/// Least, greatest and percentiles (nearest rank), and the sum.
#[derive(Debug, PartialEq, Serialize)]
struct Seconds {
    min: f64,
    p5: f64,
    p50: f64,
    p95: f64,
    max: f64,
    total: f64,
}

impl Findings {
    /// Looks at the head of the file in `bytes`, and with `full` decodes it.
    ///
    /// # Errors
    /// For bytes that are no sound, and with `full` damaged ones.
    pub(crate) fn look(&mut self, bytes: &[u8], full: bool, limits: &Limits) -> wellfed::Result<()> {
        let of = |error: wellfed_audio::Error| {
            let kind = match error.kind() {
                wellfed_audio::ErrorKind::Unsupported => ErrorKind::Unsupported,
                wellfed_audio::ErrorKind::Limit => ErrorKind::Limit,
                _ => ErrorKind::Corrupt,
            };
            Error::new(kind, error.message())
        };
        let limits =
            wellfed_audio::Limits { max_samples: limits.max_bytes / 4, ..wellfed_audio::Limits::default() };
        let head = Head::parse(bytes, &limits).map_err(of)?;
        let seconds = match head.duration() {
            Some(seconds) if !full => seconds,
            // Of a file that does not tell, decoding does.
            _ => {
                let sound = wellfed_audio::decode(bytes, Segment::default(), &limits).map_err(of)?;
                sound.frames() as f64 / f64::from(sound.sample_rate)
            }
        };
        let Head { codec, sample_rate, channels, .. } = head;
        *self.kinds.entry(Kind { codec, sample_rate, channels }).or_default() += 1;
        self.seconds.push(seconds);
        self.bytes.push(bytes.len() as u64);
        Ok(())
    }

    /// Adds what another thread found.
    pub(crate) fn add(&mut self, other: Self) {
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        self.seconds.extend(other.seconds);
        self.bytes.extend(other.bytes);
    }

    /// All of it; `None` if there were no sounds.
    pub(crate) fn report(mut self) -> Option<Sounds> {
        self.seconds.sort_by(f64::total_cmp);
        self.bytes.sort_unstable();
        let rank = |percent: usize| (self.seconds.len() * percent).div_ceil(100).max(1) - 1;
        let at = |percent: usize| self.seconds.get(rank(percent)).copied();
        let duration = Seconds {
            min: *self.seconds.first()?,
            p5: at(5)?,
            p50: at(50)?,
            p95: at(95)?,
            max: *self.seconds.last()?,
            total: self.seconds.iter().sum(),
        };
        let bytes_p50 = *self.bytes.get(rank(50))?;
        let mut kinds: Vec<Counted> =
            self.kinds.into_iter().map(|(kind, sounds)| Counted { kind, sounds }).collect();
        kinds.sort_by_key(|counted| std::cmp::Reverse(counted.sounds));
        Some(Sounds { kinds, duration, bytes_p50 })
    }
}

impl Sounds {
    /// Different sample rates, Hz, in order.
    pub(crate) fn rates(&self) -> Vec<u32> {
        let mut rates: Vec<u32> = self.kinds.iter().map(|counted| counted.kind.sample_rate).collect();
        rates.sort_unstable();
        rates.dedup();
        rates
    }

    /// Different numbers of channels, in order.
    pub(crate) fn channels(&self) -> Vec<u32> {
        let mut channels: Vec<u32> = self.kinds.iter().map(|counted| counted.kind.channels).collect();
        channels.sort_unstable();
        channels.dedup();
        channels
    }

    /// Writes it for people.
    pub(crate) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let all: u64 = self.kinds.iter().map(|counted| counted.sounds).sum();
        writeln!(
            out,
            "\n{:<22} {:>9} {:>9} {:>9} {:>7}",
            "codec", "rate, Hz", "channels", "sounds", "share"
        )?;
        for Counted { kind: Kind { codec, sample_rate, channels }, sounds } in
            self.kinds.iter().take(MAX_KINDS)
        {
            let share = 100.0 * *sounds as f64 / all as f64;
            writeln!(out, "  {codec:<20} {sample_rate:>9} {channels:>9} {sounds:>9} {share:>6.1}%")?;
        }
        if let Some(rest) = self.kinds.get(MAX_KINDS..).filter(|rest| !rest.is_empty()) {
            let sounds: u64 = rest.iter().map(|counted| counted.sounds).sum();
            writeln!(out, "  {} more kinds {:>36}", rest.len(), sounds)?;
        }
        let Seconds { min, p5, p50, p95, max, total } = &self.duration;
        writeln!(
            out,
            "\n{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}",
            "duration", "min", "5%", "median", "95%", "max", "all"
        )?;
        writeln!(
            out,
            "  {:<8} {min:>9.3} {p5:>9.3} {p50:>9.3} {p95:>9.3} {max:>9.3} {:>9.2} h",
            "seconds",
            total / 3600.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A WAV file of silence in 16 bits.
    fn wav(rate: u32, channels: u16, frames: u32) -> Vec<u8> {
        let block = 2 * channels;
        let len = u32::from(block) * frames;
        let mut file = b"RIFF".to_vec();
        file.extend((36 + len).to_le_bytes());
        file.extend(b"WAVEfmt \x10\0\0\0\x01\0");
        file.extend(channels.to_le_bytes());
        file.extend([rate, rate * u32::from(block)].map(u32::to_le_bytes).concat());
        file.extend([block, 16].map(u16::to_le_bytes).concat());
        file.extend(b"data");
        file.extend(len.to_le_bytes());
        file.resize(file.len() + len as usize, 0);
        file
    }

    #[test]
    fn sounds_are_counted_by_what_they_should_agree_in() {
        let (mut one, mut other) = (Findings::default(), Findings::default());
        let limits = Limits::default();
        for seconds in 1..=3 {
            one.look(&wav(8_000, 1, 8_000 * seconds), seconds == 2, &limits).unwrap();
        }
        other.look(&wav(16_000, 2, 8_000), false, &limits).unwrap();
        assert_eq!(other.look(b"no sound", false, &limits).unwrap_err().kind(), ErrorKind::Unsupported);
        let cut = &wav(8_000, 1, 8_000)[..900];
        assert!(other.look(cut, true, &limits).is_err());
        one.add(other);
        let found = one.report().unwrap();
        assert_eq!((found.rates(), found.channels()), (vec![8_000, 16_000], vec![1, 2]));
        let expected = Seconds { min: 0.5, p5: 0.5, p50: 1.0, p95: 3.0, max: 3.0, total: 6.5 };
        assert_eq!(found.duration, expected);
        assert_eq!((found.kinds[0].sounds, found.kinds[0].kind.codec), (3, "pcm_s16le"));
        let mut out = Vec::new();
        found.print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("8000") && text.contains("75.0%") && text.contains("0.500"), "{text}");
        assert!(Findings::default().report().is_none());
    }
}
