#pragma once

#include <slim_torch/scalar.h>
