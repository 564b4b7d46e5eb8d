//! From the bytes of an audio file to samples: its head, and a segment of it.
//!
//! Containers and codecs are symphonia's. What is here is what training asks for beyond playing: a segment by its frames, found by
//! seeking, with exactly the samples that decoding from the start has there.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
};

use symphonia::core::{
    audio::sample::SampleFormat,
    codecs::{
        audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions, CODEC_ID_NULL_AUDIO},
        registry::CodecRegistry,
    },
    errors::Error as Symphonia,
    formats::{FormatOptions, FormatReader, SeekMode, SeekTo, Track, TrackType, probe::Hint},
    io::MediaSourceStream,
    meta::MetadataOptions,
    packet::Packet,
    units::Timestamp,
};

use crate::{
    Error, ErrorKind, Limits, Result, edit_list,
    mp3::{self, Mp3Frames},
    opus::{self, Opus},
    wav::Wav,
};

/// What an audio file says of itself before its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Short name of the container: `wave`, `flac`, `mp3`, `ogg`, ….
    pub container: &'static str,
    /// Short name of the codec: `pcm_s16le`, `flac`, `mp3`, `vorbis`, `aac`, ….
    pub codec: &'static str,
    /// Frames a second, Hz.
    pub sample_rate: u32,
    /// Channels.
    pub channels: u32,
    /// Samples of each channel, without what an encoder put before and after them; `None` where the file does not tell.
    pub frames: Option<u64>,
    /// Bits of a sample; `None` of codecs that have none.
    pub bits_per_sample: Option<u32>,
}

impl Head {
    /// Seconds, where the number of frames is known.
    pub fn duration(&self) -> Option<f64> {
        self.frames.map(|frames| frames as f64 / f64::from(self.sample_rate))
    }

    /// Whether a `f32` has all bits of every sample, so that there is only one way to decode it: PCM in WAV files and FLAC, of at most
    /// 24 bits, of which it is known how many frames there are. Libraries differ in what they make of none.
    pub fn is_lossless(&self) -> bool {
        let fits = |most| self.bits_per_sample.is_some_and(|bits| bits <= most);
        let has_all = match (self.container, self.codec) {
            ("wave", "pcm_u8") => fits(8),
            ("wave", "pcm_s16le") => fits(16),
            ("wave", "pcm_s24le") | ("flac", "flac") => fits(24),
            ("wave", "pcm_f32le") => true,
            _ => false,
        };
        has_all && self.frames.is_some_and(|frames| frames > 0)
    }

    /// Reads as far as the first samples.
    ///
    /// # Errors
    ///
    /// For bytes that are no sound, or one of more channels than `limits` allow.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        Opened::open(bytes, limits).map(|opened| opened.head)
    }
}

/// Part of a sound, in frames: samples of each channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First frame.
    pub offset: u64,
    /// How many; all from there on if `None`. A sound that ends before gives fewer.
    pub frames: Option<u64>,
}

/// Samples of a sound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waveform {
    /// Frames a second, Hz.
    pub sample_rate: u32,
    /// Samples of each channel, from -1 to 1: those of integers divided by the half of their range, as `torchaudio.load` gives them.
    pub channels: Vec<Vec<f32>>,
}

impl Waveform {
    /// Samples of each channel.
    pub fn frames(&self) -> usize {
        self.channels.first().map_or(0, Vec::len)
    }

    /// The mean of all channels, as one.
    #[must_use]
    pub fn mono(mut self) -> Self {
        to_mean(&mut self.channels);
        self
    }
}

/// Replaces channels by their mean. As `torch.mean` has it: a quotient, no product with a reciprocal.
fn to_mean(channels: &mut Vec<Vec<f32>>) {
    let count = channels.len();
    if let [first, others @ ..] = &mut channels[..]
        && !others.is_empty()
    {
        for other in others {
            first.iter_mut().zip(other).for_each(|(sum, sample)| *sum += *sample);
        }
        first.iter_mut().for_each(|sum| *sum /= count as f32);
    }
    channels.truncate(1);
}

