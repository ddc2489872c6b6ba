#pragma once

#include <optional>
#include <slim_torch/array_ref.h>
