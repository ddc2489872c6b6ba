#pragma once

#include <slim_torch/functions.h>
