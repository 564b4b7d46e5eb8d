//! Small data sets of several kinds. Of every sample all values but the pixels are known by its index.

use std::{
    env, fs,
    path::PathBuf,
    process,
    sync::{
        Arc, LazyLock, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use wellfed::{
    Dataset,
    sample::{BoxFormat, DType, FieldKind, FieldSpec, Structure},
    source::{
        Annotated, AnnotatedSpec, ArrayData, CocoDetectionSpec, EncodedImages, EncodedImagesSpec,
        FeatureForm, FeatureSpec, FeatureType, ImageFiles, ImageFilesSpec, ImageFolder, ImageFolderSpec,
        Pixels, RaggedData, Rows, Source, TensorSlices, TfRecord, TfRecordSpec, VocSegmentationSpec,
        WebDataset, WebDatasetSpec, coco_detection, voc_segmentation,
    },
    store::{LocalStore, Store, registry::locate},
};

/// Images in a folder or a tar file.
const FILES: usize = 5;

/// Samples that a source in memory has at most.
pub(crate) const MOST: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Images of one size as arrays in memory, and a number.
    Pixels,
    /// Arrays that differ in length, and a number.
    Tokens,
    /// Encoded images in memory and labels; some cannot be decoded.
    Encoded,
    /// Image files, a class a folder.
    Folder,
    /// Images, labels and texts in a tar file.
    Tar,
    /// Images, labels and texts in a TFRecord file.
    Records,
    /// A list of image files and labels; some are not there.
    Files,
    /// Listed images with masks, boxes, labels of boxes, points and a number; some masks are not there.
    Annotated,
    /// Images and masks in the layout of VOC.
    Voc,
    /// Images and boxes in the layout of COCO.
    Coco,
}

impl Kind {
    /// Whether samples and their numbers are those of files: each source has the same.
    pub(crate) fn is_stored(self) -> bool {
        matches!(self, Kind::Folder | Kind::Tar | Kind::Records | Kind::Voc | Kind::Coco)
    }
}

/// A source of a plan. Numbers count up from `first`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) kind: Kind,
    pub(crate) first: i64,
    pub(crate) len: usize,
}

/// A value of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Number(i64),
    Tokens(Vec<i32>),
    Text(String),
    Image {
        good: bool,
    },
    /// Boxes, their labels or points, which transforms change: bytes of a row.
    Rows(usize),
}

impl Leaf {
    pub(crate) fn new(kind: Kind, first: i64, len: usize) -> Self {
        let len = if kind.is_stored() { FILES } else { len };
        Self { kind, first, len }
    }