/// Frames before a segment from which on codecs are decoded that keep a state: the overlap of their windows, and for MP3 the bits
/// that frames lend to later ones.
fn warm_up(head: &Head) -> u64 {
    if head.codec == "opus" { opus::WARM_UP } else { 12 * 1152 }
}

/// Frames of a packet of AAC.
const AAC_PACKET: u64 = 1024;

/// Decodes a segment.
///
/// # Errors
///
/// For bytes that are no sound or a damaged one, that end too early, and for more samples than `limits` allow; then there are none.
pub fn decode(bytes: &[u8], segment: Segment, limits: &Limits) -> Result<Waveform> {
    let opened = Opened::open(bytes, limits)?;
    let (sample_rate, mut channels) = (opened.head.sample_rate, Vec::new());
    opened.decode(segment, limits, &mut channels)?;
    Ok(Waveform { sample_rate, channels })
}

/// A file whose head has been read.
pub struct Opened<'b> {
    bytes: &'b [u8],
    head: Head,
    content: Content<'b>,
}

/// What is in it.
enum Content<'b> {
    Plain(Wav<'b>),
    Packets(Packets<'b>),
}

impl std::fmt::Debug for Opened<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("head", &self.head).finish_non_exhaustive()
    }
}

impl<'b> Opened<'b> {
    /// Reads as far as the first samples.
    ///
    /// # Errors
    ///
    /// As [`Head::parse`].
    pub fn open(bytes: &'b [u8], limits: &Limits) -> Result<Self> {
        if let Some((head, wav)) = Wav::open(bytes) {
            limits.check_channels(head.channels)?;
            return Ok(Self { bytes, head, content: Content::Plain(wav) });
        }
        guarded(|| Packets::open(bytes, limits)).map(|(head, packets)| Self {
            bytes,
            head,
            content: Content::Packets(packets),
        })
    }

    /// What the file says of itself.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Where the frames of an MP3 file are; `None` of other files, and of those that have anything but frames between the first and the last.
    pub fn mp3_frames(self) -> Option<Mp3Frames> {
        let Self { bytes, head, content } = self;
        let Content::Packets(mut packets) = content else { return None };
        let is_mp3 = head.container == "mp3" && head.codec == "mp3";
        // A panic of the library's is the file's fault.
        let packet = guarded(|| Ok(packets.format.next_packet().ok().flatten())).ok().flatten();
        let packet = packet.filter(|_| is_mp3)?;
        let start = mp3::Start { frame: &packet.data, at: packet.pts.get(), frames: head.frames };
        Mp3Frames::of(bytes, start, head.sample_rate)
    }

    /// Decodes a segment into `channels`: their memory is used again, and there are as many as the sound has afterwards.
    ///
    /// # Errors
    ///
    /// As [`decode`].
    pub fn decode(self, segment: Segment, limits: &Limits, channels: &mut Vec<Vec<f32>>) -> Result<()> {
        self.decode_to(segment, limits, false, channels)
    }

    /// Decodes a segment into one channel, the mean of all. Of MP3 it is taken before samples are made: it differs by rounding from that
    /// of the channels of [`Opened::decode`], and takes less time.
    ///
    /// # Errors
    ///
    /// As [`decode`].
    pub fn decode_mean(self, segment: Segment, limits: &Limits, channels: &mut Vec<Vec<f32>>) -> Result<()> {
        self.decode_to(segment, limits, true, channels)
    }

