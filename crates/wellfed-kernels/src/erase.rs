//! Overwrites a rectangle of a finished image, in whatever type and layout it has.

use half::{bf16, f16};

use crate::{
    image::{Dtype, Layout},
    resample::Rect,
};

/// Sets each element of `rect` in `slot`, an image of (height, width, channels), to `value(channel)`.
///
/// `value` is called once per element, channel by channel and row by row whatever the layout, so that random values
/// are the same in all layouts. Floats are rounded to the element type; 8-bit values are truncated and
/// wrap around, as torch's conversion does.
///
/// # Panics
/// If `rect` does not lie inside the image, or `slot` has another size.
pub fn erase(
    slot: &mut [u8],
    (height, width, channels): (usize, usize, usize),
    dtype: Dtype,
    layout: Layout,
    rect: Rect,
    mut value: impl FnMut(usize) -> f32,
) {
    let size = dtype.size();
    assert_eq!(slot.len(), height * width * channels * size, "the slot is one image");
    assert!(rect.top + rect.height <= height && rect.left + rect.width <= width, "the rectangle is inside");
    for channel in 0..channels {
        for y in rect.top..rect.top + rect.height {
            for x in rect.left..rect.left + rect.width {
                let at = match layout {
                    Layout::Chw => (channel * height + y) * width + x,
                    Layout::Hwc => (y * width + x) * channels + channel,
                };
                let out = &mut slot[at * size..][..size];
                let value = value(channel);
                match dtype {
                    Dtype::U8 => out[0] = value as i64 as u8,
                    Dtype::F16 => out.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
                    Dtype::Bf16 => out.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
                    Dtype::F32 => out.copy_from_slice(&value.to_ne_bytes()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_asked_for_in_the_same_order_in_both_layouts() {
        let rect = Rect { top: 1, left: 0, height: 1, width: 2 };
        let run = |layout| {
            let mut slot = [0u8; 2 * 3 * 2];
            let mut next = 0.0;
            erase(&mut slot, (2, 3, 2), Dtype::U8, layout, rect, |channel| {
                next += 1.0;
                next + 10.0 * channel as f32
            });
            slot
        };
        assert_eq!(run(Layout::Chw), [0, 0, 0, 1, 2, 0, 0, 0, 0, 13, 14, 0]);
        assert_eq!(run(Layout::Hwc), [0, 0, 0, 0, 0, 0, 1, 13, 2, 14, 0, 0]);
    }

    #[test]
    fn values_take_the_element_type() {
        let rect = Rect { top: 0, left: 0, height: 1, width: 1 };
        let mut slot = [0; 4];
        erase(&mut slot, (1, 1, 1), Dtype::F32, Layout::Chw, rect, |_| -1.5);
        assert_eq!(f32::from_ne_bytes(slot), -1.5);
        erase(&mut slot[..2], (1, 1, 1), Dtype::Bf16, Layout::Chw, rect, |_| -1.5);
        assert_eq!(bf16::from_ne_bytes([slot[0], slot[1]]).to_f32(), -1.5);
    }
}
