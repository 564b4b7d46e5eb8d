//! What a stack is doing: a rule for libraries by file, a rule for users' code by the words in it.
//!
//! The innermost frame that a rule knows decides, since callers do nothing meanwhile. Words of users' code are a guess, which is why
//! reports name the function and the line beside the stage.

use crate::record::Frame;

/// Stages of making a batch, in the order of the data.
pub const LOADING: [&str; 7] = ["network", "read", "decompress", "decode", "augment", "python", "collate"];

/// Stages of the training loop.
pub const LOOP: [&str; 8] = ["copy", "forward", "backward", "optimizer", "sync", "log", "compute", "other"];

/// Libraries whose frames say what is done. The first rule that fits counts.
const LIBRARIES: &[(&str, &str)] = &[
    ("/torch/utils/data/_utils/collate.py", "collate"),
    ("/torchvision/transforms/", "augment"),
    ("/albumentations/", "augment"),
    ("/albucore/", "augment"),
    ("/kornia/", "augment"),
    ("/imgaug/", "augment"),
    ("/monai/transforms/", "augment"),
    ("/skimage/transform/", "augment"),
    ("/scipy/ndimage/", "augment"),
    ("/torchvision/io/", "decode"),
    ("/torchaudio/", "decode"),
    ("/torchcodec/", "decode"),
    ("/soundfile.py", "decode"),
    ("/librosa/", "decode"),
    ("/imageio/", "decode"),
    ("/simplejpeg/", "decode"),
    ("/turbojpeg.py", "decode"),
    ("/pydicom/", "decode"),
    ("/decord/", "decode"),
    ("/av/", "decode"),
    ("/gzip.py", "decompress"),
    ("/bz2.py", "decompress"),
    ("/lzma.py", "decompress"),
    ("/zlib.py", "decompress"),
    ("/_compression.py", "decompress"),
    ("/_compression/", "decompress"),
    ("/compression/", "decompress"),
    ("/zipfile", "decompress"),
    ("/zstandard/", "decompress"),
    ("/pyzstd/", "decompress"),
    ("/lz4/", "decompress"),
    ("/blosc", "decompress"),
    ("/numcodecs/", "decompress"),
    ("/socket.py", "network"),
    ("/ssl.py", "network"),
    ("/http/client.py", "network"),
    ("/urllib/", "network"),
    ("/urllib3/", "network"),
    ("/requests/", "network"),
    ("/httpx/", "network"),
    ("/aiohttp/", "network"),
    ("/botocore/", "network"),
    ("/s3fs/", "network"),
    ("/gcsfs/", "network"),
    ("/fsspec/", "network"),
    ("/huggingface_hub/", "network"),
    ("/httpcore/", "network"),
    ("/boto3/", "network"),
    ("/s3transfer/", "network"),
    ("/google/api_core/", "network"),
    ("/tenacity/", "network"),
    ("/backoff/", "network"),
    ("/numpy/lib/_npyio_impl.py", "read"),
    ("/numpy/lib/npyio.py", "read"),
    ("/numpy/lib/format.py", "read"),
    ("/numpy/lib/_format_impl.py", "read"),
    ("/numpy/_core/memmap.py", "read"),
    ("/h5py/", "read"),
    ("/zarr/", "read"),
    ("/lmdb/", "read"),
    ("/pathlib.py", "read"),
    ("/json/", "python"),
    ("/csv.py", "python"),
    ("/pandas/", "python"),
    ("/tokenizers/", "python"),
    ("/transformers/", "python"),
];

/// Words of an expression or the name of a function, in lower case, and what they mean. The first that occurs counts.
const WORDS: &[(&str, &str)] = &[
    ("zlib.crc32", "python"),
    ("zlib.adler32", "python"),
    ("decompress", "decompress"),
    ("gzip.", "decompress"),
    ("zlib.", "decompress"),
    ("lzma.", "decompress"),
    ("inflate", "decompress"),
    ("gunzip", "decompress"),
    ("unzip", "decompress"),
    ("urlopen", "network"),
    ("requests.", "network"),
    ("download", "network"),
    ("getresponse", "network"),
    (".recv(", "network"),
    ("http", "network"),
    ("collate", "collate"),
    ("torch.stack(", "collate"),
    ("pad_sequence", "collate"),
    ("imread", "decode"),
    ("imdecode", "decode"),
    ("image.open", "decode"),
    ("decode_", "decode"),
    ("_decode", "decode"),
    ("read_image", "decode"),
    ("load_image", "decode"),
    ("pil_loader", "decode"),
    (".convert(", "decode"),
    ("open(", "read"),
    (".read(", "read"),
    ("read_bytes", "read"),
    ("read_text", "read"),
    ("readinto", "read"),
    ("np.load", "read"),
    ("numpy.load", "read"),
    ("fromfile", "read"),
    ("memmap", "read"),
    ("torch.load", "read"),
    ("pread", "read"),
    ("os.stat", "read"),
    ("os.path", "read"),
    ("os.listdir", "read"),
    ("os.scandir", "read"),
    ("augment", "augment"),
    ("transform", "augment"),
    ("crop", "augment"),
    ("flip", "augment"),
    ("resize", "augment"),
    ("blur", "augment"),
    ("jitter", "augment"),
    ("noise", "augment"),
    ("rotat", "augment"),
    ("mixup", "augment"),
    ("cutout", "augment"),
    ("normalize", "augment"),
    ("decode", "decode"),
];

