#pragma once

#include <slim_torch/cuda_event.h>