    pub(crate) fn columns(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Pixels => &["image", "number"],
            Kind::Tokens => &["tokens", "number"],
            Kind::Encoded | Kind::Folder | Kind::Files => &["image", "label"],
            Kind::Annotated => &["image", "mask", "boxes", "labels", "keypoints", "id"],
            Kind::Voc => &["image", "mask"],
            Kind::Coco => &["image", "boxes", "labels", "iscrowd", "image_id"],
            Kind::Tar => &["__key__", "jpg", "cls", "txt"],
            Kind::Records => &["image", "label", "text"],
        }
    }

    /// The values of sample `index`, column by column.
    pub(crate) fn row(&self, index: usize) -> Vec<Cell> {
        assert!(index < self.len, "{index} of {self:?}");
        let number = Cell::Number(self.first + index as i64);
        match self.kind {
            Kind::Pixels => vec![Cell::Image { good: true }, number],
            Kind::Tokens => vec![Cell::Tokens(self.tokens(index)), number],
            Kind::Encoded | Kind::Files => vec![Cell::Image { good: !self.is_bad(index) }, number],
            Kind::Annotated => {
                let image = Cell::Image { good: !self.is_bad(index) };
                vec![image.clone(), image, Cell::Rows(16), Cell::Rows(8), Cell::Rows(8), number]
            }
            Kind::Voc => vec![Cell::Image { good: true }, Cell::Image { good: true }],
            Kind::Coco => {
                let image = Cell::Image { good: true };
                vec![image, Cell::Rows(16), Cell::Rows(8), Cell::Rows(8), Cell::Number(index as i64)]
            }
            Kind::Folder => vec![Cell::Image { good: true }, Cell::Number(i64::from(index > 2))],
            Kind::Records => vec![
                Cell::Image { good: true },
                Cell::Number(5 * index as i64),
                Cell::Text(format!("record {index}")),
            ],
            Kind::Tar => vec![
                Cell::Text(format!("s{index}")),
                Cell::Image { good: true },
                Cell::Number(3 * index as i64),
                Cell::Text(format!("text {index}")),
            ],
        }
    }

    /// Up to 12 tokens; some samples have none.
    fn tokens(&self, index: usize) -> Vec<i32> {
        let length = (self.first as usize / 1000 * 5 + index * index * 3 + index) % 13;
        (0..length as i32).map(|i| (self.first as i32 + index as i32) * 100 + i).collect()
    }

    /// Of every other source one image is damaged, or a file is not there.
    fn is_bad(&self, index: usize) -> bool {
        self.first / 1000 % 2 == 1 && index == 4
    }

    /// Of every third source the bytes come from a store that answers later.
    fn place(&self, files: &Files, name: &str) -> String {
        match self.first / 1000 % 3 {
            2 => format!("delayed+file://{}?latency_ms=0.1", files.path(name)),
            _ => files.path(name),
        }
    }

    /// The path of the file of each sample; `bad` ones lead nowhere.
    fn paths(&self, bad: bool, path: impl Fn(usize) -> String) -> ArrayData {
        let one = |index| if bad && self.is_bad(index) { "nowhere".to_owned() } else { path(index % FILES) };
        bytes((0..self.len).map(one).collect::<Vec<_>>().join("\0").into_bytes())
    }

    pub(crate) fn open(&self, files: &Files) -> Dataset {
        let numbers = wholes(self.first..self.first + self.len as i64);
        let source: Arc<dyn Source> = match self.kind {
            Kind::Pixels => {
                let pixels = (0..self.len * 6 * 6 * 3).map(|i| (i * 7 + self.first as usize) as u8).collect();
                let pixels = ArrayData::from_vec(pixels, DType::UInt8, vec![self.len, 6, 6, 3]).unwrap();
                arrays([("image", pixels.into()), ("number", numbers.into())])
            }
            Kind::Tokens => {
                let rows: Vec<Vec<i32>> = (0..self.len).map(|index| self.tokens(index)).collect();
                let mut offsets = vec![0_i64];
                offsets.extend(rows.iter().scan(0, |end, row| {
                    *end += row.len() as i64;
                    Some(*end)
                }));
                let count = rows.iter().map(Vec::len).sum();
                let values = rows.concat().into_iter().flat_map(i32::to_ne_bytes).collect();
                let values = ArrayData::from_vec(values, DType::Int32, vec![count]).unwrap();
                let tokens = RaggedData::new(values, wholes(offsets)).unwrap();
                arrays([("tokens", tokens.into()), ("number", numbers.into())])
            }
            Kind::Encoded => {
                let broken = b"no image".to_vec();
                let images: Vec<&[u8]> = (0..self.len)
                    .map(|index| if self.is_bad(index) { &broken[..] } else { &IMAGES[index][..] })
                    .collect();
                let mut offsets = vec![0_i64];
                offsets.extend(images.iter().scan(0, |end, image| {
                    *end += image.len() as i64;
                    Some(*end)
                }));
                let spec =
                    EncodedImagesSpec { count: self.len as u64, chunks: 1, labels: true, sounds: false };
                let arrays = vec![bytes(images.concat()), wholes(offsets), numbers];
                Arc::new(EncodedImages::open(spec, arrays).unwrap())
            }
            Kind::Folder => {
                let spec = ImageFolderSpec::new(self.place(files, "folder"));
                Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap())
            }
            Kind::Tar => {
                let spec = WebDatasetSpec::new(self.place(files, "shard.tar"));
                Arc::new(WebDataset::open(Arc::new(LocalStore::new()), spec).unwrap())
            }
            Kind::Records => {
                let feature = |name: &str, dtype| {
                    let form = FeatureForm::FixedLen(Vec::new());
                    FeatureSpec { name: name.to_owned(), key: None, dtype, form, default: None }
                };
                let features = vec![
                    feature("image", FeatureType::Image),
                    feature("label", FeatureType::Int64),
                    feature("text", FeatureType::Text),
                ];
                let url = self.place(files, "records");
                let spec = TfRecordSpec { features: Some(features), ..TfRecordSpec::new(url) };
                Arc::new(TfRecord::open(Arc::new(LocalStore::new()), spec).unwrap())
            }
            Kind::Files => {
                let root = locate(&self.place(files, "folder"), &local()).unwrap();
                let paths =
                    self.paths(true, |file| format!("{}/{}/{file}.jpg", root.path, usize::from(file > 2)));
                let spec = ImageFilesSpec { count: self.len as u64, labels: true, storage: None };
                Arc::new(ImageFiles::open(root.store, spec, vec![paths, numbers]).unwrap())
            }
            Kind::Annotated => {
                let root = locate(&self.place(files, "voc"), &local()).unwrap();
                let images = self.paths(false, |file| format!("{}/JPEGImages/{file}.jpg", root.path));
                let masks = self.paths(true, |file| format!("{}/SegmentationClass/{file}.png", root.path));
                let boxes = (0..self.len).map(|index| index % 3);
                let (corners, labels) = boxes_of(boxes.clone());
                let points = (0..self.len).map(|index| (index + 1) % 3);
                let places: Vec<f32> = (0..2 * points.clone().sum::<usize>()).map(|i| i as f32).collect();
                let field = |name: &str, kind| FieldSpec { name: name.to_owned(), kind };
                let spec = AnnotatedSpec {
                    count: self.len as u64,
                    fields: vec![
                        field("mask", FieldKind::Mask { dtype: DType::UInt8, grey: false }),
                        field("boxes", FieldKind::Boxes { format: BoxFormat::Xyxy, dtype: DType::Float32 }),
                        field("labels", FieldKind::BoxLabels { dtype: DType::Int64 }),
                        field("keypoints", FieldKind::Keypoints),
                        field("id", FieldKind::LABEL),
                    ],
                    storage: None,
                };
                let arrays = vec![
                    images,
                    masks,
                    floats(&corners.concat(), 4),
                    wholes(ends(boxes.clone())),
                    wholes(labels),
                    wholes(ends(boxes)),
                    floats(&places, 2),
                    wholes(ends(points)),
                    numbers,
                ];
                Arc::new(Annotated::open(root.store, spec, arrays).unwrap())
            }
            Kind::Voc => {
                let (year, image_set) = ("2012".to_owned(), "train".to_owned());
                let spec = VocSegmentationSpec { root: self.place(files, "voc"), year, image_set };
                Arc::new(voc_segmentation(local(), spec).unwrap())
            }
            Kind::Coco => {
                let annotations = self.place(files, "coco.json");
                let spec = CocoDetectionSpec { root: self.place(files, "voc/JPEGImages"), annotations };
                Arc::new(coco_detection(local(), spec).unwrap())
            }
        };
        Dataset::new(source)
    }
}

