//! Times of kernels alone, on one thread: `cargo run --release -p wellfed-audio --example speed [FILE…]`.
//!
//! Of each the least of many runs, in milliseconds: 30 seconds of noise at 16 kHz, and files that are decoded whole.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{hint::black_box, time::Instant};

use wellfed_audio::{
    AmplitudeToDb, FilterBank, Limits, MelScale, MelSpectrogram, Resample, ResampleOptions, Scratch, Segment,
    Spectrogram, SpectrogramOptions, decode, whisper::WhisperLogMel,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let noise: Vec<f32> =
        (0..480_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e8 - 0.08).collect();
    let (mut scratch, mut work, mut out) = (Scratch::default(), Vec::new(), Vec::new());
    for (n_fft, hop) in [(400, 200), (400, 160), (512, 160), (1024, 160)] {
        let options = SpectrogramOptions { n_fft, hop_length: Some(hop), ..SpectrogramOptions::default() };
        let spectrogram = Spectrogram::new(options)?;
        let bank = FilterBank::mel(n_fft / 2 + 1, 0.0, 8_000.0, 80, 16_000, false, MelScale::Htk)?;
        if hop == 160 {
            least(&format!("Spectrogram {n_fft} {hop}"), || {
                spectrogram.apply(&noise, &mut scratch, &mut out)
            })?;
        }
        let mel = MelSpectrogram::new(spectrogram, bank)?;
        least(&format!("MelSpectrogram(80) {n_fft} {hop}"), || mel.apply(&noise, &mut scratch, &mut out))?;
    }
    let whisper = WhisperLogMel::new(80)?;
    least("Whisper log-mel", || whisper.apply(&noise, &mut scratch, &mut out))?;
    let mut values = vec![0.5; 240_000];
    least("decibels of 240,000", || {
        values.fill(0.5);
        AmplitudeToDb::default().apply(&mut values);
        Ok(())
    })?;
    for (from, to) in [(8_000, 16_000), (16_000, 8_000), (44_100, 16_000), (48_000, 16_000)] {
        let resample = Resample::new(from, to, ResampleOptions::default())?;
        least(&format!("Resample {from} to {to}"), || {
            out.clear();
            resample.apply(&noise, &mut work, &mut out);
            Ok(())
        })?;
    }
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let whole = decode(&bytes, Segment::default(), &Limits::default())?;
        let seconds = whole.frames() as f64 / f64::from(whole.sample_rate);
        least(&format!("decode {path}, {seconds:.1} s"), || {
            decode(&bytes, Segment::default(), &Limits::default()).map(|whole| drop(black_box(whole)))
        })?;
    }
    Ok(())
}

fn least(name: &str, mut work: impl FnMut() -> wellfed_audio::Result<()>) -> wellfed_audio::Result<()> {
    let mut least = f64::MAX;
    let begin = Instant::now();
    for run in 0..1_000 {
        let since = Instant::now();
        work()?;
        least = least.min(since.elapsed().as_secs_f64());
        if run >= 5 && begin.elapsed().as_secs_f64() > 0.4 {
            break;
        }
    }
    println!("{name:32} {:8.3} ms", least * 1e3);
    Ok(())
}
