//! Which instruction set the kernels use: found once at run time, lowered on request by tests and benchmarks.
//!
//! Every level computes the same bits; a level only changes the time.

/// An instruction set that kernels are written for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Portable code: the oracle.
    Scalar,
    /// 128-bit vectors of 64-bit ARM.
    Neon,
    /// AVX2 with BMI1, BMI2, LZCNT and POPCNT: x86-64 processors since 2013.
    Avx2,
    /// AVX2's and AVX-512 F, BW, DQ, VL, VBMI and VBMI2: x86-64 servers since Ice Lake and Zen 4.
    Avx512,
}

impl Level {
    /// The fastest level that this processor has.
    pub fn best() -> Level {
        Level::available().last().unwrap_or(Level::Scalar)
    }

    /// True if this processor has the level.
    pub fn is_available(self) -> bool {
        match self {
            Level::Scalar => true,
            Level::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            // The macro reads a cached word: std detects the features once per process.
            Level::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vbmi2")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Level::Avx2 | Level::Avx512 => false,
        }
    }

    /// The levels that this processor has, slowest first.
    pub fn available() -> impl Iterator<Item = Level> {
        [Level::Scalar, Level::Neon, Level::Avx2, Level::Avx512]
            .into_iter()
            .filter(|level| level.is_available())
    }
}