/// Pillow does both: these of its functions make images from images.
const PILLOW_TRANSFORMS: [&str; 10] = [
    "resize",
    "crop",
    "rotate",
    "transpose",
    "transform",
    "filter",
    "enhance",
    "paste",
    "blend",
    "thumbnail",
];

/// Whether a frame is from a library rather than from the user's code.
pub fn library(frame: &Frame) -> bool {
    let file = &frame.file;
    file.contains("/site-packages/")
        || file.contains("/dist-packages/")
        || file.contains("/lib/python3")
        || file.contains("/torch/utils/data/")
        || file.contains("/python/wellfed/")
        || file.starts_with('<')
}

fn words(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    WORDS.iter().find(|(word, _)| text.contains(word)).map(|&(_, stage)| stage)
}

/// Stage of a stack that makes a batch, and which of its frames (innermost first) decided.
pub fn loading(frames: &[&Frame]) -> (&'static str, usize) {
    for (i, frame) in frames.iter().enumerate() {
        let file = frame.file.replace('\\', "/");
        if file.contains("/PIL/") {
            let name = frame.func.rsplit('.').next().unwrap_or_default();
            return (if PILLOW_TRANSFORMS.contains(&name) { "augment" } else { "decode" }, i);
        }
        if let Some(&(_, stage)) = LIBRARIES.iter().find(|(part, _)| file.contains(part)) {
            return (stage, i);
        }
        if file.ends_with("/torch/utils/data/_utils/fetch.py") {
            if frame.call.contains("collate_fn") {
                return ("collate", i.saturating_sub(1));
            }
            // The script's own function, not what wraps its data set.
            let own = frames[..i].iter().position(|frame| !library(frame));
            return ("python", own.unwrap_or(i.saturating_sub(1)));
        }
        if !library(frame) {
            let name = frame.func.rsplit('.').next().unwrap_or_default();
            // The frame that a fetcher called as its collate function collates, whatever it is named.
            let collates = frames[i + 1..]
                .iter()
                .take(2)
                .any(|f| f.file.ends_with("_utils/fetch.py") && f.call.contains("collate_fn"));
            if collates {
                return ("collate", i);
            }
            if i == 0 && pauses(frame) {
                return ("network", i);
            }
            if let Some(stage) = words(&frame.call).or_else(|| words(name)) {
                return (stage, i);
            }
        }
    }
    // Nothing is known of it: it is Python that makes samples. The innermost frame of the user's stands for it.
    ("python", frames.iter().position(|frame| !library(frame)).unwrap_or(frames.len()))
}

/// What a request to a server is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A connection: names that are looked up, greetings, keys.
    Connection,
    /// The beginning of an answer: the same time for a small object and a large one.
    Answer,
    /// The rest of it: what grows with bytes.
    Body,
    /// Its turn: it failed, or the server asked to slow down, and it is tried again after a pause.
    Pause,
}

