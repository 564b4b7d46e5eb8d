//! This crate's transforms by torchaudio's names and parameters.

use std::{error::Error, fs};

use wellfed_audio::{
    AmplitudeToDb, ConvolveMode, Cosine, FilterBank, KAISER_BETA, KaldiFbank, KaldiMfcc, KaldiOptions,
    Limits, MelScale, MelSpectrogram, Normalized, PadMode, PitchShift, Resample, ResampleOptions,
    ResamplingMethod, Response, Scale, Scratch, Segment, SpecAugment, Spectrogram, SpectrogramOptions,
    TimeStretch, Vad, VadOptions, Vtln, Window, convolve, decode,
    effects::{self, FadeShape, Gain},
    fft_convolve,
    whisper::WhisperLogMel,
};

use crate::request::Request;

type Answer<T> = Result<T, Box<dyn Error>>;

/// What is done with two signals.
pub(crate) type Work = Box<dyn FnMut([&[f32]; 2]) -> Answer<Vec<f32>>>;

pub(crate) fn work(name: &str, request: &Request) -> Answer<Work> {
    Ok(match name {
        "spectrogram" => spectrogram(request)?,
        "mel" => mel(request)?,
        "mel_by_filters" => mel_by_filters(request)?,
        "mfcc" => coefficients(request, bank(request)?)?,
        "lfcc" => coefficients(request, linear_bank(request)?)?,
        "decibels" => decibels(request)?,
        "whisper" => whisper(request)?,
        "resample" => resample(request)?,
        "fbank" => fbank(request)?,
        "kaldi_mfcc" => kaldi_mfcc(request)?,
        "vol" => vol(request)?,
        "fade" => fade(request)?,
        "add_noise" => {
            let snr = request.or("snr", 10.0)?;
            Box::new(move |[samples, noise]| {
                let mut samples = samples.to_vec();
                effects::add_noise(&mut samples, noise, snr)?;
                Ok(samples)
            })
        }
        "mu_law_encode" => {
            let channels = request.or("channels", 256)?;
            Box::new(move |[samples, _]| {
                Ok(effects::mu_law_encode(samples, channels).map(|number| number as f32).collect())
            })
        }
        "mu_law_decode" => {
            let channels = request.or("channels", 256)?;
            Box::new(move |[numbers, _]| {
                let numbers: Vec<i64> = numbers.iter().map(|number| *number as i64).collect();
                Ok(effects::mu_law_decode(&numbers, channels).collect())
            })
        }
        "speed" => {
            let speed = Resample::speed(request.or("orig_freq", 16_000)?, request.or("factor", 1.0)?)?;
            Box::new(move |[samples, _]| {
                let mut out = Vec::new();
                speed.apply(samples, &mut Vec::new(), &mut out);
                Ok(out)
            })
        }
        "convolve" | "fft_convolve" => {
            let mode = mode(request)?;
            let convolve = if name == "convolve" { convolve } else { fft_convolve };
            Box::new(move |[x, y]| Ok(convolve(x, y, mode)?))
        }
        "response" => {
            let mode = mode(request)?;
            Box::new(move |[x, y]| Ok(Response::new(y)?.apply(x, mode)?))
        }
        "mel_scale" => mel_scale(request)?,
        "spec_augment" => spec_augment(request)?,
        "vad" => vad(request)?,
        "time_stretch" => {
            let (stretch, rate) = (stretch(request)?, request.or("rate", 1.0)?);
            Box::new(move |[samples, _]| Ok(stretch.apply(samples, rate)?))
        }
        "pitch_shift" => {
            let (rate, steps) = (request.or("sample_rate", 16_000)?, request.or("n_steps", 0.0)?);
            let octave = request.or("bins_per_octave", 12)?;
            let shift = PitchShift::new(rate, steps, octave, stretch(request)?)?;
            Box::new(move |[samples, _]| Ok(shift.apply(samples, &mut Vec::new())?))
        }
        "decode" => decoding(request)?,
        other => return Err(format!("no transform is called {other:?}").into()),
    })
}

fn mode(request: &Request) -> Answer<ConvolveMode> {
    Ok(match &*request.or("mode", "full".to_owned())? {
        "valid" => ConvolveMode::Valid,
        "same" => ConvolveMode::Same,
        _ => ConvolveMode::Full,
    })
}

fn window(name: &str) -> Answer<Window> {
    Ok(match name {
        "hann" | "hanning" => Window::Hann,
        "hamming" => Window::Hamming,
        "blackman" => Window::Blackman,
        "bartlett" => Window::Bartlett,
        "rectangular" => Window::Rectangular,
        "povey" => Window::Povey,
        other => return Err(format!("no window is called {other:?}").into()),
    })
}