    fn decode_to(
        self,
        segment: Segment,
        limits: &Limits,
        is_mean: bool,
        channels: &mut Vec<Vec<f32>>,
    ) -> Result<()> {
        let Self { bytes, head, content } = self;
        channels.resize_with(head.channels as usize, Vec::new);
        channels.iter_mut().for_each(Vec::clear);
        match content {
            Content::Plain(wav) => {
                let whole = head.frames.unwrap_or(0);
                let begin = segment.offset.min(whole);
                let end = segment.frames.map_or(whole, |frames| begin.saturating_add(frames).min(whole));
                limits.check_samples(end - begin, head.channels)?;
                channels.iter_mut().for_each(|channel| channel.reserve_exact((end - begin) as usize));
                wav.decode(begin as usize..end as usize, channels);
            }
            Content::Packets(packets) => {
                guarded(|| decode_segment(bytes, &head, packets, segment, limits, is_mean, channels))?;
            }
        }
        if is_mean {
            to_mean(channels);
        }
        Ok(())
    }
}

/// Bytes for which the library's own assumptions fail are damaged ones. What was made until then is dropped with the panic.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Corrupt, "the decoder panicked at these bytes")))
}

fn decode_segment<'b>(
    bytes: &'b [u8],
    head: &Head,
    mut packets: Packets<'b>,
    segment: Segment,
    limits: &Limits,
    is_mean: bool,
    channels: &mut Vec<Vec<f32>>,
) -> Result<()> {
    let expected = expected(head, segment);
    // What a head says is checked before there is memory for it; what decodes, as it comes.
    if let Some(frames) = expected {
        limits.check_samples(frames, head.channels)?;
    }
    // A frame of a format with an exact length has at least a byte; MP3 makes 1,152 of 24 bytes at most. Others grow.
    let each = if head.codec == "mp3" { 48 } else { 1 };
    let room = expected.unwrap_or(0).min((bytes.len() as u64).saturating_mul(each)) as usize;
    let is_mp3 = head.container == "mp3" && head.codec == "mp3";
    if is_mean && is_mp3 {
        channels.truncate(1);
    }
    channels.iter_mut().for_each(|channel| channel.reserve(room));
    if is_mp3 {
        if packets.decode_mp3(bytes, head, segment, limits, channels) {
            return Ok(());
        }
        channels.iter_mut().for_each(Vec::clear);
        channels.resize_with(head.channels as usize, Vec::new);
        (_, packets) = Packets::open(bytes, limits)?;
    }
    by_library(bytes, head, packets, segment, limits, channels)
}

/// Frames of a segment, as far as is known before it is decoded.
fn expected(head: &Head, segment: Segment) -> Option<u64> {
    let whole = head.frames.map(|frames| frames.saturating_sub(segment.offset));
    match (segment.frames, whole) {
        (Some(wanted), Some(left)) => Some(wanted.min(left)),
        (wanted, left) => wanted.or(left),
    }
}

/// Decodes a segment with the library's decoder.
fn by_library<'b>(
    bytes: &'b [u8],
    head: &Head,
    mut packets: Packets<'b>,
    segment: Segment,
    limits: &Limits,
    channels: &mut Vec<Vec<f32>>,
) -> Result<()> {
    // Where a sound cannot seek, or not there, it is decoded from its start.
    let warm_up = warm_up(head);
    // Segments that begin early are decoded from the start, which is no slower.
    let far = segment.offset.checked_sub(warm_up).filter(|before| *before >= warm_up);
    let begin = far.map_or(Some(0), |before| packets.seek(head, before));
    let begin = match begin {
        Some(begin) => begin,
        None => {
            (_, packets) = Packets::open(bytes, limits)?;
            0
        }
    };
    let offset = segment.offset.saturating_add(packets.before);
    let mut reading = Reading {
        at: begin,
        begin: offset,
        end: segment.frames.map_or(u64::MAX, |frames| offset.saturating_add(frames)),
        channels,
    };
    packets.read(head, &mut reading, limits)?;
    let found = reading.channels.first().map_or(0, Vec::len) as u64;
    // Of what has no length of its own nothing can be missing.
    if let Some(said) = head.frames
        && packets.is_exact
        && found < said.saturating_sub(segment.offset).min(segment.frames.unwrap_or(u64::MAX))
    {
        let text = format!(
            "the sound ends after {} frames; its head says {said}",
            segment.offset.saturating_add(found)
        );
        return Err(Error::new(ErrorKind::Truncated, text));
    }
    Ok(())
}