fn local() -> Arc<dyn Store> {
    Arc::new(LocalStore::new())
}

fn bytes(data: Vec<u8>) -> ArrayData {
    let len = data.len();
    ArrayData::from_vec(data, DType::UInt8, vec![len]).unwrap()
}

fn wholes(numbers: impl IntoIterator<Item = i64>) -> ArrayData {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(i64::to_ne_bytes).collect();
    let len = bytes.len() / 8;
    ArrayData::from_vec(bytes, DType::Int64, vec![len]).unwrap()
}

fn floats(numbers: &[f32], width: usize) -> ArrayData {
    let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    ArrayData::from_vec(bytes, DType::Float32, vec![numbers.len() / width, width]).unwrap()
}

/// After how many rows those of each sample end.
fn ends(counts: impl Iterator<Item = usize>) -> Vec<i64> {
    let add = |sum: &mut i64, count| {
        *sum += count as i64;
        Some(*sum)
    };
    counts.scan(0, add).collect()
}

/// Left, top, right and bottom of all boxes, and their labels.
fn boxes_of(counts: impl Iterator<Item = usize>) -> (Vec<[f32; 4]>, Vec<i64>) {
    let one = |(number, _): (usize, ())| {
        let (left, top) = ((number % 4) as f32, (number % 3) as f32);
        ([left, top, left + 3.0, top + (number % 5) as f32], number as i64)
    };
    std::iter::repeat_n((), counts.sum()).enumerate().map(one).unzip()
}

fn arrays(fields: [(&str, Rows); 2]) -> Arc<TensorSlices> {
    let fields = fields.map(|(name, rows)| (name.to_owned(), rows, Pixels::Infer)).to_vec();
    let structure = Structure::Tuple(vec![Structure::Field(0), Structure::Field(1)]);
    Arc::new(TensorSlices::new(fields, structure).unwrap())
}

/// A few elements that differ in nothing but their number.
pub(crate) fn blank(len: usize) -> Dataset {
    let bytes = ArrayData::from_vec(vec![0; len], DType::UInt8, vec![len]).unwrap();
    let fields = vec![("x".to_owned(), bytes, Pixels::Never)];
    Dataset::new(Arc::new(TensorSlices::new(fields, Structure::Field(0)).unwrap()))
}

/// Encoded images of different sizes: JPEG, and PNG among them.
static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..MOST).map(image).collect());

fn image(number: usize) -> Vec<u8> {
    let (width, height) = (8 + number % 5 * 3, 7 + number % 4 * 4);
    let pixels: Vec<u8> = (0..width * height * 3).map(|i| (i * (number + 3) / 2) as u8).collect();
    let mut bytes = Vec::new();
    if number % 3 == 1 {
        let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    } else {
        let encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
        encoder.encode(&pixels, width as u16, height as u16, jpeg_encoder::ColorType::Rgb).unwrap();
    }
    bytes
}

/// A field of a message of protocol buffers.
fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut length = bytes.len();
    let mut message = vec![number << 3 | 2];
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    [&message, bytes].concat()
}

