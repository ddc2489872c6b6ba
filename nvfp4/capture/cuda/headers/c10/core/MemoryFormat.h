#pragma once

#include <slim_torch/options.h>
