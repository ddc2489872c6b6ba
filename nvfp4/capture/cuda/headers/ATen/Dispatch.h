#pragma once

#include <slim_torch/dispatch.h>
