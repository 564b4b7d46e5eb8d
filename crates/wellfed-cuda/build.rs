//! Compiles the kernels for the host: the oracle of what the device does, and what tests run without one.

fn main() {
    println!("cargo:rerun-if-changed=kernels");
    cc::Build::new()
        .file("kernels/host.c")
        .std("c11")
        // Products and sums are rounded one by one, as on the device (`--fmad=false`).
        .flag("-ffp-contract=off")
        // Sums of damaged coefficients wrap, as on the device.
        .flag("-fwrapv")
        .opt_level(2)
        .warnings(true)
        .compile("wellfed_cuda_host");
}
