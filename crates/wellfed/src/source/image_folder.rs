//! Image or audio files in folders: one class a folder, a flat folder, or a pattern of paths.
//!
//! Classes, order of samples, extensions, links, hidden files and errors are those of torchvision's `ImageFolder`
//! (`torchvision/datasets/folder.py`), with two differences, both errors where torchvision is silent: folders that
//! cannot be listed and loops of symbolic links. Listing looks at names only, not at the files; a million files take
//! about 20 MB.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Fingerprint, KeptDurations, Part, Source, SourceSpec, beyond_the_end, copy_image, durations, located,
    location, stamp,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{FieldKind, Record, Schema, Value},
    store::{
        RetryingStore, Store, glob, join,
        listing::{self, Listing},
        secrets, zip,
    },
};

/// Extensions that count as images unless others are given: torchvision's, in its order. Those that cannot be
/// decoded yet are listed all the same, and are errors when decoded.
pub const IMG_EXTENSIONS: [&str; 9] =
    [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// Extensions that count as sounds unless others are given.
pub const AUDIO_EXTENSIONS: [&str; 12] =
    [".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".m4a", ".mp4", ".aac", ".aif", ".aiff", ".wave"];

/// What files hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Images,
    Sounds,
}

impl Holds {
    /// The field, and what it is.
    fn field(self) -> (&'static str, FieldKind) {
        match self {
            Holds::Images => ("image", FieldKind::Image),
            Holds::Sounds => ("audio", FieldKind::Audio),
        }
    }

    /// Ends of names that count unless others are given.
    fn extensions(self) -> Vec<String> {
        let all: &[&str] = match self {
            Holds::Images => &IMG_EXTENSIONS,
            Holds::Sounds => &AUDIO_EXTENSIONS,
        };
        all.iter().map(|&extension| extension.to_owned()).collect()
    }
}

/// Where labels come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Labels {
    /// Each folder in the root is a class: samples are (image, label).
    #[default]
    Folders,
    /// No labels: samples are images, of the root and of all folders below it.
    None,
}

/// What to open: the root or pattern, and how to read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageFolderSpec {
    /// A folder, a zip archive or a folder in one (`a.zip!/b`: [`crate::store::zip`]); or, if it has one of the characters `*?[` and is no folder, a pattern in the sense of
    /// [`crate::store::glob`]. A pattern gives images without labels.
    pub root: String,
    /// Ends of file names to take, upper or lower case. Default: [`IMG_EXTENSIONS`] or
    /// [`AUDIO_EXTENSIONS`]; with a pattern: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<String>>,
    /// Accept classes (or a flat folder, or a pattern) without images.
    #[serde(default)]
    pub allow_empty: bool,
    /// Where labels come from.
    #[serde(default)]
    pub labels: Labels,
}

impl ImageFolderSpec {
    /// `root` with one class a folder and all defaults.
    pub fn new(root: impl Into<String>) -> Self {
        Self { root: root.into(), extensions: None, allow_empty: false, labels: Labels::Folders }
    }
}

/// Image or audio files in folders. Fields: `image` or `audio`, and with classes `label`.
#[derive(Debug)]
pub struct ImageFolder {
    store: Arc<dyn Store>,
    spec: ImageFolderSpec,
    holds: Holds,
    /// The root in its store.
    root: String,
    schema: Schema,
    classes: Option<Vec<String>>,
    folders: Vec<Listing>,
    /// Index of the first sample of each folder.
    starts: Vec<u64>,
    len: u64,
    /// Length of what keys leave away from paths.
    prefix: usize,
    durations: KeptDurations,
}

impl ImageFolder {
    /// Lists the files.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the root, class folders or (unless allowed) images are missing;
    /// [`ErrorKind::Config`] for senseless extensions; what [`listing::walk`] says.
    pub fn open(store: Arc<dyn Store>, spec: ImageFolderSpec) -> Result<Self> {
        Self::of(Holds::Images, store, spec)
    }

