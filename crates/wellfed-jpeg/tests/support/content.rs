//! What is in a generated file: pictures through a forward DCT, or coefficients drawn at random.
//!
//! Only integers and single IEEE operations on `f64`, so that the bytes are the same everywhere.

use super::Rng;
use super::spec::{Block, Plane, Spec};

/// How coefficients are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Waves, edges and noise, transformed and quantized.
    Picture,
    /// One colour.
    Even,
    /// Coefficients at random, about so many percent of them not zero, small enough for any IDCT.
    Random(usize),
    /// Coefficients at random over all that Huffman coding can carry, whatever an IDCT makes of them.
    Extreme(usize),
}

/// T.81 tables K.1 and K.2 in natural order.
#[rustfmt::skip]
const BASE: [[u16; 64]; 2] = [
    [
        16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
        14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
        18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
        49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
    ],
    [
        17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99,
        24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    ],
];

/// The table that libjpeg makes of a quality 1..=100 (`jpeg_quality_scaling`), values at most `limit`.
pub(crate) fn quality_table(quality: u32, chroma: bool, limit: u16) -> [u16; 64] {
    let scale = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
    BASE[usize::from(chroma)].map(|v| ((u32::from(v) * scale + 50) / 100).clamp(1, limit.into()) as u16)
}

impl Content {
    /// The coefficients of a file, one plane a component.
    pub(crate) fn planes(self, spec: &Spec, seed: u64) -> Vec<Plane> {
        (0..spec.components.len()).map(|c| self.plane(spec, c, seed)).collect()
    }

    fn plane(self, spec: &Spec, c: usize, seed: u64) -> Plane {
        let mut rng = Rng::new(seed.wrapping_mul(16) + c as u64);
        let (across, down) = spec.padded_blocks(c);
        let quant = &spec.quant[usize::from(spec.components[c].quant)].values;
        let mut blocks = Vec::with_capacity(across * down);
        match self {
            Content::Picture | Content::Even => {
                let scene = Scene::new(&mut rng, self == Content::Even);
                let (h, v) = spec.max_sampling();
                let step_x = h as i32 * 4 / i32::from(spec.components[c].h);
                let step_y = v as i32 * 4 / i32::from(spec.components[c].v);
                for i in 0..across * down {
                    let (bx, by) = ((i % across * 8) as i32, (i / across * 8) as i32);
                    let samples = std::array::from_fn(|k| {
                        let (x, y) = (bx + k as i32 % 8, by + k as i32 / 8);
                        scene.at(&mut rng, x * step_x / 4, y * step_y / 4) - 128
                    });
                    blocks.push(transform(&samples, quant));
                }
            }
            Content::Random(percent) => {
                let mut dc = 0;
                for _ in 0..across * down {
                    dc = (dc + rng.within(-300, 300)).clamp(-1000, 1000);
                    let mut block = random_block(&mut rng, percent, 200, quant);
                    block[0] = divided(dc, quant[0]);
                    blocks.push(block);
                }
            }
            Content::Extreme(percent) => {
                for _ in 0..across * down {
                    let ones = [1; 64];
                    let mut block = random_block(&mut rng, percent, 1023, &ones);
                    block[0] = rng.within(-1023, 1023) as i16;
                    blocks.push(block);
                }
            }
        }
        Plane { across, down, blocks }
    }
}

/// AC coefficients with dequantized values up to `most`; some bands empty, some only their end.
fn random_block(rng: &mut Rng, percent: usize, most: i32, quant: &[u16; 64]) -> Block {
    let mut block = [0; 64];
    let last = if rng.chance(30) { 63 } else { rng.below(64) };
    for k in 1..=last {
        if rng.chance(percent) || k == last && rng.chance(50) {
            // Small values are more frequent, as in photographs.
            let range = if rng.chance(70) { most / 20 } else { most };
            let natural = super::ZIGZAG[k];
            block[natural] = divided(rng.within(-range, range), quant[natural]);
        }
    }
    block
}

fn divided(value: i32, by: u16) -> i16 {
    (value / i32::from(by)) as i16
}

/// A picture of one component in full-size coordinates.
struct Scene {
    base: i32,
    waves: [(i32, i32, i32); 3],
    edges: [(i32, i32, i32); 4],
    noise: i32,
}

impl Scene {
    fn new(rng: &mut Rng, even: bool) -> Scene {
        let strength = i32::from(!even);
        Scene {
            base: rng.within(40, 215),
            waves: std::array::from_fn(|_| {
                (rng.within(-90, 90), rng.within(-90, 90), rng.within(5, 45) * strength)
            }),
            edges: std::array::from_fn(|_| {
                (rng.within(0, 80), rng.within(0, 80), rng.within(-90, 90) * strength)
            }),
            noise: *rng.pick(&[0, 3, 12]) * strength,
        }
    }

    /// Triangle waves, quadrants with hard edges, noise.
    fn at(&self, rng: &mut Rng, x: i32, y: i32) -> i32 {
        let mut value = self.base;
        for (fx, fy, height) in self.waves {
            let phase = (x * fx + y * fy).rem_euclid(2048);
            value += ((phase - 1024).abs() - 512) * height / 512;
        }
        for (ex, ey, step) in self.edges {
            if (x % 97 > ex) != (y % 89 > ey) {
                value += step;
            }
        }
        if self.noise > 0 {
            value += rng.within(-self.noise, self.noise);
        }
        value.clamp(0, 255)
    }
}

/// The forward DCT (T.81 A.3.3) with quantization to the nearest value.
fn transform(samples: &[i32; 64], quant: &[u16; 64]) -> Block {
    /// cos(i pi / 16), in shortest decimal form: a library's cosine may differ in its last bit.
    const COSINE: [f64; 9] = [
        1.0,
        0.980_785_280_403_230_4,
        0.923_879_532_511_286_7,
        0.831_469_612_302_545_2,
        std::f64::consts::FRAC_1_SQRT_2,
        0.555_570_233_019_602_2,
        0.382_683_432_365_089_8,
        0.195_090_322_016_128_27,
        0.0,
    ];
    let cosine = |i: usize| match i % 32 {
        i @ 0..=8 => COSINE[i],
        i @ 9..=16 => -COSINE[16 - i],
        i @ 17..=24 => -COSINE[i - 16],
        i => COSINE[32 - i],
    };
    let scale = |u: usize| if u == 0 { COSINE[4] / 2.0 } else { 0.5 };
    let mut rows = [0.0; 64];
    for y in 0..8 {
        for u in 0..8 {
            let sum: f64 = (0..8).map(|x| f64::from(samples[y * 8 + x]) * cosine((2 * x + 1) * u)).sum();
            rows[y * 8 + u] = sum * scale(u);
        }
    }
    std::array::from_fn(|i| {
        let (v, u) = (i / 8, i % 8);
        let sum: f64 = (0..8).map(|y| rows[y * 8 + u] * cosine((2 * y + 1) * v)).sum();
        (sum * scale(v) / f64::from(quant[i])).round().clamp(-1023.0, 1023.0) as i16
    })
}
