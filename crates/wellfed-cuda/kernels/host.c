/* All kernels, compiled for the host. */
#include "fill.cu"
#include "augment.cu"
