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
    sample::{DType, Structure},
    source::{
        ArrayData, EncodedImages, EncodedImagesSpec, ImageFolder, ImageFolderSpec, Pixels, RaggedData, Rows,
        Source, TensorSlices, WebDataset, WebDatasetSpec,
    },
    store::LocalStore,
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
    Image { good: bool },
}

impl Leaf {
    pub(crate) fn new(kind: Kind, first: i64, len: usize) -> Self {
        let len = if matches!(kind, Kind::Folder | Kind::Tar) { FILES } else { len };
        Self { kind, first, len }
    }

    pub(crate) fn columns(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Pixels => &["image", "number"],
            Kind::Tokens => &["tokens", "number"],
            Kind::Encoded | Kind::Folder => &["image", "label"],
            Kind::Tar => &["__key__", "jpg", "cls", "txt"],
        }
    }

    /// The values of sample `index`, column by column.
    pub(crate) fn row(&self, index: usize) -> Vec<Cell> {
        assert!(index < self.len, "{index} of {self:?}");
        let number = Cell::Number(self.first + index as i64);
        match self.kind {
            Kind::Pixels => vec![Cell::Image { good: true }, number],
            Kind::Tokens => vec![Cell::Tokens(self.tokens(index)), number],
            Kind::Encoded => vec![Cell::Image { good: !self.is_bad(index) }, number],
            Kind::Folder => vec![Cell::Image { good: true }, Cell::Number(i64::from(index > 2))],
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

    /// Of every other source one image is damaged.
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

    pub(crate) fn open(&self, files: &Files) -> Dataset {
        let numbers = (self.first..self.first + self.len as i64).flat_map(i64::to_ne_bytes).collect();
        let numbers = ArrayData::from_vec(numbers, DType::Int64, vec![self.len]).unwrap();
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
                let ends = offsets.len();
                let offsets = offsets.into_iter().flat_map(i64::to_ne_bytes).collect();
                let offsets = ArrayData::from_vec(offsets, DType::Int64, vec![ends]).unwrap();
                let tokens = RaggedData::new(values, offsets).unwrap();
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
                let ends = offsets.len();
                let offsets = offsets.into_iter().flat_map(i64::to_ne_bytes).collect();
                let offsets = ArrayData::from_vec(offsets, DType::Int64, vec![ends]).unwrap();
                let data = images.concat();
                let bytes = data.len();
                let data = ArrayData::from_vec(data, DType::UInt8, vec![bytes]).unwrap();
                let spec = EncodedImagesSpec { count: self.len as u64, chunks: 1, labels: true };
                Arc::new(EncodedImages::open(spec, vec![data, offsets, numbers]).unwrap())
            }
            Kind::Folder => {
                let spec = ImageFolderSpec::new(self.place(files, "folder"));
                Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap())
            }
            Kind::Tar => {
                let spec = WebDatasetSpec::new(self.place(files, "shard.tar"));
                Arc::new(WebDataset::open(Arc::new(LocalStore::new()), spec).unwrap())
            }
        };
        Dataset::new(source)
    }
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
        }
        tar.into_inner().unwrap();
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
