//! The tables of files: which combinations tests look at.
//!
//! `golden` is what `cargo test` holds against hashes in the repository; its order, names and seeds are part of
//! those hashes. `bulk` is the same generator without an end, for long comparisons and as fuzz seeds.

use super::spec::{Component, Huffman, Process, Scan, Segment, Spec};
use super::{Content, Rng, encode};

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) spec: Spec,
    pub(crate) content: Content,
    pub(crate) seed: u64,
    pub(crate) damage: Option<Damage>,
}

/// What happens to a file after it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The end is missing.
    Truncated,
    /// A few bits of the entropy-coded part are wrong.
    Flipped,
    /// A few bytes anywhere are wrong.
    Overwritten,
    /// Some bytes are missing.
    Removed,
    /// A marker stands where none should.
    Marked,
}

impl Case {
    fn new(name: impl Into<String>, spec: Spec, content: Content) -> Case {
        let name = name.into();
        let seed = name.bytes().fold(7, |h: u64, b| h.wrapping_mul(0x100_0000_01b3) ^ u64::from(b));
        Case { name, spec, content, seed, damage: None }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = encode(&self.spec, &self.content.planes(&self.spec, self.seed));
        if let Some(damage) = self.damage {
            damage.apply(&mut bytes, &mut Rng::new(self.seed ^ 0xdead));
        }
        bytes
    }
}

impl Damage {
    pub(crate) const ALL: [Damage; 5] =
        [Damage::Truncated, Damage::Flipped, Damage::Overwritten, Damage::Removed, Damage::Marked];

    fn apply(self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        let length = bytes.len();
        let scans = bytes.windows(2).position(|w| w == [0xff, 0xda]).unwrap_or(0) + 14;
        let inside = |rng: &mut Rng| scans.min(length - 1) + rng.below(length.saturating_sub(scans).max(1));
        match self {
            Damage::Truncated => bytes.truncate(if rng.chance(80) { inside(rng) } else { rng.below(length) }),
            Damage::Flipped => (0..=rng.below(3)).for_each(|_| bytes[inside(rng)] ^= 1 << rng.below(8)),
            Damage::Overwritten => {
                (0..=rng.below(3)).for_each(|_| bytes[rng.below(length)] = rng.next() as u8)
            }
            Damage::Removed => {
                let from = inside(rng);
                drop(bytes.drain(from..length.min(from + 1 + rng.below(20))));
            }
            Damage::Marked => {
                let at = inside(rng);
                let marker = *rng
                    .pick(&[0xd0, 0xd1, 0xd2, 0xd5, 0xd7, 0xd8, 0xd9, 0xda, 0xc4, 0xdb, 0xfe, 0x01, 0xff]);
                drop(bytes.splice(at..at, [0xff, marker]));
            }
        }
    }
}

type Sampling = (&'static str, &'static [(u8, u8)]);

/// What occurs in the wild, then what does not but is legal. An interleaved MCU holds at most ten blocks.
pub(crate) const SAMPLINGS: &[Sampling] = &[
    ("444", &[(1, 1), (1, 1), (1, 1)]),
    ("422", &[(2, 1), (1, 1), (1, 1)]),
    ("420", &[(2, 2), (1, 1), (1, 1)]),
    ("440", &[(1, 2), (1, 1), (1, 1)]),
    ("411", &[(4, 1), (1, 1), (1, 1)]),
    ("410", &[(4, 2), (1, 1), (1, 1)]),
    ("441", &[(1, 4), (1, 1), (1, 1)]),
    ("2x4", &[(2, 4), (1, 1), (1, 1)]),
    ("grey", &[(1, 1)]),
    ("422wide", &[(2, 2), (1, 2), (1, 2)]),
    ("440wide", &[(2, 2), (2, 1), (2, 1)]),
    ("444wide", &[(2, 1), (2, 1), (2, 1)]),
    ("mixed1", &[(2, 2), (2, 1), (1, 2)]),
    ("mixed2", &[(2, 2), (1, 2), (2, 1)]),
    ("mixed3", &[(2, 1), (1, 1), (2, 1)]),
    ("mixed4", &[(4, 1), (2, 1), (1, 1)]),
    ("luma", &[(1, 1), (2, 2), (2, 2)]),
    ("triple", &[(3, 1), (1, 1), (1, 1)]),
    ("triple2", &[(1, 3), (1, 3), (1, 1)]),
    ("crossed", &[(1, 1), (2, 1), (1, 2)]),
    ("cmyk", &[(1, 1), (1, 1), (1, 1), (1, 1)]),
    ("cmyk420", &[(2, 2), (1, 1), (1, 1), (2, 2)]),
    ("cmyk422", &[(2, 1), (1, 1), (1, 1), (2, 1)]),
    ("cmykmixed", &[(2, 1), (1, 1), (2, 2), (1, 1)]),
    ("grey22", &[(2, 2)]),
    ("grey31", &[(3, 1)]),
    ("grey14", &[(1, 4)]),
];
/// As many of them are what cameras, phones and the web write.
const COMMON: usize = 9;

