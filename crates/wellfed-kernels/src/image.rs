//! 8-bit images in memory: [`View`] borrows an interleaved one (`HWC`), [`Planes`] one with a slice for each
//! channel, [`Pixels`] either; [`Image`] owns an interleaved one and is reused from sample to sample.
//!
//! One byte a channel, rows `stride` bytes apart. The constructors check that every row lies inside its slice,
//! so that kernels may rely on it.

use crate::write::GeometryError;

/// A borrowed, interleaved 8-bit image of 1 to 4 channels.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    data: &'a [u8],
    height: usize,
    width: usize,
    channels: usize,
    stride: usize,
}

impl<'a> View<'a> {
    /// Wraps `data` as `height` rows of `width * channels` bytes that lie `stride` bytes apart.
    ///
    /// Returns `None` if a side is zero, `channels` is not 1..=4, rows overlap, or the last row ends
    /// outside `data`.
    pub fn new(data: &'a [u8], height: usize, width: usize, channels: usize, stride: usize) -> Option<Self> {
        if height == 0 || width == 0 || !(1..=4).contains(&channels) {
            return None;
        }
        let row = width.checked_mul(channels)?;
        let needed = stride.checked_mul(height - 1)?.checked_add(row)?;
        (stride >= row && needed <= data.len()).then_some(Self { data, height, width, channels, stride })
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes in a pixel, 1 to 4.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Bytes from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Everything from the first pixel on. May be longer than the image.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The `width * channels` bytes of row `y`.
    #[inline]
    pub fn row(&self, y: usize) -> &'a [u8] {
        let start = y * self.stride;
        &self.data[start..start + self.width * self.channels]
    }

    /// The rectangle of `height` rows and `width` columns whose first pixel is (`top`, `left`), without a copy.
    ///
    /// Returns `None` unless it is non-empty and lies inside this image.
    pub fn crop(&self, top: usize, left: usize, height: usize, width: usize) -> Option<View<'a>> {
        if top.checked_add(height)? > self.height || left.checked_add(width)? > self.width {
            return None;
        }
        let start = top * self.stride + left * self.channels;
        View::new(&self.data[start..], height, width, self.channels, self.stride)
    }
}

/// A borrowed 8-bit image of 1 to 4 channels, each in a slice of its own, as decoders have it.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a>(Pixels<'a>);

impl<'a> Planes<'a> {
    /// Wraps `planes`, one slice a channel, each `height` rows of `width` bytes that lie `stride` bytes apart.
    ///
    /// Returns `None` if a side is zero, there are not 1 to 4 planes, rows overlap, or the last row of a plane
    /// ends outside its slice.
    pub fn new(planes: &[&'a [u8]], height: usize, width: usize, stride: usize) -> Option<Self> {
        let mut all = [&[][..]; 4];
        let channels = planes.len();
        all.get_mut(..channels)?.copy_from_slice(planes);
        for plane in planes {
            View::new(plane, height, width, 1, stride)?;
        }
        (channels > 0).then_some(Self(Pixels { planes: all, channels, height, width, stride, pixel: 1 }))
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.0.height
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.0.width
    }

    /// Planes, 1 to 4.
    pub fn channels(&self) -> usize {
        self.0.channels
    }

    /// The `width` bytes of row `y` of plane `channel`.
    pub fn row(&self, channel: usize, y: usize) -> &'a [u8] {
        &self.0.planes[channel][y * self.0.stride..][..self.0.width]
    }

    /// The rectangle of `height` rows and `width` columns whose first pixel is (`top`, `left`), without a copy.
    ///
    /// Returns `None` unless it is non-empty and lies inside this image.
    pub fn crop(&self, top: usize, left: usize, height: usize, width: usize) -> Option<Self> {
        let inside = top.checked_add(height)? <= self.0.height && left.checked_add(width)? <= self.0.width;
        (inside && height > 0 && width > 0).then(|| Self(self.0.rows(top, height).columns(left, width)))
    }
}

/// A borrowed 8-bit image, interleaved or planar.
///
/// Channel `c` of the pixel in row `y`, column `x` is `planes[c][y * stride + x * pixel]`; `pixel` is 1 or, if
/// the channels are interleaved, their number. At least one row and column, and all inside the planes.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'a> {
    pub(crate) planes: [&'a [u8]; 4],
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) stride: usize,
    pub(crate) pixel: usize,
}

impl<'a> From<View<'a>> for Pixels<'a> {
    fn from(view: View<'a>) -> Self {
        Self::interleaved(view.data, view.height, view.width, view.channels, view.stride)
    }
}

impl<'a> From<Planes<'a>> for Pixels<'a> {
    fn from(planes: Planes<'a>) -> Self {
        planes.0
    }
}

impl<'a> Pixels<'a> {
    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Channels, 1 to 4.
    pub fn channels(&self) -> usize {
        self.channels
    }

    pub(crate) fn interleaved(
        data: &'a [u8],
        height: usize,
        width: usize,
        channels: usize,
        stride: usize,
    ) -> Self {
        let planes = std::array::from_fn(|c| if c < channels { &data[c..] } else { &[] });
        Self { planes, channels, height, width, stride, pixel: channels }
    }