    /// As [`ImageFolder::open`], of audio files.
    ///
    /// # Errors
    /// As [`ImageFolder::open`].
    pub fn open_audio(store: Arc<dyn Store>, spec: ImageFolderSpec) -> Result<Self> {
        Self::of(Holds::Sounds, store, spec)
    }

    fn of(holds: Holds, store: Arc<dyn Store>, spec: ImageFolderSpec) -> Result<Self> {
        let name = name_of(holds, &spec);
        Self::list(holds, store, spec).map_err(|e| e.with_source(name))
    }

    fn list(holds: Holds, store: Arc<dyn Store>, spec: ImageFolderSpec) -> Result<Self> {
        let given = spec.extensions.as_deref();
        if given.is_some_and(|list| list.is_empty() || list.iter().any(String::is_empty)) {
            return Err(Error::config("extensions has no entry, or an empty one"));
        }
        let lower = |list: &[String]| list.iter().map(|e| e.to_ascii_lowercase()).collect::<Vec<_>>();
        let defaults = || holds.extensions();
        let located = zip::locate(&spec.root, &store)?;
        let (store, root) = (RetryingStore::around(located.store), located.path);
        let pattern = glob::has_magic(&root) && !store.is_folder(&root);
        let labelled = !pattern && spec.labels == Labels::Folders;
        let extensions = if pattern { given.map(lower) } else { Some(given.map_or_else(defaults, lower)) };
        let keep = |name: &[u8]| extensions.as_ref().is_none_or(|list| has_extension(name, list));

        let (folders, classes) = if pattern {
            let mut folders = glob::files(&*store, &root)?;
            if extensions.is_some() {
                for folder in &mut folders {
                    let mut files = listing::Names::default();
                    folder.files.iter().filter(|n| keep(n.as_bytes())).try_for_each(|n| files.push(n))?;
                    folder.files = files;
                }
                folders.retain(|folder| !folder.files.is_empty());
            }
            (folders, None)
        } else if labelled {
            let classes = find_classes(&*store, &root)?;
            let roots: Vec<String> = classes.iter().map(|class| join(&root, class)).collect();
            (listing::walk(&*store, &roots, &keep)?, Some(classes))
        } else {
            (listing::walk(&*store, std::slice::from_ref(&root), &keep)?, None)
        };

        let supported = extensions.as_ref().map_or_else(|| "any".to_owned(), |list| list.join(", "));
        if !spec.allow_empty {
            check_not_empty(&folders, classes.as_deref(), &root, pattern, &supported)?;
        }
        let (mut starts, mut len) = (Vec::with_capacity(folders.len()), 0);
        for folder in &folders {
            starts.push(len);
            len += folder.files.len() as u64;
        }
        let schema = if labelled {
            Schema::tuple([holds.field(), ("label", FieldKind::LABEL)])
        } else {
            let (name, kind) = holds.field();
            Schema::single(name, kind)
        };
        let prefix = if pattern { 0 } else { join(&root, "").len() };
        let durations = KeptDurations::default();
        Ok(Self { store, spec, holds, root, schema, classes, folders, starts, len, prefix, durations })
    }

    /// Labels by class name.
    pub fn class_to_idx(&self) -> HashMap<&str, i64> {
        let classes = self.classes.as_deref().unwrap_or_default();
        classes.iter().zip(0..).map(|(class, label)| (class.as_str(), label)).collect()
    }

    /// Path of sample `index` in its store.
    pub fn path(&self, index: u64) -> Option<String> {
        let (folder, name) = self.find(index)?;
        Some(join(&folder.path, name))
    }

    /// Label of sample `index`, without reading its file.
    pub fn label(&self, index: u64) -> Option<i64> {
        self.classes.as_ref()?;
        Some(i64::from(self.find(index)?.0.root))
    }

    fn find(&self, index: u64) -> Option<(&Listing, &str)> {
        if index >= self.len {
            return None;
        }
        let folder = self.starts.partition_point(|start| *start <= index).checked_sub(1)?;
        let listing = self.folders.get(folder)?;
        let name = listing.files.get(usize::try_from(index - self.starts[folder]).ok()?);
        Some((listing, name))
    }
}

