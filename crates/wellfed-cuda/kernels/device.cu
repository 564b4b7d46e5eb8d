/* All kernels, compiled for devices: `make ptx` makes ptx/kernels.ptx of it. */
#include "all.h"
