//! What bytes look like that no codec reads: the difference between "corrupt" and a message that helps.

use crate::{Error, ErrorKind};

/// Formats that are recognised to name them: offset, magic bytes, name with article.
const KNOWN: [(usize, &[u8], &str); 17] = [
    (0, b"II+\0", "a BigTIFF"),
    (0, b"MM\0+", "a BigTIFF"),
    (0, b"BM", "a BMP of an unknown kind"),
    (0, b"Pf", "a PFM of floating-point numbers"),
    (4, b"ftypavif", "an AVIF image"),
    (4, b"ftypheic", "a HEIC image"),
    (4, b"ftypmif1", "a HEIF image"),
    (0, b"\xFF\x0A", "a JPEG XL image"),
    (0, b"\0\0\0\x0CJXL ", "a JPEG XL image"),
    (0, b"\0\0\0\x0CjP  ", "a JPEG 2000 image"),
    (0, b"8BPS", "a Photoshop document"),
    (0, b"\0\0\x01\0", "a Windows icon"),
    (0, b"%PDF", "a PDF"),
    (0, b"\x1F\x8B", "a gzip archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded"),
];

/// The error for bytes that [`super::detect`] does not know.
pub(super) fn describe(bytes: &[u8]) -> Error {
    if bytes.is_empty() {
        return Error::corrupt("file is empty");
    }
    if bytes.iter().all(|&b| b == 0) {
        return Error::corrupt(format!("file holds nothing but {} zeros", bytes.len()))
            .with_hint("a copy or download may have been interrupted after its space was reserved");
    }
    for (at, magic, name) in KNOWN {
        if bytes.get(at..).is_some_and(|b| b.starts_with(magic)) {
            return Error::new(
                ErrorKind::Unsupported,
                format!("bytes look like {name}; JPEG, PNG, WebP, GIF, TIFF, BMP and PNM are supported"),
            );
        }
    }
    let start = bytes.trim_ascii_start();
    let lower: Vec<u8> = start.iter().take(16).map(u8::to_ascii_lowercase).collect();
    if [&b"<!doctype"[..], b"<html", b"<?xml", b"<svg"].iter().any(|tag| lower.starts_with(tag)) {
        return Error::new(ErrorKind::Unsupported, "bytes look like a web page or XML, not like an image")
            .with_hint("a download may have saved an error page in place of the image");
    }
    if [&b"\xFF\xD8\xFF"[..], b"\x89PNG\r\n\x1A\n"].iter().any(|magic| magic.starts_with(bytes)) {
        return Error::corrupt(format!("file has only {} bytes", bytes.len()));
    }
    let first: Vec<String> = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
    Error::corrupt(format!("bytes are of no known image format: they begin with {}", first.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_bytes_look_like_is_said() {
        let cases: [(&[u8], ErrorKind, &str); 7] = [
            (b"", ErrorKind::Corrupt, "empty"),
            (&[0; 100], ErrorKind::Corrupt, "100 zeros"),
            (b"\0\0\0\x1cftypavif", ErrorKind::Unsupported, "AVIF"),
            (b"\n <!DOCTYPE html><html>", ErrorKind::Unsupported, "web page"),
            (b"\xFF\xD8", ErrorKind::Corrupt, "only 2 bytes"),
            (b"hello world", ErrorKind::Corrupt, "68 65 6c 6c 6f 20 77 6f"),
            (b"II+\0\x08\0\0\0", ErrorKind::Unsupported, "BigTIFF"),
        ];
        for (bytes, kind, text) in cases {
            let e = describe(bytes);
            assert_eq!(e.kind(), kind, "{e}");
            assert!(e.message().contains(text), "{e}");
        }
    }
}