impl Source for ImageFolder {
    fn name(&self) -> String {
        name_of(self.holds, &self.spec)
    }

    fn spec(&self) -> SourceSpec {
        match self.holds {
            Holds::Images => SourceSpec::ImageFolder(self.spec.clone()),
            Holds::Sounds => SourceSpec::AudioFolder(self.spec.clone()),
        }
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        let mut path = self.path(index).unwrap_or_default();
        path.drain(..self.prefix.min(path.len()));
        path
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let Some((folder, name)) = self.find(index) else {
            return Err(beyond_the_end(self, index));
        };
        record.reset(self.schema.fields.len());
        let max_bytes = record.limits.max_bytes;
        let path = join(&folder.path, name);
        let image = record.values[0].buffer();
        self.store.read(&path, max_bytes, image).map_err(|e| located(e, self, index))?;
        set_label(folder, record);
        Ok(())
    }

    fn number(&self, index: u64, field: usize) -> Option<i64> {
        if field == 1 { self.label(index) } else { None }
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let Some(path) = self.path(index) else { return Err(beyond_the_end(self, index)) };
        extents.push(Extent::whole(path, limits.max_bytes));
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let Some((folder, _)) = self.find(index) else { return Err(beyond_the_end(self, index)) };
        record.reset(self.schema.fields.len());
        copy_image(pieces, record).map_err(|e| located(e, self, index))?;
        set_label(folder, record);
        Ok(())
    }

    fn kept_durations(&self) -> Option<&KeptDurations> {
        (self.holds == Holds::Sounds).then_some(&self.durations)
    }

    fn duration(&self, index: u64, _field: usize, record: &mut Record) -> Result<f64> {
        let Some(path) = self.path(index) else { return Err(beyond_the_end(self, index)) };
        record.reset(1);
        let buffer = record.values[0].buffer();
        durations::of_file(&*self.store, &path, None, buffer).map_err(|e| located(e, self, index))
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        // Of a pattern the folders that all matches share lead to the data, and are not part of it.
        let first = self.folders.first().map_or("", |folder| folder.path.as_str());
        let pattern = self.prefix == 0;
        let shared = self.folders.iter().fold(first.len(), |shared, folder| {
            folder.path.bytes().zip(first.bytes()).take(shared).take_while(|(a, b)| a == b).count()
        });
        for folder in &self.folders {
            let skip = if pattern { shared } else { self.prefix.min(folder.path.len()) };
            hash.add(&folder.path.as_bytes()[skip..]);
            let (text, ends) = folder.files.parts();
            hash.add(text.as_bytes());
            hash.number(ends.len() as u64);
        }
        hash.finish()
    }

    fn parts(&self) -> Vec<Part> {
        if self.holds == Holds::Sounds {
            return Vec::new();
        }
        let pattern = self.prefix == 0 && glob::has_magic(&self.root);
        vec![Part {
            name: self.root.clone(),
            beside: (!pattern).then(|| join(&self.root, "")),
            store: self.store.clone(),
            samples: 0..self.len,
        }]
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let path = self.path(index)?;
        // A label is the number of its class among all: another class changes it.
        let label = self.classes.as_ref().and_then(|_| self.find(index)).map(|(folder, _)| folder.root);
        let stat = self.store.stat(&path).ok()?;
        Some(stamp(&format!("{}\0{label:?}", location(&path)), &stat))
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }
}

/// The label of the images in `folder`, if there are labels.
fn set_label(folder: &Listing, record: &mut Record) {
    if let Some(label) = record.values.get_mut(1) {
        *label = Value::Int(i64::from(folder.root));
    }
}

fn name_of(holds: Holds, spec: &ImageFolderSpec) -> String {
    let verb = match holds {
        Holds::Images => "image_folder",
        Holds::Sounds => "audio_folder",
    };
    format!("{verb}({})", secrets::shown(&spec.root))
}

fn has_extension(name: &[u8], extensions: &[String]) -> bool {
    extensions.iter().any(|extension| {
        let start = name.len().checked_sub(extension.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(extension.as_bytes()))
    })
}

