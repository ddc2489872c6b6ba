#pragma once

#include <slim_torch/grad_mode.h>
