//! The filter scale-offset (6): the least value of a chunk, and of each element the few bits by which it is more, first bits first.
//! Of floating-point numbers those are of the number times a power of ten, so some of its digits were given up for good.
//!
//! Head: how many bits an element has, the bytes of the least value, that value, unused bytes. Numbers are little-endian.

use wellfed::{Error, Result};

use crate::filters::sized;

const HEAD: usize = 21;

/// What the filter's values say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScaleOffset {
    /// Elements of a chunk.
    count: usize,
    /// Bytes of an element: 1, 2, 4 or 8; 4 or 8 of floating-point numbers.
    size: usize,
    /// Digits behind the point that floating-point numbers have kept.
    digits: Option<i32>,
    /// Whether elements are big-endian.
    big: bool,
    /// What the largest number of bits stands for, if it is no value.
    fill: Option<u64>,
}

fn damaged(why: &str) -> Error {
    Error::corrupt(format!("it cannot be unpacked (scaleoffset): {why}"))
}

impl ScaleOffset {
    /// Reads the filter's values: kind of scale, its factor, elements, class, bytes and sign of one, byte order, whether there is a
    /// fill value, and which. `None`: it did nothing, as whole numbers were to keep all of their bits.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn read(values: &[u32]) -> Result<Option<Self>, String> {
        let Some([scale, factor, count, class, size, _, order, filled, fill @ ..]) = values.get(..10) else {
            return Err(format!("scaleoffset has {} values", values.len()));
        };
        let digits = match (class, scale, size) {
            (0, 2, 1 | 2 | 4 | 8) if *factor == 8 * size => return Ok(None),
            (0, 2, 1 | 2 | 4 | 8) => None,
            (1, 0, 4 | 8) => Some(*factor as i32),
            _ => return Err(format!("scaleoffset states class {class}, scale {scale} and {size} bytes")),
        };
        let fill = (*filled == 1).then(|| u64::from(fill[0]) | u64::from(fill[1]) << 32);
        Ok(Some(Self { count: *count as usize, size: *size as usize, digits, big: *order == 1, fill }))
    }

    /// Unpacks a chunk of at most `most` bytes to `into`, in place of what is there.
    ///
    /// # Errors
    /// [`wellfed::ErrorKind::Corrupt`] for damage; [`wellfed::ErrorKind::Limit`] without memory.
    pub(crate) fn unpack(self, packed: &[u8], most: usize, into: &mut Vec<u8>) -> Result<()> {
        let Some((head, bits)) = packed.split_first_chunk::<HEAD>() else {
            return Err(damaged(&format!("{} bytes have no head", packed.len())));
        };
        let width = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if width > 8 * self.size {
            return Err(damaged(&format!("{width} bits of elements of {} bytes", self.size)));
        }
        let mut least = [0; 8];
        let len = usize::from(head[4]).min(8);
        least[..len].copy_from_slice(&head[5..5 + len]);
        let least = u64::from_le_bytes(least);
        let all = self.count.checked_mul(self.size).filter(|all| *all <= most);
        let all =
            all.ok_or_else(|| damaged(&format!("{} elements have more than {most} bytes", self.count)))?;
        // No more than the elements have: no overflow.
        let wanted = self.count / 8 * width + (self.count % 8 * width).div_ceil(8);
        if bits.len() < wanted {
            return Err(damaged(&format!("{} elements of {width} bits in {} bytes", self.count, bits.len())));
        }
        let to = sized(into, all)?;
        if width == 8 * self.size {
            // As they were, and little-endian.
            to.copy_from_slice(&bits[..all]);
            if self.big {
                to.chunks_exact_mut(self.size).for_each(<[u8]>::reverse);
            }
            return Ok(());
        }
        // It fits: there are fewer bits than an element has.
        let absent = (1_u64 << width) - 1;
        let fill = |more: u64| self.fill.filter(|_| more == absent);
        match (self.digits, self.size) {
            (None, 1) => self.write(bits, width, to, |more| {
                [fill(more).unwrap_or_else(|| more.wrapping_add(least)) as u8]
            }),
            (None, 2) => self.write(bits, width, to, |more| {
                (fill(more).unwrap_or_else(|| more.wrapping_add(least)) as u16).to_le_bytes()
            }),
            (None, 4) => self.write(bits, width, to, |more| {
                (fill(more).unwrap_or_else(|| more.wrapping_add(least)) as u32).to_le_bytes()
            }),
            (None, _) => self.write(bits, width, to, |more| {
                fill(more).unwrap_or_else(|| more.wrapping_add(least)).to_le_bytes()
            }),
            (Some(digits), 4) => {
                let (scale, least) = (10_f32.powf(digits as f32), f32::from_bits(least as u32));
                self.write(bits, width, to, |more| match fill(more) {
                    Some(fill) => (fill as u32).to_le_bytes(),
                    None => (more as i32 as f32 / scale + least).to_le_bytes(),
                });
            }
            (Some(digits), _) => {
                let (scale, least) = (10_f64.powf(f64::from(digits)), f64::from_bits(least));
                self.write(bits, width, to, |more| match fill(more) {
                    Some(fill) => fill.to_le_bytes(),
                    None => (more as i64 as f64 / scale + least).to_le_bytes(),
                });
            }
        }
        Ok(())
    }

    /// Writes what `value` makes of the bits of each element.
    fn write<const SIZE: usize>(
        self,
        bits: &[u8],
        width: usize,
        to: &mut [u8],
        value: impl Fn(u64) -> [u8; SIZE],
    ) {
        let mut at = 0;
        for element in to.as_chunks_mut::<SIZE>().0 {
            // Of up to 63 bits, nine bytes hold all.
            let window = match bits[at / 8..].first_chunk::<16>() {
                Some(window) => u128::from_be_bytes(*window),
                None => {
                    let (mut window, rest) = ([0; 16], &bits[at / 8..]);
                    window[..rest.len()].copy_from_slice(rest);
                    u128::from_be_bytes(window)
                }
            };
            let more = if width == 0 { 0 } else { window << (at % 8) >> (128 - width) };
            *element = value(more as u64);
            if self.big {
                element.reverse();
            }
            at += width;
        }
    }
}

