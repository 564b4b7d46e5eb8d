//! Makes one sound: decodes the part that is wanted, and runs the program on it.
//!
//! Sizes that a file or the parameters ask for are checked against the limits and reserved before there is memory for them.

use wellfed_audio::{Head, Opened, Segment};

use crate::{
    Error, ErrorKind, Limits, Result,
    budget::Room,
    meter::{Phase, Probe},
    order::Pick,
    plan::audio::AudioProgram,
    sample::{DType, Span},
    transform::audio::{Sound, SoundShape, undecodable},
};

/// Bytes of a value in between.
const F32: u64 = 4;

/// One sound to make.
pub(crate) struct SoundMaker<'a> {
    pub(crate) program: &'a AudioProgram,
    pub(crate) seed: u64,
    pub(crate) pick: Pick,
    pub(crate) limits: &'a Limits,
    pub(crate) room: Option<&'a Room>,
}

impl SoundMaker<'_> {
    /// Makes the sound from the bytes of a file, of which the sample is `span`.
    pub(crate) fn make(
        &self,
        bytes: &[u8],
        span: Option<Span>,
        sound: &mut Sound,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        self.decode(bytes, span, sound).map_err(|e| e.with_stage("decode"))?;
        probe.lap(Phase::Decode, bytes.len());
        for step in &self.program.steps {
            self.step(step, sound).map_err(|e| e.with_stage(step.transform.name()))?;
        }
        let channels = (self.program.shape.channels, sound.shape.channels);
        if let (Some(expected), Some(found)) = channels
            && expected != found
        {
            let what = format!("a sound of {found} channels, where others have {expected}");
            return Err(Error::new(ErrorKind::Shape, what)
                .with_stage("batch")
                .with_hint("ToMono() makes one of them"));
        }
        probe.lap(Phase::Transform, 4 * sound.values.len());
        Ok(())
    }

    fn decode(&self, bytes: &[u8], span: Option<Span>, sound: &mut Sound) -> Result<()> {
        let limits = audio_limits(self.limits);
        let opened = Opened::open(bytes, &limits).map_err(undecodable)?;
        let head = opened.head().clone();
        if self.program.lossless && !head.is_lossless() {
            return Err(not_lossless(&head));
        }
        let segment = self.segment(&head, span)?;
        let left = head.frames.map(|frames| frames.saturating_sub(segment.offset));
        let expected = match (segment.frames, left) {
            (Some(wanted), Some(left)) => Some(wanted.min(left)),
            (wanted, left) => wanted.or(left),
        };
        // Of a file that does not tell, no more is known than the limit.
        if let Some(frames) = expected {
            let values = frames.saturating_mul(u64::from(head.channels));
            self.check("it", values)?;
            // As the decoder gives them, and as they stand side by side.
            self.reserve(2 * F32 * values, sound)?;
        }
        // Most sounds have one channel: it is decoded to where it stays.
        let mut channels = vec![std::mem::take(&mut sound.values)];
        let decode = if self.program.is_mean { Opened::decode_mean } else { Opened::decode };
        decode(opened, segment, &limits, &mut channels).map_err(undecodable)?;
        let (count, frames) = (channels.len(), channels.first().map_or(0, Vec::len));
        if expected.is_none() {
            self.reserve(2 * F32 * (count * frames) as u64, sound)?;
        }
        match <[Vec<f32>; 1]>::try_from(channels) {
            Ok([only]) => sound.values = only,
            Err(channels) => {
                sound.values.clear();
                channels.iter().for_each(|channel| sound.values.extend_from_slice(channel));
            }
        }
        sound.shape = SoundShape {
            channels: Some(count),
            frames: Some(frames),
            rate: Some(head.sample_rate),
            ..SoundShape::file()
        };
        Ok(())
    }

    /// The frames that are wanted of a file: of the part that the sample is those that the program takes.
    fn segment(&self, head: &Head, span: Option<Span>) -> Result<Segment> {
        let (offset, frames) = span.map_or((0, None), |span| span.frames(head.sample_rate));
        if let (Some(span), Some(whole)) = (span, head.frames)
            && offset >= whole
            && offset > 0
        {
            let seconds = whole as f64 / f64::from(head.sample_rate);
            return Err(Error::new(
                ErrorKind::Shape,
                format!("the sample begins at {} seconds, and the sound has {seconds}", span.offset),
            ));
        }
        let mut segment = Segment { offset, frames };
        let Some(step) = self.program.window.map(|number| &self.program.steps[number]) else {
            return Ok(segment);
        };
        let Some(whole) = head.frames.map(|whole| whole.saturating_sub(offset)) else { return Ok(segment) };
        let there = frames.map_or(whole, |frames| frames.min(whole));
        let mut rng = step.rng(self.seed, self.pick.epoch, self.pick.index);
        if let Some(window) = step.kernel(head.sample_rate)?.window(there, &mut rng) {
            segment.offset += window.start;
            segment.frames = Some(window.end - window.start);
        }
        Ok(segment)
    }

    fn step(&self, step: &crate::plan::audio::AudioStep, sound: &mut Sound) -> Result<()> {
        let kernel = step.kernel(sound.shape.rate.unwrap_or(0))?;
        let rng = || step.rng(self.seed, self.pick.epoch, self.pick.index);
        let becomes = kernel.drawn(sound.shape, &mut rng())?;
        let values = becomes.values().map_or(u64::MAX, |values| values as u64);
        self.check("what it makes", values)?;
        // What there is, once more where a filter reaches beyond its ends, what it becomes, and what it takes besides.
        let scratch = kernel.scratch(sound.shape) as u64;
        self.reserve(F32.saturating_mul(2 * sound.values.len() as u64 + values + scratch), sound)?;
        kernel.run(sound, &mut rng())
    }

    /// Refuses so many values, if that is above the limit.
    fn check(&self, what: &str, values: u64) -> Result<()> {
        let bytes = values.saturating_mul(F32);
        if bytes <= self.limits.max_bytes {
            return Ok(());
        }
        Err(Error::limit(&format!("{what} as float32"), bytes, self.limits.max_bytes, "bytes")
            .with_hint("raise it with with_options(max_bytes=...) if sounds are meant to be this long"))
    }

    /// Reserves `bytes` of which some are allocated already.
    fn reserve(&self, bytes: u64, sound: &Sound) -> Result<()> {
        let (bytes, held) = (usize::try_from(bytes).unwrap_or(usize::MAX), sound.capacity());
        match self.room {
            Some(room) if bytes > held => room.take(bytes - held),
            _ => Ok(()),
        }
    }
}

