#pragma once

#include <slim_torch/cuda_context.h>
