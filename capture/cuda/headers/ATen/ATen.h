#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <slim_torch/accessor.h>
#include <slim_torch/dispatch.h>
#include <slim_torch/functions.h>
