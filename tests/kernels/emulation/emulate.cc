// One kernel of one CUDA source as a host function. Macros: KERNEL_FILE, KERNEL_SYMBOL and those of the source.
#include "cuda_shim.h"

#include KERNEL_FILE

extern "C" void emulate(void** args, const unsigned* grid, unsigned threads, int skewed) {
  shim::launch(KERNEL_SYMBOL, args, grid, threads, skewed != 0);
}