fn spectrogram_options(request: &Request) -> Answer<SpectrogramOptions> {
    let default = SpectrogramOptions::default();
    Ok(SpectrogramOptions {
        n_fft: request.or("n_fft", default.n_fft)?,
        win_length: request.get("win_length")?,
        hop_length: request.get("hop_length")?,
        pad: request.or("pad", default.pad)?,
        window: window(&request.or("window", "hann".to_owned())?)?,
        power: request.or("power", default.power)?,
        normalized: match &*request.or("normalized", "no".to_owned())? {
            "window" | "true" => Normalized::Window,
            "frame_length" => Normalized::FrameLength,
            _ => Normalized::No,
        },
        center: request.or("center", true)?,
        pad_mode: match &*request.or("pad_mode", "reflect".to_owned())? {
            "constant" => PadMode::Constant,
            "replicate" => PadMode::Replicate,
            "circular" => PadMode::Circular,
            _ => PadMode::Reflect,
        },
        onesided: request.or("onesided", true)?,
    })
}

fn spectrogram(request: &Request) -> Answer<Work> {
    let spectrogram = Spectrogram::new(spectrogram_options(request)?)?;
    let mut scratch = Scratch::default();
    Ok(Box::new(move |[samples, _]| {
        let mut out = Vec::with_capacity(spectrogram.frames(samples.len()) * spectrogram.bins());
        spectrogram.each(samples, &mut scratch, |_, powers| out.extend_from_slice(powers))?;
        Ok(out)
    }))
}

fn bank(request: &Request) -> Answer<FilterBank> {
    let rate: u32 = request.or("sample_rate", 16_000)?;
    let is_slaney_normed = request.or("norm", String::new())? == "slaney";
    let scale = match &*request.or("mel_scale", "htk".to_owned())? {
        "slaney" => MelScale::Slaney,
        _ => MelScale::Htk,
    };
    let bins = request.or("n_fft", 400)? / 2 + 1;
    let f_max = request.or("f_max", f64::from(rate / 2))?;
    let filters = request.or("n_mels", 128)?;
    Ok(FilterBank::mel(bins, request.or("f_min", 0.0)?, f_max, filters, rate, is_slaney_normed, scale)?)
}

fn linear_bank(request: &Request) -> Answer<FilterBank> {
    let rate: u32 = request.or("sample_rate", 16_000)?;
    let bins = request.or("n_fft", 400)? / 2 + 1;
    let f_max = request.or("f_max", f64::from(rate / 2))?;
    Ok(FilterBank::linear(bins, request.or("f_min", 0.0)?, f_max, request.or("n_filter", 128)?, rate)?)
}

fn mel(request: &Request) -> Answer<Work> {
    let (spectrogram, bank) = (Spectrogram::new(spectrogram_options(request)?)?, bank(request)?);
    let mut scratch = Scratch::default();
    Ok(Box::new(move |[samples, _]| {
        let mut out = Vec::with_capacity(spectrogram.frames(samples.len()) * bank.filters());
        spectrogram.each(samples, &mut scratch, |_, powers| out.extend(bank.apply(powers)))?;
        Ok(out)
    }))
}

/// As `mel`, filter by filter.
fn mel_by_filters(request: &Request) -> Answer<Work> {
    let mel = MelSpectrogram::new(Spectrogram::new(spectrogram_options(request)?)?, bank(request)?)?;
    let mut scratch = Scratch::default();
    Ok(Box::new(move |[samples, _]| {
        let mut out = Vec::new();
        mel.apply(samples, &mut scratch, &mut out)?;
        Ok(out)
    }))
}

/// Of a spectrogram that lies bin by bin.
fn mel_scale(request: &Request) -> Answer<Work> {
    let (bank, frames) = (bank(request)?, request.or("frames", 1)?);
    Ok(Box::new(move |[spectrogram, _]| {
        let mut out = vec![0.0; bank.filters() * frames];
        bank.apply_rows(spectrogram, frames, &mut out);
        Ok(out)
    }))
}

fn coefficients(request: &Request, bank: FilterBank) -> Answer<Work> {
    let spectrogram = Spectrogram::new(spectrogram_options(request)?)?;
    let is_ortho = request.or("dct_norm", String::new())? == "ortho";
    let cosine = Cosine::new(request.or("n_coefficients", 40)?, bank.filters(), is_ortho)?;
    let is_log = request.or("log", false)?;
    let mut scratch = Scratch::default();
    Ok(Box::new(move |[samples, _]| {
        let mut values = Vec::with_capacity(spectrogram.frames(samples.len()) * bank.filters());
        spectrogram.each(samples, &mut scratch, |_, powers| values.extend(bank.apply(powers)))?;
        if is_log {
            values.iter_mut().for_each(|value| *value = (*value + 1e-6).ln());
        } else {
            AmplitudeToDb { stype: Scale::Power, top_db: Some(80.0) }.apply(&mut values);
        }
        Ok(values.chunks_exact(bank.filters()).flat_map(|frame| cosine.apply(frame)).collect())
    }))
}

