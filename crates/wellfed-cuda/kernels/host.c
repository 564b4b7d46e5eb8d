/* All kernels, compiled for the host. */
#include "fill.cu"
#include "jpeg.cu"
#include "resample.cu"
