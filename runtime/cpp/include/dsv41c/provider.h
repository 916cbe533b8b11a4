/* Interface between the executor and the libraries that bring kernels ("providers").
 *
 * A kernel goes through three moves: prepare once per plan kernel, bind once per bucket with fixed
 * addresses, launch once per step. Nothing may throw across this interface: every function returns 0 or
 * writes a message into `error`. Descriptors passed to bind are copied by the provider.
 */
#ifndef DSV41C_PROVIDER_H
#define DSV41C_PROVIDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DSV41C_PROVIDER_ABI 2
#define DSV41C_MAX_DIMS 6

typedef enum dsv41c_dtype {
  DSV41C_FLOAT32 = 0,
  DSV41C_BFLOAT16 = 1,
  DSV41C_FLOAT8_E4M3FN = 2,
  DSV41C_FLOAT8_E8M0FNU = 3,
  DSV41C_INT8 = 4,
  DSV41C_UINT8 = 5,
  DSV41C_INT32 = 6,
  DSV41C_INT64 = 7,
  DSV41C_FLOAT64 = 8,
  DSV41C_BOOL = 9
} dsv41c_dtype;

/* Sizes and strides count elements. ndim = -1 marks an optional tensor that is absent. */
typedef struct dsv41c_tensor {
  void* data;
  int32_t dtype;
  int32_t ndim;
  int64_t sizes[DSV41C_MAX_DIMS];
  int64_t strides[DSV41C_MAX_DIMS];
} dsv41c_tensor;

/* One kernel call: tensors are the op's tensor arguments in schema order, then its outputs. */
typedef struct dsv41c_binding {
  const dsv41c_tensor* tensors;
  int32_t num_tensors;
  int32_t device; /* -1: the CPU; else the CUDA device whose addresses the tensors hold */
  int64_t rows;   /* the value of the method's symbol, used by composite bodies */
  void* scratch;
  int64_t scratch_bytes;
  void* stream; /* CUDA: the CUstream of every launch; its device's primary context is current at each call */
} dsv41c_binding;

/* What a provider's own kernels allocated while it counted. */
typedef struct dsv41c_allocations {
  int64_t count;
  int64_t bytes;
  int64_t pool_bytes; /* CUDA: the most that the allocator behind them held of the device at one time, as seen */
} dsv41c_allocations;

typedef struct dsv41c_error {
  char* text; /* caller's buffer, always left zero-terminated */
  int64_t capacity;
} dsv41c_error;

typedef struct dsv41c_provider {
  int32_t abi; /* DSV41C_PROVIDER_ABI */
  int32_t reserved;
  const char* name;
  /* body: JSON text of the plan's kernel body. The kernel is owned by the caller until release. */
  int32_t (*prepare)(const char* body, void** kernel, dsv41c_error* error);
  /* The bound launch is owned by the caller until unbind; kernel must outlive it. */
  int32_t (*bind)(void* kernel, const dsv41c_binding* binding, void** bound, dsv41c_error* error);
  int32_t (*launch)(void* bound, dsv41c_error* error);
  void (*unbind)(void* bound);
  void (*release)(void* kernel);
  /* enable = 1 starts counting what the provider's own kernels allocate inside launches of this thread, as far
   * as the provider can see it; enable = 0 stops and writes the sums. Zero for kernels of this project. */
  void (*count_allocations)(int32_t enable, dsv41c_allocations* counted);
} dsv41c_provider;

#ifdef __cplusplus
}
#endif
#endif