fn decibels(request: &Request) -> Answer<Work> {
    let stype = match &*request.or("stype", "power".to_owned())? {
        "magnitude" => Scale::Magnitude,
        _ => Scale::Power,
    };
    let decibels = AmplitudeToDb { stype, top_db: request.get("top_db")? };
    Ok(Box::new(move |[values, _]| {
        let mut values = values.to_vec();
        decibels.apply(&mut values);
        Ok(values)
    }))
}

fn whisper(request: &Request) -> Answer<Work> {
    let whisper = WhisperLogMel::new(request.or("n_mels", 80)?)?;
    let mut scratch = Scratch::default();
    Ok(Box::new(move |[samples, _]| {
        let mut out = Vec::new();
        whisper.apply(samples, &mut scratch, &mut out)?;
        Ok(out)
    }))
}

fn resample(request: &Request) -> Answer<Work> {
    let default = ResampleOptions::default();
    let method = match &*request.or("method", "hann".to_owned())? {
        "kaiser" => ResamplingMethod::SincInterpKaiser(request.or("beta", KAISER_BETA)?),
        _ => ResamplingMethod::SincInterpHann,
    };
    let options = ResampleOptions {
        lowpass_filter_width: request.or("lowpass_filter_width", default.lowpass_filter_width)?,
        rolloff: request.or("rolloff", default.rolloff)?,
        method,
        single: request.or("single", default.single)?,
    };
    let resample = Resample::new(request.or("from", 16_000)?, request.or("to", 16_000)?, options)?;
    let mut padded = Vec::new();
    Ok(Box::new(move |[samples, _]| {
        let mut out = Vec::new();
        resample.apply(samples, &mut padded, &mut out);
        Ok(out)
    }))
}

fn kaldi_options(request: &Request) -> Answer<KaldiOptions> {
    let default = KaldiOptions::default();
    Ok(KaldiOptions {
        sample_frequency: request.or("sample_frequency", default.sample_frequency)?,
        frame_length: request.or("frame_length", default.frame_length)?,
        frame_shift: request.or("frame_shift", default.frame_shift)?,
        snip_edges: request.or("snip_edges", default.snip_edges)?,
        remove_dc_offset: request.or("remove_dc_offset", default.remove_dc_offset)?,
        preemphasis_coefficient: request.or("preemphasis_coefficient", default.preemphasis_coefficient)?,
        window_type: match window(&request.or("window_type", "povey".to_owned())?)? {
            Window::Blackman => Window::GeneralBlackman(request.or("blackman_coeff", 0.42)?),
            window => window,
        },
        round_to_power_of_two: request.or("round_to_power_of_two", default.round_to_power_of_two)?,
        num_mel_bins: request.or("num_mel_bins", default.num_mel_bins)?,
        low_freq: request.or("low_freq", default.low_freq)?,
        high_freq: request.or("high_freq", default.high_freq)?,
        use_power: request.or("use_power", default.use_power)?,
        use_log_fbank: request.or("use_log_fbank", default.use_log_fbank)?,
        use_energy: request.or("use_energy", default.use_energy)?,
        raw_energy: request.or("raw_energy", default.raw_energy)?,
        energy_floor: request.or("energy_floor", default.energy_floor)?,
        htk_compat: request.or("htk_compat", default.htk_compat)?,
        subtract_mean: request.or("subtract_mean", default.subtract_mean)?,
    })
}

fn vtln(request: &Request) -> Answer<Vtln> {
    Ok(Vtln {
        warp: request.or("vtln_warp", 1.0)?,
        low: request.or("vtln_low", 100.0)?,
        high: request.or("vtln_high", -500.0)?,
    })
}

fn fbank(request: &Request) -> Answer<Work> {
    let fbank = KaldiFbank::warped(kaldi_options(request)?, vtln(request)?)?;
    Ok(Box::new(move |[samples, _]| {
        let mut out = Vec::new();
        fbank.apply(samples, &mut out)?;
        Ok(out)
    }))
}

fn kaldi_mfcc(request: &Request) -> Answer<Work> {
    let (ceps, lifter) = (request.or("num_ceps", 13)?, request.or("cepstral_lifter", 22.0)?);
    let mfcc = KaldiMfcc::warped(kaldi_options(request)?, vtln(request)?, ceps, lifter)?;
    Ok(Box::new(move |[samples, _]| {
        let mut out = Vec::new();
        mfcc.apply(samples, &mut out)?;
        Ok(out)
    }))
}

