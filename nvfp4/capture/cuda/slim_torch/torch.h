// Replaces torch's headers; cuda.h replaces those of CUDA.
#pragma once

#include <Python.h>

// Much of what torch's own headers include: sources use such names without an include.
#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "dispatch.h"
#include "library.h"
