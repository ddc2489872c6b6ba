// What stands for torch's headers; cuda.h stands for those of CUDA.
#pragma once

#include <Python.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <unordered_map>

#include "dispatch.h"
#include "library.h"
