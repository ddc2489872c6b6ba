#pragma once

#include <slim_torch/macros.h>