fn vol(request: &Request) -> Answer<Work> {
    let gain = request.or("gain", 1.0)?;
    let gain = match &*request.or("gain_type", "amplitude".to_owned())? {
        "power" => Gain::Power(gain),
        "db" => Gain::Db(gain),
        _ => Gain::Amplitude(gain),
    };
    Ok(Box::new(move |[samples, _]| {
        let mut samples = samples.to_vec();
        effects::vol(&mut samples, gain);
        Ok(samples)
    }))
}

fn fade(request: &Request) -> Answer<Work> {
    let shape = match &*request.or("fade_shape", "linear".to_owned())? {
        "exponential" => FadeShape::Exponential,
        "logarithmic" => FadeShape::Logarithmic,
        "quarter_sine" => FadeShape::QuarterSine,
        "half_sine" => FadeShape::HalfSine,
        _ => FadeShape::Linear,
    };
    let (fade_in, fade_out) = (request.or("fade_in_len", 0)?, request.or("fade_out_len", 0)?);
    Ok(Box::new(move |[samples, _]| {
        let mut samples = samples.to_vec();
        effects::fade(&mut samples, fade_in, fade_out, shape)?;
        Ok(samples)
    }))
}

/// The second signal is the draws.
fn spec_augment(request: &Request) -> Answer<Work> {
    let augment = SpecAugment {
        n_time_masks: request.or("n_time_masks", 0)?,
        time_mask_param: request.or("time_mask_param", 0)?,
        n_freq_masks: request.or("n_freq_masks", 0)?,
        freq_mask_param: request.or("freq_mask_param", 0)?,
        p: request.or("p", 1.0)?,
        zero_masking: request.or("zero_masking", false)?,
    };
    let (frames, channels) = (request.or("frames", 1)?, request.or("channels", 1)?);
    Ok(Box::new(move |[values, draws]| {
        let mut values = values.to_vec();
        let (value, len) = (augment.value(&values), values.len() / channels);
        for (channel, values) in values.chunks_exact_mut(len).enumerate() {
            augment.mask(values, frames, false, value, &draws[channel * augment.draws()..])?;
        }
        Ok(values)
    }))
}

fn stretch(request: &Request) -> Answer<TimeStretch> {
    let n_fft = request.or("n_fft", 512)?;
    let win_length = request.or("win_length", n_fft)?;
    let window = window(&request.or("window", "hann".to_owned())?)?;
    Ok(TimeStretch::new(n_fft, win_length, request.or("hop_length", win_length / 4)?, &window)?)
}

/// Of channels one after the other.
fn vad(request: &Request) -> Answer<Work> {
    let default = VadOptions::default();
    let options = VadOptions {
        trigger_level: request.or("trigger_level", default.trigger_level)?,
        trigger_time: request.or("trigger_time", default.trigger_time)?,
        search_time: request.or("search_time", default.search_time)?,
        allowed_gap: request.or("allowed_gap", default.allowed_gap)?,
        pre_trigger_time: request.or("pre_trigger_time", default.pre_trigger_time)?,
        boot_time: request.or("boot_time", default.boot_time)?,
        noise_up_time: request.or("noise_up_time", default.noise_up_time)?,
        noise_down_time: request.or("noise_down_time", default.noise_down_time)?,
        noise_reduction_amount: request.or("noise_reduction_amount", default.noise_reduction_amount)?,
        measure_freq: request.or("measure_freq", default.measure_freq)?,
        measure_duration: request.get("measure_duration")?,
        measure_smooth_time: request.or("measure_smooth_time", default.measure_smooth_time)?,
        hp_filter_freq: request.or("hp_filter_freq", default.hp_filter_freq)?,
        lp_filter_freq: request.or("lp_filter_freq", default.lp_filter_freq)?,
        hp_lifter_freq: request.or("hp_lifter_freq", default.hp_lifter_freq)?,
        lp_lifter_freq: request.or("lp_lifter_freq", default.lp_lifter_freq)?,
    };
    let vad = Vad::new(request.or("sample_rate", 16_000)?, options)?;
    let channels: usize = request.or("channels", 1)?;
    Ok(Box::new(move |[samples, _]| {
        let rows: Vec<&[f32]> = samples.chunks_exact(samples.len() / channels).collect();
        let kept = vad.kept(&rows)?;
        Ok(rows.iter().flat_map(|row| row[kept.clone()].iter().copied()).collect())
    }))
}

/// Of a file: channel by channel.
fn decoding(request: &Request) -> Answer<Work> {
    let path: String = request.get("path")?.ok_or("decode path=…")?;
    let bytes = fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
    let segment = Segment { offset: request.or("offset", 0)?, frames: request.get("frames")? };
    Ok(Box::new(move |_| Ok(decode(&bytes, segment, &Limits::default())?.channels.concat())))
}