    /// Planes at equal distances.
    pub(crate) fn planar(
        data: &'a [u8],
        height: usize,
        width: usize,
        channels: usize,
        stride: usize,
        plane: usize,
    ) -> Self {
        let planes = std::array::from_fn(|c| if c < channels { &data[c * plane..] } else { &[] });
        Self { planes, channels, height, width, stride, pixel: 1 }
    }

    /// Rows `top..top + height`, which there are.
    #[inline]
    pub(crate) fn rows(self, top: usize, height: usize) -> Self {
        self.advance(top * self.stride, height, self.width)
    }

    /// Columns `left..left + width`, which there are.
    #[inline]
    pub(crate) fn columns(self, left: usize, width: usize) -> Self {
        self.advance(left * self.pixel, self.height, width)
    }

    #[inline]
    fn advance(mut self, bytes: usize, height: usize, width: usize) -> Self {
        for plane in &mut self.planes[..self.channels] {
            *plane = &plane[bytes..];
        }
        Self { height, width, ..self }
    }

    /// The bytes of row `y`: of plane `channel`, or of all channels if they are interleaved.
    #[inline]
    pub(crate) fn line(&self, channel: usize, y: usize) -> &'a [u8] {
        &self.planes[channel][y * self.stride..][..self.width * self.pixel]
    }

    /// One channel's value for each of `channels`.
    pub(crate) fn broadcast(mut self, channels: usize) -> Self {
        if self.channels == 1 {
            let first = self.planes[0];
            self.planes[..channels].fill(first);
            self.channels = channels;
        }
        self
    }
}

/// An owned, densely packed, interleaved 8-bit image whose memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    data: Vec<u8>,
    height: usize,
    width: usize,
    channels: usize,
}

impl Image {
    /// An empty image; [`Image::reshape`] gives it a size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the size, keeping the allocation where it is large enough. Pixel values are unspecified afterwards.
    ///
    /// # Errors
    /// [`GeometryError::Memory`] if the system does not give as many bytes; the image is empty then.
    pub fn reshape(
        &mut self,
        height: usize,
        width: usize,
        channels: usize,
    ) -> Result<&mut [u8], GeometryError> {
        let len = height.checked_mul(width).and_then(|n| n.checked_mul(channels)).unwrap_or(usize::MAX);
        if len > self.data.capacity() {
            *self = Self::default();
            self.data.try_reserve_exact(len).map_err(|_| GeometryError::Memory { bytes: len })?;
        }
        (self.height, self.width, self.channels) = (height, width, channels);
        self.data.resize(len, 0);
        Ok(&mut self.data)
    }

    /// Copies `view` densely into this image.
    ///
    /// # Errors
    /// As [`Image::reshape`].
    pub fn copy_from(&mut self, view: View<'_>) -> Result<(), GeometryError> {
        let row = view.width() * view.channels();
        let data = self.reshape(view.height(), view.width(), view.channels())?;
        for (y, out) in data.chunks_exact_mut(row).enumerate() {
            out.copy_from_slice(view.row(y));
        }
        Ok(())
    }

    /// Borrows the pixels.
    ///
    /// # Panics
    /// If the image is empty.
    pub fn view(&self) -> View<'_> {
        View::new(&self.data, self.height, self.width, self.channels, self.width * self.channels)
            .expect("image has pixels")
    }

    /// The packed pixels.
    pub fn pixels(&self) -> &[u8] {
        &self.data
    }

    /// The packed pixels, to write.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes in a pixel.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Bytes this image keeps allocated.
    pub fn capacity(&self) -> usize {
        self.data.capacity()
    }
}

/// How the elements of one image lie in its slot of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Channel planes, one after the other (`CHW`; a batch of them is `NCHW`).
    Chw,
    /// Interleaved pixels (`HWC`; a batch of them is `NHWC`).
    Hwc,
}

/// Element type of a finished image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// Unsigned 8-bit integer.
    U8,
    /// IEEE half precision.
    F16,
    /// bfloat16: the upper half of a float32.
    Bf16,
    /// IEEE single precision.
    F32,
}

impl Dtype {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Dtype::U8 => 1,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F32 => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_must_lie_inside_its_slice() {
        let data = [0u8; 24];
        assert!(View::new(&data, 2, 4, 3, 12).is_some());
        assert!(View::new(&data, 2, 4, 3, 13).is_none());
        assert!(View::new(&data, 3, 4, 3, 12).is_none());
        assert!(View::new(&data, 2, 4, 3, 11).is_none());
        assert!(View::new(&data, 0, 4, 3, 12).is_none());
        assert!(View::new(&data, 1, 4, 5, 20).is_none());
        assert!(View::new(&data, usize::MAX, 4, 3, 12).is_none());
    }

    #[test]
    fn a_crop_names_the_same_pixels() {
        let data: Vec<u8> = (0..60).collect();
        let view = View::new(&data, 4, 5, 3, 15).unwrap();
        let crop = view.crop(1, 2, 2, 3).unwrap();
        assert_eq!(crop.row(0), &data[21..30]);
        assert_eq!(crop.row(1), &data[36..45]);
        assert!(view.crop(3, 0, 2, 1).is_none());
        assert!(view.crop(0, 0, 0, 1).is_none());
        let mut image = Image::new();
        image.copy_from(crop).unwrap();
        assert_eq!(image.view().row(1), crop.row(1));
    }
}