/// Channels of the sound in these bytes.
///
/// # Errors
/// For bytes that are no sound.
pub(crate) fn channels(bytes: &[u8], limits: &Limits) -> Result<usize> {
    let head = Head::parse(bytes, &audio_limits(limits)).map_err(|e| undecodable(e).with_stage("decode"))?;
    Ok(head.channels as usize)
}

/// Puts the values into `out` as elements of `dtype`, once there is room for them.
///
/// # Errors
/// If there is none.
pub(crate) fn store(values: &[f32], dtype: DType, room: Option<&Room>, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let bytes = values.len() * dtype.size();
    if out.capacity() < bytes {
        if let Some(room) = room {
            room.take(bytes - out.capacity())?;
        }
        out.try_reserve_exact(bytes).map_err(|_| Error::memory(bytes, "a sound"))?;
    }
    match dtype {
        DType::Float16 => {
            out.extend(values.iter().flat_map(|v| half::f16::from_f32(*v).to_ne_bytes()));
        }
        DType::BFloat16 => {
            out.extend(values.iter().flat_map(|v| half::bf16::from_f32(*v).to_ne_bytes()));
        }
        // Of whole numbers.
        DType::Int64 => out.extend(values.iter().flat_map(|v| (*v as i64).to_ne_bytes())),
        _ => out.extend_from_slice(zerocopy::IntoBytes::as_bytes(values)),
    }
    Ok(())
}

fn audio_limits(limits: &Limits) -> wellfed_audio::Limits {
    wellfed_audio::Limits { max_samples: limits.max_bytes / F32, ..wellfed_audio::Limits::default() }
}

/// What is said of a sound that decoders may decode in different ways.
fn not_lossless(head: &Head) -> Error {
    let bits = head.bits_per_sample.map_or(String::new(), |bits| format!(" of {bits} bits"));
    let frames = if head.frames == Some(0) { " without frames" } else { "" };
    let what = format!("a sound in {}{bits}{frames}, and lossless=True was given", head.codec);
    Error::new(ErrorKind::Unsupported, what)
        .with_hint("WAV files of PCM and FLAC of at most 24 bits are lossless")
}
