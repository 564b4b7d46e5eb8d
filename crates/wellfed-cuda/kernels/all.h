/* All kernels: one module on the device (device.cu), one object on the host (host.c). A kernel that is added here is
 * also named in the table of src/host.rs. */
#include "fill.cu"
#include "jpeg.cu"
#include "resample.cu"
#include "augment.cu"
#include "area.cu"
#include "mix.cu"
