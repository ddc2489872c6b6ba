#pragma once

#include <slim_torch/torch_cuda.h>
