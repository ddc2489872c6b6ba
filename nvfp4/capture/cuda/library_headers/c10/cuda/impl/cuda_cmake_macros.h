#pragma once
// A build of torch without CUDA has no such file.
#define C10_CUDA_BUILD_SHARED_LIBS
