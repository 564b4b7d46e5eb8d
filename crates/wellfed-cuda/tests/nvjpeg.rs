//! Decoding by nvJPEG, against one that fakes it: which engine, what is refused, what fails, and that nothing is left. The
//! real library, where Python's packages have it, is opened.
#![cfg(unix)]

mod common;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use common::Fake;
use wellfed_cuda::{
    Error,
    device::Device,
    memory::DeviceBuffer,
    nvjpeg::{Decoder, Engine, Nvjpeg, Options, Planes, Refusal},
    stream::Stream,
};

const WIDTH: u32 = 6;
const HEIGHT: u32 = 4;
const PITCH: usize = 8;

/// The headers of a JPEG of `WIDTH` x `HEIGHT` with a comment, and perhaps its end.
fn jpeg(comment: &str, whole: bool) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xFE, 0, comment.len() as u8 + 2];
    bytes.extend(comment.bytes());
    bytes.extend([0xFF, 0xC0, 0, 17, 8, 0, HEIGHT as u8, 0, WIDTH as u8]);
    bytes.extend([3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1]);
    bytes.extend([0xFF, 0xDA, 0, 12, 3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]);
    if whole {
        bytes.extend([0xFF, 0xD9]);
    }
    bytes
}

type Outcomes = Vec<Result<(), Refusal>>;

struct Setting {
    fake: Fake,
    driver: Fake,
    nvjpeg: Arc<Nvjpeg>,
    device: Arc<Device>,
}

impl Setting {
    fn new() -> Self {
        let (fake, driver) = (Fake::nvjpeg(), Fake::new());
        let nvjpeg = Nvjpeg::load(fake.path()).unwrap();
        let device = Device::open_with(driver.driver().unwrap(), 0).unwrap();
        Self { fake, driver, nvjpeg, device }
    }

    fn decoder(&self, engine: Option<Engine>) -> Result<Arc<Decoder>, Error> {
        Decoder::new(&self.nvjpeg, &self.device, Options { engine, ..Options::default() })
    }

    /// Decodes JPEGs one behind the other, and gives the outcome and the bytes of all planes.
    fn decode(&self, decoder: &Arc<Decoder>, jpegs: &[&[u8]]) -> Result<(Outcomes, Vec<u8>), Error> {
        let stream = Arc::new(Stream::new(&self.device, 0)?);
        let plane = PITCH * HEIGHT as usize;
        let mut buffer = DeviceBuffer::new(&stream, 3 * plane * jpegs.len())?;
        buffer.fill(0, &stream)?;
        stream.synchronize()?;
        let planes: Vec<Planes> = (0..jpegs.len())
            .map(|image| Planes {
                pointers: [0, 1, 2].map(|channel| buffer.pointer() + ((3 * image + channel) * plane) as u64),
                pitch: PITCH,
                width: WIDTH,
                height: HEIGHT,
            })
            .collect();
        // SAFETY: the planes are of the buffer, which is read when the stream has passed.
        let outcomes = unsafe { decoder.session()?.decode(jpegs, &planes, &stream) }?;
        let mut bytes = vec![0; buffer.len()];
        buffer.read(0, &mut bytes, &stream)?;
        Ok((outcomes, bytes))
    }
}

/// Whether the planes of image `index` hold what the fake decodes, or else nothing.
fn is_decoded(bytes: &[u8], index: usize) -> bool {
    let size = 3 * PITCH * HEIGHT as usize;
    let image = &bytes[index * size..][..size];
    let decoded = image.chunks(PITCH * HEIGHT as usize).zip([10, 20, 30]).all(|(plane, value)| {
        plane.chunks(PITCH).all(|row| row[..6].iter().all(|&byte| byte == value) && row[6..] == [0, 0])
    });
    assert!(decoded || image.iter().all(|&byte| byte == 0));
    decoded
}

