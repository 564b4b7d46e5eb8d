//! EXIF orientation: how a stored image must be flipped and turned to be seen as the camera saw it.
//!
//! The meaning of the values 1 to 8 is that of TIFF 6.0 and of `PIL.ImageOps.exif_transpose`. Only the EXIF tag
//! is read ([`wellfed_jpeg::exif_orientation`]); Pillow falls back on the same tag in XMP where there is no EXIF.

use wellfed_kernels::image::{Image, View};

use super::{Rect, kernel_error};
use crate::Result;

/// Whether an orientation exchanges rows and columns.
pub(crate) fn swaps_sides(orientation: u8) -> bool {
    (5..=8).contains(&orientation)
}

/// Whether rows run from the bottom, and columns from the right, in the stored image.
fn flips(orientation: u8) -> (bool, bool) {
    (matches!(orientation, 3 | 4 | 6 | 7), matches!(orientation, 2 | 3 | 7 | 8))
}

/// The rectangle of the stored image, `height` x `width`, that is `rect` of the oriented one. `rect` must lie
/// inside the oriented image.
pub(crate) fn stored_rect(rect: Rect, orientation: u8, height: usize, width: usize) -> Rect {
    let mut r = rect;
    if swaps_sides(orientation) {
        r = Rect { top: rect.left, left: rect.top, height: rect.width, width: rect.height };
    }
    let (rows, columns) = flips(orientation);
    if rows {
        r.top = height - r.top - r.height;
    }
    if columns {
        r.left = width - r.left - r.width;
    }
    r
}

/// Writes `image` flipped and turned into `out`, as `PIL.ImageOps.exif_transpose` does.
///
/// # Errors
/// `Limit` if there is no memory for it.
pub fn apply_orientation(image: View<'_>, orientation: u8, out: &mut Image) -> Result<()> {
    match image.channels() {
        1 => apply::<1>(image, orientation, out),
        2 => apply::<2>(image, orientation, out),
        3 => apply::<3>(image, orientation, out),
        _ => apply::<4>(image, orientation, out),
    }
}

fn apply<const C: usize>(image: View<'_>, orientation: u8, out: &mut Image) -> Result<()> {
    let (height, width) = (image.height(), image.width());
    let (rows, columns) = flips(orientation);
    let row = |y: usize| image.row(if rows { height - 1 - y } else { y }).as_chunks::<C>().0;
    if !swaps_sides(orientation) {
        let data = out.reshape(height, width, C).map_err(kernel_error)?;
        for (y, to) in data.chunks_exact_mut(width * C).enumerate() {
            let (from, to) = (row(y), to.as_chunks_mut::<C>().0);
            to.copy_from_slice(from);
            if columns {
                to.reverse();
            }
        }
        return Ok(());
    }
    let data = out.reshape(width, height, C).map_err(kernel_error)?.as_chunks_mut::<C>().0;
    // Blocks of 16 rows: as many cache lines are written again while they are still near.
    for block in (0..height).step_by(16) {
        let block = block..height.min(block + 16);
        for x in 0..width {
            let from = if columns { width - 1 - x } else { x };
            for y in block.clone() {
                data[x * height + y] = row(y)[from];
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eight_cases_are_exif_transposes() {
        // np.asarray(ImageOps.exif_transpose(im)) for im = [[1, 2, 3], [4, 5, 6]], Pillow 13.0.0
        let expected: [(usize, [u8; 6]); 8] = [
            (2, [1, 2, 3, 4, 5, 6]),
            (2, [3, 2, 1, 6, 5, 4]),
            (2, [6, 5, 4, 3, 2, 1]),
            (2, [4, 5, 6, 1, 2, 3]),
            (3, [1, 4, 2, 5, 3, 6]),
            (3, [4, 1, 5, 2, 6, 3]),
            (3, [6, 3, 5, 2, 4, 1]),
            (3, [3, 6, 2, 5, 1, 4]),
        ];
        for channels in 1..=4 {
            let wide: Vec<u8> = (1..=6).flat_map(|v| vec![v; channels]).collect();
            let view = View::new(&wide, 2, 3, channels, 3 * channels).unwrap();
            for (i, (height, values)) in expected.iter().enumerate() {
                let mut out = Image::new();
                apply_orientation(view, i as u8 + 1, &mut out).unwrap();
                assert_eq!(out.height(), *height);
                let values: Vec<u8> = values.iter().flat_map(|&v| vec![v; channels]).collect();
                assert_eq!(out.pixels(), values, "orientation {}", i + 1);
            }
        }
    }

    #[test]
    fn a_rectangle_of_the_oriented_image_is_found_in_the_stored_one() {
        let (height, width) = (19, 37);
        let pixels: Vec<u8> = (0..height * width).map(|i| (i % 251) as u8).collect();
        let stored = View::new(&pixels, height, width, 1, width).unwrap();
        for orientation in 1..=8 {
            let mut oriented = Image::new();
            apply_orientation(stored, orientation, &mut oriented).unwrap();
            let (h, w) = (oriented.height(), oriented.width());
            let rect = Rect { top: 3, left: 5, height: h - 9, width: w - 6 };
            let part = stored_rect(rect, orientation, height, width);
            let mut crop = Image::new();
            apply_orientation(
                stored.crop(part.top, part.left, part.height, part.width).unwrap(),
                orientation,
                &mut crop,
            )
            .unwrap();
            let mut expected = Image::new();
            expected.copy_from(oriented.view().crop(3, 5, rect.height, rect.width).unwrap()).unwrap();
            assert_eq!(crop, expected, "orientation {orientation}");
        }
    }
}
