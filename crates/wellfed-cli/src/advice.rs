//! What `wellfed inspect` suggests. Facts in, sentences out: each suggestion names what was seen, then what to do.

/// Shorter side, in pixels, from which decoding costs far more than training at 224 pixels needs: twice the 256 of
/// the usual evaluation.
const LARGE: u64 = 512;

/// Share of progressive images from which they matter for speed.
const MANY: f64 = 0.05;

/// What is known about a data set.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Images whose header could be read.
    pub(crate) images: u64,
    /// Of these: progressive JPEG.
    pub(crate) progressive: u64,
    /// Of these: turned or mirrored by EXIF.
    pub(crate) turned: u64,
    /// Of the typical image, in pixels.
    pub(crate) shorter_side: u64,
    /// Bad samples.
    pub(crate) bad: u64,
    /// Of these: intact, but of a kind that is not decoded.
    pub(crate) unsupported: u64,
    /// Classes without a sample.
    pub(crate) empty_classes: u64,
    /// Sample rates of sounds, Hz.
    pub(crate) rates: Vec<u32>,
    /// Numbers of channels of sounds.
    pub(crate) channels: Vec<u32>,
}

/// Suggestions, the most pressing first; none for a data set with nothing to improve.
pub(crate) fn advice(facts: &Facts) -> Vec<String> {
    let mut all = Vec::new();
    let Facts { images, progressive, turned, shorter_side, bad, unsupported, empty_classes, .. } = *facts;
    if bad > unsupported {
        all.push(format!(
            "{}: mend or delete them, or train with on_error=\"skip\" or \"replace\"; loader.errors() lists them",
            count(bad - unsupported, "bad sample")
        ));
    }
    if unsupported > 0 {
        all.push(format!(
            "{} of a kind that is not decoded: convert to JPEG or PNG, sounds to WAV or FLAC",
            count(unsupported, "sample")
        ));
    }
    if empty_classes > 0 {
        all.push(format!("{} without samples: is the data set complete?", count(empty_classes, "class")));
    }
    if facts.rates.len() > 1 {
        all.push(format!(
            "sounds of {} sample rates ({} to {} Hz): map(Resample(new_freq=...)) makes them one",
            facts.rates.len(),
            facts.rates[0],
            facts.rates[facts.rates.len() - 1]
        ));
    }
    if facts.channels.len() > 1 {
        all.push("sounds differ in their channels: map(ToMono()) makes them one".to_owned());
    }
    if turned > 0 {
        all.push(format!(
            "{} to be turned by EXIF: with_options(exif_orientation=True) does it; left as stored by default",
            count(turned, "image")
        ));
    }
    if progressive as f64 > MANY * images as f64 {
        all.push(format!(
            "{}: sequential ones decode faster; jpegtran -copy all rewrites them without loss",
            count(progressive, "progressive JPEG")
        ));
    }
    if shorter_side >= LARGE {
        all.push(format!(
            "the typical shorter side is {shorter_side} pixels: smaller copies decode faster, if you train on fewer"
        ));
    }
    all
}

fn count(number: u64, noun: &str) -> String {
    let plural = match (number, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        _ => "s",
    };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_say_about_a_plain_data_set() {
        assert!(
            advice(&Facts { images: 100, shorter_side: 375, progressive: 5, ..Facts::default() }).is_empty()
        );
        assert!(advice(&Facts::default()).is_empty());
    }

    #[test]
    fn everything_that_was_seen_is_named_once() {
        let all = advice(&Facts {
            images: 10,
            progressive: 9,
            turned: 1,
            shorter_side: 1200,
            bad: 3,
            unsupported: 2,
            empty_classes: 2,
            ..Facts::default()
        });
        let starts =
            ["1 bad sample:", "2 samples of", "2 classes without", "1 image to", "9 progressive JPEGs:"];
        for (line, start) in all.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        assert!(all.len() == 6 && all[5].contains("1200 pixels"), "{all:?}");
    }

    #[test]
    fn sounds_that_do_not_fit_together_are_told() {
        let of = |rates: &[u32], channels: &[u32]| {
            advice(&Facts { rates: rates.to_vec(), channels: channels.to_vec(), ..Facts::default() })
        };
        assert!(of(&[16_000], &[1]).is_empty());
        let all = of(&[8_000, 16_000], &[1, 2]);
        assert!(all[0].starts_with("sounds of 2 sample rates (8000 to 16000 Hz)"), "{all:?}");
        assert!(all.len() == 2 && all[1].contains("ToMono()"), "{all:?}");
    }
}
