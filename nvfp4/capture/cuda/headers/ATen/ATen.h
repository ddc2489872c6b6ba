#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include <slim_torch/accessor.h>
#include <slim_torch/dispatch.h>
#include <slim_torch/functions.h>
#include <slim_torch/irange.h>
