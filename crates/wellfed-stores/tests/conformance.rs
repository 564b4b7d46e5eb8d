//! The suite that every store passes: in memory, on a real S3 server, and on servers of the tests that speak the protocols of
//! Google and Azure.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use wellfed::{
    ErrorKind,
    store::{EntryKind, LocalStore, Request, RetryingStore, Store, conformance, registry},
};

fn locate(url: &str) -> registry::Located {
    wellfed_stores::register();
    let local: Arc<dyn Store> = Arc::new(LocalStore::new());
    registry::locate(url, &local).unwrap()
}

/// What the suite does not look at: folders, bytes that come later, objects that change.
fn check(url: &str, folder: &str) {
    let found = locate(url);
    let (store, root) = (RetryingStore::around(found.store), found.path);
    let at = |name: &str| format!("{root}/{name}");
    store.write(&at("a/marker.txt"), b"x").unwrap();
    conformance::check(&*store, &at("a"));
    store.write(&at("a/b/1.txt"), b"one").unwrap();
    store.write(&at("a/b #[1]/2%20.txt"), b"two").unwrap();
    store.write(&at("ab/3.txt"), b"three").unwrap();

    let mut names = Vec::new();
    let mut list = |path: &str| {
        names.clear();
        store
            .list(path, &mut |entry| {
                names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.kind));
                Ok(())
            })
            .unwrap();
        names.sort_by(|(a, _): &(String, EntryKind), (b, _)| a.cmp(b));
        names.clone()
    };
    let named = |name: &str, kind| (name.to_owned(), kind);
    assert_eq!(
        list(&at("a")),
        [
            named("b", EntryKind::Folder),
            named("b #[1]", EntryKind::Folder),
            named("conformance ü.bin", EntryKind::File),
            named("marker.txt", EntryKind::File),
        ]
    );
    assert_eq!(list(&at("a/")).len(), 4, "a slash at the end is no other folder");
    assert_eq!(list(&at("a/b #[1]")), [named("2%20.txt", EntryKind::File)]);
    assert_eq!(list(&format!("{root}/")), [named("a", EntryKind::Folder), named("ab", EntryKind::Folder)]);
    assert_eq!(
        list(&format!("{folder}/")),
        [named("x", EntryKind::Folder)],
        "the root of a bucket is a folder"
    );
    // Another store has not listed anything yet, and asks.
    let fresh = locate(url).store;
    assert!(fresh.is_folder(&at("a/b")) && fresh.is_folder(&at("a/b/")) && fresh.is_folder(&root));
    assert!(!fresh.is_folder(&at("a/b/1.txt")) && !fresh.is_folder(&at("a/c")));

    let remote = fresh.remote().unwrap();
    let (sender, answers) = mpsc::channel();
    let begin = |path: String, range, max_bytes| {
        let sender = sender.clone();
        let request = Request { path: path.into(), range, max_bytes };
        remote.begin(request, Box::new(move |answer| drop(sender.send(answer))))
    };
    let asked = begin(at("ab/3.txt"), None, 10);
    assert_eq!(answers.recv_timeout(Duration::from_secs(30)).unwrap().unwrap(), b"three");
    drop(asked);
    for (range, max_bytes, kind) in [
        (None, 4, ErrorKind::Limit),
        (Some(2..9), 7, ErrorKind::Corrupt),
        (Some(9..12), 3, ErrorKind::Corrupt),
    ] {
        let _asked = begin(at("ab/3.txt"), range, max_bytes);
        assert_eq!(answers.recv_timeout(Duration::from_secs(30)).unwrap().unwrap_err().kind(), kind);
    }
    drop(begin(at("ab/3.txt"), Some(1..3), 2));
    match answers.recv_timeout(Duration::from_millis(300)) {
        Err(RecvTimeoutError::Timeout) => {}
        // It came before it was cancelled.
        answer => assert_eq!(answer.unwrap().unwrap(), b"hr"),
    }

    // An object that somebody else writes anew is an error of its own, until it is listed again.
    let mut bytes = Vec::new();
    fresh.read(&at("ab/3.txt"), 10, &mut bytes).unwrap();
    locate(url).store.write(&at("ab/3.txt"), b"THREE").unwrap();
    let e = fresh.read(&at("ab/3.txt"), 10, &mut bytes).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Changed, "{e}");
    let e = fresh.read_range(&at("ab/3.txt"), 1, 2, &mut bytes).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Changed, "{e}");
    fresh.list(&at("ab"), &mut |_| Ok(())).unwrap();
    bytes.clear();
    fresh.read(&at("ab/3.txt"), 10, &mut bytes).unwrap();
    assert_eq!(bytes, b"THREE");
    for bad in ["a//b", "a/../b", "a/./b"] {
        assert_eq!(fresh.stat(&at(bad)).unwrap_err().kind(), ErrorKind::Unsupported, "{bad}");
    }
}

#[test]
fn memory() {
    check("memory://conformance/x", "memory://conformance");
}

/// A server in Python.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SERVER: &str = "
import sys, urllib.request
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
urllib.request.urlopen(urllib.request.Request(f'http://{host}:{port}/conformance', method='PUT', data=b''))
print(f'{host}:{port}', flush=True)
sys.stdin.read()
";

/// A server that prints its address, if it can be started: in the tests' Python environment if that is there.
fn serve(arguments: &[&str]) -> Option<(Server, String)> {
    let of_environment = std::env::var_os("WELLFED_TEST_PYTHON").map(PathBuf::from);
    let usual = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let usual = if usual.exists() { usual } else { PathBuf::from("python3") };
    let server = Command::new(of_environment.unwrap_or(usual))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut server = Server(server);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take()?).read_line(&mut line).ok()?;
    let address = line.trim().to_owned();
    (!address.is_empty()).then_some((server, address))
}

/// A cloud of `python/tests/cloud_servers.py`: its address as an option has it.
fn cloud(kind: &str) -> (Server, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/tests/cloud_servers.py");
    // It needs nothing but Python itself.
    let (server, address) = serve(&[script, kind, "conformance"]).expect("python3 runs cloud_servers.py");
    (server, address.replace(':', "%3A").replace('/', "%2F"))
}

#[test]
fn google() {
    let (_server, address) = cloud("gcs");
    let options = format!("endpoint_url={address}&token=hush-hush-bearer");
    check(&format!("gs://conformance/x?{options}"), "gs://conformance");
}

#[test]
fn azure() {
    let (_server, address) = cloud("azure");
    let key = "aHVzaCBodXNoIGh1c2ggaHVzaCBodXNoIGh1c2ghISE%3D";
    let options = format!("endpoint_url={address}&account_name=hushaccount&account_key={key}");
    check(&format!("az://conformance/x?{options}"), "az://conformance");
}

#[test]
fn s3() {
    let Some((_server, address)) = serve(&["-c", SERVER]) else {
        #[expect(clippy::print_stderr, reason = "who runs the tests should know what was not tested")]
        {
            eprintln!("note: moto cannot be started with .venv/bin/python; S3 is not tested");
        }
        return;
    };
    let options = format!("endpoint_url=http%3A%2F%2F{}&key=a&secret=b", address.replace(':', "%3A"));
    check(&format!("s3://conformance/x?{options}"), "s3://conformance");
}
