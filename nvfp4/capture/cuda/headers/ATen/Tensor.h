#pragma once

#include <slim_torch/tensor.h>
