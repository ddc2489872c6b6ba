#pragma once

#include <slim_torch/array_ref.h>