#[test]
fn the_hardware_decodes_where_there_is_one() {
    let setting = Setting::new();
    assert_eq!(setting.nvjpeg.version(), (13, 1, 2));
    let decoder = setting.decoder(None).unwrap();
    assert_eq!(
        (decoder.engine(), decoder.hardware(), decoder.no_hardware()),
        (Engine::Hardware, Some((1, 2)), None)
    );
    assert_eq!(setting.fake.number(b"fake_nvjpeg_flags"), 4 | 32);
    drop(decoder);
    setting.fake.set_nvjpeg("engines", 0);
    let decoder = setting.decoder(None).unwrap();
    assert_eq!((decoder.engine().name(), decoder.hardware()), ("hybrid", None));
    let why = decoder.no_hardware().unwrap().to_string();
    assert!(why.starts_with("nvjpegCreateEx failed: NVJPEG_STATUS_ARCH_MISMATCH (7)"), "{why}");
    assert!(setting.decoder(Some(Engine::Hardware)).is_err());
    assert_eq!(setting.decoder(Some(Engine::GpuHybrid)).unwrap().engine(), Engine::GpuHybrid);
    drop(decoder);
    assert_eq!(setting.fake.number(b"fake_nvjpeg_alive"), 0);
}

#[test]
fn each_image_is_decoded_or_refused_by_itself() {
    let setting = Setting::new();
    let (good, cut, hard) = (jpeg("", true), jpeg("", false), jpeg("refuse", true));
    let mut progressive = good.clone();
    progressive[7] = 0xC2;
    let jpegs: [&[u8]; 6] = [&good, &progressive, &hard, b"GIF89a", &cut, &good];
    let decoder = setting.decoder(Some(Engine::Hardware)).unwrap();
    let (outcomes, bytes) = setting.decode(&decoder, &jpegs).unwrap();
    let bad = Refusal::Status("NVJPEG_STATUS_BAD_JPEG".to_owned());
    let expected =
        [Ok(()), Err(Refusal::Process(0xC2)), Err(Refusal::Engine), Err(Refusal::Damaged), Err(bad), Ok(())];
    assert_eq!(outcomes, expected);
    for (index, outcome) in outcomes.iter().enumerate() {
        assert_eq!(is_decoded(&bytes, index), outcome.is_ok(), "{index}");
    }
    assert_eq!(setting.fake.number(b"fake_nvjpeg_batches"), 1 + 3, "the batch, and each that was taken");
    // Another engine takes what the hardware does not.
    let decoder = setting.decoder(Some(Engine::Hybrid)).unwrap();
    let (outcomes, bytes) = setting.decode(&decoder, &[&hard, &good]).unwrap();
    assert_eq!(outcomes, [Ok(()), Ok(())]);
    assert!(is_decoded(&bytes, 0) && is_decoded(&bytes, 1));
    assert_eq!(setting.fake.number(b"fake_nvjpeg_batches"), 5, "one batch");
}

#[test]
fn nothing_is_decoded_into_planes_of_another_size() {
    let setting = Setting::new();
    let decoder = setting.decoder(None).unwrap();
    let mut session = decoder.session().unwrap();
    let stream = Stream::new(&setting.device, 0).unwrap();
    let good = jpeg("", true);
    let planes = Planes { pointers: [0; 3], pitch: PITCH, width: WIDTH, height: HEIGHT };
    // SAFETY: nothing of it is decoded.
    let mut decode = |planes: &[Planes], stream: &Stream| unsafe { session.decode(&[&good], planes, stream) };
    for wrong in
        [Planes { width: 5, ..planes }, Planes { height: 5, ..planes }, Planes { pitch: 5, ..planes }]
    {
        let error = decode(&[wrong], &stream).unwrap_err();
        assert!(error.to_string().starts_with("JPEG 0 has 6 x 4 pixels, and its planes "), "{error}");
    }
    assert_eq!(decode(&[], &stream).unwrap_err(), Error::Argument("1 JPEGs have 0 places".to_owned()));
    let other = Device::open_with(Arc::clone(setting.device.driver()), 1).unwrap();
    assert!(decode(&[planes], &Stream::new(&other, 0).unwrap()).is_err());
    // nvJPEG reads another size than the header has.
    setting.fake.set_nvjpeg("width", 7);
    assert_eq!(decode(&[planes], &stream), Ok(vec![Err(Refusal::Size)]));
    assert_eq!(setting.fake.number(b"fake_nvjpeg_batches"), 0);
}