const SIZES: &[(u16, u16)] = &[
    (1, 1),
    (2, 1),
    (1, 2),
    (3, 5),
    (7, 9),
    (8, 8),
    (9, 7),
    (15, 17),
    (16, 16),
    (17, 15),
    (31, 33),
    (33, 64),
    (40, 23),
    (67, 71),
];

const PROCESSES: &[(&str, Process)] =
    &[("base", Process::Baseline), ("ext", Process::Extended), ("prog", Process::Progressive)];

/// The files whose pixels the repository has hashes of: a few seconds of decoding.
pub(crate) fn golden() -> Vec<Case> {
    let mut cases = Vec::new();
    sampling_by_size(&mut cases);
    qualities(&mut cases);
    restarts(&mut cases);
    colours(&mut cases);
    tables(&mut cases);
    streams(&mut cases);
    larger(&mut cases);
    for i in 0..400 {
        cases.push(random(format!("random-{i}"), false));
    }
    incomplete(&mut cases);
    extremes(&mut cases);
    cases.extend((0..600).map(damaged));
    cases
}

/// The `i`-th of endlessly many random files.
pub(crate) fn bulk(i: u64) -> Case {
    random(format!("bulk-{i}"), i % 16 == 15)
}

/// The `i`-th of endlessly many damaged files.
pub(crate) fn damaged(i: u64) -> Case {
    let damage = Damage::ALL[i as usize % Damage::ALL.len()];
    let mut case = random(format!("damaged-{i}-{damage:?}").to_lowercase(), false);
    case.damage = Some(damage);
    case
}

fn sampling_by_size(cases: &mut Vec<Case>) {
    for &(sampling, factors) in SAMPLINGS {
        for (i, &(width, height)) in SIZES.iter().enumerate() {
            for (j, &(process_name, process)) in PROCESSES.iter().enumerate() {
                // The rarer half is looked at in one process a size.
                if i % 3 != j && (process == Process::Extended || factors.len() == 1) {
                    continue;
                }
                let spec = Spec::new(process, width, height, factors, 85);
                let name = format!("size-{sampling}-{width}x{height}-{process_name}");
                cases.push(Case::new(name, spec, Content::Picture));
            }
        }
    }
}

fn qualities(cases: &mut Vec<Case>) {
    for quality in 1..=100 {
        for &(sampling, factors) in &[SAMPLINGS[0], SAMPLINGS[2], SAMPLINGS[8]] {
            let spec = Spec::new(Process::Baseline, 35, 29, factors, quality);
            cases.push(Case::new(format!("quality-{quality}-{sampling}"), spec, Content::Picture));
        }
        if quality % 10 == 1 {
            let spec = Spec::new(Process::Extended, 35, 29, SAMPLINGS[1].1, quality)
                .with_quant_limit(quality, 32767);
            cases.push(Case::new(format!("quality-{quality}-wide"), spec, Content::Picture));
        }
    }
}

