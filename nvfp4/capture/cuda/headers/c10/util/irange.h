#pragma once

#include <slim_torch/irange.h>
