// Replaces torch's headers; cuda.h replaces those of CUDA.
#pragma once

#include <Python.h>

// Much of what torch's own headers include: sources use such names without an include.
#include <array>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#ifndef SLIM_WITHOUT_STD
#include <algorithm>
#include <atomic>
#include <complex>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <unordered_map>

#include "streams.h"
#endif

#include "dispatch.h"
#include "library.h"