fn restarts(cases: &mut Vec<Case>) {
    for &(sampling, factors) in SAMPLINGS[..COMMON].iter().chain(&[SAMPLINGS[12], SAMPLINGS[21]]) {
        for &(process_name, process) in PROCESSES {
            let plain = Spec::new(process, 75, 62, factors, 80);
            let row = plain.mcus().0 as u16;
            let intervals = [
                ("1", 1),
                ("2", 2),
                ("3", 3),
                ("row", row),
                ("row+1", row + 1),
                ("rows", 2 * row),
                ("1000", 1000),
            ];
            for (label, interval) in intervals {
                let spec = plain.clone().with_restart(interval);
                cases.push(Case::new(
                    format!("restart-{label}-{sampling}-{process_name}"),
                    spec,
                    Content::Picture,
                ));
            }
            let mut spec = plain;
            if process != Process::Progressive && factors.len() > 1 {
                spec.scans = spec.separate_scans();
            }
            spec.scans.iter_mut().zip([3, 0, 7, 1].into_iter().cycle()).for_each(|(s, n)| s.restart = n);
            cases.push(Case::new(
                format!("restart-changing-{sampling}-{process_name}"),
                spec,
                Content::Picture,
            ));
        }
    }
}

fn colours(cases: &mut Vec<Case>) {
    use Segment::{Adobe, App, Comment, Exif, Jfif};
    let markers: &[(&str, Vec<Segment>)] = &[
        ("none", vec![]),
        ("jfif", vec![Jfif]),
        ("adobe0", vec![Adobe(0)]),
        ("adobe1", vec![Adobe(1)]),
        ("adobe2", vec![Adobe(2)]),
        ("adobe7", vec![Adobe(7)]),
        ("jfif-adobe0", vec![Jfif, Adobe(0)]),
        ("adobe0-jfif", vec![Adobe(0), Jfif]),
        ("adobe1-adobe0", vec![Adobe(1), Adobe(0)]),
        ("short-adobe", vec![App(14, b"Adobe\0\x64\0\0\0".to_vec())]),
        ("other-app14", vec![App(14, b"Other\0\x64\0\0\0\0\0".to_vec())]),
        ("short-jfif", vec![App(0, b"JFIF\0".to_vec())]),
        ("jfxx", vec![Jfif, App(0, b"JFXX\0\x10".to_vec())]),
    ];
    let ids: &[(&str, &[u8])] = &[
        ("123", &[1, 2, 3, 4]),
        ("012", &[0, 1, 2, 3]),
        ("RGB", b"RGBA"),
        ("rgb", b"rgba"),
        ("bgr", b"BGRA"),
        ("odd", &[7, 200, 255, 0]),
    ];
    for (marker, segments) in markers {
        for &(id, numbers) in ids {
            for factors in [SAMPLINGS[0], SAMPLINGS[2], SAMPLINGS[20], SAMPLINGS[21], SAMPLINGS[8]] {
                if id != "123" && (factors.1.len() != 3 || factors.0 == "420" && marker.len() > 4) {
                    continue;
                }
                let mut spec = Spec::new(Process::Baseline, 21, 19, factors.1, 90);
                spec.segments = segments.clone();
                spec.components.iter_mut().zip(numbers).for_each(|(c, &n)| c.id = n);
                cases.push(Case::new(format!("colour-{marker}-{id}-{}", factors.0), spec, Content::Picture));
            }
        }
    }
    for orientation in 0..=9 {
        let mut spec = Spec::new(Process::Baseline, 21, 19, SAMPLINGS[2].1, 90);
        spec.segments =
            vec![Exif(orientation), Comment(b"note".to_vec()), App(2, vec![0xff; 300]), Comment(vec![])];
        cases.push(Case::new(format!("colour-exif{orientation}"), spec, Content::Picture));
    }
}

fn tables(cases: &mut Vec<Case>) {
    let kinds = [
        ("standard", Huffman::Standard),
        ("absent", Huffman::Absent),
        ("optimized", Huffman::Optimized),
        ("flat", Huffman::Flat),
        ("skewed1", Huffman::Skewed(1)),
        ("skewed2", Huffman::Skewed(2)),
        ("skewed3", Huffman::Skewed(3)),
    ];
    for (kind, huffman) in kinds {
        for &(sampling, factors) in &SAMPLINGS[..COMMON] {
            for &(process_name, process) in PROCESSES {
                for (name, content) in [
                    ("picture", Content::Picture),
                    ("even", Content::Even),
                    ("sparse", Content::Random(4)),
                    ("dense", Content::Random(60)),
                ] {
                    if name != "picture" && factors.len() > 1 && !["444", "420"].contains(&sampling) {
                        continue;
                    }
                    let mut spec = Spec::new(process, 53, 38, factors, 92);
                    spec.huffman = huffman;
                    spec.split_tables = sampling == "422";
                    if process == Process::Extended {
                        // Each component has tables of its own.
                        (0..).zip(&mut spec.components).for_each(|(i, c)| c.table = i % 4);
                        if huffman == Huffman::Absent {
                            spec.huffman = Huffman::Optimized;
                        }
                    }
                    cases.push(Case::new(
                        format!("table-{kind}-{sampling}-{process_name}-{name}"),
                        spec,
                        content,
                    ));
                }
            }
        }
    }
}

