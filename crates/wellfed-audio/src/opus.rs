//! Opus in Ogg and Matroska, which symphonia has no decoder of: libopus 1.3.1 as Rust, by `unsafe-libopus`.
//!
//! Its values are those of libopus in floating point. What comes out has always 48 kHz (RFC 7845, section 4.2), as ffmpeg and
//! torchcodec have it; the rate that the encoder was given is only a note in the head.

use std::ptr::NonNull;

use symphonia::core::{
    audio::{AsGenericAudioBufferRef, AudioBuffer, AudioMut, AudioSpec, GenericAudioBufferRef},
    codecs::{
        CodecInfo,
        audio::{
            AudioCodecParameters, AudioDecoder, AudioDecoderOptions, FinalizeResult,
            well_known::CODEC_ID_OPUS,
        },
        registry::{RegisterableAudioDecoder, SupportedAudioCodec},
    },
    errors::{Result, decode_error, unsupported_error},
    packet::PacketRef,
};
use unsafe_libopus::{OpusDecoder, opus_decode_float, opus_decoder_create, opus_decoder_destroy};

/// Frames a second that are decoded to, Hz.
const RATE: u32 = 48_000;
/// Frames of the longest packet: 120 ms (RFC 6716, section 3.2.5).
const LONGEST: usize = 5_760;
/// Bytes of an identification header without a table of channels (RFC 7845, section 5.1).
const HEADER: usize = 19;

/// Frames from which on a decoder that began anew gives what one from the start gives. RFC 7845 asks for 80 ms; measured of speech
/// and tones in all modes, the last difference from 0 is after 0.6 s.
pub(crate) const WARM_UP: u64 = 2 * RATE as u64;

/// Frames at the start that an identification header says are not to be heard: its pre-skip.
pub(crate) fn pre_skip(parameters: &AudioCodecParameters) -> Option<u64> {
    let header = parameters.extra_data.as_deref().filter(|_| parameters.codec == CODEC_ID_OPUS)?;
    Some(u64::from(u16::from_le_bytes([*header.get(10)?, *header.get(11)?])))
}

/// A decoder of one or two channels.
pub(crate) struct Opus {
    decoder: NonNull<OpusDecoder>,
    parameters: AudioCodecParameters,
    channels: usize,
    /// By the header's output gain.
    gain: f32,
    interleaved: Vec<f32>,
    buffer: AudioBuffer<f32>,
}

// SAFETY: the decoder is memory of its own that nothing else refers to, and holds no more than plain values.
unsafe impl Send for Opus {}
// SAFETY: what takes `&Opus` does not touch the decoder.
unsafe impl Sync for Opus {}

fn create(channels: usize) -> Result<NonNull<OpusDecoder>> {
    let mut error = 0;
    // SAFETY: `error` is a place to write to; rate and channels are ones that the function takes.
    let decoder = unsafe { opus_decoder_create(RATE as i32, channels as i32, &raw mut error) };
    match NonNull::new(decoder) {
        Some(decoder) if error == 0 => Ok(decoder),
        _ => decode_error("opus: no decoder could be made"),
    }
}

impl Opus {
    fn new(parameters: &AudioCodecParameters) -> Result<Self> {
        let header = parameters.extra_data.as_deref().filter(|header| header.len() >= HEADER);
        let Some(header) = header else {
            return unsupported_error("opus: no identification header");
        };
        let channels = usize::from(header[9]);
        if header[18] != 0 || !(1..=2).contains(&channels) {
            return unsupported_error("opus: more than two channels (a mapping family other than 0)");
        }
        let Some(layout) = parameters.channels.clone().filter(|all| all.count() == channels) else {
            return decode_error("opus: the header's channels are not the container's");
        };
        // In 256ths of a decibel (RFC 7845, section 5.1).
        let decibels = f32::from(i16::from_le_bytes([header[16], header[17]])) / 256.0;
        Ok(Self {
            decoder: create(channels)?,
            parameters: parameters.clone(),
            channels,
            gain: 10f32.powf(decibels / 20.0),
            interleaved: vec![0.0; LONGEST * channels],
            buffer: AudioBuffer::new(AudioSpec::new(RATE, layout), LONGEST),
        })
    }

    fn decode_packet(&mut self, packet: &PacketRef<'_>) -> Result<()> {
        let Ok(len) = i32::try_from(packet.data.len()) else {
            return decode_error("opus: a packet is too long");
        };
        if len == 0 {
            return decode_error("opus: a packet without bytes");
        }
        // SAFETY: the decoder is ours alone; `data` has `len` bytes, and `interleaved` room for `LONGEST` frames of all channels,
        // which is what the function is told that it may write.
        let frames = unsafe {
            opus_decode_float(
                self.decoder.as_mut(),
                packet.data.as_ptr(),
                len,
                self.interleaved.as_mut_ptr(),
                LONGEST as i32,
                0,
            )
        };
        let Some(frames) = usize::try_from(frames).ok().filter(|frames| *frames <= LONGEST) else {
            return decode_error("opus: a damaged packet");
        };
        self.buffer.clear();
        self.buffer.render_uninit(Some(frames));
        for channel in 0..self.channels {
            let plane = self.buffer.plane_mut(channel).unwrap_or_default();
            let samples = self.interleaved.iter().skip(channel).step_by(self.channels);
            plane.iter_mut().zip(samples).for_each(|(place, sample)| *place = sample * self.gain);
        }
        self.buffer.trim(packet.trim_start.get() as usize, packet.trim_end.get() as usize);
        Ok(())
    }
}

