//! The passes of the fast inverse DCT on x86, for vectors of both widths: a lane of 128 bits holds a row of one block.

/// Defines `pass` and `transpose` for a type of vectors, with the names of its intrinsics.
macro_rules! passes {
    ($vector:ty, $features:literal, $mulhi_epi16:ident, $slli_epi16:ident, $set1_epi16:ident, $add_epi16:ident, $sub_epi16:ident, $unpacklo_epi16:ident, $unpackhi_epi16:ident, $unpacklo_epi32:ident, $unpackhi_epi32:ident, $unpacklo_epi64:ident, $unpackhi_epi64:ident $(,)?) => {
        /// Upper halves of products with a constant of eight fractional bits, as the portable code has them.
        #[inline]
        #[target_feature(enable = $features)]
        fn times(x: $vector, constant: i16) -> $vector {
            $mulhi_epi16($slli_epi16::<2>(x), $set1_epi16(constant << 6))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn add(a: $vector, b: $vector) -> $vector {
            $add_epi16(a, b)
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn sub(a: $vector, b: $vector) -> $vector {
            $sub_epi16(a, b)
        }

        /// One-dimensional transforms of all columns.
        #[inline]
        #[target_feature(enable = $features)]
        fn pass([x0, x1, x2, x3, x4, x5, x6, x7]: [$vector; 8]) -> [$vector; 8] {
            let (sum04, difference04) = (add(x0, x4), sub(x0, x4));
            let sum26 = add(x2, x6);
            let difference26 = sub(times(sub(x2, x6), 362), sum26);
            let (even0, even3) = (add(sum04, sum26), sub(sum04, sum26));
            let (even1, even2) = (add(difference04, difference26), sub(difference04, difference26));
            let (z13, z10) = (add(x5, x3), sub(x5, x3));
            let (z11, z12) = (add(x1, x7), sub(x1, x7));
            let odd7 = add(z11, z13);
            let sum = times(sub(z11, z13), 362);
            let z5 = times(add(z10, z12), 473);
            let odd6 = sub(add(sub(times(z10, -413), z10), z5), odd7);
            let odd5 = sub(sum, odd6);
            let odd4 = add(sub(times(z12, 277), z5), odd5);
            [
                add(even0, odd7),
                add(even1, odd6),
                add(even2, odd5),
                sub(even3, odd4),
                add(even3, odd4),
                sub(even2, odd5),
                sub(even1, odd6),
                sub(even0, odd7),
            ]
        }

        /// Transposes the block in each lane.
        #[inline]
        #[target_feature(enable = $features)]
        fn transpose([r0, r1, r2, r3, r4, r5, r6, r7]: [$vector; 8]) -> [$vector; 8] {
            let (a0, a1) = ($unpacklo_epi16(r0, r1), $unpackhi_epi16(r0, r1));
            let (a2, a3) = ($unpacklo_epi16(r2, r3), $unpackhi_epi16(r2, r3));
            let (a4, a5) = ($unpacklo_epi16(r4, r5), $unpackhi_epi16(r4, r5));
            let (a6, a7) = ($unpacklo_epi16(r6, r7), $unpackhi_epi16(r6, r7));
            let (b0, b1) = ($unpacklo_epi32(a0, a2), $unpackhi_epi32(a0, a2));
            let (b2, b3) = ($unpacklo_epi32(a1, a3), $unpackhi_epi32(a1, a3));
            let (b4, b5) = ($unpacklo_epi32(a4, a6), $unpackhi_epi32(a4, a6));
            let (b6, b7) = ($unpacklo_epi32(a5, a7), $unpackhi_epi32(a5, a7));
            [
                $unpacklo_epi64(b0, b4),
                $unpackhi_epi64(b0, b4),
                $unpacklo_epi64(b1, b5),
                $unpackhi_epi64(b1, b5),
                $unpacklo_epi64(b2, b6),
                $unpackhi_epi64(b2, b6),
                $unpacklo_epi64(b3, b7),
                $unpackhi_epi64(b3, b7),
            ]
        }
    };
}
pub(super) use passes;