/// Functions of clients, by a part of the file and the last part of the name.
const REQUESTS: &[(&str, &[&str], Wait)] = &[
    ("/urllib3/util/retry.py", &["sleep", "sleep_for_retry", "_sleep_backoff"], Wait::Pause),
    ("/tenacity/nap.py", &["sleep"], Wait::Pause),
    ("/socket.py", &["create_connection", "getaddrinfo"], Wait::Connection),
    ("/ssl.py", &["do_handshake", "wrap_socket"], Wait::Connection),
    ("/urllib3/connection.py", &["connect", "_new_conn"], Wait::Connection),
    ("/httpcore/", &["connect_tcp", "start_tls"], Wait::Connection),
    ("/http/client.py", &["connect"], Wait::Connection),
    ("/http/client.py", &["begin", "_read_status", "parse_headers", "_read_headers"], Wait::Answer),
    ("/httpcore/", &["_receive_response_headers"], Wait::Answer),
    (
        "/http/client.py",
        &[
            "read",
            "read1",
            "readinto",
            "readline",
            "peek",
            "_safe_read",
            "_safe_readinto",
            "_read_chunked",
            "_readinto_chunked",
            "_read1_chunked",
            "_read_next_chunk_size",
            "_get_chunk_left",
        ],
        Wait::Body,
    ),
    (
        "/urllib3/response.py",
        &["read", "read1", "readinto", "stream", "read_chunked", "_raw_read", "_fp_read"],
        Wait::Body,
    ),
    ("/httpcore/", &["_receive_response_body"], Wait::Body),
];

/// Words of a user's function that asks again after a while.
const AGAIN: [&str; 6] = ["retry", "retries", "backoff", "attempt", " tries", "throttl"];

/// Whether the innermost frame of a stack sleeps before it asks a server again.
fn pauses(frame: &Frame) -> bool {
    if !frame.call.contains("sleep(") {
        return false;
    }
    let text = format!("{} {}", frame.call, frame.func).to_lowercase();
    library(frame) || AGAIN.iter().any(|word| text.contains(word))
}

/// What a stack of the stage `network` (innermost first) is waiting for, if it shows that.
pub fn network(frames: &[&Frame]) -> Option<Wait> {
    if frames.first().is_some_and(|frame| pauses(frame)) {
        return Some(Wait::Pause);
    }
    frames.iter().find_map(|frame| {
        let file = frame.file.replace('\\', "/");
        let name = frame.func.rsplit('.').next().unwrap_or_default();
        let rule = |(part, names, _): &&(&str, &[&str], Wait)| file.contains(part) && names.contains(&name);
        REQUESTS.iter().find(rule).map(|&(_, _, wait)| wait)
    })
}

/// Libraries whose frames say what the loop does.
const LOOP_LIBRARIES: &[(&str, &str, &str)] = &[
    ("/logging/__init__.py", "", "log"),
    ("/tensorboard", "", "log"),
    ("/wandb/", "", "log"),
    ("/mlflow/", "", "log"),
    ("/tqdm/", "", "log"),
    ("/psutil/", "", "log"),
    ("/pynvml", "", "log"),
    ("/GPUtil/", "", "log"),
    ("/json/", "dump", "log"),
    ("/csv.py", "write", "log"),
    ("/matplotlib/", "", "log"),
    ("/sklearn/", "", "log"),
    ("/pandas/", "", "log"),
    ("/PIL/", "", "log"),
    ("/gzip.py", "", "log"),
    ("/h5py/", "", "log"),
    ("/aim/", "", "log"),
    ("/clearml/", "", "log"),
    ("/comet_ml/", "", "log"),
    ("/neptune/", "", "log"),
    ("/rich/", "", "log"),
    ("/torch/serialization.py", "", "log"),
    ("/torch/autograd/", "", "backward"),
    ("/torch/_tensor.py", "backward", "backward"),
    ("/torch/optim/", "", "optimizer"),
    (MODULES, "", "forward"),
    ("/torch/nn/functional.py", "", "forward"),
];

/// Words of the loop's expressions.
const LOOP_WORDS: &[(&str, &str)] = &[
    ("print(", "log"),
    ("logger.", "log"),
    ("logging.", "log"),
    (".write(", "log"),
    (".flush(", "log"),
    ("fsync(", "log"),
    ("json.dump", "log"),
    ("pickle.dump", "log"),
    ("writerow", "log"),
    ("to_csv(", "log"),
    ("np.save", "log"),
    ("numpy.save", "log"),
    ("imwrite(", "log"),
    ("executemany(", "log"),
    ("add_scalar", "log"),
    ("add_histogram", "log"),
    ("add_image", "log"),
    ("wandb.", "log"),
    ("savefig", "log"),
    ("torch.save(", "log"),
    (".item(", "sync"),
    (".cpu(", "sync"),
    (".tolist(", "sync"),
    (".numpy(", "sync"),
    ("synchronize(", "sync"),
    (".nonzero(", "sync"),
    (".to(", "copy"),
    (".cuda(", "copy"),
    ("copy_(", "copy"),
    ("device_put", "copy"),
    (".pin_memory(", "copy"),
    (".backward(", "backward"),
    ("opt.step(", "optimizer"),
    ("optimizer.step(", "optimizer"),
    ("optim.step(", "optimizer"),
    ("zero_grad(", "optimizer"),
    ("model(", "forward"),
    ("net(", "forward"),
    ("criterion(", "forward"),
    ("loss_fn(", "forward"),
];

