#pragma once

#include <cuda_runtime_api.h>
#include <slim_torch/cuda_context.h>
