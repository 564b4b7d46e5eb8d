//! The arithmetic of decoding: inverse DCT, chroma upsampling and colour conversion, bit-equal to libjpeg-turbo's
//! defaults. Scalar code is the oracle; SIMD beside it computes the same bits.
