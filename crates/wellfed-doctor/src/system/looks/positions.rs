//! Which lines and columns an instruction belongs to: the tables of code objects.

/// Where an instruction's expression stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Position {
    /// First line, from 1; 0 if it is not known.
    pub(super) line: u32,
    /// Last line, and columns of begin and end, bytes from 0.
    pub(super) span: Option<(u32, u32, u32)>,
}

/// Position of an instruction by a table of Python 3.11 and later (`Objects/locations.md`); `unit` counts units of two bytes.
pub(super) fn of(table: &[u8], first: u32, unit: u64) -> Position {
    let mut bytes = table.iter().copied();
    let (mut line, mut begin) = (i64::from(first), 0);
    while let Some(head) = bytes.next() {
        let (kind, len) = ((head >> 3) & 15, u64::from(head & 7) + 1);
        let mut span = None;
        match kind {
            0..=9 => {
                let next = bytes.next().unwrap_or(0);
                let column = u32::from(kind) << 3 | u32::from(next >> 4) & 7;
                span = Some((0, column, column + u32::from(next & 15)));
            }
            10..=12 => {
                line += i64::from(kind) - 10;
                let column = u32::from(bytes.next().unwrap_or(0));
                span = Some((0, column, u32::from(bytes.next().unwrap_or(0))));
            }
            13 => line += signed(&mut bytes),
            14 => {
                line += signed(&mut bytes);
                let last = varint(&mut bytes);
                let (column, end) = (varint(&mut bytes), varint(&mut bytes));
                span = column.checked_sub(1).zip(end.checked_sub(1)).map(|(column, end)| (last, column, end));
            }
            _ => {}
        }
        if unit < begin + len {
            let line = if kind == 15 { 0 } else { u32::try_from(line).unwrap_or(0) };
            return Position { line, span: span.map(|(last, column, end)| (line + last, column, end)) };
        }
        begin += len;
    }
    Position::default()
}

/// The same by a table of Python 3.10 (PEP 626).
pub(super) fn of_lines(table: &[u8], first: u32, unit: u64) -> Position {
    let (mut line, mut end) = (i64::from(first), 0);
    for pair in table.chunks_exact(2) {
        let delta = pair[1].cast_signed();
        end += u64::from(pair[0]);
        if delta != i8::MIN {
            line += i64::from(delta);
        }
        if 2 * unit < end {
            let line = if delta == i8::MIN { 0 } else { u32::try_from(line).unwrap_or(0) };
            return Position { line, span: None };
        }
    }
    Position::default()
}

fn varint(bytes: &mut impl Iterator<Item = u8>) -> u32 {
    let (mut value, mut shift) = (0u32, 0);
    for byte in bytes {
        value |= u32::from(byte & 63).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
    }
    value
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> i64 {
    let value = varint(bytes);
    let size = i64::from(value >> 1);
    if value & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_locations() {
        // As CPython 3.11 makes them of `def f(x):\n    return [g(i)\n            for i in x]` from line 7 on: by hand.
        let table = [
            0x80 | 10 << 3,
            0,
            0, // RESUME on the first line, without width
            0x80 | 11 << 3 | 1,
            4,
            17, // two units on the next line
            0x80 | 1 << 3,
            0x35, // columns 8 + 3 to + 5 of the same
            0x80 | 13 << 3,
            2,                  // one line on, without columns
            0x80 | 15 << 3 | 3, // nowhere
            0x80 | 14 << 3,
            3,
            2,
            64 | 1,
            1,
            9, // a line back, two lines, columns 64 and 8
        ];
        let at = |unit| of(&table, 7, unit);
        assert_eq!(at(0), Position { line: 7, span: Some((7, 0, 0)) });
        assert_eq!(at(2), Position { line: 8, span: Some((8, 4, 17)) });
        assert_eq!(at(3), Position { line: 8, span: Some((8, 11, 16)) });
        assert_eq!(at(4), Position { line: 9, span: None });
        assert_eq!(at(7), Position::default());
        assert_eq!(at(9), Position { line: 8, span: Some((10, 64, 8)) });
        assert_eq!(at(99), Position::default());
        assert_eq!(of(&[0x80 | 14 << 3, 64], 1, 0).line, 1);
    }

    #[test]
    fn tables_of_lines() {
        let table = [4, 0, 2, 1, 6, 0x80, 2, 0xff];
        let lines: Vec<u32> = (0..8).map(|unit| of_lines(&table, 3, unit).line).collect();
        assert_eq!(lines, [3, 3, 4, 0, 0, 0, 3, 0]);
    }
}
