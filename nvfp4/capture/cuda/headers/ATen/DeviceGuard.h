#pragma once

#include <slim_torch/tensor.h>
#include <slim_torch/cuda.h>
