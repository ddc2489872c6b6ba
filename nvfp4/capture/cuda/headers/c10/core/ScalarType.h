#pragma once

#include <slim_torch/scalar_type.h>
