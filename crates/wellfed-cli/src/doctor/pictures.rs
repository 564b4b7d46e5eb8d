//! Sizes of the image files that a script read: their heads are read again after it ended.

use std::{collections::BTreeSet, fs::File, io::Read};

use wellfed::codec::image_header;
use wellfed_doctor::{evidence::Evidence, run_dir::RunDir, system::Picture};

/// Files that are looked at, at most: their median is what counts.
const MOST: usize = 24;

/// Bytes of a file within which its size has to be told: behind a thumbnail and a colour profile.
const HEAD: u64 = 256 << 10;

/// Heads of some files that are images, of those that the loader of most of the script's time opened.
pub(super) fn of(run: &RunDir) -> Vec<Picture> {
    let evidence = Evidence::of(run);
    let paths: BTreeSet<&str> = evidence.loading.files.iter().map(|(path, _)| path.as_str()).collect();
    let step = paths.len().div_ceil(MOST).max(1);
    paths.into_iter().step_by(step).filter_map(picture).collect()
}

fn picture(path: &str) -> Option<Picture> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    let (_, header) = image_header(&head).ok()?;
    Some(Picture { height: u32::try_from(header.height).ok()?, width: u32::try_from(header.width).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_images_are_read_and_other_files_are_none() {
        let directory = std::env::temp_dir().join(format!("wellfed-pictures-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let place = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        let mut jpeg = Vec::new();
        let encoder = jpeg_encoder::Encoder::new(&mut jpeg, 90);
        encoder.encode(&[9; 7 * 5 * 3], 7, 5, jpeg_encoder::ColorType::Rgb).unwrap();
        // What comes behind the head may be missing.
        jpeg.truncate(jpeg.len() - 2);
        std::fs::write(place("a.jpg"), jpeg).unwrap();
        std::fs::write(place("b.txt"), "no image").unwrap();
        let seen = [picture(&place("a.jpg")), picture(&place("b.txt")), picture(&place("none"))];
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(seen, [Some(Picture { height: 5, width: 7 }), None, None]);
    }
}
