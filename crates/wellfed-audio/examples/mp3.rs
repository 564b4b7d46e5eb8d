//! Time of decoding MP3 files whole, here and by symphonia's decoder, on one thread: `cargo run --release -p wellfed-audio --example mp3 FILE…`.
//!
//! Of each the least of several runs in turns, in milliseconds, and the largest difference of samples.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{error::Error, hint::black_box, io::Cursor, time::Instant};

use symphonia::core::{
    codecs::audio::AudioDecoderOptions, formats::FormatOptions, formats::TrackType, formats::probe::Hint,
    io::MediaSourceStream, meta::MetadataOptions,
};
use wellfed_audio::{Limits, Segment, decode};

const RUNS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let (mut here, mut library, mut worst) = (f64::MAX, f64::MAX, 0.0f32);
        for _ in 0..RUNS {
            let since = Instant::now();
            let sound = black_box(decode(&bytes, Segment::default(), &Limits::default())?);
            here = here.min(since.elapsed().as_secs_f64());
            let since = Instant::now();
            let channels = black_box(by_symphonia(&bytes)?);
            library = library.min(since.elapsed().as_secs_f64());
            for (one, other) in sound.channels.iter().zip(&channels) {
                worst =
                    one.iter().zip(other).fold(worst, |worst, (one, other)| worst.max((one - other).abs()));
            }
        }
        println!("wellfed {:.3} ms, symphonia {:.3} ms, off by {worst:e} at most", here * 1e3, library * 1e3);
    }
    Ok(())
}

/// Samples of each channel.
fn by_symphonia(bytes: &[u8]) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes.to_vec())), Default::default());
    let mut format = symphonia::default::get_probe().probe(
        &Hint::new(),
        stream,
        FormatOptions::default(),
        MetadataOptions::default(),
    )?;
    let track = format.first_track_known_codec(TrackType::Audio).ok_or("no track")?;
    let parameters =
        track.codec_params.as_ref().and_then(|parameters| parameters.audio()).ok_or("no sound")?;
    let mut decoder =
        symphonia::default::get_codecs().make_audio_decoder(parameters, &AudioDecoderOptions::default())?;
    let frames = track.num_frames.unwrap_or(0) as usize;
    let mut channels = Vec::new();
    while let Some(packet) = format.next_packet()? {
        let sound = decoder.decode(&packet)?;
        channels.resize_with(sound.spec().channels().count(), || Vec::with_capacity(frames));
        let had = channels.first().map_or(0, Vec::len);
        channels.iter_mut().for_each(|channel| channel.resize(had + sound.frames(), 0.0));
        let mut places: Vec<&mut [f32]> = channels.iter_mut().map(|channel| &mut channel[had..]).collect();
        sound.copy_to_slice_planar(&mut places);
    }
    Ok(channels)
}
