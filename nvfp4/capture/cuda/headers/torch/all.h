#pragma once

#include <torch/types.h>
#include <torch/cuda.h>
