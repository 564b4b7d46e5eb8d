//! A scan as a list of symbols and bits (T.81 F.1, G.1): made once, then counted for tables and written.

use super::spec::{Block, Plane, Process, Scan, Spec, ZIGZAG};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Token {
    /// A Huffman code of the table with this slot: destination, plus 4 for AC.
    Code(u8, u8),
    /// Plain bits: value and number.
    Bits(u16, u8),
    /// The marker RSTn.
    Restart(u8),
}

/// All tokens of a scan.
pub(crate) fn tokens(spec: &Spec, planes: &[Plane], scan: &Scan) -> Vec<Token> {
    let mut coder = Coder {
        progressive: spec.process == Process::Progressive,
        scan,
        eob_limit: if spec.process == Process::Progressive { spec.eob_limit } else { 1 },
        lazy: spec.lazy && spec.process != Process::Progressive,
        tokens: Vec::new(),
        previous: [0; 4],
        run: 0,
        slot: 0,
        held: Vec::new(),
    };
    let single = scan.components.len() == 1;
    let (across, down) = if single { spec.own_blocks(scan.components[0]) } else { spec.mcus() };
    for mcu in 0..across * down {
        if scan.restart > 0 && mcu > 0 && mcu % usize::from(scan.restart) == 0 {
            coder.flush_run();
            coder.previous = [0; 4];
            coder.tokens.push(Token::Restart((mcu / usize::from(scan.restart) - 1) as u8 % 8));
        }
        let (x, y) = (mcu % across, mcu / across);
        for &c in &scan.components {
            let component = &spec.components[c];
            let plane = &planes[c];
            if single {
                coder.block(c, component.table, &plane.blocks[y * plane.across + x]);
            } else {
                let (h, v) = (usize::from(component.h), usize::from(component.v));
                for i in 0..h * v {
                    let at = (y * v + i / h) * plane.across + x * h + i % h;
                    coder.block(c, component.table, &plane.blocks[at]);
                }
            }
        }
    }
    coder.flush_run();
    coder.tokens
}

struct Coder<'a> {
    progressive: bool,
    scan: &'a Scan,
    eob_limit: u16,
    lazy: bool,
    tokens: Vec<Token>,
    /// Of each component: its last DC value.
    previous: [i32; 4],
    /// Blocks whose band has ended and that no symbol says yet.
    run: u16,
    /// The AC slot of that run.
    slot: u8,
    /// Correction bits that follow the run's symbol.
    held: Vec<u8>,
}

impl Coder<'_> {
    fn block(&mut self, component: usize, table: u8, block: &Block) {
        let Scan { ss, se, ah, al, .. } = *self.scan;
        self.slot = 4 + table;
        if ss == 0 {
            if ah == 0 {
                self.dc_first(component, table, i32::from(block[0]) >> al);
            } else {
                self.bits(((block[0] >> al) & 1) as u16, 1);
            }
        }
        let from = ss.max(1);
        if se >= from && (!self.progressive || ss > 0) {
            if ah == 0 {
                self.ac_first(block, from, se, al);
            } else {
                self.ac_refine(block, from, se, al);
            }
        }
    }

    fn dc_first(&mut self, component: usize, table: u8, value: i32) {
        let difference = value - self.previous[component];
        self.previous[component] = value;
        let size = size_of(difference);
        assert!(size <= 11, "DC difference {difference}");
        self.tokens.push(Token::Code(table, size));
        self.magnitude(difference, size);
    }

    fn ac_first(&mut self, block: &Block, ss: u8, se: u8, al: u8) {
        let mut zeros = 0;
        for k in ss..=se {
            let value = shifted(block[ZIGZAG[usize::from(k)]], al);
            if value == 0 {
                zeros += 1;
                continue;
            }
            self.flush_run();
            while zeros > 15 {
                self.code(0xf0);
                zeros -= 16;
            }
            let size = size_of(value);
            assert!(size <= 10, "AC coefficient {value}");
            self.code(zeros << 4 | size);
            self.magnitude(value, size);
            zeros = 0;
        }
        if zeros > 0 {
            while self.lazy && zeros > 16 {
                self.code(0xf0);
                zeros -= 16;
            }
            self.end_band(&[]);
        }
    }

    fn ac_refine(&mut self, block: &Block, ss: u8, se: u8, al: u8) {
        let value = |k: u8| shifted(block[ZIGZAG[usize::from(k)]], al);
        let last_new = (ss..=se).rev().find(|&k| value(k).abs() == 1).unwrap_or(0);
        let (mut zeros, mut corrections) = (0, Vec::new());
        for k in ss..=se {
            let value = value(k);
            if value == 0 {
                zeros += 1;
                continue;
            }
            while zeros > 15 && k <= last_new {
                self.flush_run();
                self.code(0xf0);
                zeros -= 16;
                self.single_bits(&std::mem::take(&mut corrections));
            }
            if value.abs() > 1 {
                corrections.push((value.abs() & 1) as u8);
                continue;
            }
            self.flush_run();
            self.code(zeros << 4 | 1);
            self.bits((value > 0).into(), 1);
            self.single_bits(&std::mem::take(&mut corrections));
            zeros = 0;
        }
        if zeros > 0 || !corrections.is_empty() {
            self.end_band(&corrections);
        }
    }

    fn end_band(&mut self, corrections: &[u8]) {
        self.run += 1;
        self.held.extend_from_slice(corrections);
        if self.run >= self.eob_limit {
            self.flush_run();
        }
    }

    fn flush_run(&mut self) {
        if self.run > 0 {
            let size = self.run.ilog2() as u8;
            self.code(size << 4);
            self.bits(self.run - (1 << size), size);
            self.run = 0;
            let held = std::mem::take(&mut self.held);
            self.single_bits(&held);
        }
    }

    fn code(&mut self, symbol: u8) {
        self.tokens.push(Token::Code(self.slot, symbol));
    }

    fn bits(&mut self, value: u16, count: u8) {
        if count > 0 {
            self.tokens.push(Token::Bits(value, count));
        }
    }

    fn single_bits(&mut self, bits: &[u8]) {
        bits.iter().for_each(|&bit| self.bits(bit.into(), 1));
    }

    /// T.81 F.1.2.1.1: negative values have one subtracted.
    fn magnitude(&mut self, value: i32, size: u8) {
        let value = if value < 0 { value - 1 } else { value };
        self.bits((value & ((1 << size) - 1)) as u16, size);
    }
}

/// The point transform of AC coefficients divides towards zero (T.81 G.1.2.1).
fn shifted(value: i16, al: u8) -> i32 {
    let value = i32::from(value);
    if value < 0 { -(-value >> al) } else { value >> al }
}

fn size_of(value: i32) -> u8 {
    (32 - value.unsigned_abs().leading_zeros()) as u8
}
