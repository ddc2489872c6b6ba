#pragma once

#include <slim_torch/cuda.h>