fn streams(cases: &mut Vec<Case>) {
    for &(sampling, factors) in SAMPLINGS {
        for &(process_name, process) in &PROCESSES[..2] {
            let mut spec = Spec::new(process, 45, 37, factors, 75);
            spec.scans = spec.separate_scans();
            cases.push(Case::new(
                format!("separate-{sampling}-{process_name}"),
                spec.clone(),
                Content::Picture,
            ));
            if factors.len() == 3 {
                spec.scans = vec![Scan::sequential(&[2]), Scan::sequential(&[0, 1])];
                spec.huffman = Huffman::Optimized;
                cases.push(Case::new(format!("pairs-{sampling}-{process_name}"), spec, Content::Picture));
            }
        }
    }
    // Frames whose components together are too much for one MCU.
    for (name, factors) in [
        ("444huge", [(2, 2), (2, 2), (2, 2)]),
        ("4x4", [(4, 4), (1, 1), (1, 1)]),
        ("4x4b", [(4, 4), (2, 2), (1, 1)]),
        ("3x3", [(3, 3), (1, 1), (3, 1)]),
        ("4x3", [(4, 3), (2, 1), (1, 3)]),
        ("fraction", [(3, 1), (2, 1), (1, 1)]),
        ("fraction2", [(1, 3), (1, 1), (1, 2)]),
    ] {
        for &(process_name, process) in PROCESSES {
            for (width, height) in [(19, 23), (70, 50)] {
                let mut spec = Spec::new(process, width, height, &factors, 75);
                if process != Process::Progressive {
                    spec.scans = spec.separate_scans();
                }
                let name = format!("separate-{name}-{width}x{height}-{process_name}");
                cases.push(Case::new(name, spec, Content::Picture));
            }
        }
    }
    for (i, &(process_name, process)) in PROCESSES.iter().enumerate() {
        let plain = Spec::new(process, 64, 45, SAMPLINGS[2].1, 80);
        let mut add = |name: &str, change: &dyn Fn(&mut Spec)| {
            let mut spec = plain.clone();
            change(&mut spec);
            cases.push(Case::new(format!("stream-{name}-{process_name}"), spec, Content::Picture));
        };
        add("fill", &|s| s.fill = 5);
        add("trailer", &|s| s.trailer = (0..=255).cycle().take(700).collect());
        add("second-image", &|s| {
            s.trailer =
                Case::new("x", Spec::new(Process::Baseline, 9, 9, SAMPLINGS[8].1, 50), Content::Even).bytes();
        });
        add("no-eoi", &|s| s.eoi = false);
        add("padding-zeros", &|s| {
            s.padding = false;
            s.scans.iter_mut().for_each(|scan| scan.restart = 2);
        });
        add("lazy", &|s| s.lazy = true);
        add("short-runs", &|s| s.eob_limit = 1 + i as u16);
        add("reversed", &|s| s.components.reverse());
        // The later of two definitions counts; a table may come that nobody uses.
        add("spare-quant", &|s| s.quant.extend(s.quant.clone()));
        add("odd-quant", &|s| {
            s.components[2].quant = 3;
            s.quant = (0..4).map(|i| super::Quant { wide: i % 2 == 1, ..s.quant[i / 2].clone() }).collect();
        });
        add("long-comment", &|s| s.segments = vec![Segment::Comment(vec![0xff; 65533]), Segment::Jfif]);
    }
}