#[cfg(test)]
mod tests {
    use wellfed::ErrorKind;

    use super::*;

    fn head(width: u32, least: u64) -> Vec<u8> {
        [&width.to_le_bytes()[..], &[8], &least.to_le_bytes(), &[0; 8]].concat()
    }

    fn run(values: [u32; 10], packed: &[u8]) -> Result<Vec<u8>> {
        let mut into = Vec::new();
        ScaleOffset::read(&values).unwrap().unwrap().unpack(packed, 16, &mut into)?;
        Ok(into)
    }

    #[test]
    fn whole_numbers() {
        // Three bits each: 0, 5, 7 and 1, more than -2.
        let packed = [head(3, -2_i64 as u64), vec![0b0001_0111, 0b1001_0000]].concat();
        let found = run([2, 0, 4, 0, 2, 1, 0, 0, 0, 0], &packed).unwrap();
        assert_eq!(found, [-2_i16, 3, 5, -1].map(i16::to_le_bytes).concat());
        // All bits set: the fill value. The other byte order.
        let found = run([2, 0, 4, 0, 2, 1, 1, 1, 9, 0], &packed).unwrap();
        assert_eq!(found, [-2_i16, 3, 9, -1].map(i16::to_be_bytes).concat());
        // All of them the least.
        let found = run([2, 0, 2, 0, 8, 0, 0, 0, 0, 0], &head(0, 1 << 40)).unwrap();
        assert_eq!(found, [1_u64 << 40; 2].map(u64::to_le_bytes).concat());
        // As they were.
        let packed = [head(16, 0), vec![1, 2, 3, 4]].concat();
        assert_eq!(run([2, 0, 2, 0, 2, 0, 1, 0, 0, 0], &packed).unwrap(), [2, 1, 4, 3]);
    }

    #[test]
    fn floating_point_numbers() {
        let packed = [head(4, u64::from(1.5_f32.to_bits())), vec![0x0A, 0xF0]].concat();
        let found = run([0, 1, 3, 1, 4, 0, 0, 1, 7.0_f32.to_bits(), 0], &packed).unwrap();
        assert_eq!(found, [1.5_f32, 2.5, 7.0].map(f32::to_le_bytes).concat());
    }

    #[test]
    fn what_is_stated_must_fit() {
        let values = [2, 0, 4, 0, 2, 1, 0, 0, 0, 0];
        for (values, packed, part) in [
            (values, vec![0; 20], "20 bytes have no head"),
            (values, head(17, 0), "17 bits of elements of 2 bytes"),
            (values, [head(3, 0), vec![0]].concat(), "4 elements of 3 bits in 1 bytes"),
            ([2, 0, u32::MAX, 0, 2, 1, 0, 0, 0, 0], head(0, 0), "4294967295 elements have more than 16"),
        ] {
            let e = run(values, &packed).unwrap_err();
            assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(part), "{e}");
        }
        assert!(ScaleOffset::read(&values[..9]).is_err());
        assert_eq!(ScaleOffset::read(&[2, 16, 4, 0, 2, 1, 0, 0, 0, 0]), Ok(None));
        for bad in
            [[0, 0, 4, 0, 2, 1, 0, 0, 0, 0], [2, 0, 4, 0, 3, 1, 0, 0, 0, 0], [1, 0, 4, 1, 4, 1, 0, 0, 0, 0]]
        {
            assert!(ScaleOffset::read(&bad).is_err());
        }
    }
}
