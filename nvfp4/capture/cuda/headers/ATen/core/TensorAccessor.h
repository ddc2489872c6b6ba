#pragma once

#include <slim_torch/accessor.h>
