/* Lives in kernels/file.h. */
#include "kernels/file.h"