/// What has been decoded so far. Frames are counted from the first that is decoded.
#[derive(Debug)]
struct Reading<'c> {
    /// The frame that comes next.
    at: u64,
    /// Frames that are wanted.
    begin: u64,
    end: u64,
    channels: &'c mut Vec<Vec<f32>>,
}

/// A file with its decoder, at its first packet.
struct Packets<'b> {
    format: Box<dyn FormatReader + 'b>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    /// Timestamp of the first frame that is decoded.
    start: i64,
    /// Frames that are decoded before the first that is heard: what the decoder needs, and what it does not take away itself.
    before: u64,
    /// Whether timestamps count frames.
    by_frames: bool,
    /// Whether the head's number of frames is what there must be.
    is_exact: bool,
}

impl<'b> Packets<'b> {
    fn open(bytes: &'b [u8], limits: &Limits) -> Result<(Head, Self)> {
        let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes)), Default::default());
        let format = symphonia::default::get_probe()
            .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
            .map_err(|error| Error::of(&error, "looking for a format"))?;
        let track = format
            .first_track_known_codec(TrackType::Audio)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "no track of a codec that is known"))?;
        let parameters = parameters(track)?;
        // Before the decoder: it has room for a packet of each channel.
        let channels = parameters.channels.as_ref().map(|all| u32::try_from(all.count()).unwrap_or(u32::MAX));
        channels.map_or(Ok(()), |channels| limits.check_channels(channels))?;
        let decoder = codecs()
            .make_audio_decoder(parameters, &AudioDecoderOptions::default())
            .map_err(|error| Error::of(&error, "making its decoder"))?;
        let info = decoder.codec_info();
        let (Some(sample_rate), Some(channels)) = (parameters.sample_rate, channels) else {
            let text = format!("the head of a sound in {} has no rate or no channels", info.short_name);
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        if sample_rate == 0 {
            return Err(Error::new(ErrorKind::Corrupt, "a sound of 0 Hz"));
        }
        // A container may say where the sound ends in the last packet of AAC; ffmpeg gives all of it.
        let decoded = match (info.short_name, track.num_frames) {
            ("aac", Some(frames)) => Some(frames.div_ceil(AAC_PACKET).saturating_mul(AAC_PACKET)),
            // Without a table the library takes all frames to be as long as the first ones.
            ("mp3", told) => match mp3::length(bytes) {
                mp3::Length::Told => told,
                mp3::Length::Counted(frames) => Some(frames),
                mp3::Length::Unknown => None,
            },
            (_, told) => told,
        };
        let container = format.format_info().short_name;
        let before = match container {
            "isomp4" => edit_list::frames_before(bytes, sample_rate),
            _ => opus::pre_skip(parameters),
        }
        .unwrap_or(0);
        let head = Head {
            container,
            codec: info.short_name,
            sample_rate,
            channels,
            frames: decoded.map(|frames| frames.saturating_sub(before)),
            bits_per_sample: parameters.bits_per_sample.or(parameters.sample_format.and_then(bits)),
        };
        let by_frames =
            track.time_base.is_some_and(|base| base.numer.get() == 1 && base.denom.get() == sample_rate);
        let is_exact = head.codec.starts_with("pcm") || head.codec == "flac";
        let (track, start) = (track.id, track.start_ts.get().max(0));
        Ok((head, Self { format, decoder, track, start, before, by_frames, is_exact }))
    }

    /// Decodes a segment without the library, which has read the head and gives the first frame: whether that was done.
    fn decode_mp3(
        &mut self,
        bytes: &[u8],
        head: &Head,
        segment: Segment,
        limits: &Limits,
        channels: &mut [Vec<f32>],
    ) -> bool {
        let Ok(Some(packet)) = self.format.next_packet() else { return false };
        let start = mp3::Start { frame: &packet.data, at: packet.pts.get(), frames: head.frames };
        mp3::decode(bytes, start, segment, limits, channels)
    }

    /// Goes to a frame of those that are decoded, or before it: the one that comes next. `None` if that cannot be told.
    fn seek(&mut self, head: &Head, frame: u64) -> Option<u64> {
        // Of Vorbis, what the library says it went to is off by part of a block: segments were of other samples. AAC leaves noise to
        // the decoder (PNS), which draws it from the start on.
        if !self.by_frames || ["vorbis", "aac"].contains(&head.codec) {
            return None;
        }
        let ts = Timestamp::new(self.start.checked_add(i64::try_from(frame).ok()?)?);
        let to = SeekTo::Timestamp { ts, track_id: self.track };
        let seeked = self.format.seek(SeekMode::Accurate, to).ok()?;
        self.decoder.reset();
        let at = seeked.actual_ts.get().checked_sub(self.start)?;
        u64::try_from(at).ok().filter(|at| *at <= frame)
    }

    /// Decodes until all that is wanted is there, or the sound ends.
    fn read(&mut self, head: &Head, reading: &mut Reading<'_>, limits: &Limits) -> Result<()> {
        while reading.at < reading.end {
            let packet = self.format.next_packet();
            let Some(packet) = packet.map_err(|error| failed(head, &error, reading.at))? else { break };
            if packet.track_id == self.track {
                self.take(head, &packet, reading, limits)?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        head: &Head,
        packet: &Packet,
        reading: &mut Reading<'_>,
        limits: &Limits,
    ) -> Result<()> {
        let (rate, channels) = (head.sample_rate, head.channels);
        let after = match head.codec {
            // What an encoder put before the sound lasts as well, and nothing of it is heard.
            "mp3" => {
                let end = packet.pts.get().saturating_add_unsigned(packet.dur.get());
                u64::try_from(end).unwrap_or(0).max(reading.at)
            }
            _ => reading.at.saturating_add(packet.dur.get()),
        };
        let sound = match self.decoder.decode(packet) {
            Ok(sound) => sound,
            // The first frames after a seek may refer to ones before it; what is wanted begins later.
            Err(Symphonia::DecodeError(_)) if after <= reading.begin => {
                reading.at = after;
                return Ok(());
            }
            Err(error) => return Err(failed(head, &error, reading.at)),
        };
        let spec = sound.spec();
        if spec.rate() != rate || spec.channels().count() != channels as usize {
            let text = format!(
                "from frame {} on the sound has {} channels at {} Hz, and its head says {channels} at {rate}",
                reading.at,
                spec.channels().count(),
                spec.rate(),
            );
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        let frames = sound.frames() as u64;
        let begin = reading.begin.saturating_sub(reading.at).min(frames);
        let end = reading.end.saturating_sub(reading.at).min(frames);
        reading.at += frames;
        if begin < end {
            let part = sound.slice(begin as usize..end as usize);
            let had = reading.channels[0].len();
            limits.check_samples(had as u64 + (end - begin), channels)?;
            for channel in reading.channels.iter_mut() {
                channel.resize(had + (end - begin) as usize, 0.0);
            }
            let mut places: Vec<&mut [f32]> =
                reading.channels.iter_mut().map(|channel| &mut channel[had..]).collect();
            part.copy_to_slice_planar(&mut places);
        }
        Ok(())
    }
}

fn failed(head: &Head, error: &Symphonia, at: u64) -> Error {
    Error::of(error, &format!("decoding {} at frame {at}", head.codec))
}

/// Symphonia's decoders, and that of Opus.
fn codecs() -> &'static CodecRegistry {
    static CODECS: LazyLock<CodecRegistry> = LazyLock::new(|| {
        let mut codecs = CodecRegistry::new();
        symphonia::default::register_enabled_codecs(&mut codecs);
        codecs.register_audio_decoder::<Opus>();
        codecs
    });
    &CODECS
}

/// Of a track that is known to be a sound.
fn parameters(track: &Track) -> Result<&AudioCodecParameters> {
    track
        .codec_params
        .as_ref()
        .and_then(|parameters| parameters.audio())
        .filter(|parameters| parameters.codec != CODEC_ID_NULL_AUDIO)
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, "a track without a codec"))
}

