//! Geometry: how pixels, samples, blocks and MCUs of an image lie to each other, at the scale of the output.

use crate::header::Header;
use crate::{Error, ErrorKind, Region, Result, Scale};

/// How a component reaches the resolution of the image (`jinit_upsampler` in libjpeg-turbo's jdsample.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upsampling {
    /// Nothing to do.
    None,
    /// Twice as wide, by a triangle filter.
    H2V1,
    /// Twice as high, by a triangle filter.
    H1V2,
    /// Both.
    H2V2,
    /// Samples are repeated, so often in each direction.
    Repeat { horizontal: usize, vertical: usize },
}

impl Upsampling {
    /// Whether rows above and below take part.
    pub(crate) fn needs_rows(self) -> bool {
        matches!(self, Upsampling::H1V2 | Upsampling::H2V2)
    }

    /// Whether columns to the left and right take part.
    pub(crate) fn needs_columns(self) -> bool {
        matches!(self, Upsampling::H2V1 | Upsampling::H2V2)
    }
}

/// A component at the scale of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane {
    /// Blocks in an MCU, across and down.
    pub(crate) h: usize,
    pub(crate) v: usize,
    /// Blocks that the image reaches, across and down: what a scan of this component alone has.
    pub(crate) blocks: (usize, usize),
    /// Columns and rows of samples that a block gives: 8, or 4, 2, 1 in scaled decodes.
    pub(crate) size: usize,
    /// Columns and rows of samples that the image reaches. Padding beyond is never looked at.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) upsampling: Upsampling,
}

/// An image's geometry at the scale of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Columns and rows of output pixels that an MCU with all components gives.
    pub(crate) mcu: (usize, usize),
    /// MCUs across and down.
    pub(crate) mcus: (usize, usize),
    planes: [Plane; 4],
    count: usize,
    /// How many components the output needs: the first ones.
    needed: usize,
}

impl Frame {
    pub(crate) fn new(header: &Header, scale: Scale) -> Self {
        let (h_max, v_max) = header.sampling();
        let size = scale.block();
        let (width, height) = scale.size(header.width, header.height);
        let mut planes =
            [Plane { h: 1, v: 1, blocks: (0, 0), size, width: 0, height: 0, upsampling: Upsampling::None };
                4];
        let single = header.components().len() == 1;
        for (plane, component) in planes.iter_mut().zip(header.components()) {
            let (h, v) = (usize::from(component.horizontal), usize::from(component.vertical));
            // A component of low resolution is scaled down less, while that saves upsampling (`jdmaster.c`).
            let mut s = size;
            while s < 8
                && (h_max * size).is_multiple_of(h * s * 2)
                && (v_max * size).is_multiple_of(v * s * 2)
            {
                s *= 2;
            }
            plane.size = s;
            plane.width = (header.width * h * s).div_ceil(h_max * 8);
            plane.height = (header.height * v * s).div_ceil(v_max * 8);
            plane.blocks = ((header.width * h).div_ceil(h_max * 8), (header.height * v).div_ceil(v_max * 8));
            // Scans of one component go block by block, whatever its sampling factors.
            (plane.h, plane.v) = if single { (1, 1) } else { (h, v) };
            let ratio = (h_max * size / (h * s), v_max * size / (v * s));
            // The triangle filters need neighbours; libjpeg leaves them out where there are hardly any.
            let (fancy, wide) = (size > 1, plane.width > 2);
            plane.upsampling = match ratio {
                (1, 1) => Upsampling::None,
                (2, 1) if fancy && wide => Upsampling::H2V1,
                (2, 2) if fancy && wide => Upsampling::H2V2,
                (1, 2) if fancy => Upsampling::H1V2,
                (horizontal, vertical) => Upsampling::Repeat { horizontal, vertical },
            };
        }
        let mcu = if single { (size, size) } else { (h_max * size, v_max * size) };
        let mcus = (width.div_ceil(mcu.0), height.div_ceil(mcu.1));
        let full = if single { (8, 8) } else { (8 * h_max, 8 * v_max) };
        debug_assert_eq!(mcus, (header.width.div_ceil(full.0), header.height.div_ceil(full.1)));
        Frame {
            width,
            height,
            mcu,
            mcus,
            planes,
            count: header.components().len(),
            needed: header.components().len(),
        }
    }

    /// All components.
    pub(crate) fn all_planes(&self) -> &[Plane] {
        &self.planes[..self.count]
    }

    /// The components that the output is made of.
    pub(crate) fn planes(&self) -> &[Plane] {
        &self.planes[..self.needed]
    }

    /// Only the first component is needed: brightness alone.
    pub(crate) fn first_plane_only(self) -> Self {
        Frame { needed: 1, ..self }
    }

    /// Accepts a region inside the image; the whole image if there is none.
    pub(crate) fn region(&self, region: Option<Region>) -> Result<Region> {
        let Some(r) = region else {
            return Ok(Region { left: 0, top: 0, width: self.width, height: self.height });
        };
        let inside = |start: usize, length: usize, of: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= of)
        };
        if inside(r.left, r.width, self.width) && inside(r.top, r.height, self.height) {
            return Ok(r);
        }
        Err(Error::new(
            ErrorKind::Argument,
            format!(
                "region of {}x{} pixels at column {}, row {} does not lie inside an image of {}x{}",
                r.width, r.height, r.left, r.top, self.width, self.height
            ),
        ))
    }

    /// The MCUs that a region is made of, with the context that upsampling needs.
    pub(crate) fn window(&self, region: Region) -> Window {
        let context = |needs: fn(Upsampling) -> bool| {
            if self.planes().iter().any(|plane| needs(plane.upsampling)) { 2 } else { 0 }
        };
        let (x, y) = (context(Upsampling::needs_columns), context(Upsampling::needs_rows));
        let right = (region.left + region.width + x).min(self.width);
        let bottom = (region.top + region.height + y).min(self.height);
        Window {
            left: region.left.saturating_sub(x) / self.mcu.0,
            right: right.div_ceil(self.mcu.0),
            top: region.top.saturating_sub(y) / self.mcu.1,
            bottom: bottom.div_ceil(self.mcu.1),
        }
    }
}

/// Ranges of MCUs: columns `left..right`, rows `top..bottom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) left: usize,
    pub(crate) right: usize,
    pub(crate) top: usize,
    pub(crate) bottom: usize,
}
