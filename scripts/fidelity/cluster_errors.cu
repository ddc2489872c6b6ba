// The error codes of cluster launches that CUDA refuses: nvcc -arch=sm_90a -o cluster_errors \
// cluster_errors.cu. Prints what was tried and what CUDA said; capture/kernel.py says the same.
#include <cstdio>

__global__ void plain(float *out) { out[0] = 1.f; }
__global__ void __cluster_dims__(2, 1, 1) pairs(float *out) { out[0] = 1.f; }
__global__ void large(float *out) { out[0] = 1.f; }

static void said(const char *what, cudaError_t code) {
  printf("%s: %s\n", what, cudaGetErrorName(code));
  cudaGetLastError();
}

template <class Kernel>
static cudaError_t launch(Kernel kernel, float *out, dim3 grid, dim3 cluster, size_t shared = 0) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = shared;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster.x;
  attribute.val.clusterDim.y = cluster.y;
  attribute.val.clusterDim.z = cluster.z;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, out);
}

static void sizes(const char *what, dim3 cluster) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(cluster.x * 4);
  config.blockDim = dim3(32);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster.x;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = -1, most = -1;
  said(what, cudaOccupancyMaxActiveClusters(&clusters, plain, &config));
  config.numAttrs = 0;
  said("  largest", cudaOccupancyMaxPotentialClusterSize(&most, plain, &config));
  printf("  %d clusters at once, %d CTAs at most\n", clusters, most);
}

int main() {
  float *out;
  cudaMalloc(&out, 1 << 20);
  said("a cluster of 2", launch(plain, out, dim3(4), dim3(2)));
  said("a cluster of 8", launch(plain, out, dim3(8), dim3(8)));
  said("a cluster of 2x2x2", launch(plain, out, dim3(2, 2, 2), dim3(2, 2, 2)));
  said("a cluster of 3", launch(plain, out, dim3(6), dim3(3)));
  said("3 CTAs in clusters of 2", launch(plain, out, dim3(3), dim3(2)));
  said("4x3 CTAs in clusters of 2x2", launch(plain, out, dim3(4, 3), dim3(2, 2)));
  said("a cluster of 16", launch(plain, out, dim3(16), dim3(16)));
  said("a cluster of 0", launch(plain, out, dim3(4), dim3(0)));
  said("allowing large clusters",
       cudaFuncSetAttribute(large, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  said("a cluster of 16, allowed", launch(large, out, dim3(16), dim3(16)));
  said("a cluster of 32, allowed", launch(large, out, dim3(32), dim3(32)));
  said("pairs as 2", launch(pairs, out, dim3(4), dim3(2)));
  said("pairs as 4", launch(pairs, out, dim3(4), dim3(4)));
  said("pairs as 1", launch(pairs, out, dim3(4), dim3(1)));
  pairs<<<4, 32>>>(out), said("pairs without the attribute", cudaGetLastError());
  pairs<<<3, 32>>>(out), said("3 CTAs of pairs", cudaGetLastError());
  sizes("clusters of 2", dim3(2));
  sizes("clusters of 8", dim3(8));
  sizes("clusters of 16", dim3(16));
  said("at the end", cudaDeviceSynchronize());
}