#[test]
fn what_is_not_about_an_image_is_an_error() {
    let setting = Setting::new();
    let decoder = setting.decoder(None).unwrap();
    setting.fake.set_nvjpeg("fail", 6);
    let error = setting.decode(&decoder, &[&jpeg("", true)]).unwrap_err();
    assert!(
        matches!(&error, Error::Call { call: "nvjpegDecodeBatched", code: 6, name, .. }
            if name == "NVJPEG_STATUS_EXECUTION_FAILED"),
        "{error}"
    );
    setting.fake.set_nvjpeg("fail", 0);
    assert_eq!(setting.decode(&decoder, &[&jpeg("", true)]).unwrap().0, [Ok(())]);
    assert_eq!(setting.decode(&decoder, &[b"none"]).unwrap().0, [Err(Refusal::Damaged)]);
    drop(decoder);
    assert_eq!(setting.fake.number(b"fake_nvjpeg_alive"), 0);
    let Setting { driver, device, .. } = setting;
    drop(device);
    assert_eq!(driver.alive(), 0);
}

#[test]
fn libraries_that_are_too_old_are_named() {
    let error = Nvjpeg::load(Fake::nvjpeg_without("nvjpegDecodeBatched").path()).unwrap_err();
    assert!(matches!(error, Error::Symbol { symbol: "nvjpegDecodeBatched", .. }), "{error}");
    let fake = Fake::nvjpeg();
    fake.set_nvjpeg("version", 11);
    let error = Nvjpeg::load(fake.path()).unwrap_err().to_string();
    assert!(
        error.contains(" is nvJPEG 11.1, and 12 or later is needed\nhint: pip install nvidia-nvjpeg"),
        "{error}"
    );
    // Without this one the hardware decodes, too; nobody knows how many engines there are.
    let (fake, driver) = (Fake::nvjpeg_without("nvjpegGetHardwareDecoderInfo"), Fake::new());
    let device = Device::open_with(driver.driver().unwrap(), 0).unwrap();
    let decoder = Decoder::new(&Nvjpeg::load(fake.path()).unwrap(), &device, Options::default()).unwrap();
    assert_eq!((decoder.engine(), decoder.hardware()), (Engine::Hardware, None));
    let error = Nvjpeg::load(Path::new("/nowhere/libnvjpeg.so")).unwrap_err().to_string();
    assert!(error.starts_with("libnvjpeg was not found; looked for\n  /nowhere/libnvjpeg.so: "), "{error}");
    assert!(error.contains("\nhint: pip install nvidia-nvjpeg"), "{error}");
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn the_library_of_python_s_packages_is_found_and_opened() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = std::env::var_os("VIRTUAL_ENV").map_or(root.join(".venv"), PathBuf::from);
    let folders: Vec<PathBuf> = std::fs::read_dir(root.join("lib"))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path().join("site-packages"))
        .collect();
    let found = folders.iter().any(|folder| {
        let names = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap());
        names(folder.join("torchvision.libs"))
            .any(|entry| entry.file_name().to_string_lossy().starts_with("libnvjpeg"))
    });
    if !found {
        eprintln!("SKIPPED: torchvision's libnvjpeg is not below {}", root.display());
        return;
    }
    let nvjpeg = Nvjpeg::find(&folders).unwrap();
    assert!(nvjpeg.path().contains("libnvjpeg"), "{}", nvjpeg.path());
    assert!(nvjpeg.version().0 >= 12);
    // A second time it is the one that is loaded already.
    assert_eq!(Nvjpeg::find(&[]).unwrap().version(), nvjpeg.version());
}
