#include <cuda_fp4.h>

__global__ void gemv(const uint8_t* a, __half* c)
{
    c[threadIdx.x] = a[threadIdx.x];
}