/// A `tf.train.Example`.
fn record(number: usize, image: &[u8]) -> Vec<u8> {
    let feature = |name: &str, feature: Vec<u8>| {
        message(1, &[message(1, name.as_bytes()), message(2, &feature)].concat())
    };
    let bytes = |bytes: &[u8]| message(1, &message(1, bytes));
    let features = [
        feature("text", bytes(format!("record {number}").as_bytes())),
        feature("label", message(3, &[1 << 3, 5 * number as u8])),
        feature("image", bytes(image)),
    ];
    message(1, &features.concat())
}

/// Adds a record to a TFRecord file.
fn framed(record: &[u8], file: &mut Vec<u8>) {
    let crc =
        |bytes: &[u8]| crc_fast::crc32_iscsi(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let length = (record.len() as u64).to_le_bytes();
    [&length[..], &crc(&length), record, &crc(record)].iter().for_each(|part| file.extend_from_slice(part));
}

/// A value of a mask is so much of its image.
pub(crate) const SHADE: u8 = 20;

/// An image in grey, and its mask, of different sizes from number to number.
fn shades(number: usize) -> (Vec<u8>, Vec<u8>) {
    let (width, height) = (7 + number % 3 * 2, 8 + number % 2 * 3);
    let mask: Vec<u8> = (0..width * height).map(|at| (at * (number + 5) / 3 % 13) as u8).collect();
    let encoded = |color, pixels: &[u8]| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
        encoder.set_color(color);
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        bytes
    };
    let image: Vec<u8> = mask.iter().flat_map(|value| [value * SHADE; 3]).collect();
    (encoded(png::ColorType::Rgb, &image), encoded(png::ColorType::Grayscale, &mask))
}

/// The folder of sources that lie in files, and of caches. It vanishes with the last test that holds it.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    caches: AtomicU64,
}

impl Files {
    pub(crate) fn new() -> Arc<Self> {
        static FILES: Mutex<Weak<Files>> = Mutex::new(Weak::new());
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut files = FILES.lock().unwrap();
        files.upgrade().unwrap_or_else(|| {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let root = env::temp_dir().join(format!("wellfed-trees-{}-{number}", process::id()));
            let this = Arc::new(Self { root, caches: AtomicU64::new(0) });
            this.write();
            *files = Arc::downgrade(&this);
            this
        })
    }

    fn write(&self) {
        fs::create_dir_all(&self.root).unwrap();
        let mut records = Vec::new();
        let mut tar = tar::Builder::new(fs::File::create(self.root.join("shard.tar")).unwrap());
        let mut add = |name: String, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, bytes).unwrap();
        };
        for (number, image) in IMAGES.iter().enumerate().take(FILES) {
            let class = self.root.join(format!("folder/{}", usize::from(number > 2)));
            fs::create_dir_all(&class).unwrap();
            fs::write(class.join(format!("{number}.jpg")), image).unwrap();
            add(format!("s{number}.jpg"), image);
            add(format!("s{number}.cls"), (3 * number).to_string().as_bytes());
            add(format!("s{number}.txt"), format!("text {number}").as_bytes());
            framed(&record(number, image), &mut records);
        }
        tar.into_inner().unwrap();
        fs::write(self.root.join("records"), records).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = self.root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let (mut names, mut images, mut objects) = (String::new(), Vec::new(), Vec::new());
        let (corners, labels) = boxes_of(0..FILES);
        let mut boxes = corners.iter().zip(labels);
        for number in 0..FILES {
            let (image, mask) = shades(number);
            // What a file holds is found out by looking at it.
            write(&format!("voc/JPEGImages/{number}.jpg"), &image);
            write(&format!("voc/SegmentationClass/{number}.png"), &mask);
            names += &format!("{number}\n");
            images.push(format!(r#"{{"id": {number}, "file_name": "{number}.jpg"}}"#));
            for ([left, top, right, bottom], label) in boxes.by_ref().take(number % 4) {
                let size = [right - left, bottom - top];
                objects.push(format!(
                    r#"{{"image_id": {number}, "category_id": {label}, "bbox": [{left}, {top}, {}, {}]}}"#,
                    size[0], size[1]
                ));
            }
        }
        write("voc/ImageSets/Segmentation/train.txt", names.as_bytes());
        let (images, objects) = (images.join(", "), objects.join(", "));
        write("coco.json", format!(r#"{{"images": [{images}], "annotations": [{objects}]}}"#).as_bytes());
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().unwrap().to_owned()
    }

    /// The name of a folder that does not exist yet.
    pub(crate) fn cache(&self) -> String {
        self.path(&format!("cache-{}", self.caches.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Left behind at worst in the system's folder for temporary files.
        let _ = fs::remove_dir_all(&self.root);
    }
}
