//! Markers and scans put together (T.81 B).

use super::entropy::{Token, tokens};
use super::huffman::{BitWriter, Codes, Table};
use super::spec::{Huffman, Plane, Process, Segment, Spec, ZIGZAG};

/// The file that a specification and coefficients describe.
pub(crate) fn encode(spec: &Spec, planes: &[Plane]) -> Vec<u8> {
    let mut out = vec![0xff, 0xd8];
    let segment = |out: &mut Vec<u8>, marker: u8, body: &[u8]| {
        out.extend(std::iter::repeat_n(0xff, spec.fill));
        out.extend([0xff, marker]);
        out.extend((body.len() as u16 + 2).to_be_bytes());
        out.extend(body);
    };
    for s in &spec.segments {
        match s {
            Segment::Jfif => segment(&mut out, 0xe0, b"JFIF\0\x01\x02\x01\x00\x48\x00\x48\x00\x00"),
            Segment::Adobe(transform) => {
                segment(&mut out, 0xee, &[b"Adobe\0\x64\0\0\0\0".as_slice(), &[*transform]].concat());
            }
            Segment::Exif(orientation) => segment(&mut out, 0xe1, &exif(*orientation)),
            Segment::Comment(text) => segment(&mut out, 0xfe, text),
            Segment::App(n, body) => segment(&mut out, 0xe0 + n, body),
        }
    }
    let tables = |i: u8, q: &super::Quant| {
        let mut body = vec![u8::from(q.wide) << 4 | i];
        for natural in ZIGZAG {
            let value = q.values[natural];
            if q.wide {
                body.extend(value.to_be_bytes());
            } else {
                body.push(u8::try_from(value).expect("an 8-bit table holds bytes"));
            }
        }
        body
    };
    let bodies: Vec<Vec<u8>> = (0..).zip(&spec.quant).map(|(i, q)| tables(i, q)).collect();
    grouped(spec, bodies).iter().for_each(|body| segment(&mut out, 0xdb, body));

    let mut frame = vec![8];
    frame.extend(spec.height.to_be_bytes());
    frame.extend(spec.width.to_be_bytes());
    frame.push(spec.components.len() as u8);
    for c in &spec.components {
        frame.extend([c.id, c.h << 4 | c.v, c.quant]);
    }
    let marker = match spec.process {
        Process::Baseline => 0xc0,
        Process::Extended => 0xc1,
        Process::Progressive => 0xc2,
    };
    segment(&mut out, marker, &frame);

    let style = match (spec.process, spec.huffman) {
        (Process::Progressive, Huffman::Standard | Huffman::Absent) => Huffman::Optimized,
        (_, style) => style,
    };
    let (mut restart, mut written) = (0, [false; 8]);
    for scan in &spec.scans {
        let tokens = tokens(spec, planes, scan);
        let mut counts = [[0u64; 256]; 8];
        for token in &tokens {
            if let Token::Code(slot, symbol) = *token {
                counts[usize::from(slot)][usize::from(symbol)] += 1;
            }
        }
        let mut codes: [Codes; 8] = [[(0, 0); 256]; 8];
        let mut bodies = Vec::new();
        for slot in 0..8 {
            if counts[slot].iter().all(|&n| n == 0) {
                continue;
            }
            let (dc, destination) = (slot < 4, slot as u8 & 3);
            let table = Table::choose(style, dc, destination, &counts[slot]);
            codes[slot] = table.codes();
            let known = style == Huffman::Absent || style == Huffman::Standard && written[slot];
            if !known {
                let mut body = vec![u8::from(!dc) << 4 | destination];
                body.extend(table.lengths);
                body.extend(table.symbols);
                bodies.push(body);
                written[slot] = true;
            }
        }
        grouped(spec, bodies).iter().for_each(|body| segment(&mut out, 0xc4, body));
        if scan.restart != restart {
            restart = scan.restart;
            segment(&mut out, 0xdd, &restart.to_be_bytes());
        }
        let mut header = vec![scan.components.len() as u8];
        for &c in &scan.components {
            let component = &spec.components[c];
            header.extend([component.id, component.table << 4 | component.table]);
        }
        header.extend([scan.ss, scan.se, scan.ah << 4 | scan.al]);
        segment(&mut out, 0xda, &header);
        out.extend(entropy_coded(spec, &tokens, &codes));
    }
    if spec.eoi {
        out.extend(std::iter::repeat_n(0xff, spec.fill));
        out.extend([0xff, 0xd9]);
    }
    out.extend(&spec.trailer);
    out
}

fn grouped(spec: &Spec, bodies: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if spec.split_tables || bodies.is_empty() { bodies } else { vec![bodies.concat()] }
}

fn entropy_coded(spec: &Spec, tokens: &[Token], codes: &[Codes; 8]) -> Vec<u8> {
    let mut writer = BitWriter::default();
    for token in tokens {
        match *token {
            Token::Code(slot, symbol) => {
                let (code, length) = codes[usize::from(slot)][usize::from(symbol)];
                assert!(length > 0, "no code for symbol {symbol:#x} in slot {slot}");
                writer.put(code.into(), length.into());
            }
            Token::Bits(value, count) => writer.put(value.into(), count.into()),
            Token::Restart(n) => {
                writer.align(spec.padding);
                writer.bytes.extend([0xff, 0xd0 + n]);
            }
        }
    }
    writer.align(spec.padding);
    writer.bytes
}

/// A little-endian TIFF with one entry: orientation (tag 0x112, one SHORT).
fn exif(orientation: u8) -> Vec<u8> {
    let mut body = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    body.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    body
}
