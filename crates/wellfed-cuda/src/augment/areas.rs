//! Passes that look around a pixel, over whole images: both sides of a blur, and affine maps (`kernels/area.cu`).

use wellfed_kernels::{affine::Sampling, blur, recipe::AffineMap};

use super::{Area, AugmentError, Builder, FROM_SCRATCH, From, Kind, MAX_SIDE, Pass, Source, TO_SCRATCH};

impl Builder<'_> {
    /// A pass over the whole of an image that looks around by what `area` says.
    fn around(
        &mut self,
        image: usize,
        from: From,
        (height, width): (usize, usize),
        area: Area,
    ) -> Result<Pass, AugmentError> {
        let source = from.source;
        let fits = |height: usize, width: usize| {
            // Elements are counted in 32 bits.
            let elements = height.checked_mul(width).and_then(|n| n.checked_mul(4 * source.channels));
            height.max(width) <= MAX_SIDE && elements.is_some_and(|n| (1..=i32::MAX as usize).contains(&n))
        };
        if !fits(source.height, source.width) || !fits(height, width) {
            return Err(AugmentError::Outside { image, what: "size" });
        }
        self.areas.push(area);
        Ok(Pass {
            source: source.address,
            source_plane: source.plane,
            source_row: source.row,
            source_pixel: source.pixel,
            height: source.height as i32,
            width: source.width as i32,
            out_height: height as i32,
            out_width: width as i32,
            channels: source.channels as u32,
            first_op: self.areas.len() as u32 - 1,
            flags: TO_SCRATCH | if from.scratch { FROM_SCRATCH } else { 0 },
            ..Pass::default()
        })
    }

    /// One side of a blur by a `kernel` of so many pixels.
    pub(super) fn blur(
        &mut self,
        image: usize,
        number: usize,
        from: From,
        kind: Kind,
        kernel: usize,
        sigma: f64,
    ) -> Result<From, AugmentError> {
        let Source { height, width, channels, .. } = from.source;
        let side = if kind == Kind::Across { width } else { height };
        // A mirrored place is at most one side away.
        if kernel.is_multiple_of(2) || kernel / 2 >= side {
            return Err(AugmentError::Outside { image, what: "blur" });
        }
        let weights = u32::try_from(self.axes.len()).map_err(|_| AugmentError::TooLarge)?;
        self.axes.extend(blur::weights(kernel, sigma).iter().map(|weight| weight.to_bits() as i32));
        let area = Area { taps: kernel as u32, weights, ..Area::default() };
        let mut pass = self.around(image, from, (height, width), area)?;
        // Floats lie between both sides.
        let size = if kind == Kind::Across { 4 } else { 1 };
        pass.target = self.take(number, size * height * width * channels);
        Ok(self.push(number, kind, pass, (height, width, channels)))
    }

    /// An affine map.
    pub(super) fn affine(
        &mut self,
        image: usize,
        number: usize,
        from: From,
        map: &AffineMap,
    ) -> Result<From, AugmentError> {
        let AffineMap { matrix: [a, b, c, d, e, f], sampling, fill, size } = *map;
        let (height, width) = size;
        let (h, w) = (height as f64, width as f64);
        // Pillow's rule for its fixed point.
        let small =
            |x: f64, y: f64| (x * a + y * b + c).abs() < 32768.0 && (x * d + y * e + f).abs() < 32768.0;
        let sums = b == 0.0 && d == 0.0
            || ![(0.0, 0.0), (w, h), (0.0, h), (w, 0.0)].into_iter().all(|(x, y)| small(x, y));
        let fix = |v: f64| (v * 65536.0 + 0.5).floor() as i32;
        let area = Area {
            matrix: map.matrix,
            fixed: [c + a * 0.5 + b * 0.5, f + d * 0.5 + e * 0.5, a, d, b, e].map(fix),
            kind: match sampling {
                Sampling::Nearest if sums => 2,
                Sampling::Nearest => 1,
                Sampling::Bilinear => 3,
                Sampling::Bicubic => 4,
            },
            fill: u32::from_le_bytes(fill),
            ..Area::default()
        };
        let mut pass = self.around(image, from, size, area)?;
        let channels = from.source.channels;
        pass.target = self.take(number, height * width * channels);
        Ok(self.push(number, Kind::Affine, pass, (height, width, channels)))
    }
}
