//! Which instruction set a kernel uses: found once at run time, lowered on request by tests and benchmarks.
//!
//! Every level computes the same bits; a level only changes the time.

/// An instruction set that kernels are written for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Portable code: the oracle.
    Scalar,
    /// AVX2 with FMA and F16C: x86-64 processors since 2013.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, VBMI and VNNI: x86-64 servers since Ice Lake and Zen 4.
    Avx512,
}

impl Level {
    /// The fastest level this processor has.
    pub fn best() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            // The macro reads a cached word: std detects the features once per process.
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("avx512vnni")
            {
                return Level::Avx512;
            }
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                return Level::Avx2;
            }
        }
        Level::Scalar
    }

    /// This level, or the best one where this processor lacks it.
    pub fn supported(self) -> Level {
        self.min(Level::best())
    }

    /// The levels this processor has, slowest first.
    pub fn available() -> impl Iterator<Item = Level> {
        [Level::Scalar, Level::Avx2, Level::Avx512].into_iter().filter(|level| *level <= Level::best())
    }
}
