//! Compiles the C side against the headers of the libjpeg-turbo that turbojpeg-sys has built.

fn main() {
    println!("cargo:rerun-if-changed=turbo.c");
    let mut build = cc::Build::new();
    for folder in std::env::var("DEP_TURBOJPEG_INCLUDE").unwrap_or_default().split(',') {
        build.include(folder);
    }
    build.file("turbo.c").warnings(true).compile("turbo_shim");
}