fn find_classes(store: &dyn Store, root: &str) -> Result<Vec<String>> {
    let classes = listing::folders(store, root)?;
    if classes.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, format!("couldn't find any class folder in {root}"))
            .with_hint("labels=None reads images that are not in class folders"));
    }
    Ok(classes)
}

fn check_not_empty(
    folders: &[Listing],
    classes: Option<&[String]>,
    root: &str,
    pattern: bool,
    supported: &str,
) -> Result<()> {
    let missing = |what: String| {
        Err(Error::new(ErrorKind::NotFound, format!("{what}. Supported extensions are: {supported}"))
            .with_hint("allow_empty=True accepts this"))
    };
    let Some(classes) = classes else {
        return match (folders.is_empty(), pattern) {
            (false, _) => Ok(()),
            (true, true) => missing(format!("found no file that matches {root}")),
            (true, false) => missing(format!("found no valid file in {root}")),
        };
    };
    let mut empty = vec![true; classes.len()];
    for folder in folders {
        if let Some(class) = empty.get_mut(folder.root as usize) {
            *class = false;
        }
    }
    let names: Vec<&str> = classes.iter().zip(&empty).filter(|(_, e)| **e).map(|(c, _)| c.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    missing(format!("found no valid file for the classes {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Structure;
    use crate::{source::conformance, store::LocalStore, testing::TempFolder};

    fn open(root: impl Into<String>) -> Result<ImageFolder> {
        ImageFolder::open(Arc::new(LocalStore::new()), ImageFolderSpec::new(root))
    }

    fn flat(root: impl Into<String>) -> Result<ImageFolder> {
        let spec = ImageFolderSpec { labels: Labels::None, ..ImageFolderSpec::new(root) };
        ImageFolder::open(Arc::new(LocalStore::new()), spec)
    }

    fn keys(source: &ImageFolder) -> Vec<String> {
        (0..source.len()).map(|i| source.key(i)).collect()
    }

    #[test]
    fn classes_and_order_are_torchvisions() {
        let folder = TempFolder::new();
        for name in [
            "b/2.JPG",
            "b/10.jpeg",
            "b/x.txt",
            "a/s/1.png",
            "a/s-t/2.png",
            "a/0.WebP",
            ".h/.1.jpg",
            "z.jpg",
            "é/1.bmp",
        ] {
            folder.write(name, name.as_bytes());
        }
        let source = open(folder.path()).unwrap();
        // Checked against torchvision.datasets.ImageFolder on the same tree: hidden folders are classes there.
        assert_eq!(source.classes().unwrap(), [".h", "a", "b", "é"]);
        assert_eq!(
            keys(&source),
            [".h/.1.jpg", "a/0.WebP", "a/s/1.png", "a/s-t/2.png", "b/10.jpeg", "b/2.JPG", "é/1.bmp"]
        );
        assert_eq!(source.label(4), Some(2));
        assert_eq!(source.class_to_idx()["b"], 2);
        assert_eq!(source.label(7), None);
        conformance::check(&source);
        assert_eq!(source.name(), format!("image_folder({})", folder.path()));
    }

    #[test]
    fn an_archive_has_the_samples_of_the_folder_it_was_made_of() {
        use crate::store::zip::testing::{DEFLATED, STORED, zip};
        let folder = TempFolder::new();
        let names = ["t/b/2.JPG", "t/b/x.txt", "t/a/s/1.png", "t/a/0.jpg", "t/é/1.bmp"];
        let members: Vec<_> = (names.iter().enumerate())
            .map(|(i, name)| (*name, name.as_bytes(), if i % 2 == 0 { STORED } else { DEFLATED }))
            .collect();
        let path = folder.write("t.zip", &zip(&members));
        names.iter().for_each(|name| drop(folder.write(name, name.as_bytes())));
        let plain = open(folder.join("t")).unwrap();
        let content = |source: &ImageFolder, i| {
            let mut record = Record::default();
            source.fetch(i, &mut record).unwrap();
            record.values
        };
        let (far, near) =
            (open(format!("delayed+file://{path}!/t")).unwrap(), open(format!("{path}!/t")).unwrap());
        assert!(far.store().unwrap().remote().is_some() && near.store().unwrap().remote().is_none());
        for source in [&near, &far] {
            assert_eq!((keys(source), source.classes()), (keys(&plain), plain.classes()));
            assert_eq!(source.fingerprint(), plain.fingerprint());
            assert!((0..plain.len()).all(|i| content(source, i) == content(&plain, i)));
            conformance::check(source);
        }
        let whole = flat(&path).unwrap();
        assert_eq!(keys(&whole)[0], "t/a/0.jpg");
        let pattern = open(format!("{path}!/**/*.png")).unwrap();
        assert_eq!(keys(&pattern), [format!("{path}!/t/a/s/1.png")]);
        assert_eq!(open(format!("{path}!/none")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn flat_folders_and_patterns_have_no_labels() {
        let folder = TempFolder::new();
        for name in ["2.jpg", "a/1.png", "a/n.txt", "1.jpg"] {
            folder.write(name, name.as_bytes());
        }
        let source = flat(folder.path()).unwrap();
        assert_eq!(keys(&source), ["1.jpg", "2.jpg", "a/1.png"]);
        assert_eq!((&source.schema().structure, source.classes()), (&Structure::Field(0), None));
        conformance::check(&source);
        let source = open(folder.join("*.jpg")).unwrap();
        assert_eq!(keys(&source), [folder.join("1.jpg"), folder.join("2.jpg")]);
        conformance::check(&source);
        assert_eq!(open(folder.join("**")).unwrap().len(), 4, "a pattern takes what it matches");
        let spec = ImageFolderSpec {
            extensions: Some(vec![".PNG".into()]),
            ..ImageFolderSpec::new(folder.join("**"))
        };
        assert_eq!(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap().len(), 1);
    }

    #[test]
    fn a_folder_may_have_the_characters_of_a_pattern() {
        let folder = TempFolder::new();
        folder.write("a[1]/x/1.jpg", b"");
        assert_eq!(keys(&open(folder.join("a[1]")).unwrap()), ["x/1.jpg"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = TempFolder::new();
        let e = open(folder.join("nowhere")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound);
        folder.write("root/1.jpg", b"");
        let e = open(folder.join("root")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound);
        assert!(e.message().starts_with("couldn't find any class folder in"), "{e}");
        folder.write("root/b/1.txt", b"");
        folder.write("root/a/1.jpg", b"");
        folder.write("root/c/d/1.txt", b"");
        let e = open(folder.join("root")).unwrap_err();
        assert!(e.message().contains("for the classes b, c. Supported extensions are: .jpg, .jpeg"), "{e}");
        let spec = ImageFolderSpec { allow_empty: true, ..ImageFolderSpec::new(folder.join("root")) };
        let source = ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap();
        assert_eq!((source.len(), source.classes().unwrap().len()), (1, 3));
        assert_eq!(flat(folder.join("root/b")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(open(folder.join("*.gif")).unwrap_err().kind(), ErrorKind::NotFound);
        let spec = ImageFolderSpec { extensions: Some(vec![]), ..ImageFolderSpec::new(folder.join("root")) };
        let e = ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
    }

    #[test]
    fn vanished_and_oversized_files_are_errors_of_their_sample() {
        let folder = TempFolder::new();
        for name in ["a/1.jpg", "a/2.jpg", "a/3.jpg"] {
            folder.write(name, &[1; 100]);
        }
        let source = open(folder.path()).unwrap();
        std::fs::remove_file(folder.join("a/2.jpg")).unwrap();
        folder.write("a/3.jpg", &[1; 101]);
        let mut record = Record::default();
        record.limits.max_bytes = 100;
        source.fetch(0, &mut record).unwrap();
        let e = source.fetch(1, &mut record).unwrap_err();
        assert_eq!((e.kind(), e.key(), e.index()), (ErrorKind::NotFound, Some("a/2.jpg"), Some(1)));
        let e = source.fetch(2, &mut record).unwrap_err();
        assert_eq!((e.kind(), e.stage()), (ErrorKind::Limit, Some("read")));
    }
}