fn larger(cases: &mut Vec<Case>) {
    let sizes = [(640, 427), (500, 375), (1023, 17), (13, 1025), (257, 255), (2050, 3), (5, 3000)];
    for (i, &(width, height)) in sizes.iter().enumerate() {
        for (j, &(process_name, process)) in PROCESSES.iter().enumerate() {
            let (sampling, factors) = SAMPLINGS[[0, 2, 1, 8, 3, 4, 5][(i + j) % 7]];
            let mut spec = Spec::new(process, width, height, factors, 88);
            spec.huffman = Huffman::Optimized;
            cases.push(Case::new(
                format!("large-{sampling}-{width}x{height}-{process_name}"),
                spec,
                Content::Picture,
            ));
        }
    }
    // An end-of-band run longer than the longest that one symbol says.
    let spec = Spec::new(Process::Progressive, 1600, 1480, SAMPLINGS[8].1, 50);
    cases.push(Case::new("large-even-prog", spec, Content::Even));
}

/// Progressive files that stop early: libjpeg smooths blocks whose first coefficients are not all known.
fn incomplete(cases: &mut Vec<Case>) {
    for &(sampling, factors) in SAMPLINGS[..COMMON].iter().chain(&SAMPLINGS[12..13]) {
        for (width, height) in [(9, 7), (83, 67)] {
            let plain = Spec::new(Process::Progressive, width, height, factors, 60);
            for scans in 1..plain.scans.len() {
                let mut spec = plain.clone();
                spec.scans.truncate(scans);
                let name = format!("incomplete-{scans}-{sampling}-{width}x{height}");
                cases.push(Case::new(name, spec, Content::Picture));
            }
        }
    }
}

/// Coefficients beyond what pixels can give: arithmetic in 16 bits wraps and saturates.
fn extremes(cases: &mut Vec<Case>) {
    for (sampling, factors) in [SAMPLINGS[0], SAMPLINGS[2], SAMPLINGS[8]] {
        for quality in [1, 10, 50, 90, 100] {
            for percent in [0, 3, 30, 100] {
                let spec = Spec::new(Process::Baseline, 90, 61, factors, quality);
                let name = format!("extreme-{sampling}-{quality}-{percent}");
                cases.push(Case::new(name, spec, Content::Extreme(percent)));
            }
        }
    }
}

/// A file in which every choice is drawn.
fn random(name: String, extreme: bool) -> Case {
    let mut case = Case::new(name, Spec::new(Process::Baseline, 1, 1, &[(1, 1)], 50), Content::Even);
    let mut rng = Rng::new(case.seed);
    let process = rng.pick(PROCESSES).1;
    let count = *rng.pick(&[1, 3, 3, 3, 3, 3, 4]);
    let factors = loop {
        let highest = *rng.pick(&[1, 2, 2, 2, 3, 4]);
        let mut one = || (rng.below(highest) as u8 + 1, rng.below(highest) as u8 + 1);
        let factors: Vec<(u8, u8)> = (0..count).map(|_| one()).collect();
        let most = (factors.iter().map(|f| f.0).max(), factors.iter().map(|f| f.1).max());
        let whole = factors.iter().all(|f| most.0.unwrap_or(1) % f.0 == 0 && most.1.unwrap_or(1) % f.1 == 0);
        if whole || rng.chance(5) {
            break factors;
        }
    };
    let side = |rng: &mut Rng| if rng.chance(4) { rng.within(100, 400) } else { rng.within(1, 90) } as u16;
    let (width, height) = (side(&mut rng), side(&mut rng));
    let quality = rng.within(1, 100) as u32;
    let mut spec = Spec::new(process, width, height, &factors, quality);
    if rng.chance(10) {
        spec = spec.with_quant_limit(quality, if process == Process::Baseline { 255 } else { 32767 });
    }
    let tables = if process == Process::Baseline { 2 } else { 4 };
    spec.components.iter_mut().for_each(|c: &mut Component| c.table = rng.below(tables) as u8);
    spec.huffman = match rng.below(6) {
        0 => Huffman::Standard,
        1 | 2 => Huffman::Optimized,
        3 => Huffman::Flat,
        _ => Huffman::Skewed(rng.next()),
    };
    spec.scans = if process == Process::Progressive {
        random_script(&spec, &mut rng)
    } else {
        random_order(&spec, &mut rng)
    };
    let restart = rng.chance(40);
    for scan in &mut spec.scans {
        if restart && rng.chance(70) {
            scan.restart = *rng.pick(&[1, 2, 5, 11, 64, 300]);
        }
    }
    spec.segments = match rng.below(8) {
        0..=3 => spec.segments,
        4 => vec![],
        5 => vec![Segment::Comment(vec![0xd9; 10]), Segment::Adobe(rng.below(3) as u8)],
        6 => vec![Segment::Exif(rng.below(9) as u8), Segment::Jfif],
        _ => vec![Segment::Jfif, Segment::App(rng.below(16) as u8, vec![0xff; rng.below(40)])],
    };
    if rng.chance(10) {
        spec.components.iter_mut().zip(b"RGBK").for_each(|(c, &id)| c.id = id);
    }
    spec.fill = if rng.chance(10) { rng.below(4) } else { 0 };
    spec.split_tables = rng.chance(30);
    spec.lazy = rng.chance(10);
    spec.padding = !rng.chance(10);
    spec.eob_limit = *rng.pick(&[1, 2, 9, 0x7fff, 0x7fff]);
    spec.trailer = vec![0xab; if rng.chance(10) { rng.below(100) } else { 0 }];
    case.content = match rng.below(10) {
        _ if extreme => Content::Extreme(rng.below(101)),
        0..=5 => Content::Picture,
        6 => Content::Even,
        _ => Content::Random(*rng.pick(&[1, 5, 20, 60, 100])),
    };
    case.spec = spec;
    case
}