/// Bits of a sample.
fn bits(format: SampleFormat) -> Option<u32> {
    Some(match format {
        SampleFormat::U8 | SampleFormat::S8 => 8,
        SampleFormat::U16 | SampleFormat::S16 => 16,
        SampleFormat::U24 | SampleFormat::S24 => 24,
        SampleFormat::U32 | SampleFormat::S32 | SampleFormat::F32 => 32,
        SampleFormat::F64 => 64,
    })
}

/// What the library's decoder makes of a segment.
#[cfg(test)]
pub(crate) fn decode_by_library(bytes: &[u8], segment: Segment, limits: &Limits) -> Result<Waveform> {
    let (head, packets) = guarded(|| Packets::open(bytes, limits))?;
    if let Some(frames) = expected(&head, segment) {
        limits.check_samples(frames, head.channels)?;
    }
    let mut channels = vec![Vec::new(); head.channels as usize];
    guarded(|| by_library(bytes, &head, packets, segment, limits, &mut channels))?;
    Ok(Waveform { sample_rate: head.sample_rate, channels })
}

/// What the own decoder of MP3 makes of a segment, if it decodes the file.
#[cfg(test)]
pub(crate) fn decode_mp3(bytes: &[u8], segment: Segment, limits: &Limits) -> Option<Waveform> {
    let (head, mut packets) = guarded(|| Packets::open(bytes, limits)).ok()?;
    let mut channels = vec![Vec::new(); head.channels as usize];
    packets
        .decode_mp3(bytes, &head, segment, limits, &mut channels)
        .then_some(Waveform { sample_rate: head.sample_rate, channels })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a WAV file's samples are.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Kind {
        U8,
        S16,
        S24,
        S32,
        F32,
    }

    /// A WAV file of so many channels whose samples are 32-bit integers, as its kind can hold them; and what they are then.
    fn wav(kind: Kind, rate: u32, channels: u16, values: &[i32]) -> (Vec<u8>, Vec<f32>) {
        let (tag, bits) = match kind {
            Kind::U8 => (1u16, 8u16),
            Kind::S16 => (1, 16),
            Kind::S24 => (1, 24),
            Kind::S32 => (1, 32),
            Kind::F32 => (3, 32),
        };
        let (mut data, mut samples) = (Vec::new(), Vec::new());
        for value in values {
            let (bytes, sample): (Vec<u8>, f32) = match kind {
                Kind::U8 => (vec![((value >> 24) + 128) as u8], (value >> 24) as f32 / 128.0),
                Kind::S16 => (((value >> 16) as i16).to_le_bytes().to_vec(), (value >> 16) as f32 / 32_768.0),
                Kind::S24 => ((value >> 8).to_le_bytes()[..3].to_vec(), (value >> 8) as f32 / 8_388_608.0),
                Kind::S32 => (value.to_le_bytes().to_vec(), *value as f32 / 2_147_483_648.0),
                Kind::F32 => {
                    let sample = *value as f32 / 2_147_483_648.0;
                    (sample.to_le_bytes().to_vec(), sample)
                }
            };
            data.extend(bytes);
            samples.push(sample);
        }
        let block = channels * bits / 8;
        let mut file = b"RIFF".to_vec();
        file.extend((36 + data.len() as u32).to_le_bytes());
        file.extend(b"WAVEfmt \x10\0\0\0");
        file.extend([tag, channels].iter().flat_map(|number| number.to_le_bytes()));
        file.extend([rate, rate * u32::from(block)].iter().flat_map(|number| number.to_le_bytes()));
        file.extend([block, bits].iter().flat_map(|number| number.to_le_bytes()));
        file.extend(b"data");
        file.extend((data.len() as u32).to_le_bytes());
        file.extend(data);
        (file, samples)
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![Kind::U8, Kind::S16, Kind::S24, Kind::S32, Kind::F32])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_segment_has_the_files_own_samples(
            kind in kinds(),
            (channels, frames) in (1u16..4, 1usize..60_000),
            (offset, wanted) in (0u64..70_000, prop::option::of(0u64..70_000)),
            seed in any::<u32>(),
        ) {
            let values: Vec<i32> = (0..frames as u32 * u32::from(channels))
                .map(|i| i.wrapping_add(seed).wrapping_mul(2_654_435_761) as i32)
                .collect();
            let (file, samples) = wav(kind, 16_000, channels, &values);
            let head = Head::parse(&file, &Limits::default()).unwrap();
            prop_assert_eq!((head.sample_rate, head.channels), (16_000, u32::from(channels)));
            prop_assert_eq!(head.frames, Some(frames as u64));
            // What is read of plain files without the library is what that says of them.
            let (by_library, _) = Packets::open(&file, &Limits::default()).unwrap();
            prop_assert_eq!(by_library, head);
            let sound = decode(&file, Segment { offset, frames: wanted }, &Limits::default()).unwrap();
            let begin = frames.min(offset as usize);
            let end = wanted.map_or(frames, |wanted| frames.min(begin + wanted as usize));
            prop_assert_eq!(sound.channels.len(), usize::from(channels));
            for (channel, found) in sound.channels.iter().enumerate() {
                let wanted = samples[begin * usize::from(channels)..end * usize::from(channels)]
                    .iter()
                    .skip(channel)
                    .step_by(usize::from(channels));
                prop_assert!(found.iter().eq(wanted), "channel {} of {:?}", channel, kind);
            }
        }

        #[test]
        fn damaged_files_are_errors_and_no_more(
            kind in kinds(),
            changes in prop::collection::vec((0usize..3_000, any::<u8>()), 0..8),
            cut in prop::option::of(0usize..3_000),
        ) {
            let (mut file, _) = wav(kind, 8_000, 2, &[0x1234_5678; 700]);
            for (at, byte) in changes {
                if let Some(place) = file.get_mut(at) {
                    *place = byte;
                }
            }
            file.truncate(cut.unwrap_or(usize::MAX));
            let limits = Limits { max_samples: 1 << 20, ..Limits::default() };
            if let Ok(sound) = decode(&file, Segment::default(), &limits) {
                prop_assert!(sound.frames() * sound.channels.len() <= 1 << 20);
            }
        }
    }

    #[test]
    fn a_cut_file_is_told_to_be_cut() {
        let (file, _) = wav(Kind::S16, 8_000, 1, &[1 << 20; 5_000]);
        let error = decode(&file[..6_000], Segment::default(), &Limits::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
        // What is wanted may be there all the same.
        let segment = Segment { offset: 100, frames: Some(200) };
        assert_eq!(decode(&file[..6_000], segment, &Limits::default()).unwrap().frames(), 200);
    }

    #[test]
    fn limits_hold_before_there_is_memory() {
        let (file, _) = wav(Kind::S16, 8_000, 2, &[0; 4_000]);
        let limits = Limits { max_samples: 3_999, ..Limits::default() };
        let error = decode(&file, Segment::default(), &limits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        assert!(error.message().contains("2000 frames of 2 channels; the limit is 3999 samples"), "{error}");
        assert!(decode(&file, Segment { offset: 1, frames: None }, &limits).is_ok());
        let error = Head::parse(&file, &Limits { max_channels: 1, ..Limits::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    }

    #[test]
    fn what_is_no_sound_is_said_to_be_none() {
        for bytes in [&b""[..], b"RIFF", &[0; 4_096], b"<html><body>404 Not Found</body></html>"] {
            assert!(Head::parse(bytes, &Limits::default()).is_err());
        }
    }

    #[test]
    fn channels_become_one_by_their_mean() {
        let sound = Waveform { sample_rate: 8_000, channels: vec![vec![1.0, 0.0], vec![0.0, 0.5]] };
        assert_eq!(sound.mono().channels, [[0.5, 0.25]]);
    }
}
