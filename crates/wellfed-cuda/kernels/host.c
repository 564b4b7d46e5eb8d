/* All kernels, compiled for the host. */
#include "all.h"