/// Sequential scans of one, two or more components in any order.
fn random_order(spec: &Spec, rng: &mut Rng) -> Vec<Scan> {
    let mut left: Vec<usize> = (0..spec.components.len()).collect();
    if spec.blocks_per_mcu() <= 10 && rng.chance(60) {
        return vec![Scan::sequential(&left)];
    }
    let mut scans = Vec::new();
    while !left.is_empty() {
        let mut taken = vec![left.swap_remove(rng.below(left.len()))];
        while !left.is_empty() && rng.chance(40) {
            let next = left.swap_remove(rng.below(left.len()));
            let blocks: u8 =
                taken.iter().chain([&next]).map(|&c| spec.components[c].h * spec.components[c].v).sum();
            if blocks > 10 {
                left.push(next);
                break;
            }
            taken.push(next);
        }
        // Within a scan, components come in the order of the frame (T.81 B.2.3).
        taken.sort_unstable();
        scans.push(Scan::sequential(&taken));
    }
    scans
}

/// A progressive script: bands split at random, each approximated in 1 to 4 steps, interleaved at random.
fn random_script(spec: &Spec, rng: &mut Rng) -> Vec<Scan> {
    let all: Vec<usize> = (0..spec.components.len()).collect();
    let together = spec.blocks_per_mcu() <= 10 && rng.chance(60);
    let groups: Vec<Vec<usize>> =
        if together { vec![all] } else { all.into_iter().map(|c| vec![c]).collect() };
    // Queues of scans that must keep their order; AC waits for its component's first DC scan.
    let mut scans = Vec::new();
    let mut queues: Vec<Vec<Scan>> = Vec::new();
    for group in groups {
        let start = *rng.pick(&[0, 0, 1, 2, 3]);
        scans.push(Scan::new(&group, 0, 0, 0, start));
        queues.push((0..start).map(|al| Scan::new(&group, 0, 0, al + 1, al)).collect());
        for c in group {
            let mut from = 1;
            while from < 64 {
                let to = if rng.chance(50) { 63 } else { from + rng.below(64 - usize::from(from)) as u8 };
                let start = *rng.pick(&[0, 0, 1, 2, 3]);
                let mut queue = Vec::new();
                for al in 0..start {
                    // The bands of a refinement need not be those of the first scan.
                    let middle = from + rng.below(usize::from(to - from) + 1) as u8;
                    if middle < to && rng.chance(30) {
                        queue.push(Scan::new(&[c], middle + 1, to, al + 1, al));
                        queue.push(Scan::new(&[c], from, middle, al + 1, al));
                    } else {
                        queue.push(Scan::new(&[c], from, to, al + 1, al));
                    }
                }
                queue.push(Scan::new(&[c], from, to, 0, start));
                queues.push(queue);
                from = to + 1;
            }
        }
    }
    while let Some(i) = (!queues.is_empty()).then(|| rng.below(queues.len())) {
        match queues[i].pop() {
            Some(scan) => scans.push(scan),
            None => drop(queues.swap_remove(i)),
        }
    }
    scans
}
