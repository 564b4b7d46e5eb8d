//! Operations on sixteen lanes, each one instruction of AVX-512.
//!
//! They are written as intrinsics because a compiler that has to find them in sixteen operations on numbers takes minutes over a Fourier
//! transform. They are called where [`super::run`] and [`super::run_part`] found the processor to have AVX-512, and in tests.

use std::{
    arch::x86_64::{
        __m512, _mm512_add_ps, _mm512_alignr_epi32, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_max_ps,
        _mm512_mul_ps, _mm512_set1_epi32, _mm512_sqrt_ps, _mm512_sub_ps, _mm512_xor_si512,
    },
    mem::transmute,
    ops::{Add, Mul, Neg, Sub},
};

use super::Sixteen;

macro_rules! operation {
    ($name:ident($($argument:ident),*), $intrinsic:ident) => {
        #[inline(always)]
        fn $name($($argument: Sixteen),*) -> Sixteen {
            // SAFETY: both types are 64 bytes of sixteen float32, any bytes are some; and the processor has AVX-512F, as the
            // module says. `MelSpectrogram 400 160` of `examples/speed.rs` says what it buys.
            unsafe { Sixteen(transmute::<__m512, [f32; 16]>($intrinsic($(transmute::<[f32; 16], __m512>($argument.0)),*))) }
        }
    };
}

operation!(add(a, b), _mm512_add_ps);
operation!(sub(a, b), _mm512_sub_ps);
operation!(mul(a, b), _mm512_mul_ps);
// Of a number and none, or of zeros of both signs, the second: as `if a > b { a } else { b }`.
operation!(max(a, b), _mm512_max_ps);
operation!(sqrt(a), _mm512_sqrt_ps);
operation!(negative(a), negated);
operation!(moved(a, first), aligned);

/// With the other sign.
#[inline]
#[target_feature(enable = "avx512f")]
fn negated(a: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(i32::MIN)))
}

/// The last lane of `first`, and all lanes of `a` but the last.
#[inline]
#[target_feature(enable = "avx512f")]
fn aligned(a: __m512, first: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_alignr_epi32::<15>(_mm512_castps_si512(a), _mm512_castps_si512(first)))
}

macro_rules! operator {
    ($trait:ident, $function:ident) => {
        impl $trait for Sixteen {
            type Output = Self;

            #[inline(always)]
            fn $function(self, other: Self) -> Self {
                $function(self, other)
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);

impl Neg for Sixteen {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        negative(self)
    }
}

impl Sixteen {
    #[inline(always)]
    pub(super) fn behind(self, first: f32) -> Self {
        moved(self, Self([first; 16]))
    }

    #[inline(always)]
    pub(super) fn greater(self, other: Self) -> Self {
        max(self, other)
    }

    #[inline(always)]
    pub(super) fn root(self) -> Self {
        sqrt(self)
    }
}