impl Drop for Opus {
    fn drop(&mut self) {
        // SAFETY: `create` made it, and nobody has it after this.
        unsafe { opus_decoder_destroy(self.decoder.as_ptr()) }
    }
}

impl AudioDecoder for Opus {
    fn reset(&mut self) {
        // Should there be no memory for another, the next packets are decoded after a state that is not theirs, as after a seek
        // without a reset.
        if let Ok(fresh) = create(self.channels) {
            let old = std::mem::replace(&mut self.decoder, fresh);
            // SAFETY: `create` made it, and nobody has it any more.
            unsafe { opus_decoder_destroy(old.as_ptr()) }
        }
    }

    fn codec_info(&self) -> &CodecInfo {
        &Self::supported_codecs()[0].info
    }

    fn codec_params(&self) -> &AudioCodecParameters {
        &self.parameters
    }

    fn decode_ref(&mut self, packet: &PacketRef<'_>) -> Result<GenericAudioBufferRef<'_>> {
        match self.decode_packet(packet) {
            Ok(()) => Ok(self.buffer.as_generic_audio_buffer_ref()),
            Err(error) => {
                self.buffer.clear();
                Err(error)
            }
        }
    }

    fn finalize(&mut self) -> FinalizeResult {
        FinalizeResult::default()
    }

    fn last_decoded(&self) -> GenericAudioBufferRef<'_> {
        self.buffer.as_generic_audio_buffer_ref()
    }
}

impl RegisterableAudioDecoder for Opus {
    fn try_registry_new(
        parameters: &AudioCodecParameters,
        _: &AudioDecoderOptions,
    ) -> Result<Box<dyn AudioDecoder>> {
        Ok(Box::new(Self::new(parameters)?))
    }

    fn supported_codecs() -> &'static [SupportedAudioCodec] {
        &[SupportedAudioCodec {
            id: CODEC_ID_OPUS,
            info: CodecInfo { short_name: "opus", long_name: "Opus", profiles: &[] },
        }]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use symphonia::core::{
        audio::{Channels, Position},
        packet::Packet,
        units::{Duration, Timestamp},
    };

    use super::*;

    fn parameters(header: &[u8]) -> AudioCodecParameters {
        let mut parameters = AudioCodecParameters::new();
        let all = if header.get(9) == Some(&2) {
            Position::FRONT_LEFT | Position::FRONT_RIGHT
        } else {
            Position::FRONT_LEFT
        };
        parameters
            .for_codec(CODEC_ID_OPUS)
            .with_channels(Channels::Positioned(all))
            .with_extra_data(header.into());
        parameters
    }

    fn header(channels: u8, gain: i16, family: u8) -> Vec<u8> {
        let mut header = b"OpusHead\x01".to_vec();
        header.push(channels);
        header.extend(312u16.to_le_bytes());
        header.extend(48_000u32.to_le_bytes());
        header.extend(gain.to_le_bytes());
        header.push(family);
        header
    }

    #[test]
    fn headers_say_what_is_decoded() {
        assert_eq!(pre_skip(&parameters(&header(1, 0, 0))), Some(312));
        assert_eq!(pre_skip(&parameters(b"OpusHead")), None);
        assert!(Opus::new(&parameters(&header(2, 0, 0))).is_ok());
        assert!(Opus::new(&parameters(&header(6, 0, 1))).is_err());
        assert!(Opus::new(&parameters(&header(1, 0, 0)[..18])).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_an_error(
            channels in 1u8..3,
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..12),
        ) {
            let mut opus = Opus::new(&parameters(&header(channels, 0, 0))).unwrap();
            let mut loud = Opus::new(&parameters(&header(channels, 6 * 256, 0))).unwrap();
            for data in packets {
                let packet = Packet::new(0, Timestamp::new(0), Duration::ZERO, data);
                let Ok(sound) = opus.decode(&packet) else { continue };
                prop_assert!(sound.frames() <= LONGEST);
                let mut samples = vec![0.0f32; sound.frames() * usize::from(channels)];
                sound.copy_to_slice_interleaved(&mut samples[..]);
                prop_assert!(samples.iter().all(|sample| sample.is_finite()));
                let mut louder = vec![0.0f32; samples.len()];
                loud.decode(&packet).unwrap().copy_to_slice_interleaved(&mut louder[..]);
                for (sample, louder) in samples.iter().zip(louder) {
                    prop_assert!((sample * 1.995_262_3 - louder).abs() <= 1e-6 * louder.abs());
                }
            }
        }
    }
}
