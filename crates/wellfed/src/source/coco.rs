//! Detection in the layout of COCO: a folder of images, and a JSON file with boxes.
//!
//! Images come in the order of their ids, as torchvision's `CocoDetection` has them, with the boxes of all annotations in the
//! order of the file. Segmentations, keypoints and captions are not read.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Annotated, SourceSpec,
    annotated::{Annotation, Nested},
};
use crate::{
    Error, Result,
    sample::{BoxFormat, DType, FieldKind, FieldSpec},
    store::{RetryingStore, Store, registry, secrets},
};

/// Largest file of annotations, in bytes.
const MAX_JSON: u64 = 16 << 30;

/// COCO detection as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CocoDetectionSpec {
    /// The folder of images: a path or URL.
    pub root: String,
    /// The JSON file: a path or URL, also in another store.
    pub annotations: String,
}

#[derive(Deserialize)]
struct File {
    images: Vec<Image>,
    #[serde(default)]
    annotations: Vec<Object>,
}

#[derive(Deserialize)]
struct Image {
    id: i64,
    file_name: String,
}

#[derive(Deserialize)]
struct Object {
    image_id: i64,
    category_id: i64,
    #[serde(default)]
    iscrowd: i64,
    bbox: [f64; 4],
}

/// Opens it. Samples are an image and a dict of `boxes` (left, top, right, bottom), `labels` (categories), `iscrowd`
/// and `image_id`. An image without annotations has no boxes.
///
/// # Errors
/// [`crate::ErrorKind::NotFound`] if there is no such file, [`crate::ErrorKind::Corrupt`] if it is no such JSON, or names an image twice
/// or not at all.
pub fn coco_detection(store: Arc<dyn Store>, spec: CocoDetectionSpec) -> Result<Annotated> {
    let name =
        format!("coco_detection({}, {})", secrets::shown(&spec.root), secrets::shown(&spec.annotations));
    open(store, spec, &name).map_err(|e| e.with_source(name.clone()))
}

fn open(store: Arc<dyn Store>, spec: CocoDetectionSpec, name: &str) -> Result<Annotated> {
    let mut text = Vec::new();
    let file = registry::locate(&spec.annotations, &store)?;
    let named = secrets::shown(&spec.annotations);
    RetryingStore::around(file.store).read(&file.path, MAX_JSON, &mut text)?;
    let File { mut images, annotations } = serde_json::from_slice(&text)
        .map_err(|e| Error::corrupt(format!("{named} is no file of COCO's annotations: {e}")))?;
    drop(text);
    images.sort_by_key(|image| image.id);
    if let Some(pair) = images.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(Error::corrupt(format!("{named} has two images of id {}", pair[0].id)));
    }
    let place: HashMap<i64, usize> = images.iter().zip(0..).map(|(image, at)| (image.id, at)).collect();
    let mut of_image: Vec<Vec<u32>> = vec![Vec::new(); images.len()];
    for (object, at) in annotations.iter().zip(0..) {
        let Some(&image) = place.get(&object.image_id) else {
            let what = format!("{named} annotates image {}, which it lacks", object.image_id);
            return Err(Error::corrupt(what));
        };
        of_image[image].push(at);
    }
    let (mut boxes, mut labels, mut crowds, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for objects in &of_image {
        for &at in objects {
            let Object { category_id, iscrowd, bbox, .. } = &annotations[at as usize];
            // In float32, as torchvision adds them up.
            let [x, y, w, h] = bbox.map(|v| v as f32);
            boxes.extend([x, y, x + w, y + h].iter().flat_map(|v| v.to_ne_bytes()));
            labels.extend(category_id.to_ne_bytes());
            crowds.extend(iscrowd.to_ne_bytes());
        }
        counts.push(labels.len() / 8);
    }
    let ends = |size: usize| counts.iter().map(|count| count * size).collect();
    let field = |name: &str, kind| FieldSpec { name: name.to_owned(), kind };
    let whole = FieldKind::BoxLabels { dtype: DType::Int64 };
    let images_in = registry::locate(&spec.root, &store)?;
    let root = images_in.path.trim_end_matches('/');
    let paths = images.iter().map(|image| format!("{root}/{}", image.file_name)).collect();
    let annotations = vec![
        (
            field("boxes", FieldKind::Boxes { format: BoxFormat::Xyxy, dtype: DType::Float32 }),
            Annotation::Rows { bytes: boxes, ends: ends(16) },
        ),
        (field("labels", whole.clone()), Annotation::Rows { bytes: labels, ends: ends(8) }),
        (field("iscrowd", whole), Annotation::Rows { bytes: crowds, ends: ends(8) }),
        (
            field("image_id", FieldKind::LABEL),
            Annotation::Whole(images.iter().map(|image| image.id).collect()),
        ),
    ];
    Annotated::new(
        RetryingStore::around(images_in.store),
        (name.to_owned(), SourceSpec::CocoDetection(spec), Nested::Target),
        paths,
        annotations,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample::{Record, Value},
        source::{Source, conformance},
        store::LocalStore,
        testing::TempFolder,
    };

    fn source(json: &str) -> Result<Annotated> {
        let folder = TempFolder::new();
        folder.write("a.json", json.as_bytes());
        let spec = CocoDetectionSpec { root: folder.join("images/"), annotations: folder.join("a.json") };
        coco_detection(Arc::new(LocalStore::new()), spec)
    }

    #[test]
    fn images_come_by_id_with_their_boxes() {
        let folder = TempFolder::new();
        folder.write("images/b.jpg", b"b");
        folder.write("images/a.jpg", b"a");
        folder.write(
            "a.json",
            br#"{"info": {}, "images": [{"id": 9, "file_name": "b.jpg", "height": 4}, {"id": 3, "file_name": "a.jpg"}],
                "annotations": [
                    {"id": 1, "image_id": 9, "category_id": 7, "bbox": [1, 2, 3.5, 4], "segmentation": []},
                    {"id": 2, "image_id": 9, "category_id": 8, "bbox": [0, 0, 1, 1], "iscrowd": 1}]}"#,
        );
        let spec = CocoDetectionSpec { root: folder.join("images/"), annotations: folder.join("a.json") };
        let source = coco_detection(Arc::new(LocalStore::new()), spec).unwrap();
        conformance::check(&source);
        let mut record = Record::default();
        source.fetch(0, &mut record).unwrap();
        assert_eq!((record.values[1].len(), &record.values[4]), (0, &Value::Int(3)));
        source.fetch(1, &mut record).unwrap();
        let floats: Vec<u8> =
            [1.0f32, 2.0, 4.5, 6.0, 0.0, 0.0, 1.0, 1.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(record.values[1], Value::Bytes(floats));
        let labels: Vec<u8> = [7i64, 8].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(record.values[2], Value::Bytes(labels));
    }

    #[test]
    fn files_that_contradict_themselves_are_refused() {
        let twice = r#"{"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]}"#;
        assert!(source(twice).unwrap_err().message().ends_with("has two images of id 1"));
        let object = r#"{"image_id": 5, "category_id": 1, "bbox": [0, 0, 1, 1]}"#;
        let unknown = format!(r#"{{"images": [], "annotations": [{object}]}}"#);
        assert!(source(&unknown).unwrap_err().message().ends_with("annotates image 5, which it lacks"));
        assert!(source("[]").unwrap_err().message().contains("is no file of COCO's annotations"));
    }
}
