#pragma once

#include <slim_torch/math_types.h>
