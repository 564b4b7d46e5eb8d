//! libjpeg-turbo as the reference: full, region and scaled decoding through its plain C API.
//!
//! Owns the one decompressor of a [`Turbo`]; a call leaves it ready for the next file whatever happened.

// Linked for the library that it builds.
use turbojpeg_sys as _;

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;

#[repr(C)]
struct Handle {
    _private: [u8; 0],
}

/// What was decoded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub width: u32,
    pub height: u32,
    pub channels: u32,
    pub warnings: u32,
    pub file_width: u32,
    pub file_height: u32,
    pub progressive: u32,
}

unsafe extern "C" {
    fn turbo_new() -> *mut Handle;
    fn turbo_free(turbo: *mut Handle);
    fn turbo_message(turbo: *const Handle) -> *const c_char;
    fn turbo_header(turbo: *mut Handle, data: *const u8, size: usize, image: *mut Image) -> c_int;
    fn turbo_decode(
        turbo: *mut Handle,
        data: *const u8,
        size: usize,
        format: c_int,
        region: *const u32,
        denominator: c_int,
        strict: c_int,
        most_scans: c_int,
        out: *mut u8,
        stride: usize,
        room: usize,
        image: *mut Image,
    ) -> c_int;
}

/// Channels of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Grey, RGB or CMYK, by the number of components.
    Native = 0,
    Rgb = 1,
    Grey = 2,
}

/// A decompressor; its memory is kept from file to file.
pub struct Turbo(NonNull<Handle>);

// SAFETY: the C side keeps everything in the handle.
unsafe impl Send for Turbo {}

impl Default for Turbo {
    fn default() -> Self {
        Turbo::new()
    }
}

impl Turbo {
    pub fn new() -> Turbo {
        // SAFETY: no arguments.
        Turbo(NonNull::new(unsafe { turbo_new() }).expect("memory for a decompressor"))
    }

    fn message(&self) -> String {
        // SAFETY: the message is a string inside the handle, ended by zero.
        unsafe { CStr::from_ptr(turbo_message(self.0.as_ptr())) }.to_string_lossy().into_owned()
    }

    /// Size and kind of a file.
    pub fn header(&mut self, bytes: &[u8]) -> Result<Image, String> {
        let mut image = Image::default();
        // SAFETY: the pointers are valid for the call.
        match unsafe { turbo_header(self.0.as_ptr(), bytes.as_ptr(), bytes.len(), &mut image) } {
            0 => Ok(image),
            _ => Err(self.message()),
        }
    }

    /// Decodes into `out`, rows `stride` bytes apart; of a `region` (x, y, width, height) libjpeg-turbo
    /// widens the columns to whole MCUs.
    pub fn decode_into(
        &mut self,
        bytes: &[u8],
        format: Format,
        region: Option<[u32; 4]>,
        denominator: u32,
        out: &mut [u8],
        stride: usize,
    ) -> Result<Image, String> {
        self.decode_limited(bytes, format, region, denominator, 0, 0, out, stride)
    }

    #[allow(clippy::too_many_arguments)]
    fn decode_limited(
        &mut self,
        bytes: &[u8],
        format: Format,
        region: Option<[u32; 4]>,
        denominator: u32,
        strict: c_int,
        most_scans: i32,
        out: &mut [u8],
        stride: usize,
    ) -> Result<Image, String> {
        let mut image = Image::default();
        let region = region.as_ref().map_or(std::ptr::null(), |r| r.as_ptr());
        // SAFETY: the pointers are valid for the call; the C side checks `out` against `room` before it writes.
        let code = unsafe {
            turbo_decode(
                self.0.as_ptr(),
                bytes.as_ptr(),
                bytes.len(),
                format as c_int,
                region,
                denominator as c_int,
                strict,
                most_scans,
                out.as_mut_ptr(),
                stride,
                out.len(),
                &mut image,
            )
        };
        match code {
            0 => Ok(image),
            -2 => Err("too little room".into()),
            -3 => Err("too many scans".into()),
            _ => Err(self.message()),
        }
    }

    /// Decodes a whole file with a decompressor of its own, because one that is used again remembers the tables of
    /// earlier files; refuses more pixels than `most_pixels` and more scans than `most_scans`.
    /// `strict` treats data that ends early as Pillow does, as an error; else libjpeg-turbo fills in.
    pub fn decode(
        bytes: &[u8],
        format: Format,
        strict: bool,
        most_pixels: usize,
        most_scans: u32,
    ) -> Result<(Image, Vec<u8>), String> {
        let mut turbo = Turbo::new();
        let header = turbo.header(bytes)?;
        let pixels = header.file_width as usize * header.file_height as usize;
        if pixels > most_pixels {
            return Err("too many pixels".into());
        }
        let channels = match format {
            Format::Native if header.channels == 1 => 1,
            Format::Native if header.channels == 4 => 4,
            Format::Grey => 1,
            _ => 3,
        };
        let mut out = vec![0; pixels * channels];
        let stride = header.file_width as usize * channels;
        let image = turbo.decode_limited(
            bytes,
            format,
            None,
            1,
            if strict { 1 } else { 2 },
            most_scans as i32,
            &mut out,
            stride,
        )?;
        Ok((image, out))
    }
}

impl Drop for Turbo {
    fn drop(&mut self) {
        // SAFETY: made by `turbo_new`, freed once.
        unsafe { turbo_free(self.0.as_ptr()) }
    }
}