/// Words of names of functions that do what a step does not need.
const BESIDE: [&str; 16] = [
    "log",
    "logs",
    "logging",
    "checkpoint",
    "snapshot",
    "save",
    "dump",
    "record",
    "history",
    "report",
    "plot",
    "monitor",
    "metric",
    "metrics",
    "histogram",
    "statistics",
];

/// Modules of torch.
const MODULES: &str = "/torch/nn/modules/";

/// Whether a frame is a module's call.
fn called(frame: &Frame) -> bool {
    let name = frame.func.rsplit('.').next().unwrap_or_default();
    ["forward", "_call_impl", "_wrapped_call_impl", "_slow_forward"].contains(&name)
}

/// Stage of a stack of the training loop (not waiting for data), and which of its frames decided.
pub fn looping(frames: &[&Frame]) -> (&'static str, usize) {
    // What a tensor's own copying does inside, such as waiting, is still copying.
    let copies = frames.iter().rposition(|frame| {
        let name = frame.func.rsplit('.').next().unwrap_or_default();
        ["to", "cuda", "copy_", "device_put"].contains(&name)
    });
    if let Some(at) = copies {
        return ("copy", (at + 1).min(frames.len() - 1));
    }
    for (i, frame) in frames.iter().enumerate() {
        let file = frame.file.replace('\\', "/");
        let rule = LOOP_LIBRARIES
            .iter()
            .find(|(part, name, _)| file.contains(part) && (name.is_empty() || frame.func.contains(name)));
        // What lists a module's weights is no call of it.
        let listed = file.contains(MODULES) && !frames[i..].iter().any(|frame| called(frame));
        if let Some(&(_, _, stage)) = rule.filter(|_| !listed) {
            return (stage, i);
        }
        if !library(frame) {
            let call = frame.call.to_lowercase();
            if let Some(&(_, stage)) = LOOP_WORDS.iter().find(|(word, _)| call.contains(word)) {
                return (stage, i);
            }
            let name = frame.func.rsplit('.').next().unwrap_or_default().to_lowercase();
            if name.split('_').any(|part| BESIDE.contains(&part)) {
                return ("log", i);
            }
        }
    }
    let user = frames.iter().position(|frame| !library(frame));
    (if user.is_some() { "compute" } else { "other" }, user.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, func: &str, call: &str) -> Frame {
        Frame { file: file.into(), func: func.into(), call: call.into(), ..Frame::default() }
    }

    fn stage(frames: &[Frame]) -> &'static str {
        loading(&frames.iter().collect::<Vec<_>>()).0
    }

    #[test]
    fn libraries_are_known_by_their_files() {
        let pil = |func| frame("/x/site-packages/PIL/Image.py", func, "");
        assert_eq!(stage(&[pil("Image.resize")]), "augment");
        assert_eq!(
            stage(&[pil("Image.load"), frame("/home/me/train.py", "Photos.augmented", "f()")]),
            "decode"
        );
        assert_eq!(stage(&[frame("/usr/lib/python3.11/gzip.py", "read", "")]), "decompress");
        assert_eq!(stage(&[frame("/usr/lib/python3.11/socket.py", "readinto", "")]), "network");
    }

    #[test]
    fn what_a_request_waits_for_is_known_by_the_functions_of_clients() {
        let std = |file: &str, func: &str| frame(&format!("/usr/lib/python3.11/{file}"), func, "");
        let user = |call: &str| frame("/home/me/train.py", "Remote.__getitem__", call);
        let wait = |frames: &[Frame]| {
            let all: Vec<&Frame> = frames.iter().collect();
            assert_eq!(loading(&all).0, "network", "{frames:?}");
            network(&all)
        };
        let socket = || std("socket.py", "SocketIO.readinto");
        let asks = || user("urllib.request.urlopen(url)");
        let status = std("http/client.py", "HTTPResponse._read_status");
        assert_eq!(wait(&[socket(), status, asks()]), Some(Wait::Answer));
        let body = std("http/client.py", "HTTPResponse.read");
        assert_eq!(wait(&[socket(), body, user("answer.read()")]), Some(Wait::Body));
        let opens = [std("socket.py", "create_connection"), std("http/client.py", "HTTPConnection.connect")];
        assert_eq!(wait(&[opens[0].clone(), opens[1].clone(), asks()]), Some(Wait::Connection));
        let package =
            |file: &str, func: &str, call: &str| frame(&format!("/x/site-packages/{file}"), func, call);
        let sleeps = package("urllib3/util/retry.py", "Retry._sleep_backoff", "time.sleep(backoff)");
        assert_eq!(wait(&[sleeps, user("session.get(url)")]), Some(Wait::Pause));
        let sleeps = package("huggingface_hub/utils/_http.py", "http_backoff", "time.sleep(sleep_time)");
        assert_eq!(wait(&[sleeps, user("download(url)")]), Some(Wait::Pause));
        assert_eq!(wait(&[user("time.sleep(0.1 * 2 ** attempt)")]), Some(Wait::Pause));
        // What happens in another thread does not show here.
        let waits = [std("threading.py", "Condition.wait"), package("fsspec/asyn.py", "sync", "")];
        assert_eq!(wait(&[waits[0].clone(), waits[1].clone(), user("fs.cat(path)")]), None);
        // Sleep that nothing says of what it is for.
        assert_eq!(stage(&[user("time.sleep(0.1)")]), "python");
    }

    #[test]
    fn users_code_is_known_by_its_words_and_by_who_called_it() {
        let fetch =
            frame("/x/site-packages/torch/utils/data/_utils/fetch.py", "fetch", "self.collate_fn(data)");
        assert_eq!(stage(&[frame("/home/me/train.py", "together", "a + b"), fetch.clone()]), "collate");
        assert_eq!(
            stage(&[frame("/home/me/train.py", "Photos.__getitem__", "self.transform(image)")]),
            "augment"
        );
        assert_eq!(stage(&[frame("/home/me/train.py", "elastic_noise", "x ** 2")]), "augment");
        assert_eq!(stage(&[frame("/home/me/train.py", "Photos.__getitem__", "handle.read(n)")]), "read");
        assert_eq!(stage(&[frame("/home/me/train.py", "Photos.__getitem__", "x + 1")]), "python");
        let subset =
            frame("/x/site-packages/torch/utils/data/dataset.py", "Subset.__getitems__", "self.dataset[i]");
        let asks = frame("/x/site-packages/torch/utils/data/_utils/fetch.py", "fetch", "self.dataset[i]");
        let wrapped =
            [frame("/home/me/train.py", "Photos.__getitem__", "x + 1"), subset.clone(), asks.clone()];
        assert_eq!(loading(&wrapped.iter().collect::<Vec<_>>()), ("python", 0));
        assert_eq!(loading(&[&subset, &asks]), ("python", 0));
        assert_eq!(stage(&[frame("/home/me/train.py", "Words.__getitem__", "zlib.crc32(word)")]), "python");
        assert_eq!(
            stage(&[frame("/home/me/train.py", "Words.__getitem__", "zlib.decompress(b)")]),
            "decompress"
        );
    }

    #[test]
    fn the_loop_is_known_by_its_lines() {
        let stage = |frames: &[Frame]| looping(&frames.iter().collect::<Vec<_>>()).0;
        let module = |func: &str| frame("/x/site-packages/torch/nn/modules/module.py", func, "");
        let averages = || frame("/home/me/train.py", "average", "kept.state_dict()");
        assert_eq!(stage(&[module("Module.state_dict"), averages()]), "compute");
        assert_eq!(
            stage(&[module("Module._call_impl"), frame("/home/me/train.py", "main", "f(x)")]),
            "forward"
        );
        assert_eq!(stage(&[module("Module.__getattr__"), module("Module._call_impl")]), "forward");
        assert_eq!(stage(&[frame("/home/me/train.py", "main", "loss.item()")]), "sync");
        assert_eq!(stage(&[frame("/home/me/train.py", "main", "batch.to(device)")]), "copy");
        assert_eq!(stage(&[frame("/home/me/train.py", "main", "print(loss)")]), "log");
        let asks = || frame("/home/me/train.py", "main", "this.memory_full_info()");
        assert_eq!(stage(&[frame("/x/site-packages/psutil/_pslinux.py", "open_text", ""), asks()]), "log");
        assert_eq!(
            stage(&[frame("/x/site-packages/torch/autograd/graph.py", "_engine_run_backward", "")]),
            "backward"
        );
        assert_eq!(stage(&[frame("/home/me/train.py", "device_step", "time.sleep(x)")]), "compute");
    }
}
