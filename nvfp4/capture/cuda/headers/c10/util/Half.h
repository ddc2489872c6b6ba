#pragma once

#include <slim_torch/half.h>
