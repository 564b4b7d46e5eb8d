//! Sound for training: from the bytes of an audio file to samples, resampled, and to spectrograms with torchaudio's values.
//!
//! ```
//! use wellfed_audio::{Resample, ResampleOptions};
//!
//! let to_16k = Resample::new(8_000, 16_000, ResampleOptions::default())?;
//! let (mut padded, mut samples) = (Vec::new(), Vec::new());
//! to_16k.apply(&[0.0; 800], &mut padded, &mut samples);
//! assert_eq!(samples.len(), 1_600);
//! # Ok::<(), wellfed_audio::Error>(())
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `decode`, `wav`, `mp3` | heads and segments of files, by symphonia; plain WAV and the samples of plain MP3 files without it |
//! | `opus`, `edit_list` | what symphonia lacks: a decoder of Opus, and where the sound of an M4A file begins |
//! | `resample` | other sample rates |
//! | `lanes`, `tile`, `fft`, `logarithm` | what kernels are made of: several frames side by side |
//! | `window`, `spectrogram` | short-time Fourier transforms |
//! | `filter_bank`, `mel`, `decibels`, `cosine` | what makes mel spectrograms and cepstral coefficients of them |
//! | `masking` | SpecAugment |
//! | `effects`, `convolution` | what is done to samples before a spectrum |
//! | `vad` | where speech begins |
//! | `vocoder` | other speeds at the same pitch, and other pitches at the same speed |
//! | `kaldi`, `whisper` | what Kaldi's recipes and Whisper's models take |
//! | `limits`, `error` | what a file may ask for, and what can be wrong with it |

mod convolution;
mod cosine;
mod decibels;
mod decode;
mod edit_list;
pub mod effects;
mod error;
mod fft;
mod filter_bank;
mod kaldi;
mod lanes;
mod limits;
mod logarithm;
mod masking;
mod mel;
mod mp3;
mod opus;
mod resample;
mod spectrogram;
mod tile;
mod vad;
mod vocoder;
mod wav;
pub mod whisper;
mod window;

pub use convolution::{ConvolveMode, Response, convolve, fft_convolve};
pub use cosine::Cosine;
pub use decibels::{AmplitudeToDb, Scale};
pub use decode::{Head, Opened, Segment, Waveform, decode};
pub use error::{Error, ErrorKind, Result};
pub use filter_bank::{FilterBank, MelScale};
pub use kaldi::{KaldiFbank, KaldiMfcc, KaldiOptions, Vtln};
pub use limits::Limits;
pub use masking::{SpecAugment, mask_range, mask_rows, mask_within_rows};
pub use mel::MelSpectrogram;
pub use mp3::{Mp3Frames, Mp3Part};
pub use resample::{KAISER_BETA, Resample, ResampleOptions, ResamplingMethod};
pub use spectrogram::{Normalized, PadMode, Scratch, Spectrogram, SpectrogramOptions};
pub use vad::{Vad, VadOptions};
pub use vocoder::{PitchShift, TimeStretch};
pub use window::Window;
