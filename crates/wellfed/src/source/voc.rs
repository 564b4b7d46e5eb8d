//! Segmentation in the layout of Pascal VOC: photographs and masks of the same name, and lists of names.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Annotated, SourceSpec,
    annotated::{Annotation, Nested},
};
use crate::{
    Error, Result,
    codec::mask_depth,
    sample::{FieldKind, FieldSpec},
    store::{RetryingStore, Store, registry, secrets},
};

/// Largest list of names, in bytes.
const MAX_LIST: u64 = 1 << 30;

/// VOC segmentation as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VocSegmentationSpec {
    /// The folder that holds `VOCdevkit` (for 2011 `TrainVal/VOCdevkit`), or one that holds `JPEGImages` itself: a path or URL.
    pub root: String,
    /// Year of the data set: 2007 to 2012.
    pub year: String,
    /// Name of the list in `ImageSets/Segmentation`, without `.txt`.
    pub image_set: String,
}

/// Opens it. Samples are (image, mask).
///
/// # Errors
/// [`crate::ErrorKind::NotFound`] if there is no such folder or list, [`crate::ErrorKind::Config`] if the list is empty, and those of
/// the first mask, which says what masks are.
pub fn voc_segmentation(store: Arc<dyn Store>, spec: VocSegmentationSpec) -> Result<Annotated> {
    let name = format!("voc_segmentation({}, {}, {})", secrets::shown(&spec.root), spec.year, spec.image_set);
    open(store, spec, &name).map_err(|e| e.with_source(name.clone()))
}

fn open(store: Arc<dyn Store>, spec: VocSegmentationSpec, name: &str) -> Result<Annotated> {
    let located = registry::locate(&spec.root, &store)?;
    let store = RetryingStore::around(located.store);
    let root = located.path.trim_end_matches('/');
    let devkit = if spec.year == "2011" { "TrainVal/VOCdevkit" } else { "VOCdevkit" };
    let folder = [format!("{root}/{devkit}/VOC{}", spec.year), root.to_owned()]
        .into_iter()
        .find(|folder| store.is_folder(&format!("{folder}/JPEGImages")));
    let Some(folder) = folder else {
        let what = format!("neither {root}/{devkit}/VOC{} nor {root} has a folder JPEGImages", spec.year);
        return Err(Error::new(crate::ErrorKind::NotFound, what)
            .with_hint("root is the folder that the archive was unpacked in"));
    };
    let path = format!("{folder}/ImageSets/Segmentation/{}.txt", spec.image_set);
    let mut list = Vec::new();
    store.read(&path, MAX_LIST, &mut list)?;
    let list = std::str::from_utf8(&list).map_err(|_| Error::corrupt(format!("{path} is not UTF-8")))?;
    let names: Vec<&str> = list.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
    let images = names.iter().map(|name| format!("{folder}/JPEGImages/{name}.jpg")).collect();
    let masks: Vec<String> =
        names.iter().map(|name| format!("{folder}/SegmentationClass/{name}.png")).collect();
    let Some(first) = masks.first() else { return Err(Error::config(format!("{path} has no names"))) };
    let mut bytes = Vec::new();
    store.read(first, crate::Limits::default().max_bytes, &mut bytes)?;
    let dtype = mask_depth(&bytes).map_err(|e| e.with_stage("read"))?;
    let field = FieldSpec { name: "mask".to_owned(), kind: FieldKind::Mask { dtype, grey: false } };
    let head = (name.to_owned(), SourceSpec::VocSegmentation(spec), Nested::Pair);
    Annotated::new(store, head, images, vec![(field, Annotation::Files(masks))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        source::{Source, conformance},
        store::LocalStore,
        testing::TempFolder,
    };

    #[test]
    fn names_of_the_list_become_pairs_of_files() {
        let folder = TempFolder::new();
        // Only the first mask is looked at.
        let mask = include_bytes!("../../tests/images/palette8.png");
        for name in ["a", "b"] {
            folder.write(&format!("VOCdevkit/VOC2012/JPEGImages/{name}.jpg"), b"jpeg");
            folder.write(&format!("VOCdevkit/VOC2012/SegmentationClass/{name}.png"), mask);
        }
        folder.write("VOCdevkit/VOC2012/ImageSets/Segmentation/train.txt", b"b\na \n\n");
        let spec = |image_set: &str| VocSegmentationSpec {
            root: folder.join(""),
            year: "2012".to_owned(),
            image_set: image_set.to_owned(),
        };
        let source = voc_segmentation(Arc::new(LocalStore::new()), spec("train")).unwrap();
        conformance::check(&source);
        assert_eq!((source.len(), source.key(0), source.key(1)), (2, "b.jpg#0".into(), "a.jpg#1".into()));
        let error = voc_segmentation(Arc::new(LocalStore::new()), spec("val")).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::NotFound);
    }
}
